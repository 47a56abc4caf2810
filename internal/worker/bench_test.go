package worker

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/gdrcheck/gdrcheck/internal/fact"
)

// BenchmarkStart is what any question costs: a worker that answers one thing.
func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		if _, err := new(Client).Ask(b.Context(), fact.AskLimits); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFiles asks for 400 files as large as a configuration space.
func BenchmarkFiles(b *testing.B) {
	dir := b.TempDir()
	paths := make([]string, 400)
	for i := range paths {
		paths[i] = filepath.Join(dir, strconv.Itoa(i))
		if err := os.WriteFile(paths[i], make([]byte, 4096), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		recs, err := new(Client).Ask(b.Context(), fact.AskFiles, paths...)
		if err != nil || len(recs) != len(paths) {
			b.Fatal(len(recs), err)
		}
		for _, r := range recs {
			if v := fact.Decode[[]byte](r); len(v.V) != 4096 {
				b.Fatal(v)
			}
		}
	}
}

// BenchmarkNVML asks a stub with two GPUs, which answers at once: what is left
// is the worker's own time.
func BenchmarkNVML(b *testing.B) {
	b.Setenv(NVMLLibraryEnv, filepath.Join(stubDir, "nvml.so"))
	for b.Loop() {
		if _, err := new(Client).Ask(b.Context(), fact.AskNVML); err != nil {
			b.Fatal(err)
		}
	}
}
