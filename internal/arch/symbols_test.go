package arch

import (
	"debug/elf"
	"errors"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"testing"
)

const binary = "../../bin/gdrcheck"

// libraries are what the program may need at its start: it starts anywhere.
var libraries = []string{"libc.so.6", "libpthread.so.0", "libdl.so.2", "libresolv.so.2", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}

// nvmlName is what go-nvml leaves undefined, to be bound once NVML is loaded.
var nvmlName = regexp.MustCompile(`^nvml[A-Z][A-Za-z0-9]*(_v\d+)?$`)

// weak are the undefined names that the linker and start files themselves
// leave in every program.
var weak = []string{"_ITM_deregisterTMCloneTable", "_ITM_registerTMCloneTable", "__gmon_start__"}

// mayBeUndefined judges one undefined dynamic symbol and the library that its
// version names; library is empty where nothing defines the symbol.
func mayBeUndefined(name, library string) bool {
	if library != "" {
		return slices.Contains(libraries, library)
	}
	return nvmlName.MatchString(name) || slices.Contains(weak, name)
}

func TestMayBeUndefined(t *testing.T) {
	for _, tt := range []struct {
		name, library string
		want          bool
	}{
		{"dlopen", "libc.so.6", true},
		{"nvmlInit_v2", "", true},
		{"nvmlDeviceGetBAR1MemoryInfo", "", true},
		{"__gmon_start__", "", true},
		{"ibv_open_device", "", false},
		{"ibv_open_device", "libibverbs.so.1", false},
		{"cuInit", "", false},
		{"gdr_verbs_laod", "", false},
		{"nvml_helper", "", false},
	} {
		if got := mayBeUndefined(tt.name, tt.library); got != tt.want {
			t.Errorf("mayBeUndefined(%q, %q) = %v", tt.name, tt.library, got)
		}
	}
}

// TestUndefinedSymbols looks for misspelt C functions: go-nvml's linker flag
// lets the whole program link with them, and a call would end it.
func TestUndefinedSymbols(t *testing.T) {
	f := openBinary(t)
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	nvml := 0
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF {
			continue
		}
		if nvmlName.MatchString(s.Name) {
			nvml++
		}
		if !mayBeUndefined(s.Name, s.Library) {
			t.Errorf("undefined symbol %s (library %q)", s.Name, s.Library)
		}
	}
	if nvml == 0 {
		t.Error("no nvml symbol is undefined: is this the program with go-nvml in it?")
	}
	needed, err := f.ImportedLibraries()
	if err != nil {
		t.Fatal(err)
	}
	for _, lib := range needed {
		if !slices.Contains(libraries, lib) {
			t.Errorf("the program needs %s at its start", lib)
		}
	}
}

// TestLazyBinding: bound at its start, the program would die of NVML's names.
func TestLazyBinding(t *testing.T) {
	f := openBinary(t)
	for tag, bit := range map[elf.DynTag]uint64{
		elf.DT_FLAGS:   uint64(elf.DF_BIND_NOW),
		elf.DT_FLAGS_1: uint64(elf.DF_1_NOW),
	} {
		values, err := f.DynValue(tag)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range values {
			if v&bit != 0 {
				t.Errorf("%v has the bit for immediate binding", tag)
			}
		}
	}
	if v, _ := f.DynValue(elf.DT_BIND_NOW); len(v) > 0 {
		t.Error("the program is marked for immediate binding")
	}
}

func openBinary(t *testing.T) *elf.File {
	t.Helper()
	f, err := elf.Open(binary)
	if errors.Is(err, fs.ErrNotExist) && os.Getenv("CI") != "true" {
		t.Skip("no bin/gdrcheck: run make build")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}
