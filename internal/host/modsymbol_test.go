package host

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// assembled is an object file as a compiler makes it.
func assembled(t *testing.T, source string) []byte {
	t.Helper()
	dir := t.TempDir()
	out := filepath.Join(dir, "x.o")
	in := filepath.Join(dir, "x.s")
	if err := os.WriteFile(in, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := exec.CommandContext(t.Context(), "as", "-o", out, in).CombinedOutput(); err != nil {
		t.Skipf("no assembler here: %v %s", err, text)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The forms that kernels have given exports and imports over the years.
func TestPeerMemory(t *testing.T) {
	const (
		export = ".globl ib_register_peer_memory_client\nib_register_peer_memory_client:\n.byte 0\n" +
			".section __ksymtab,\"a\"\n__ksymtab_ib_register_peer_memory_client:\n.quad 0\n"
		versions = ".section __versions,\"a\"\n.quad 0x11111111\n.asciz \"module_layout\"\n.zero 42\n" +
			".quad 0xdeadbeef\n.asciz \"ib_register_peer_memory_client\"\n.zero 25\n"
	)
	for name, tc := range map[string]struct {
		source string
		want   PeerMemory
	}{
		"imports, with a version":    {".text\n.quad ib_register_peer_memory_client\n" + versions, PeerMemory{Imports: true, CRC: 0xdeadbeef}},
		"imports, without versions":  {".text\n.quad ib_register_peer_memory_client\n", PeerMemory{Imports: true}},
		"built without the symbol":   {".text\n.quad nvidia_p2p_get_pages\n" + versions, PeerMemory{}},
		"a longer name":              {".text\n.quad ib_register_peer_memory_client_exp\n", PeerMemory{}},
		"exports without a version":  {export, PeerMemory{Exports: true}},
		"exports, version absolute":  {export + ".set __crc_ib_register_peer_memory_client, 0xcafe0001\n", PeerMemory{Exports: true, CRC: 0xcafe0001}},
		"exports, version in memory": {export + ".section __kcrctab,\"a\"\n.long 1\n__crc_ib_register_peer_memory_client:\n.long 0xcafe0002\n", PeerMemory{Exports: true, CRC: 0xcafe0002}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := peerMemory(assembled(t, tc.source))
			if diff := cmp.Diff(tc.want, got); err != nil || diff != "" {
				t.Errorf("%v %s", err, diff)
			}
		})
	}
	if _, err := peerMemory([]byte("no ELF")); err == nil {
		t.Error("no error")
	}
}

func TestHasSignature(t *testing.T) {
	if !hasSignature([]byte("\x7fELF…\x00~Module signature appended~\n")) || hasSignature([]byte("\x7fELF ~Module signature appended~\n\x00")) {
		t.Error("signature")
	}
}

func FuzzPeerMemory(f *testing.F) {
	f.Add(koFile(f, someModinfo))
	f.Fuzz(func(_ *testing.T, b []byte) { _, _ = peerMemory(b) })
}
