package host

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/facttest"
)

func TestTablesAreSorted(t *testing.T) {
	for name, table := range map[string][]string{
		"modules": modulesThatMatter, "majors": majorsThatMatter, "module files": moduleFilesThatMatter,
	} {
		if !slices.IsSorted(table) {
			t.Errorf("%s: a binary search needs order", name)
		}
	}
}

// lsmod prints /proc/modules in other columns: names, reference counts and
// holders are the same.
func TestParseModulesOfLsmod(t *testing.T) {
	type row struct {
		Refs    int
		Holders []string
	}
	for file, want := range map[string]map[string]row{
		"lsmod-good.txt": {
			"nvidia_uvm": {0, nil}, "nvidia_peermem": {0, nil}, "ib_uverbs": {3, []string{"mlx5_ib", "nvidia_peermem", "rdma_ucm"}},
			"nvidia_drm": {0, nil}, "nvidia_modeset": {1, []string{"nvidia_drm"}},
			"nvidia": {63, []string{"nvidia_modeset", "nvidia_peermem", "nvidia_uvm"}},
		},
		"lsmod-gdrdrv.txt": {"gdrdrv": {0, nil}},
		"lsmod-peermem-not-bound.txt": {
			"nvidia_peermem": {0, nil}, "nvidia": {447, []string{"nvidia_modeset", "nvidia_peermem", "nvidia_uvm"}},
			"ib_core": {9, []string{"ib_cm", "ib_ipoib", "ib_umad", "ib_uverbs", "iw_cm", "mlx5_ib", "rdma_cm", "rdma_ucm"}},
		},
	} {
		b, err := os.ReadFile(facttest.Fixture(t, "outputs/text/"+file))
		if err != nil {
			t.Fatal(err)
		}
		_, body, ok := strings.Cut(string(b), "Used by\n")
		if !ok {
			body = string(b)
		}
		mods, err := ParseModules(body)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		got := map[string]row{}
		for _, m := range mods {
			got[m.Name] = row{m.RefCount.V, m.Holders}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", file, diff)
		}
	}
}

func TestParseModules(t *testing.T) {
	got, err := ParseModules("nvidia 54292480 63 nvidia_uvm,nvidia_peermem, Live 0x0000000000000000 (POE)\next4 1 1 - Live 0x0\nib_core 5 - - Live 0x0\n")
	if err != nil || len(got) != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	if got[0].RefCount.State != fact.Unsupported || got[1].Taint.V != "POE" || got[1].RefCount.V != 63 {
		t.Errorf("%+v", got)
	}
	for _, bad := range []string{"nvidia\n", "nvidia x 1 -\n"} {
		if _, err := ParseModules(bad); err == nil {
			t.Errorf("%q passed", bad)
		}
	}
}

func TestModules(t *testing.T) {
	src := facttest.Tree(t, map[string]string{
		"/sys/module/nvidia/version": "580.159.04\n", "/sys/module/nvidia/srcversion": "ABC\n", "/sys/module/nvidia/taint": "OE\n",
		"/sys/module/nvidia/refcnt": "63\n", "/sys/module/nvidia/holders/nvidia_uvm": "",
		"/sys/module/nvidia_peermem/parameters/peerdirect_support":     "0\n",
		"/sys/module/nvidia_peermem/parameters/persistent_api_support": "1\n",
		"/sys/module/mlx5_core/parameters/prof_sel":                    "2\n",
		"/sys/module/ext4/refcnt":                                      "1\n",
	})
	src.Errors["/sys/module/nvidia_peermem/parameters/persistent_api_support"] = syscall.EACCES
	src.Errors["/sys/module/mlx5_core/parameters/prof_sel"] = syscall.EACCES
	v := modules(src)
	if len(v.V) != 3 {
		t.Fatalf("%+v", v)
	}
	mlx, nv, peer := v.V[0], v.V[1], v.V[2]
	if nv.Version.V != "580.159.04" || nv.Taint.V != "OE" || nv.RefCount.V != 63 || !slices.Equal(nv.Holders, []string{"nvidia_uvm"}) || nv.Parameters.State != fact.Absent {
		t.Errorf("%+v", nv)
	}
	if diff := cmp.Diff(map[string]string{"peerdirect_support": "0"}, peer.Parameters.V); diff != "" {
		t.Error(diff)
	}
	if mlx.Parameters.State != fact.Denied || mlx.RefCount.State != fact.Absent {
		t.Errorf("%+v", mlx)
	}
	// /proc/modules stands in where sysfs is not there.
	v = modules(facttest.Tree(t, map[string]string{"/proc/modules": "nvidia 1 2 - Live 0x0 (POE)\n"}))
	if len(v.V) != 1 || v.Source != "/proc/modules" {
		t.Errorf("%+v", v)
	}
	if v := modules(facttest.Tree(t, nil)); v.State != fact.NotCollected {
		t.Errorf("%+v", v)
	}
}

func TestParseCharMajors(t *testing.T) {
	got, err := ParseCharMajors("Character devices:\n  1 mem\n195 nvidia\n195 nvidiactl\n231 infiniband_verbs\n511 gdrdrv\n\nBlock devices:\n259 nvidia-fs\n")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int{"nvidia": 195, "nvidiactl": 195, "infiniband_verbs": 231, "gdrdrv": 511}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{"", "Character devices:\n x nvidia\n"} {
		if _, err := ParseCharMajors(bad); err == nil {
			t.Errorf("%q passed", bad)
		}
	}
}

// koFile builds the least ELF file that has a .modinfo section.
func koFile(t testing.TB, modinfo string) []byte {
	t.Helper()
	names := "\x00.modinfo\x00.shstrtab\x00"
	var b bytes.Buffer
	put := func(v any) {
		if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
			t.Fatal(err)
		}
	}
	end := 64 + uint64(len(modinfo)+len(names))
	put(elf.Header64{
		Ident: [16]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_REL), Machine: uint16(elf.EM_X86_64), Version: 1, Shoff: end, Ehsize: 64, Shentsize: 64, Shnum: 3, Shstrndx: 2,
	})
	b.WriteString(modinfo + names)
	put(elf.Section64{})
	put(elf.Section64{Name: 1, Type: uint32(elf.SHT_PROGBITS), Off: 64, Size: uint64(len(modinfo)), Addralign: 1})
	put(elf.Section64{Name: 10, Type: uint32(elf.SHT_STRTAB), Off: 64 + uint64(len(modinfo)), Size: uint64(len(names)), Addralign: 1})
	return b.Bytes()
}

const someModinfo = "license=Dual MIT/GPL\x00version=580.159.04\x00vermagic=6.8.0-60-generic SMP preempt mod_unload modversions \x00license=second\x00"

func TestModInfo(t *testing.T) {
	ko := koFile(t, someModinfo)
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	var gz bytes.Buffer
	w := gzip.NewWriter(&gz)
	if _, err := w.Write(ko); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"license": "Dual MIT/GPL", "version": "580.159.04", "vermagic": "6.8.0-60-generic SMP preempt mod_unload modversions ",
	}
	for ext, b := range map[string][]byte{".ko": ko, ".zst": z.EncodeAll(ko, nil), ".gz": gz.Bytes()} {
		got, err := ModInfo(b, ext)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v %s", ext, err, diff)
		}
		if _, err := ModInfo(b[:len(b)/2], ext); err == nil {
			t.Errorf("%s: half a file passed", ext)
		}
	}
	if _, err := ModInfo(ko, ".xz"); err != errCompression { //nolint:errorlint // the very value
		t.Errorf(".xz: %v", err)
	}
}

// modinfo's own answer, on the modules of this machine or, where it has none, on
// those of the virtual node's kernel, which scripts/setup unpacks.
func TestModInfoAsModinfo(t *testing.T) {
	t.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin:/sbin")
	var files []string
	for _, root := range []string{"", "../../.cache/lab/kernel"} {
		more, _ := filepath.Glob(root + "/lib/modules/*/kernel/drivers/net/*.ko*")
		files = append(files, more...)
	}
	if _, err := exec.LookPath("modinfo"); err != nil || len(files) == 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("no modinfo or no kernel modules: scripts/setup test brings both")
		}
		t.Skip("no modinfo or no kernel modules here: scripts/setup test brings both")
	}
	for _, f := range files[:min(len(files), 10)] {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ModInfo(b, filepath.Ext(f))
		if err == errCompression { //nolint:errorlint // the very value
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", f, err)
		}
		for _, key := range []string{"vermagic", "license"} {
			out, err := exec.CommandContext(t.Context(), "modinfo", "-F", key, f).Output()
			want, _, _ := strings.Cut(string(out), "\n")
			if err != nil || strings.TrimSpace(got[key]) != strings.TrimSpace(want) {
				t.Errorf("%s: %s %q, modinfo %q (%v)", f, key, got[key], want, err)
			}
		}
	}
}

func TestModuleFiles(t *testing.T) {
	const dir = "/lib/modules/6.8/"
	src := facttest.Tree(t, map[string]string{
		dir + "modules.dep": "kernel/fs/ext4.ko: kernel/lib/crc16.ko\nupdates/dkms/nvidia-peermem.ko: updates/dkms/nvidia.ko\n" +
			"updates/dkms/nvidia.ko.zst:\nextra/gdrdrv.ko.xz: x\nextra/nvidia-fs.ko:\n",
		dir + "updates/dkms/nvidia-peermem.ko": string(koFile(t, someModinfo)),
		dir + "extra/gdrdrv.ko.xz":             "x",
		dir + "extra/nvidia-fs.ko":             strings.Repeat("x", maxModuleBytes+1),
	})
	release := fact.Of("6.8", "test")
	byName := map[string]ModuleFile{}
	for _, f := range moduleFiles(src, release, fact.Of([]Module{{Name: "nvidia"}}, moduleDir)) {
		byName[f.Name] = f
	}
	if f := byName["nvidia_peermem"]; f.Path.V != dir+"updates/dkms/nvidia-peermem.ko" || f.Version.V != "580.159.04" || f.License.V != "Dual MIT/GPL" {
		t.Errorf("%+v", f)
	}
	if f := byName["nvidia"]; f.Path.State != fact.Known || f.Version.State != fact.NotCollected {
		t.Errorf("a loaded module's file was opened: %+v", f)
	}
	if f := byName["gdrdrv"]; f.VerMagic.State != fact.Unsupported || f.Path.State != fact.Known {
		t.Errorf("%+v", f)
	}
	if f := byName["nvidia_fs"]; f.VerMagic.State != fact.Unsupported || !strings.Contains(f.VerMagic.Reason, "larger") {
		t.Errorf("%+v", f)
	}
	if f := byName["nv_peer_mem"]; f.Path.State != fact.Absent {
		t.Errorf("%+v", f)
	}
	for _, f := range moduleFiles(facttest.Tree(t, nil), release, fact.Value[[]Module]{}) {
		if f.Path.State != fact.NotCollected {
			t.Errorf("without modules.dep: %+v", f)
		}
	}
}

func TestParseModprobe(t *testing.T) {
	const text = `# options nvidia A=1
options nvidia NVreg_RegistryDwords="PeerMappingOverride=1;RMForceStaticBar1=1" NVreg_EnableStreamMemOPs=1
blacklist nouveau
  options nvidia-peermem \
	peerdirect_support=1
options vfio-pci ids=10de:2335,15b3:1021 disable_idle_d3
options "x y" "a b=c d"
options short
`
	got := ParseModprobe(text, "f")
	want := []ModprobeOption{
		{"nvidia", "NVreg_RegistryDwords", "PeerMappingOverride=1;RMForceStaticBar1=1", "f", 2},
		{"nvidia", "NVreg_EnableStreamMemOPs", "1", "f", 2},
		{"nvidia_peermem", "peerdirect_support", "1", "f", 4},
		{"vfio_pci", "ids", "10de:2335,15b3:1021", "f", 6},
		{"vfio_pci", "disable_idle_d3", "", "f", 6},
		{"x y", "a b", "c d", "f", 7},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

var modprobeTree = map[string]string{
	"/etc/modprobe.d/nvidia.conf":     "options nvidia NVreg_A=1\n",
	"/etc/modprobe.d/mask.conf":       "",
	"/etc/modprobe.d/readme.txt":      "options nvidia NVreg_NO=1\n",
	"/run/modprobe.d/aa.conf":         "options nvidia-drm modeset=1\n",
	"/usr/lib/modprobe.d/nvidia.conf": "options nvidia NVreg_HIDDEN=1\n",
	"/usr/lib/modprobe.d/mask.conf":   "options nvidia NVreg_MASKED=1\n",
	"/usr/lib/modprobe.d/zz.conf":     "options mlx5_core prof_sel=3 \\\n debug_mask=0x1\noptions bonding mode=4\n",
}

func TestModprobe(t *testing.T) {
	src := facttest.Tree(t, modprobeTree)
	want := []ModprobeOption{
		{"nvidia_drm", "modeset", "1", "/run/modprobe.d/aa.conf", 1},
		{"nvidia", "NVreg_A", "1", "/etc/modprobe.d/nvidia.conf", 1},
		{"mlx5_core", "prof_sel", "3", "/usr/lib/modprobe.d/zz.conf", 1},
		{"mlx5_core", "debug_mask", "0x1", "/usr/lib/modprobe.d/zz.conf", 1},
		{"nvidia_drm", "modeset", "0", "/proc/cmdline", 1},
	}
	v := modprobe(src, fact.Of("quiet nvidia-drm.modeset=0 loop.max_loop=8 -- nvidia.NVreg_INIT=1", "/proc/cmdline"))
	if diff := cmp.Diff(want, v.V); diff != "" || v.State != fact.Known {
		t.Errorf("%v %s", v.State, diff)
	}
	src.Errors["/run/modprobe.d/aa.conf"] = syscall.EACCES
	if v := modprobe(src, fact.Value[string]{}); v.State != fact.Denied {
		t.Errorf("an unreadable file went unnoticed: %+v", v)
	}
	if v := modprobe(facttest.Tree(t, nil), fact.Value[string]{}); v.State != fact.Absent {
		t.Errorf("%+v", v)
	}
}

// modprobe's own reading of one folder, where kmod is installed.
func TestModprobeAsModprobe(t *testing.T) {
	if _, err := exec.LookPath("modprobe"); err != nil {
		t.Skip("no modprobe here")
	}
	dir := t.TempDir()
	text := "options nvidia  A=1   B=2\n#options nvidia C=3\noptions mlx5-core \\\n  D=4\n\toptions gdrdrv E=\"x;y\"\n"
	if err := os.WriteFile(dir+"/a.conf", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "modprobe", "-C", dir, "-c").Output()
	if err != nil {
		t.Skipf("modprobe -c: %v", err)
	}
	pairs := func(opts []ModprobeOption) (out []string) {
		for _, o := range opts {
			if !matters(o.Module) { // of this machine's own command line
				continue
			}
			out = append(out, o.Module+" "+o.Name+"="+o.Value)
		}
		slices.Sort(out)
		return out
	}
	want, got := pairs(ParseModprobe(string(out), "")), pairs(ParseModprobe(text, ""))
	if diff := cmp.Diff(want, got); diff != "" || len(got) != 4 {
		t.Error(diff)
	}
}

func FuzzModuleText(f *testing.F) {
	f.Add("nvidia 54292480 63 nvidia_uvm, Live 0x0 (POE)\n")
	f.Add("options nvidia a=\"b c\" \\\nd\n")
	f.Add("updates/dkms/nvidia-peermem.ko: updates/dkms/nvidia.ko\n")
	f.Add("Character devices:\n195 nvidia\n")
	f.Fuzz(func(t *testing.T, s string) {
		mods, err := ParseModules(s)
		if err == nil && !slices.IsSortedFunc(mods, func(a, b Module) int { return strings.Compare(a.Name, b.Name) }) {
			t.Error("modules out of order")
		}
		for _, o := range ParseModprobe(s, "f") {
			if o.Line < 1 || o.Line > strings.Count(s, "\n")+1 || strings.Contains(o.Module, "-") {
				t.Errorf("%+v", o)
			}
		}
		ParseCommandLineOptions(s)
		for name := range ParseModulesDep([]byte(s)) {
			if !slices.Contains(moduleFilesThatMatter, name) {
				t.Errorf("module %q", name)
			}
		}
		majors, _ := ParseCharMajors(s)
		for name, n := range majors {
			if n < 0 || n >= 1<<12 {
				t.Errorf("%s: %d", name, n)
			}
		}
	})
}

func FuzzModInfo(f *testing.F) {
	f.Add(koFile(f, someModinfo), 0)
	f.Fuzz(func(_ *testing.T, b []byte, ext int) {
		_, _ = ModInfo(b, []string{".ko", ".zst", ".gz"}[(ext%3+3)%3])
	})
}
