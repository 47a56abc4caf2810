package worker

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/host"
)

// This machine's own log, where it may be read.
func TestAskKernelLog(t *testing.T) {
	recs, err := new(Client).Ask(t.Context(), fact.AskKernelLog)
	if err != nil || len(recs) != 1 {
		t.Fatal(recs, err)
	}
	v := fact.Decode[host.KernelLog](recs[0])
	switch _, err := readKernelLog(kmsgPath); {
	case err == nil && (v.State != fact.Known || v.V.Messages == 0 || v.V.Events == nil):
		t.Errorf("readable, but: %+v", v)
	case errors.Is(err, unix.EPERM) && v.State != fact.Denied, errors.Is(err, unix.ENOENT) && v.State != fact.Absent:
		t.Errorf("%v, but: %+v", err, v)
	}
}

func TestReadKernelLog(t *testing.T) {
	if _, err := readKernelLog(filepath.Join(t.TempDir(), "none")); !errors.Is(err, unix.ENOENT) {
		t.Error(err)
	}
	// One that never ends: a log that grows while it is read must not hold the reader.
	done, err := readKernelLog("/dev/zero")
	if err != nil || len(done)*16<<10 > 33<<20 {
		t.Errorf("%d records, %v", len(done), err)
	}
	name := filepath.Join(t.TempDir(), "kmsg")
	if err := os.WriteFile(name, []byte("6,0,0,-;x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := readKernelLog(name); err != nil || strings.Join(got, "|") != "6,0,0,-;x" {
		t.Error(got, err)
	}
}
