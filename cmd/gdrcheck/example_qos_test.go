package main

import (
	"fmt"
	"testing"

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

// qosAnswers are what netlink says of each interface; odd changes one's.
func (s *scripted) qosAnswers(t *testing.T, tree *render.Tree, odd map[string]func(*qos.DCB)) {
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
		}
		if change := odd[n.Name]; change != nil {
			change(&d)
		}
		s.say(t, fact.AskDCB, n.Name, source, d)
		s.say(t, fact.AskEthtool, n.Name, "ethtool", qos.Ethtool{
			Link: qos.Link{Up: fact.Of(true, "ethtool:LINKSTATE_GET"), SpeedMbps: fact.Of(n.SpeedMbps, "ethtool:LINKMODES_GET"), Lanes: fact.Of(4, "ethtool:LINKMODES_GET"),
				FullDuplex: fact.Of(true, "ethtool:LINKMODES_GET"), Autoneg: fact.Of(true, "ethtool:LINKMODES_GET"), Downs: fact.Of(uint64(1), "ethtool:LINKSTATE_GET")},
			FEC:   qos.FEC{Configured: fact.Of([]string{"Auto"}, "ethtool:FEC_GET"), Active: fact.Of("RS", "ethtool:FEC_GET"), Uncorrectable: fact.Of(uint64(0), "ethtool:FEC_GET")},
			Pause: qos.Pause{Autoneg: fact.Of(false, "ethtool:PAUSE_GET"), RX: fact.Of(false, "ethtool:PAUSE_GET"), TX: fact.Of(false, "ethtool:PAUSE_GET")},
		})
		s.say(t, fact.AskStats, n.Name, "ethtool:GSTATS", []qos.Stat{
			{Name: "link_down_events_phy", Value: 1}, {Name: "rx_discards_phy"},
			{Name: "rx_prio3_pause", Value: uint64(8000 + 997*i%1500)}, {Name: "rx_prio3_pause_duration", Value: uint64(2000 + 311*i%700)},
			{Name: "tx_prio3_pause"}, {Name: "rx_prio3_bytes", Value: 91_204_881_522_048}, {Name: "tx_prio3_bytes", Value: 91_199_023_255_552},
		})
	}
	for _, d := range tree.RDMA {
		s.say(t, fact.AskDevlink, d.PCI, "devlink", qos.Devlink{
			Versions: fact.Of([]qos.Version{{Name: "fw.psid", Kind: "fixed", Value: d.PSID}, {Name: "fw.version", Kind: "running", Value: d.Firmware}, {Name: "fw.version", Kind: "stored", Value: d.Firmware}}, "devlink:INFO_GET"),
			Params:   fact.Of([]qos.Param{{Name: "enable_roce", Values: map[string]string{"driverinit": "true"}}}, "devlink:PARAM_GET"), EswitchMode: fact.Of("legacy", "devlink:ESWITCH_GET"),
		})
	}
}
