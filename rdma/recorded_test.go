package rdma

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gdrcheck/gdrcheck/internal/facttest"
	"github.com/gdrcheck/gdrcheck/pci"
)

// ibstatPort is what ibstat prints of a device with one port.
type ibstatPort struct {
	Name, Type, Firmware, State, Phys, Layer string
	Gbps                                     float64
	LID, SMLID                               int
}

// readIbstat reads ibstat's output, the independent answer to ours.
func readIbstat(t *testing.T, name string) []ibstatPort {
	t.Helper()
	b, err := os.ReadFile(facttest.Fixture(t, "outputs/ibstat-gpud/"+name))
	if err != nil {
		t.Fatal(err)
	}
	var out []ibstatPort
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		if ca, ok := strings.CutPrefix(line, "CA '"); ok {
			out = append(out, ibstatPort{Name: strings.TrimSuffix(ca, "'")})
			continue
		}
		key, value, _ := strings.Cut(line, ": ")
		if len(out) == 0 {
			continue
		}
		p := &out[len(out)-1]
		switch key {
		case "CA type":
			p.Type = value
		case "Firmware version":
			p.Firmware = value
		case "State":
			p.State = strings.ToUpper(value)
		case "Physical state":
			p.Phys = value
		case "Rate":
			p.Gbps, _ = strconv.ParseFloat(value, 64)
		case "Base lid":
			p.LID, _ = strconv.Atoi(value)
		case "SM lid":
			p.SMLID, _ = strconv.Atoi(value)
		case "Link layer":
			p.Layer = value
		}
	}
	return out
}

// The same 8-GPU machine once as sysfs and once through ibstat.
func TestRecordedH100AsIbstat(t *testing.T) {
	src := facttest.Recorded(t, "gpud-ibclass-h100",
		"root/components/accelerator/nvidia/infiniband/class/testdata/sys-class-infiniband-h100.0/", classDir)
	want := readIbstat(t, "ibstat.47.0.h100.all.active.2")
	f := Collect(t.Context(), src, nil, Options{})
	if n, ok := f.Listed.Get(); !ok || n != len(want) || n != 9 {
		t.Fatalf("listed %+v, ibstat has %d", f.Listed, len(want))
	}
	for i, d := range f.Devices {
		w, p := want[i], d.Ports[0]
		got := ibstatPort{
			Name: d.Name, Type: d.HCAType.V, Firmware: d.Firmware.V, State: p.State.V, Phys: p.PhysState.V,
			Layer: p.LinkLayer.V, Gbps: p.Rate.V.BitsPerSec / 1e9,
			LID: w.LID, SMLID: w.SMLID, // not in the recording
		}
		if diff := cmp.Diff(w, got); diff != "" {
			t.Errorf("%s: %s", d.Name, diff)
		}
		transport := InfiniBand
		if w.Layer == "Ethernet" {
			transport = RoCE
		}
		if d.Transport.V != transport {
			t.Errorf("%s: transport %+v", d.Name, d.Transport)
		}
		if len(p.Counters) == 0 || p.LID.State.String() != "absent" || p.GIDTable.State.String() != "absent" {
			t.Errorf("%s: %d counters, lid %v, GID table %v", d.Name, len(p.Counters), p.LID.State, p.GIDTable.State)
		}
		for _, c := range p.Counters {
			if _, ok := c.Value.Get(); !ok {
				t.Errorf("%s: counter %s: %+v", d.Name, c.Name, c.Value)
			}
		}
	}
	if src.Asked["files"] != 1 {
		t.Errorf("%d questions for files, want one", src.Asked["files"])
	}
}

// Values are those that prometheus/procfs and node_exporter assert of the same files.
func TestRecordedMixed(t *testing.T) {
	f := Collect(t.Context(), facttest.Recorded(t, "procfs-fixtures", "root/fixtures/sys/class/infiniband/", classDir), nil, Options{})
	g := Collect(t.Context(), facttest.Recorded(t, "node_exporter-fixtures", "root/sys/class/infiniband/", classDir), nil, Options{})
	devices := map[string]Device{}
	for _, d := range append(f.Devices, g.Devices...) {
		devices[d.Name] = d
	}
	for _, c := range []struct {
		name, fw, board string
		ports           int
		rate            float64
		speed           string
		transport       Transport
	}{
		{"hfi1_0", "1.27.0", "HPE 100Gb 1-port OP101 QSFP28 x16 PCIe Gen3 with Intel Omni-Path Adapter", 1, 100e9, "EDR", InfiniBand},
		{"mlx4_0", "2.31.5050", "SM_1141000001000", 2, 40e9, "QDR", InfiniBand},
		{"mlx5_0", "14.28.2006", "SM_2001000001034", 1, 25e9, "EDR", InfiniBand},
		{"i40iw0", "0.2", "I40IW Board ID", 1, 10e9, "", IWARP},
	} {
		d, ok := devices[c.name]
		if !ok || len(d.Ports) != c.ports {
			t.Errorf("%s: %d ports", c.name, len(d.Ports))
			continue
		}
		r := d.Ports[0].Rate.V
		if d.Firmware.V != c.fw || d.BoardID.V != c.board || r.BitsPerSec != c.rate || r.Speed != c.speed || d.Transport.V != c.transport {
			t.Errorf("%s: fw %q board %q rate %+v transport %+v", c.name, d.Firmware.V, d.BoardID.V, r, d.Transport)
		}
	}
	if got := devices["mlx5_0"].NodeGUID.V; got != "0a7f:bc12:45ef:d23b" {
		t.Errorf("node GUID %q", got)
	}
	for _, c := range devices["i40iw0"].Ports[0].Counters {
		if c.Name == "symbol_error" && c.Value.State.String() != "unsupported" { // "N/A (no PMA)"
			t.Errorf("symbol_error: %+v", c.Value)
		}
	}
}

// hca_type's number is the PCI device id in decimal, and the firmware's major
// tells the generation: what ibstat printed of real machines must agree with
// the table.
func TestModelsAsIbstat(t *testing.T) {
	names := map[string]string{"MT4129": "ConnectX-7", "MT4125": "ConnectX-6 Dx", "MT41692": "BlueField-3 (CX-7)", "MT4126": "VF"}
	seen := map[string]bool{}
	for _, file := range []string{"h100.all.active.0", "h100.all.active.2", "h100.some.down.0", "h100.some.down.1", "a100.all.active.0"} {
		for _, p := range readIbstat(t, "ibstat.47.0."+file) {
			id, err := strconv.ParseUint(strings.TrimPrefix(p.Type, "MT"), 10, 16)
			if err != nil {
				t.Fatal(err)
			}
			f := pci.Function{Vendor: known(mellanox), Device: known(pci.ID(id))}
			m := findModel(&f, p.Firmware)
			want := names[p.Type]
			if want == "VF" { // of the generation that the firmware names
				major, _, _ := strings.Cut(p.Firmware, ".")
				want = map[string]string{"22": "ConnectX-6 Dx VF", "28": "ConnectX-7 VF"}[major]
			}
			if m.V.Name != want || m.V.GPUDirect != "dmabuf+peermem" || m.V.MaxGbps < p.Gbps {
				t.Errorf("%s %s %s at %v Gb/s: %+v", file, p.Type, p.Firmware, p.Gbps, m)
			}
			seen[p.Type] = true
		}
	}
	if len(seen) != len(names) {
		t.Errorf("saw %v", seen)
	}
}

// show_gids prints filled entries only; a tree with these entries and empty
// slots between them must give the same list.
func TestGIDsAsShowGIDs(t *testing.T) {
	b, err := os.ReadFile(facttest.Fixture(t, "outputs/text/show_gids.txt"))
	if err != nil {
		t.Fatal(err)
	}
	type row struct{ dev, index, gid, version, netdev string }
	var want []row
	files := map[string]string{"/sys/class/net/mce0/mtu": "1500\n"}
	errs := map[string]error{}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 5 || !strings.HasPrefix(f[0], "mlx5_") {
			continue
		}
		r := row{dev: f[0], index: f[2], gid: f[3]}
		for _, x := range f[4:] {
			if x == "v1" || x == "v2" {
				r.version = x
			}
		}
		if last := f[len(f)-1]; last != r.version {
			r.netdev = last
		}
		want = append(want, r)
	}
	if len(want) != 5 { // n_gids_found=5
		t.Fatalf("%d rows", len(want))
	}
	for _, dev := range []string{"mlx5_0", "mlx5_1"} {
		for i := range 8 {
			slotFile(files, errs, dev, strconv.Itoa(i), "0000:0000:0000:0000:0000:0000:0000:0000", "", "")
		}
	}
	for _, r := range want {
		slotFile(files, errs, r.dev, r.index, r.gid, map[string]string{"v1": "IB/RoCE v1", "v2": "RoCE v2"}[r.version], r.netdev)
	}
	src := facttest.Tree(t, files)
	src.Errors = errs
	var got []row
	for _, d := range Collect(t.Context(), src, nil, Options{}).Devices {
		if n := d.Ports[0].GIDTable; n.V != 8 {
			t.Errorf("%s: table %+v", d.Name, n)
		}
		for _, g := range d.Ports[0].GIDs {
			version := map[string]string{"IB/RoCE v1": "v1", "RoCE v2": "v2"}[g.Type.V]
			if g.NetDev.V == "" && g.NetDev.State.String() != "absent" {
				t.Errorf("%s: netdev %+v", d.Name, g.NetDev)
			}
			got = append(got, row{d.Name, strconv.Itoa(g.Index), g.GID, version, g.NetDev.V})
		}
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(row{})); diff != "" {
		t.Error(diff)
	}
}
