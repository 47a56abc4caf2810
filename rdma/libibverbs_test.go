package rdma

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gdrcheck/gdrcheck/internal/facttest"
)

func TestLibCopies(t *testing.T) {
	const usr, local = "/usr/lib/x86_64-linux-gnu/", "/usr/local/lib/"
	src := facttest.Tree(t, map[string]string{
		"/lib":                             "-> usr/lib",
		usr + "libibverbs.so.1":            "-> libibverbs.so.1.14.50.0",
		usr + "libibverbs.so.1.14.50.0":    "elf",
		local + "libibverbs.so.1":          "-> libibverbs.so.1.8.28.0",
		local + "libibverbs.so.1.8.28.0":   "elf",
		"/usr/lib64/libibverbs.so.1":       "a file, no link",
		"/etc/libibverbs.d/mlx5.driver":    "driver mlx5\n",
		"/etc/libibverbs.d/README":         "x",
		"/etc/libibverbs.d/bnxt_re.driver": "driver bnxt_re\n",
	})
	want := []Library{{usr + "libibverbs.so.1", "1.14.50.0"}, {local + "libibverbs.so.1", "1.8.28.0"}, {"/usr/lib64/libibverbs.so.1", ""}}
	if diff := cmp.Diff(want, libCopies(src)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"bnxt_re", "mlx5"}, providers(src).V); diff != "" {
		t.Error(diff)
	}
}

func TestParseTrafficClass(t *testing.T) {
	if n, err := parseTrafficClass("Global tclass=106"); n != 106 || err != nil {
		t.Error(n, err)
	}
	for _, bad := range []string{"", "106", "Global tclass=", "Global tclass=256", "Global tclass=-1"} {
		if _, err := parseTrafficClass(bad); err == nil {
			t.Errorf("%q passed", bad)
		}
	}
}
