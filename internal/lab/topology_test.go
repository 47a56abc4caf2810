package lab

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/report"
	"github.com/gdrcheck/gdrcheck/topo"
)

// checkTopology checks the classes of the paths, which follow from how the
// node was built (see Node), and their hops, which follow from lspci's tree.
// The NVML double puts GPUs where the stand-ins are.
func checkTopology(t *testing.T, dir string, parents map[pci.Address]pci.Address) {
	doc := decode[report.Topo](t, dir, "topo-gpus.json")
	if !doc.Simulated {
		t.Error("a document that a test double answered for is not marked as simulated")
	}
	if doc := decode[report.Topo](t, dir, "topo-root.json"); doc.Simulated {
		t.Error("the node without a double is marked as simulated")
	}
	want := map[string]map[string]topo.Class{
		"GPU0": {"rxe0": topo.ClassPIX, "rxe1": topo.ClassPXB, "rxe2": topo.ClassSYS, "rxe3": topo.ClassSYS, "GPU1": topo.ClassSYS},
		"GPU1": {"rxe0": topo.ClassSYS, "rxe1": topo.ClassSYS, "rxe2": topo.ClassPHB, "rxe3": topo.ClassNODE},
		"rxe0": {"rxe1": topo.ClassPXB, "rxe2": topo.ClassSYS},
		"rxe2": {"rxe3": topo.ClassNODE, "rxe1": topo.ClassSYS},
	}
	for a, row := range want {
		for b, class := range row {
			if got, back := doc.Matrix[a][b], doc.Matrix[b][a]; got != class || back != class {
				t.Errorf("%s to %s: %q, and back %q, want %q", a, b, got, back, class)
			}
		}
	}

	addrs := map[string]pci.Address{}
	for _, d := range doc.Devices {
		if d.Addr == nil {
			t.Errorf("%s has no address", d.ID)
			continue
		}
		addrs[d.ID] = *d.Addr
	}
	if len(doc.Pairs) != 8 {
		t.Errorf("%d pairs, want 2 GPUs times 4 NICs", len(doc.Pairs))
	}
	for _, p := range doc.Pairs {
		var got []pci.Address
		for _, h := range p.Hops {
			if h.Addr != nil {
				got = append(got, *h.Addr)
			}
		}
		if diff := cmp.Diff(functionsBetween(parents, addrs[p.GPU], addrs[p.NIC]), got); diff != "" {
			t.Errorf("%s to %s, functions on the path (-lspci +gdrcheck):\n%s", p.GPU, p.NIC, diff)
		}
	}
}

// functionsBetween is the path from a to b through the tree that parents
// describe, both included.
func functionsBetween(parents map[pci.Address]pci.Address, a, b pci.Address) []pci.Address {
	up := func(at pci.Address) (list []pci.Address) {
		for ; at != (pci.Address{}); at = parents[at] {
			list = append(list, at)
		}
		return list
	}
	fromA, fromB := up(a), up(b)
	for i, at := range fromA {
		if j := slices.Index(fromB, at); j >= 0 { // the lowest common bridge
			down := slices.Clone(fromB[:j])
			slices.Reverse(down)
			return append(slices.Clone(fromA[:i+1]), down...)
		}
	}
	slices.Reverse(fromB)
	return append(fromA, fromB...)
}

// checkReplay judges the recording here, outside the guest: the document must be
// the one that was written there, to the byte.
func checkReplay(t *testing.T, dir string) {
	cmd := exec.CommandContext(t.Context(), "../../bin/gdrcheck", "check", "--from", filepath.Join(dir, "node.rec"), "-o", "json")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	got, err := cmd.Output()
	rc := number(t, read(t, dir, "check-root.json.rc"))
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != rc {
		t.Errorf("replay: %v, in the guest the exit code was %d: %s", err, rc, stderr.Bytes())
	}
	if diff := cmp.Diff(read(t, dir, "check-root.json"), string(got)); diff != "" {
		t.Errorf("replay (-guest +here):\n%s", diff)
	}
}

// checkEndings checks how the commands ended: a node without a GPU, or with
// stand-ins, is a result, not a mishap.
func checkEndings(t *testing.T, dir string) {
	for _, name := range []string{"check-root.json", "check-user.json", "check-root.txt", "check-user.txt", "check-gpus.json", "check-gpus.txt"} {
		if rc := number(t, read(t, dir, name+".rc")); rc != 0 && rc != 1 && rc != 3 {
			t.Errorf("%s: exit code %d: %s", name, rc, read(t, dir, name+".err"))
		}
	}
	for _, name := range []string{"topo-root.json", "topo-gpus.json", "topo-gpus.txt"} {
		if rc := number(t, read(t, dir, name+".rc")); rc != 0 {
			t.Errorf("%s: exit code %d: %s", name, rc, read(t, dir, name+".err"))
		}
	}
}
