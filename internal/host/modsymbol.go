package host

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
)

// signatureMagic ends a signed module's file (include/linux/module_signature.h).
const signatureMagic = "~Module signature appended~\n"

func hasSignature(image []byte) bool { return bytes.HasSuffix(image, []byte(signatureMagic)) }

// peerMemory looks for ib_register_peer_memory_client in a module: what it
// imports is an undefined symbol, with the version that it was built against in
// __versions (struct modversion_info); what it exports has an entry __ksymtab_NAME
// and its version at __crc_NAME (include/linux/export.h, scripts/genksyms).
func peerMemory(image []byte) (PeerMemory, error) {
	f, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return PeerMemory{}, err
	}
	symbols, err := f.Symbols()
	if err != nil && !errors.Is(err, elf.ErrNoSymbols) {
		return PeerMemory{}, err
	}
	var p PeerMemory
	for _, s := range symbols {
		switch s.Name {
		case peerSymbol:
			p.Imports = p.Imports || s.Section == elf.SHN_UNDEF
			p.Exports = p.Exports || s.Section != elf.SHN_UNDEF
		case "__ksymtab_" + peerSymbol:
			p.Exports = true
		case "__crc_" + peerSymbol:
			p.CRC = symbolCRC(f, s)
		}
	}
	if p.Imports {
		p.CRC = importCRC(f)
	}
	return p, nil
}

// symbolCRC is the number at a __crc_ symbol: its value where it is absolute,
// else the four bytes that it points to.
func symbolCRC(f *elf.File, s elf.Symbol) uint32 {
	if s.Section == elf.SHN_ABS {
		return uint32(s.Value)
	}
	if int(s.Section) >= len(f.Sections) {
		return 0
	}
	var b [4]byte
	if _, err := f.Sections[s.Section].ReadAt(b[:], int64(s.Value)); err != nil {
		return 0
	}
	return f.ByteOrder.Uint32(b[:])
}

// importCRC finds the symbol in __versions: entries of 64 bytes, the version as
// a long, then the name.
func importCRC(f *elf.File) uint32 {
	const entry = 64
	s := f.Section("__versions")
	if s == nil || f.Class != elf.ELFCLASS64 {
		return 0
	}
	data, err := s.Data()
	if err != nil {
		return 0
	}
	for ; len(data) >= entry; data = data[entry:] {
		name, _, _ := bytes.Cut(data[8:entry], []byte{0})
		if string(name) == peerSymbol {
			return truncated(f.ByteOrder, data)
		}
	}
	return 0
}

func truncated(order binary.ByteOrder, b []byte) uint32 {
	return uint32(order.Uint64(b))
}
