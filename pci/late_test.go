package pci

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/facttest"
)

// hanging is a source in which the files of one function never answer.
type hanging struct {
	fact.Source
	dir   string
	until chan struct{}
}

func (h hanging) ReadFile(name string) ([]byte, error) {
	if strings.HasPrefix(name, h.dir) {
		<-h.until
	}
	return h.Source.ReadFile(name)
}

// A function that was not reached in time says so again in the replay, although
// the recording holds nothing of it, or holds what came too late.
func TestLateFunctionReplayed(t *testing.T) {
	files := map[string]string{}
	for _, a := range []string{"0000:01:00.0", "0000:02:00.0", "0000:03:00.0"} {
		files[Devices+"/"+a+"/vendor"] = "0x10de\n"
	}
	h := hanging{facttest.Tree(t, files), Devices + "/0000:02:00.0", make(chan struct{})}
	rec := fact.NewRecorder(h)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	live, err := Collect(ctx, rec, Options{Config: ConfigNone, Workers: 3})
	if err != nil {
		t.Fatal(err)
	}
	lost := map[string]string{}
	for _, f := range live {
		if f.Late != "" {
			lost[f.Dir] = f.Late
		}
	}
	if len(lost) != 1 || !strings.Contains(lost[h.dir], "not read in time: ") || live[1].Vendor.State != fact.Failed || live[2].Vendor.State != fact.Known {
		t.Fatalf("%v of %+v", lost, live)
	}
	for _, late := range []bool{false, true} {
		if late {
			close(h.until)
			_, _ = rec.ReadFile(h.dir + "/vendor")
		}
		var file bytes.Buffer
		if err := rec.Save(&file, time.Now()); err != nil {
			t.Fatal(err)
		}
		recording, err := fact.OpenRecording(&file)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Collect(t.Context(), recording, Options{Config: ConfigNone, Late: lost})
		if d := cmp.Diff(live, again, cmp.AllowUnexported(Function{})); d != "" || err != nil {
			t.Errorf("late %t: %v, live against replayed:\n%s", late, err, d)
		}
	}
}
