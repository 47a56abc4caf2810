package lab

import (
	_ "embed"
	"os"
	"testing"
)

//go:embed testdata/perf.sh
var perfScript string

func TestPerfDev(t *testing.T) {
	b, err := os.ReadFile("testdata/perf-dev.sh")
	if err != nil {
		t.Skip(err)
	}
	g := Guest{Script: perfScript + string(b), Machine: []string{"-machine", "q35", "-m", "1G"}}
	g.Script = "exec >/host/log 2>&1\n" + g.Script
	dir := boot(t, g)
	t.Log(read(t, dir, "../log"))
}
