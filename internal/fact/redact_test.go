package fact

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/gzip"
)

var testKey = []byte("a key of the test's own")

func textFile(s string) recordedFile { return recordedFile{Text: &s} }

// identifying is a recording that tells who its machine is in every way that
// redaction knows of.
func identifying() *recording {
	vpd := []byte{0x82, 4, 0, 'C', 'a', 'r', 'd', 0x90, 24, 0, 'P', 'N', 3, 'M', 'C', 'X', 'S', 'N', 8, 'M', 'T', '2', '1', '3', '7', 'X', '9', 'V', '3', 1, 'k', 'R', 'V', 0, 0x78}
	config := make([]byte, 0x120)
	binary.LittleEndian.PutUint32(config[0x100:], 0x10c<<20|1<<16|1)
	binary.LittleEndian.PutUint32(config[0x10c:], 1<<16|3)
	binary.LittleEndian.PutUint64(config[0x110:], 0xb83fd20300abcdef)
	binary.BigEndian.PutUint32(config[0x11c:], 0xfeedbeef)
	module := []byte("\x7fELF\xff\x00author=Jane Roe <jane@roe.example>\x00/home/jane/src/nv.c\x00")
	signature := []byte("node17 Secure Boot Module Signature key")
	module = append(module, signature...)
	module = append(module, 0, 0, 0, 0, 0, 0, 0, 0)
	module = binary.BigEndian.AppendUint32(module, uint32(len(signature)))
	module = append(module, signatureMark...)
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = io.WriteString(z, "CONFIG_DMA_SHARED_BUFFER=y\nCONFIG_DEFAULT_HOSTNAME=\"node17\"\n# CONFIG_PCI_P2PDMA is not set\nCONFIG_NR_CPUS=512\n")
	_ = z.Close()
	const ib = "/sys/class/infiniband/mlx5_0/"
	return &recording{
		Version: recordingVersion, Tool: "gdrcheck", CollectedAt: when,
		Files: map[string]recordedFile{
			"/proc/sys/kernel/osrelease":                            textFile("6.8.0-45-acme7-generic\n"),
			"/proc/cmdline":                                         textFile("BOOT_IMAGE=/vmlinuz root=UUID=11111111-2222-3333-4444-555555555555 ro iommu=pt nvidia.NVreg_EnableStreamMemOPs=1 ip=10.1.2.3::10.1.2.1:255.255.255.0:node17 user=jane\n"),
			"/proc/config.gz":                                       {Base64: zipped.Bytes()},
			"/proc/driver/nvidia/version":                           textFile("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (jane@node17.acme.example)\n"),
			"/proc/self/mountinfo":                                  textFile("22 1 0:21 / / rw - overlay overlay rw,lowerdir=/var/lib/docker/overlay2/secretlayer/diff\n23 22 0:5 / /home/jane rw - nfs4 filer.acme.example:/jane rw\n"),
			"/proc/self/cgroup":                                     textFile("0::/docker/" + strings.Repeat("a1", 32) + "\n"),
			"/etc/modprobe.d/rdma.conf":                             textFile("# Jane, ticket 4711\noptions ib_core netns_mode=0\n"),
			"/etc/nccl.conf":                                        textFile("# by Jane\nNCCL_IB_TC=106\nNCCL_COMM_ID=node17:4711\nNCCL_TOPO_FILE=/data/jane/topo.xml\n"),
			"/sys/class/dmi/id/chassis_asset_tag":                   textFile("ACME-0042\n"),
			ib + "node_desc":                                        textFile("node17 mlx5_0\n"),
			ib + "node_guid":                                        textFile("b83f:d203:00ab:cdef\n"),
			ib + "sys_image_guid":                                   textFile("b83f:d203:00ab:cdef\n"),
			ib + "ports/1/gids/0":                                   textFile("fe80:0000:0000:0000:ba3f:d2ff:feab:cdef\n"),
			ib + "ports/1/gids/1":                                   textFile("0000:0000:0000:0000:0000:ffff:0a01:0203\n"),
			ib + "ports/1/gids/2":                                   textFile("0000:0000:0000:0000:0000:ffff:0a01:0204\n"),
			ib + "ports/1/gids/3":                                   textFile("2a01:0488:0042:1000:0000:0000:0000:0001\n"),
			ib + "ports/1/gids/4":                                   textFile("0000:0000:0000:0000:0000:0000:0000:0000\n"),
			"/sys/class/net/enxb83fd2abcdef/address":                textFile("b8:3f:d2:ab:cd:ef\n"),
			"/sys/class/net/ib0/address":                            textFile("00:00:10:49:fe:80:00:00:00:00:00:00:b8:3f:d2:03:00:ab:cd:ef\n"),
			"/sys/class/net/lo/address":                             textFile("00:00:00:00:00:00\n"),
			"/proc/driver/nvidia/gpus/0000:3a:00.0/information":     textFile("GPU UUID: \t GPU-6e04217e-a221-98fb-1f57-cac610cc6b7b\nBus Location: \t 0000:3a:00.0\nSerial Number: 1653222001234\n"),
			"/sys/bus/pci/devices/0000:3a:00.0/resource":            textFile("0x0000104002000000 0x0000104002ffffff 0x000000000014220c\n"),
			"/lib/modules/6.8.0-45-acme7-generic/modules.dep":       textFile("kernel/a.ko:\n"),
			"/lib/modules/6.8.0-45-acme7-generic/updates/dkms/x.ko": {Base64: module},
			"/usr/local/firmware.bin":                               {Base64: []byte("\xff\xfe unknown, of node17")},
			"/sys/firmware/efi/SecureBoot-" + efiGlobal:             textFile("x"),
		},
		Served: map[string]recordedServed{
			"/sys/devices/pci0000:00/0000:3a:00.0/vpd":    {State: Known, recordedFile: fileOf(vpd, nil)},
			"/sys/devices/pci0000:00/0000:3a:00.0/config": {State: Known, recordedFile: fileOf(config, nil)},
			"/sys/x": {State: Denied, Errno: 13, Reason: "/home/jane/x: no"},
		},
		Dirs:  map[string]recordedDir{"/sys/class/net": {Entries: []Entry{{Name: "enxb83fd2abcdef"}, {Name: "eth0"}, {Name: "lo"}}}},
		Links: map[string]recordedLink{"/sys/class/net/enxb83fd2abcdef": {Target: "../../devices/net/enxb83fd2abcdef"}},
		Asks: []recordedAsk{{Name: AskEnviron, Records: []Record{{Subject: "self", State: Known,
			Data: json.RawMessage(`{"variables":{"NCCL_IB_HCA":"^mlx5_9:1","NCCL_TOPO_FILE":"/data/jane/topo.xml","NCCL_SECRET":"node17"},"files":{"~/.nccl.conf":"NCCL_IB_TC=96\n# Jane\nNCCL_IB_ADDR_RANGE=10.1.2.3/24\n"}}`)}}},
			{Name: AskLLDP, Args: []string{"enxb83fd2abcdef"}, Records: []Record{{Subject: "enxb83fd2abcdef", State: Known,
				Data: json.RawMessage(`{"system":{"value":"leaf3.acme.example"},"chassis":{"value":"b8:3f:d2:ab:cd:ef"},"port":{"value":"Ethernet12"},"port_text":{"value":"node17 rail 3"}}`)}}},
			{Name: AskSMP, Args: []string{"mlx5_0/1"}, Records: []Record{{Subject: "mlx5_0/1", State: Known,
				Data: json.RawMessage(`{"system":{"value":"MF0;acme-leaf3:MQM9700/U1"},"chassis":{"value":"b83f:d203:00ab:cdef"},"port":{"value":"7"}}`)}}},
			{Name: AskNVML, Records: []Record{{Subject: "gpu0", State: Known,
				Data: json.RawMessage(`{"uuid":{"value":"GPU-6E04217E-A221-98FB-1F57-CAC610CC6B7B"},"text":"\nb8:3f:d2:ab:cd:ef","bytes":18446744073709551615}`)}}}},
	}
}

// all returns everything that a recording holds, unpacked also in lower case.
func all(t *testing.T, doc *recording) string {
	t.Helper()
	var b bytes.Buffer
	add := func(f recordedFile) {
		content := f.content()
		if z, err := gzip.NewReader(bytes.NewReader(content)); err == nil {
			if content, err = io.ReadAll(z); err != nil {
				t.Fatal(err)
			}
		}
		b.Write(content)
		b.WriteByte('\n')
	}
	for name, f := range doc.Files {
		b.WriteString(name + "\n")
		add(f)
	}
	for name, s := range doc.Served {
		b.WriteString(name + "\n")
		add(s.recordedFile)
	}
	rest := *doc
	rest.Files = nil
	j, err := json.Marshal(rest)
	if err != nil {
		t.Fatal(err)
	}
	b.Write(j)
	return b.String() + strings.ToLower(b.String())
}

func mustRedact(t *testing.T, doc *recording, key []byte) *recording {
	t.Helper()
	out, err := redact(doc, key)
	if err != nil {
		t.Fatal(err)
	}
	if err := out.valid(); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestRedactLeavesNobody(t *testing.T) {
	was, left := all(t, identifying()), all(t, mustRedact(t, identifying(), testKey))
	for _, secret := range []string{
		"node17", "jane", "roe.example", "acme", "4711", "filer", "secretlayer", "mt2137x9", "10.1.2.3",
		"11111111-2222", "6e04217e", "b83fd2", "b8:3f:d2", "b83f:d203", "ba3f:d2ff", "0a01:0203", "2a01:0488", "a1a1a1a1",
		"1653222001234", "\xef\xcd\xab\x00\x03\xd2\x3f\xb8",
	} {
		if !strings.Contains(was, secret) {
			t.Errorf("the test's machine has no %q", secret)
		}
		if strings.Contains(left, secret) {
			t.Errorf("%q is left", secret)
		}
	}
}

// What is not about anybody stays, and what belongs together stays together.
func TestRedactKeepsStructure(t *testing.T) {
	doc := mustRedact(t, identifying(), testKey)
	read := func(name string) string {
		t.Helper()
		f, ok := doc.Files[name]
		if !ok {
			t.Fatalf("no %s", name)
		}
		return strings.TrimSpace(string(f.content()))
	}
	const ib = "/sys/class/infiniband/mlx5_0/"
	gid := func(n string) string { return read(ib + "ports/1/gids/" + n) }
	release := read("/proc/sys/kernel/osrelease")
	if !strings.HasPrefix(release, "6.8.0-45-x") || !strings.HasSuffix(release, "-generic") {
		t.Errorf("release %q", release)
	}
	_ = read("/lib/modules/" + release + "/modules.dep")
	for _, kept := range []string{" ro ", "iommu=pt", "nvidia.NVreg_EnableStreamMemOPs=1"} {
		if line := read("/proc/cmdline"); !strings.Contains(line, kept) {
			t.Errorf("the command line %q lacks %q", line, kept)
		}
	}
	if v := read("/proc/driver/nvidia/version"); !strings.Contains(v, "Open Kernel Module for x86_64  580.159.04  Release Build  (user@host)") {
		t.Errorf("driver version %q", v)
	}
	if m := read("/proc/self/mountinfo"); !strings.HasPrefix(m, "22 1 0:21 / / rw - overlay overlay rw,lowerdir=/var/lib/docker/overlay2/x") {
		t.Errorf("mountinfo %q", m)
	}
	if m := read("/etc/modprobe.d/rdma.conf"); m != "#\noptions ib_core netns_mode=0" {
		t.Errorf("modprobe.d %q", m)
	}
	if m := read("/etc/nccl.conf"); m != "NCCL_IB_TC=106" {
		t.Errorf("nccl.conf %q", m)
	}
	for _, a := range doc.Asks {
		said := string(a.Records[0].Data)
		switch a.Name {
		case AskEnviron:
			if said != `{"files":{"~/.nccl.conf":"NCCL_IB_TC=96\n"},"variables":{"NCCL_IB_HCA":"^mlx5_9:1"}}` {
				t.Errorf("environment %s", said)
			}
		case AskSMP:
			if !strings.Contains(said, `"port":{"value":"7"}`) || !strings.Contains(said, `"chassis":{"value":"02`) {
				t.Errorf("InfiniBand neighbour %s", said)
			}
		case AskLLDP:
			if !strings.Contains(said, `"port":{"value":"Ethernet12"}`) || a.Args[0] != a.Records[0].Subject || !strings.Contains(said, `"chassis":{"value":"02:`) {
				t.Errorf("neighbour %s of %v", said, a.Args)
			}
		}
	}
	if d := read(ib + "node_desc"); !strings.HasSuffix(d, " mlx5_0") {
		t.Errorf("node_desc %q", d)
	}
	guid := read(ib + "node_guid")
	if guid != read(ib+"sys_image_guid") || len(guid) != 19 || !strings.HasPrefix(guid, "02") {
		t.Errorf("GUID %q", guid)
	}
	// One MAC address, in five forms.
	var mac, name string
	for _, e := range doc.Dirs["/sys/class/net"].Entries {
		if strings.HasPrefix(e.Name, "enx") {
			name = e.Name
			mac = read("/sys/class/net/" + name + "/address")
		}
	}
	x := strings.ReplaceAll(mac, ":", "")
	if len(x) != 12 || name != "enx"+x || doc.Links["/sys/class/net/"+name].Target != "../../devices/net/"+name {
		t.Errorf("MAC %q, interface %q", mac, name)
	}
	if want := x[:4] + ":" + x[4:6] + "03:00" + x[6:8] + ":" + x[8:]; guid != want {
		t.Errorf("GUID %s, want %s of MAC %s", guid, want, mac)
	}
	if want := "fe80:0000:0000:0000:00" + x[2:4] + ":" + x[4:6] + "ff:fe" + x[6:8] + ":" + x[8:]; gid("0") != want {
		t.Errorf("link-local GID %s, want %s", gid("0"), want)
	}
	if a := read("/sys/class/net/ib0/address"); a != "00:00:10:49:fe:80:00:00:00:00:00:00:"+colons(unhex(t, strings.ReplaceAll(guid, ":", "")), 1) {
		t.Errorf("IPoIB address %s of GUID %s", a, guid)
	}
	a, b := gid("1"), gid("2")
	if !strings.HasPrefix(a, "0000:0000:0000:0000:0000:ffff:0a") || a[:37] != b[:37] || a == b {
		t.Errorf("IPv4 GIDs %s and %s are not two of one private net", a, b)
	}
	if !strings.HasPrefix(gid("3"), "2001:0db8:") || strings.Trim(gid("4"), "0:") != "" {
		t.Errorf("global GID %s, empty GID %s", gid("3"), gid("4"))
	}
	if read("/sys/class/net/lo/address") != "00:00:00:00:00:00" {
		t.Error("the loopback's address changed")
	}
	if r := read("/sys/bus/pci/devices/0000:3a:00.0/resource"); r != "0x0000104002000000 0x0000104002ffffff 0x000000000014220c" {
		t.Errorf("resource %q", r)
	}
	if _, ok := doc.Files["/sys/firmware/efi/SecureBoot-"+efiGlobal]; !ok {
		t.Error("the EFI variable lost its name")
	}
	// One UUID, whatever its case; numbers keep their digits.
	uuid := strings.Fields(read("/proc/driver/nvidia/gpus/0000:3a:00.0/information"))[2]
	nvml := slices.IndexFunc(doc.Asks, func(a recordedAsk) bool { return a.Name == AskNVML })
	if data := string(doc.Asks[nvml].Records[0].Data); !strings.Contains(data, uuid) || !strings.Contains(data, `"bytes":18446744073709551615`) || !strings.Contains(data, `\n`+mac) {
		t.Errorf("%s lacks %s or %s", data, uuid, mac)
	}
	vpd := doc.Served["/sys/devices/pci0000:00/0000:3a:00.0/vpd"].content()
	if !bytes.Contains(vpd, []byte("PN\x03MCXSN\x08")) || !bytes.HasSuffix(vpd, []byte("RV\x00\x78")) {
		t.Errorf("VPD %q", vpd)
	}
	module := doc.Files["/lib/modules/"+release+"/updates/dkms/x.ko"].content()
	if !bytes.HasPrefix(module, []byte("\x7fELF\xff\x00author=x")) || !bytes.HasSuffix(module, signatureMark) {
		t.Errorf("module %q", module)
	}
	config := doc.Served["/sys/devices/pci0000:00/0000:3a:00.0/config"].content()
	if binary.BigEndian.Uint32(config[0x11c:]) != 0xfeedbeef || len(config) != 0x120 {
		t.Error("configuration space changed beside the serial number")
	}
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	var b []byte
	if err := json.Unmarshal([]byte(`"`+s+`"`), new(string)); err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(s); i += 2 {
		b = append(b, byte(strings.IndexByte("0123456789abcdef", s[i])<<4|strings.IndexByte("0123456789abcdef", s[i+1])))
	}
	return b
}

// One key gives one result; another recording has other pseudonyms.
func TestRedactKeys(t *testing.T) {
	a, b := mustRedact(t, identifying(), testKey), mustRedact(t, identifying(), testKey)
	if d := cmp.Diff(all(t, a), all(t, b)); len(d) > 0 && len(all(t, a)) != len(all(t, b)) {
		t.Error("one key, two results")
	}
	j, _ := json.Marshal(a)
	k, _ := json.Marshal(b)
	if !bytes.Equal(j, k) {
		t.Error("one key, two results")
	}
	const guid = "/sys/class/infiniband/mlx5_0/node_guid"
	other := mustRedact(t, identifying(), []byte("another"))
	if *a.Files[guid].Text == *other.Files[guid].Text {
		t.Error("two keys, one pseudonym")
	}
}

// An identifier that hides where redaction does not look stops it.
func TestRedactFindsLeaks(t *testing.T) {
	doc := identifying()
	doc.Files["/sys/kernel/btf/odd"] = recordedFile{Base64: []byte("\xff b8:3f:d2:ab:cd:ef")}
	if _, err := redact(doc, testKey); err == nil || strings.Contains(err.Error(), "b8:3f") {
		t.Errorf("%v", err)
	}
}

// Up to 254 addresses of a net have as many pseudonyms.
func TestRedactIPv4(t *testing.T) {
	r := newRedactor(testKey)
	seen := map[string]bool{}
	for i := range 254 {
		p := r.v4([4]byte{192, 168, 7, byte(i + 1)})
		if p[0] != 192 || p[1] != 168 || p[3] == 0 || p[3] == 255 || seen[string(p)] {
			t.Errorf("%v", p)
		}
		seen[string(p)] = true
	}
	for in, want := range map[[4]byte][]byte{
		{127, 0, 0, 1}: {127, 0, 0, 1}, {0, 0, 0, 0}: {0, 0, 0, 0}, {255, 255, 255, 0}: {255, 255, 255, 0},
		{172, 31, 0, 1}: {172}, {169, 254, 9, 9}: {169, 254}, {8, 8, 8, 8}: {198}, {10, 0, 0, 1}: {10},
	} {
		if p := r.v4(in); !bytes.HasPrefix(p, want) {
			t.Errorf("%v: %v, want %v…", in, p, want)
		}
	}
}

// FuzzRedact: whatever a file or an answer holds, redaction ends, and what it
// gives can be read.
func FuzzRedact(f *testing.F) {
	f.Add("b8:3f:d2:ab:cd:ef node17 (a@b) /home/x fe80:0000:0000:0000:ba3f:d2ff:feab:cdef")
	f.Add("\x82\x01\x00x\x90\x05\x00SN\x02ab\x78")
	f.Fuzz(func(t *testing.T, content string) {
		rec := &recording{Version: recordingVersion, Tool: "gdrcheck", CollectedAt: when, Files: map[string]recordedFile{}, Served: map[string]recordedServed{}}
		for _, name := range []string{
			"/proc/sys/kernel/osrelease", "/a/vpd", "/sys/devices/x/config", "/proc/config.gz", "/lib/modules/x/y.ko",
			"/lib/modules/x/y.ko.zst", "/proc/cmdline", "/proc/self/mountinfo", "/a/node_desc", "/b",
		} {
			rec.Files[name] = fileOf([]byte(content), nil)
		}
		data, err := json.Marshal(map[string]string{content: content})
		if err != nil {
			t.Fatal(err)
		}
		rec.Asks = []recordedAsk{{Name: "x", Records: []Record{{Subject: content, State: Known, Data: data}}}}
		out, err := redact(rec, testKey)
		if err != nil {
			return // it found that it would leave something
		}
		b, err := json.Marshal(out)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := newRecording(b); err != nil {
			t.Errorf("redacted, it cannot be read: %v", err)
		}
	})
}
