package arch

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/gdrcheck/gdrcheck"

// facts are the packages that hold what was collected, from the bottom up.
var facts = []string{"internal/fact", "pci", "rdma", "rdma/qos", "internal/gpu", "internal/host"}

// mayImport says which packages of the module each may import. Collectors
// never judge, checks never read the host, renderers never compute a verdict.
var mayImport = map[string][]string{
	"internal/fact": {},
	"pci":           {"internal/fact"},
	"rdma":          {"internal/fact", "pci"},
	"rdma/qos":      {"internal/fact", "pci", "rdma"},
	"internal/gpu":  {"internal/fact", "pci"},
	"internal/host": {"internal/fact", "pci"},
	"topo":          facts,
	"perftest":      append([]string{"topo"}, facts...),
	"checks":        append([]string{"perftest", "topo"}, facts...),
	"report":        append([]string{"checks", "perftest", "topo"}, facts...),

	"internal/collect": append([]string{"topo"}, facts...),

	"internal/mem":     {},
	"internal/gdrcopy": facts,
	"rdma/verbs":       append([]string{"perftest"}, facts...),
	"internal/nvml":    facts,
	"internal/cuda":    facts,
	"internal/netif":   facts,
	"internal/worker":  append([]string{"perftest", "topo", "rdma/verbs", "internal/mem", "internal/gdrcopy", "internal/nvml", "internal/cuda", "internal/netif"}, facts...),

	"cmd/gdrcheck": append([]string{"report", "checks", "perftest", "topo", "internal/collect", "internal/worker"}, facts...),

	// For tests and benchmarks; nothing of the program imports them.
	"internal/arch":       {},
	"internal/lab":        {},
	"internal/mutate":     {},
	"internal/topotest":   append([]string{"topo"}, facts...),
	"internal/facttest":   {"internal/fact"},
	"internal/perfdouble": {"perftest"},
	"internal/render":     {"internal/fact", "pci"},
	"internal/render/cmd": {"internal/render"},
}

// cgoAllowed are the packages that may contain C, and the module that may.
var cgoAllowed = []string{"internal/worker", "rdma/verbs", "internal/mem", "internal/gdrcopy", "internal/nvml", "internal/cuda"}

const cgoModule = "github.com/NVIDIA/go-nvml"

// soleImporters are the only packages that may import a module whose calls can
// hang, or end the process.
var soleImporters = map[string][]string{
	"github.com/NVIDIA/go-nvml":     {"internal/worker", "internal/nvml"},
	"github.com/Mellanox/rdmamap":   {"internal/worker"},
	"github.com/mdlayher/netlink":   {"internal/netif"},
	"github.com/mdlayher/genetlink": {"internal/netif"},
	"github.com/safchain/ethtool":   {"internal/netif"},
	"github.com/jaypipes/ghw":       {"internal/worker"},
	"github.com/vishvananda/netns":  {},
}

// pureGo are the packages that must build without cgo.
var pureGo = append([]string{"topo", "perftest", "checks", "report", "internal/collect"}, facts...)

type listedPackage struct {
	ImportPath string
	Standard   bool
	CgoFiles   []string
	Imports    []string
	Module     *struct{ Path string }
}

func goList(t *testing.T, env []string, args ...string) []listedPackage {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list"}, args...)...)
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.Bytes())
	}
	var list []listedPackage
	dec := json.NewDecoder(bytes.NewReader(out))
	for {
		var p listedPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
}

// ours is a path within the module; false for other modules and for the root.
func ours(path string) (string, bool) { return strings.CutPrefix(path, module+"/") }

// watchSources looks at every source file, since go test takes a cached result
// unless a file that the test itself looked at has changed.
func watchSources(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != ".." {
			return filepath.SkipDir
		}
		if strings.HasSuffix(path, ".go") {
			_, err = os.Stat(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestImports(t *testing.T) {
	watchSources(t)
	list := goList(t, []string{"CGO_ENABLED=1"}, "-deps", "-json=ImportPath,Standard,CgoFiles,Imports,Module", "./...")
	for _, p := range list {
		name, our := ours(p.ImportPath)
		if len(p.CgoFiles) > 0 && !p.Standard && !slices.Contains(cgoAllowed, name) && (p.Module == nil || p.Module.Path != cgoModule) {
			t.Errorf("%s contains C; only %v and %s may", p.ImportPath, cgoAllowed, cgoModule)
		}
		if our {
			checkImports(t, name, p.Imports)
		}
	}
}

func checkImports(t *testing.T, name string, imports []string) {
	t.Helper()
	allowed, known := mayImport[name]
	if !known {
		t.Errorf("%s is not in this test's table: say there what it may import", name)
		return
	}
	for _, path := range imports {
		if imported, our := ours(path); our && !slices.Contains(allowed, imported) {
			t.Errorf("%s imports %s", name, imported)
		}
		for mod, importers := range soleImporters {
			if (path == mod || strings.HasPrefix(path, mod+"/")) && !slices.Contains(importers, name) {
				t.Errorf("%s imports %s; only %v may", name, path, importers)
			}
		}
	}
}

// TestPureGo builds without cgo what must not need it.
func TestPureGo(t *testing.T) {
	watchSources(t)
	args := []string{"build"}
	for _, name := range pureGo {
		if _, err := os.Stat("../../" + name); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		args = append(args, "./"+name)
	}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("go build without cgo: %v\n%s", err, out)
	}
}
