package fact

import (
	"io/fs"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseCaller(t *testing.T) {
	got, err := ParseCaller("Name:\tx\nUid:\t1000\t1001\t1000\t1000\nGid:\t5\t6\t5\t5\nGroups:\t27 104 \nCapEff:\t0000000000000002\n")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Caller{UID: 1001, GID: 6, Groups: []uint32{27, 104}, CapEff: 2}, got); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{"", "Uid:\t1\n", "Uid:\tx\ty\nGid:\t1\t1\n", "Uid:\t1\t1\nGid:\t1\t1\nGroups:\tz\n"} {
		if _, err := ParseCaller(bad); err == nil {
			t.Errorf("ParseCaller(%q): no error", bad)
		}
	}
}

func TestMayReadWrite(t *testing.T) {
	for _, c := range []struct {
		name   string
		caller Caller
		mode   fs.FileMode
		want   bool
	}{
		{"world", Caller{UID: 7, GID: 7}, 0o666, true},
		{"others have none", Caller{UID: 7, GID: 7}, 0o660, false},
		{"group", Caller{UID: 7, GID: 20}, 0o660, true},
		{"supplementary group", Caller{UID: 7, GID: 7, Groups: []uint32{20}}, 0o660, true},
		{"owner", Caller{UID: 10, GID: 7}, 0o600, true},
		{"read only", Caller{UID: 7, GID: 7}, 0o664, false},
		{"owner's bits come before the world's", Caller{UID: 10, GID: 7}, 0o066, false},
		{"capability", Caller{UID: 7, GID: 7, CapEff: 2}, 0, true},
		{"root without the capability", Caller{UID: 0, GID: 0}, 0o600, false},
	} {
		if got := c.caller.MayReadWrite(Info{Mode: c.mode | fs.ModeDevice, UID: 10, GID: 20}); got != c.want {
			t.Errorf("%s: got %v", c.name, got)
		}
	}
}

func FuzzParseCaller(f *testing.F) {
	f.Add("Uid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\nGroups:\t1\nCapEff:\t01\n")
	f.Fuzz(func(t *testing.T, s string) {
		if c, err := ParseCaller(s); err != nil && cmp.Diff(Caller{}, c) != "" {
			t.Error("an error with a value")
		}
	})
}
