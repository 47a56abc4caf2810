package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/olekukonko/tablewriter/pkg/twwidth"

	"github.com/gdrcheck/gdrcheck/internal/render"
)

// The golden files' names carry what was read, the exit code and the format.
func TestGolden(t *testing.T) {
	tree := machineDir(t, "eight-gpu", render.EightGPU)
	for _, tt := range []struct {
		name, format string
		args         []string
	}{
		{"example", "table", []string{"check", "--example"}},
		{"example-verbose", "table", []string{"check", "--example", "-v"}},
		{"example-only", "table", []string{"check", "--example", "--only", "bar1-size,memlock"}},
		{"tree", "table", []string{"check", "--root", tree}},
		{"list", "table", []string{"list"}},
		{"explain", "text", []string{"explain", "acs-redirect"}},
		{"explain", "json", []string{"explain", "acs-redirect", "-o", "json"}},
		{"version", "text", []string{"version"}},
	} {
		out, code := mustRun(t, tt.args...)
		name := fmt.Sprintf("%s.%d.%s", tt.name, code, tt.format)
		t.Run(name, func(t *testing.T) {
			if tt.name == "tree" { // collected now
				out = regexp.MustCompile(`collected 20[^,]+`).ReplaceAll(out, []byte("collected NOW"))
			}
			compareFile(t, filepath.Join("testdata", "golden", name), string(out))
		})
	}
}

// In 80 columns every line fits but those with a command or a URL, which must
// stay whole.
func TestNarrow(t *testing.T) {
	for _, args := range [][]string{{"check", "--example"}, {"check", "--example", "-v"}, {"list"}, {"explain", "gdr-way"}} {
		out, errs, _ := inEnv(map[string]string{"LANG": "C.UTF-8", "COLUMNS": "80"}, args...)
		if len(errs) > 0 {
			t.Fatalf("%s", errs)
		}
		for line := range strings.Lines(string(out)) {
			line = strings.TrimSuffix(line, "\n")
			whole := strings.Contains(line, "https://") || strings.Contains(line, "sudo ") || strings.Contains(line, "lspci ") || strings.Contains(line, "GRUB_CMDLINE_LINUX=")
			if w := twwidth.Width(line); w > 80 && !whole {
				t.Errorf("%v: %d columns: %s", args, w, line)
			}
		}
	}
}

// A recording gives the document of the machine that it was made of, to the
// byte, and the same machine gives the same document twice.
func TestRecordAndReplay(t *testing.T) {
	tree := machineDir(t, "example", exampleTree)
	rec := filepath.Join(t.TempDir(), "node.rec")
	for _, source := range [][]string{{"--root", tree}, nil} { // a tree, and this machine
		first, _ := mustRun(t, append(source, "check", "-o", "json", "--record", rec)...)
		for range 2 {
			replayed, _ := mustRun(t, "check", "-o", "json", "--from", rec)
			if diff := cmp.Diff(string(first), string(replayed)); diff != "" {
				t.Errorf("%v (-recorded +replayed):\n%s", source, diff)
			}
		}
	}
}

// A recording that is cut short or changed anywhere is refused, never read as a
// smaller machine.
func TestBadRecording(t *testing.T) {
	name := filepath.Join(t.TempDir(), "bad.rec")
	for _, cut := range []int{0, 1, 10, len(exampleRecording) / 2, len(exampleRecording) - 1} {
		refuse(t, name, exampleRecording[:cut])
	}
	for _, at := range []int{5, len(exampleRecording) / 2, len(exampleRecording) - 2} {
		changed := bytes.Clone(exampleRecording)
		changed[at] ^= 0x55
		refuse(t, name, changed)
	}
}

func refuse(t *testing.T, name string, content []byte) {
	t.Helper()
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	out, errs, code := inProcess("check", "--from", name)
	if code != 2 || len(out) > 0 || bytes.Count(errs, []byte("\n")) != 1 {
		t.Errorf("%d bytes: exit code %d, %d bytes on stdout, stderr %q", len(content), code, len(out), errs)
	}
}
