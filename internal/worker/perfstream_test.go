package worker

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gdrcheck/gdrcheck/perftest"
)

// As a kernel prints it (Documentation/filesystems/proc.rst), with a name that
// touches its first number.
const netDev = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 1032 10 0 0 0 0 0 0 1032 10 0 0 0 0 0 0
enp193s0f0:123456789 100 0 0 0 0 0 5 987654321 200 0 0 0 0 0 0
  bad: 1 2
`

func TestParseNetDev(t *testing.T) {
	want := map[string]uint64{"lo": 1032, "enp193s0f0": 987654321}
	if diff := cmp.Diff(want, parseNetDev(netDev)); diff != "" {
		t.Error(diff)
	}
}

func FuzzParseNetDev(f *testing.F) {
	f.Add(netDev)
	f.Fuzz(func(_ *testing.T, s string) { parseNetDev(s) })
}

func TestCarriers(t *testing.T) {
	before := map[string]uint64{"lo": 100, "eth0": 1000, "eth1": 500}
	for _, tt := range []struct {
		after map[string]uint64
		want  string
	}{
		{map[string]uint64{"lo": 100, "eth0": 3100, "eth1": 600}, "eth0"},
		{map[string]uint64{"lo": 2150, "eth0": 1010, "eth1": 500}, "lo"},
		{map[string]uint64{"eth0": 3100, "br0": 2000}, "br0, eth0"}, // a bridge and what is below it
		{map[string]uint64{"eth0": 1500, "eth1": 900}, ""},
		{map[string]uint64{"eth0": 10}, ""}, // came anew
		{nil, ""},
	} {
		if got := carriers(before, tt.after, 2000); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.after, got, tt.want)
		}
	}
}

func TestNetdevsOf(t *testing.T) {
	root := t.TempDir()
	write := func(path, text string) {
		path = filepath.Join(root, "sys/class/infiniband", path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"0": "ens1f0\n", "1": "ens1f0\n", "10": "vlan7\n", "2": "bond0\n", "3": ""} {
		write("mlx5_0/ports/1/gid_attrs/ndevs/"+name, text)
	}
	write("mlx5_0/device/net/ens1f0/dev_port", "0")
	write("mlx5_1/ports/2/gid_attrs/ndevs/0", "")
	write("mlx5_1/device/net/ib0/dev_port", "0\n")
	write("mlx5_1/device/net/ib1/dev_port", "1\n")
	for _, tt := range []struct {
		device string
		port   int
		want   []string
	}{
		{"mlx5_0", 1, []string{"ens1f0", "bond0", "vlan7"}},
		{"mlx5_1", 2, []string{"ib1"}},
		{"mlx5_2", 1, nil},
	} {
		if diff := cmp.Diff(tt.want, netdevsOf(root, tt.device, tt.port)); diff != "" {
			t.Errorf("%s/%d: %s", tt.device, tt.port, diff)
		}
	}
}

func TestStreamAddress(t *testing.T) {
	l := perftest.NewLocal("")
	if notes, err := streamAddress(&l); err != nil || l.Address != "127.0.0.1" || len(notes) != 1 {
		t.Errorf("%+v, %v, %v", l, notes, err)
	}
	l = perftest.NewLocal("mlx5_0")
	l.Address = "10.0.0.1"
	if notes, err := streamAddress(&l); err != nil || l.Address != "10.0.0.1" || notes != nil {
		t.Errorf("%+v, %v, %v", l, notes, err)
	}
	if a, ok := addressOf("lo", false); !ok || a.String() != "127.0.0.1" {
		t.Errorf("lo has %v", a)
	}
}
