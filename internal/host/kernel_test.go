package host

import (
	"bytes"
	"compress/gzip"
	"strings"
	"syscall"
	"testing"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/facttest"
)

const someConfig = "#\n# Linux/x86\n#\nCONFIG_PCI_P2PDMA=y\nCONFIG_INFINIBAND=m\n# CONFIG_HSA_AMD_P2P is not set\nCONFIG_LOCALVERSION=\"-x\"\n"

func TestParseConfig(t *testing.T) {
	got, err := ParseConfig(strings.NewReader(someConfig))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"CONFIG_PCI_P2PDMA": "y", "CONFIG_INFINIBAND": "m", "CONFIG_HSA_AMD_P2P": "n",
		"CONFIG_DMABUF_MOVE_NOTIFY": "n", // not in the file: a dependency is not met
		"CONFIG_LOCALVERSION":       "",  // nobody judges it
	} {
		if got[name] != want {
			t.Errorf("%s = %q, want %q", name, got[name], want)
		}
	}
	if _, err := ParseConfig(strings.NewReader("<html>\n")); err == nil {
		t.Error("a page that is no configuration passed")
	}
}

func TestKernelConfig(t *testing.T) {
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	if _, err := w.Write([]byte(strings.ReplaceAll(someConfig, "INFINIBAND=m", "INFINIBAND=y"))); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		files map[string]string
		state fact.State
		want  string
	}{
		{"the kernel's own comes first", map[string]string{"/proc/config.gz": z.String(), "/boot/config-6.1": someConfig}, fact.Known, "y"},
		{"boot", map[string]string{"/boot/config-6.1": someConfig, "/boot/config-6.2": ""}, fact.Known, "m"},
		{"modules", map[string]string{"/lib/modules/6.1/config": someConfig}, fact.Known, "m"},
		{"a broken one is not the last word", map[string]string{"/proc/config.gz": "x", "/boot/config-6.1": someConfig}, fact.Known, "m"},
		{"broken", map[string]string{"/proc/config.gz": "x"}, fact.Failed, ""},
		{"of another kernel", map[string]string{"/boot/config-6.2": someConfig}, fact.Absent, ""},
	} {
		v := kernelConfig(facttest.Tree(t, c.files), "6.1")
		if v.State != c.state || v.V["CONFIG_INFINIBAND"] != c.want {
			t.Errorf("%s: %v %q %s", c.name, v.State, v.V["CONFIG_INFINIBAND"], v.Reason)
		}
	}
}

func TestHasSymbol(t *testing.T) {
	for in, want := range map[string]bool{
		"0000000000000000 T ib_register_peer_memory_client\t[ib_core]\n": true,
		"0000000000000000 T ib_register_peer_memory_client\n":            true,
		"0 t x\n0 T ib_register_peer_memory_client":                      true,
		"0 r __kstrtab_ib_register_peer_memory_client\n":                 false,
		"0 T ib_register_peer_memory_client2\n":                          false,
		"0 T other\n":                                                    false,
	} {
		if got, err := HasSymbol([]byte(in), peerSymbol); got != want || err != nil {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
	if _, err := HasSymbol(nil, peerSymbol); err == nil {
		t.Error("an empty kallsyms answers")
	}
}

func TestSymbolsAskedOnlyWhereTheyDecide(t *testing.T) {
	src := facttest.Tree(t, map[string]string{"/proc/modules": ""})
	src.Answers[fact.AskSymbols] = []fact.Record{{Subject: peerSymbol, State: fact.Known, Data: []byte("true")}}
	loaded := func(names ...string) fact.Value[[]Module] {
		var m []Module
		for _, n := range names {
			m = append(m, Module{Name: n})
		}
		return fact.Of(m, moduleDir)
	}
	if v := symbols(t.Context(), src, loaded("nvidia", "ib_core"))[peerSymbol]; !v.V || v.State != fact.Known {
		t.Errorf("%+v", v)
	}
	for _, l := range [][]string{{"nvidia"}, {"ib_core"}, {"nvidia", "ib_core", "nvidia_peermem"}} {
		if v := symbols(t.Context(), src, loaded(l...))[peerSymbol]; v.State != fact.NotCollected {
			t.Errorf("%v: %+v", l, v)
		}
	}
}

// TestFindSymbol: type information answers first, if all of it is there.
func TestFindSymbol(t *testing.T) {
	const kallsymsSaysYes = "/proc/kallsyms"
	btf := func(names string) string { return "\x9f\xeb\x01\x00 types \x00a\x00" + names + "\x00z\x00" }
	for _, c := range []struct {
		core, uverbs string
		want         bool
		source       string
	}{
		{btf("x"), btf(peerSymbol), true, "/sys/kernel/btf/ib_uverbs"},
		{btf(peerSymbol), "", true, "/sys/kernel/btf/ib_core"},
		{btf("x"), btf(peerSymbol + "2"), false, "/sys/kernel/btf/ib_uverbs"},
		{btf("x"), "", true, kallsymsSaysYes},
		{"", btf("x"), true, kallsymsSaysYes},
		{"junk", btf("x"), true, kallsymsSaysYes},
		{"vmlinux " + btf(peerSymbol), "", true, "/sys/kernel/btf/vmlinux"},
		{"vmlinux " + btf("x"), "", false, "/sys/kernel/btf/vmlinux"},
	} {
		files := map[string]string{"/proc/kallsyms": "0 T ib_register_peer_memory_client\n"}
		for name, content := range map[string]string{"ib_core": c.core, "ib_uverbs": c.uverbs} {
			if builtIn, ok := strings.CutPrefix(content, "vmlinux "); ok {
				files["/sys/kernel/btf/vmlinux"] = builtIn
			} else if content != "" {
				files["/sys/kernel/btf/"+name] = content
			}
		}
		v := FindSymbol(facttest.Tree(t, files), peerSymbol)
		if v.State != fact.Known || v.V != c.want || v.Source != c.source {
			t.Errorf("%q, %q: %+v", c.core, c.uverbs, v)
		}
	}
	src := facttest.Tree(t, map[string]string{"/proc/kallsyms": "x"})
	src.Errors["/proc/kallsyms"] = syscall.EPERM
	if v := FindSymbol(src, peerSymbol); v.State != fact.Denied {
		t.Errorf("%+v", v)
	}
}

func TestParseLockdown(t *testing.T) {
	for in, want := range map[string]string{
		"[none] integrity confidentiality": "none", "none [integrity] confidentiality": "integrity", "none": "", "": "", "[]": "",
	} {
		if got, err := ParseLockdown(in); got != want || (err == nil) != (want != "") {
			t.Errorf("ParseLockdown(%q) = %q, %v", in, got, err)
		}
	}
}

func FuzzKernelText(f *testing.F) {
	f.Add(someConfig)
	f.Add("0 T ib_register_peer_memory_client\t[ib_core]\n")
	f.Add("none [integrity] confidentiality")
	f.Fuzz(func(t *testing.T, s string) {
		if m, err := ParseConfig(strings.NewReader(s)); err == nil && len(m) != len(configOptions) {
			t.Errorf("%d options", len(m))
		}
		if found, _ := HasSymbol([]byte(s), peerSymbol); found && !strings.Contains(s, peerSymbol) {
			t.Error("found what is not there")
		}
		if m, err := ParseLockdown(s); err == nil && m == "" {
			t.Error("no mode")
		}
	})
}

func TestParseUptime(t *testing.T) {
	for in, want := range map[string]float64{"350735.47 234388.90\n": 350735.47, "0.00 0.00": 0, "12": 12} {
		if got, err := parseUptime(in); err != nil || got != want {
			t.Errorf("%q: %v %v", in, got, err)
		}
	}
	for _, in := range []string{"", "x 1", "-1 2", "NaN 1", "1e300 2", "Inf"} {
		if got, err := parseUptime(in); err == nil {
			t.Errorf("%q: %v", in, got)
		}
	}
}
