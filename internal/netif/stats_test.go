package netif

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/facttest"
	"github.com/gdrcheck/gdrcheck/rdma/qos"
)

func TestKnownStats(t *testing.T) {
	got := knownStats(map[string]uint64{
		"rx_prio3_pause": 7, "tx_pause_frames        ": 9, "rx0_drops": 1, "ch12_poll": 5, "rx_prio3_bytes": 1 << 40, "": 3,
	})
	want := []qos.Stat{{Name: "rx_prio3_bytes", Value: 1 << 40}, {Name: "rx_prio3_pause", Value: 7}, {Name: "tx_pause_frames", Value: 9}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// Names that a ConnectX gave in the field.
func TestRecordedStats(t *testing.T) {
	text, err := os.ReadFile(facttest.Fixture(t, "outputs/text/ethtool-S-pause-gpudirect.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for l := range strings.Lines(string(text)) {
		name, _, ok := strings.Cut(strings.TrimSpace(l), ":")
		if !ok || strings.HasPrefix(name, "#") {
			continue
		}
		if k, known := qos.LookupCounter(name); !known || k.Sign != qos.SignPause {
			t.Errorf("%s is %+v", name, k)
		}
	}
}

// TestStatsHere asks this machine's kernel for all counters, and ethtool -S does.
func TestStatsHere(t *testing.T) {
	list, err := os.ReadDir("/sys/class/net")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		out, err := exec.CommandContext(t.Context(), "ethtool", "-S", e.Name()).Output()
		if errors.Is(err, exec.ErrNotFound) {
			t.Skip(err)
		}
		theirs := map[string]bool{}
		for l := range strings.Lines(string(out)) {
			if name, value, ok := strings.Cut(strings.TrimSpace(l), ": "); ok && value != "" {
				theirs[name] = true
			}
		}
		all, err := allStats(e.Name())
		if err != nil && fact.StateOf(err) != fact.Unsupported {
			t.Errorf("%s: %v", e.Name(), err)
		}
		ours := map[string]bool{}
		for name := range all {
			ours[name] = true
		}
		if d := cmp.Diff(theirs, ours); d != "" {
			t.Errorf("%s (-ethtool +ours):\n%s", e.Name(), d)
		}
	}
	if v := Stats("no-such-netdev"); v.State != fact.Absent {
		t.Errorf("no such interface: %+v", v)
	}
}
