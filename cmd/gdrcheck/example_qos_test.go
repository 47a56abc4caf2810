package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gdrcheck/gdrcheck/internal/collect"
	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/render"
	"github.com/gdrcheck/gdrcheck/rdma/qos"
)

// The example's network is a lossless one: DSCP 26 on priority 3, congestion
// notifications with DSCP 48 on priority 6, and all NICs are set for it, by
// NVIDIA's own driver.
func qosFiles(t *render.Tree) {
	t.Files["/etc/nccl.conf"] = "NCCL_IB_TC=106\n"
	for _, n := range t.NetDevs {
		dir := "/sys/class/net/" + n.Name + "/ecn/"
		for priority := range qos.PriorityCount {
			t.Files[fmt.Sprintf("%sroce_np/enable/%d", dir, priority)] = "1"
			t.Files[fmt.Sprintf("%sroce_rp/enable/%d", dir, priority)] = "1"
		}
		t.Files[dir+"roce_np/cnp_dscp"], t.Files[dir+"roce_np/cnp_802p_prio"] = "48", "6"
	}
	for _, d := range t.RDMA {
		t.Files["/sys/kernel/config/rdma_cm/"+d.Name+"/ports/1/default_roce_tos"] = "106"
		t.Files["/sys/kernel/config/rdma_cm/"+d.Name+"/ports/1/default_roce_mode"] = "RoCE v2"
	}
}

// qosAnswers are what netlink says of each interface.
func (s *scripted) qosAnswers(t *testing.T, tree *render.Tree) {
	t.Helper()
	const source = "netlink:RTM_GETDCB"
	for i, n := range tree.NetDevs {
		d := qos.DCB{
			DCBX:    fact.Of(qos.DCBX{Host: true, CEE: true, IEEE: true}, source),
			PFC:     fact.Of(qos.PFC{Enabled: 1 << 3, MaxClasses: 8}, source),
			ETS:     fact.Of(qos.ETS{MaxClasses: 8, TxPercent: [8]int{0: 100}, PriorityClass: [8]int{1, 0, 2, 3, 4, 5, 6, 7}}, source),
			Apps:    fact.Of([]qos.App{{Selector: qos.ByDSCP, Protocol: 26, Priority: 3}, {Selector: qos.ByDSCP, Protocol: 48, Priority: 6}}, source),
			Buffer:  fact.Of(qos.Buffer{Priority: [8]int{3: 1}, SizeBytes: [8]uint32{130944, 130944}, TotalBytes: 262016}, source),
			MaxRate: fact.Of(qos.MaxRate{}, source),
			PeerPFC: fact.Missing[qos.PFC](fact.Unsupported, source, "the driver left it out"),
		}
		s.say(t, fact.AskDCB, n.Name, source, d)
		s.say(t, fact.AskEthtool, n.Name, "ethtool", qos.Ethtool{
			Link: qos.Link{Up: fact.Of(true, "ethtool:LINKSTATE_GET"), SpeedMbps: fact.Of(n.SpeedMbps, "ethtool:LINKMODES_GET"), Lanes: fact.Of(4, "ethtool:LINKMODES_GET"),
				FullDuplex: fact.Of(true, "ethtool:LINKMODES_GET"), Autoneg: fact.Of(true, "ethtool:LINKMODES_GET"), Downs: fact.Of(uint64(1), "ethtool:LINKSTATE_GET")},
			FEC:   qos.FEC{Configured: fact.Of([]string{"Auto"}, "ethtool:FEC_GET"), Active: fact.Of("RS", "ethtool:FEC_GET"), Uncorrectable: fact.Of(uint64(0), "ethtool:FEC_GET")},
			Pause: qos.Pause{Autoneg: fact.Of(false, "ethtool:PAUSE_GET"), RX: fact.Of(false, "ethtool:PAUSE_GET"), TX: fact.Of(false, "ethtool:PAUSE_GET")},
		})
		s.say(t, fact.AskLLDP, n.Name, "lldpcli", qos.Neighbour{
			System: fact.Of(fmt.Sprintf("leaf%d", i+1), "lldpcli"), Chassis: fact.Of(fmt.Sprintf("02:00:00:00:02:%02x", i), "lldpcli"),
			Port: fact.Of("swp1", "lldpcli"), PortText: fact.Of("example node", "lldpcli"),
		})
		const eeprom = "ethtool:MODULE_EEPROM_GET"
		s.say(t, fact.AskModules, n.Name, "ethtool", qos.Module{
			Type: fact.Of("OSFP", eeprom), Vendor: fact.Of("Example", eeprom), PartNumber: fact.Of("DR4-400", eeprom), Medium: fact.Of("optical", eeprom),
			State: fact.Of("ModuleReady", eeprom), PowerMode: fact.Of("high", "ethtool:MODULE_GET"), TemperatureC: fact.Of(float64(48+i), eeprom), Alarms: fact.Of([]string{}, eeprom),
		})
		s.say(t, fact.AskStats, n.Name, "ethtool:GSTATS", []qos.Stat{
			{Name: "link_down_events_phy", Value: 1}, {Name: "rx_discards_phy"},
			{Name: "rx_prio3_pause", Value: uint64(8000 + 997*i%1500)}, {Name: "rx_prio3_pause_duration", Value: uint64(2000 + 311*i%700)},
			{Name: "tx_prio3_pause"}, {Name: "rx_prio3_bytes", Value: 91_204_881_522_048}, {Name: "tx_prio3_bytes", Value: 91_199_023_255_552},
		})
	}
	s.say(t, fact.AskEnviron, "self", "environment", qos.Environ{})
	for _, d := range tree.RDMA {
		s.say(t, fact.AskMST, d.PCI, "mstconfig", []qos.NVSetting{{Name: "PCI_WR_ORDERING", Default: "per_mkey(0)", Current: "per_mkey(0)", NextBoot: "per_mkey(0)"}})
		s.say(t, fact.AskDevlink, d.PCI, "devlink", qos.Devlink{
			Versions: fact.Of([]qos.Version{{Name: "fw.psid", Kind: "fixed", Value: d.PSID}, {Name: "fw.version", Kind: "running", Value: d.Firmware}, {Name: "fw.version", Kind: "stored", Value: d.Firmware}}, "devlink:INFO_GET"),
			Params:   fact.Of([]qos.Param{{Name: "enable_roce", Values: map[string]string{"driverinit": "true"}}}, "devlink:PARAM_GET"), EswitchMode: fact.Of("legacy", "devlink:ESWITCH_GET"),
		})
	}
}

// changeDCB changes what netlink says of one interface.
func (s *scripted) changeDCB(t *testing.T, netdev string, change func(*qos.DCB)) {
	t.Helper()
	list := s.answers[fact.AskDCB]
	i := slices.IndexFunc(list, func(r fact.Record) bool { return r.Subject == netdev })
	if i < 0 {
		t.Fatalf("nothing is said of %s", netdev)
	}
	var d qos.DCB
	if err := json.Unmarshal(list[i].Data, &d); err != nil {
		t.Fatal(err)
	}
	change(&d)
	b, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	list[i].Data = b
}

// A recording of the example node with one of its eight NICs for GPUs set
// otherwise: check names that one, with the command that mends it, and the table
// shows it.
func TestOneNICSetOtherwise(t *testing.T) {
	src := exampleSource(t)
	src.changeDCB(t, "eth5", func(d *qos.DCB) { d.PFC.V.Enabled = 0 })
	rec := fact.NewRecorder(src)
	want := collect.All()
	want.Origin, want.CollectedAt, want.AskNVIDIA = "recording", time.Date(2026, 3, 2, 9, 30, 0, 0, time.UTC), true
	collect.Machine(t.Context(), rec, want)
	rec.SetOrigin("recording", true)
	var buf bytes.Buffer
	if err := rec.Save(&buf, want.CollectedAt); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "odd.rec")
	if err := os.WriteFile(file, buf.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}

	out, code := mustRun(t, "check", "--from", file, "--only", "rdma")
	for _, text := range []string{
		"(simulated)", "FAIL  nic-consistency",
		"mlx5_5: set otherwise than its siblings: PFC priority none, while 7 of 8 have priority 3",
		"fix  sudo mlnx_qos -i eth5 --pfc 0,0,0,1,0,0,0,0",
		"WARN  roce-pfc", "mlx5_5/1: PFC is off for all priorities",
	} {
		if !strings.Contains(strings.Join(strings.Fields(string(out)), " "), strings.Join(strings.Fields(text), " ")) {
			t.Errorf("not said: %q\n%s", text, out)
		}
	}
	if code != 1 {
		t.Errorf("exit code %d", code)
	}
	out, _ = mustRun(t, "rdma", "qos", "--from", file)
	odd := regexp.MustCompile(`(?m)^mlx5_5/1 eth5 .*\bnone\b`)
	if !odd.Match(out) || len(regexp.MustCompile(` none `).FindAll(out, -1)) != 1 {
		t.Errorf("the table does not show it, or shows others:\n%s", out)
	}
}
