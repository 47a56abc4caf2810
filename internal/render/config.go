package render

import (
	"encoding/binary"
	"math/bits"

	"github.com/gdrcheck/gdrcheck/pci"
)

func (f *Function) configBytes() int {
	switch {
	case f.ConfigBytes != 0:
		return f.ConfigBytes
	case f.Express != nil:
		return 4096
	}
	return 256
}

// config builds configuration space: a type 0 or 1 header, the PCI Express
// capability at 0x60, and extended capabilities from 0x100 (PCIe Base Spec 7).
func (f *Function) config(bus busRange, multi bool) []byte {
	b := make([]byte, 4096)
	le := binary.LittleEndian
	vf := f.PhysFn != ""
	le.PutUint16(b, uint16(f.Vendor))
	le.PutUint16(b[2:], uint16(f.Device))
	if vf { // both read as ones in a virtual function
		le.PutUint32(b, 0xffffffff)
	}
	if !f.Disabled {
		le.PutUint16(b[4:], 0x0006) // memory space, bus master
	}
	le.PutUint32(b[8:], uint32(f.Class)<<8|uint32(f.Revision))
	if multi {
		b[0x0e] = 0x80
	}
	if f.Class.Sub() == pci.ClassPCIBridge {
		b[0x0e] |= 1
		b[0x18], b[0x19], b[0x1a] = bus.primary, bus.secondary, bus.subordinate
	} else {
		le.PutUint16(b[0x2c:], uint16(f.SubVendor))
		le.PutUint16(b[0x2e:], uint16(f.SubDevice))
	}
	f.putBARs(b)
	if f.Express != nil {
		le.PutUint16(b[6:], 0x0010) // a capability list
		b[0x34] = 0x60
		f.Express.put(b[0x60:], vf)
		f.putExtended(b)
	}
	return b
}

func (f *Function) putBARs(b []byte) {
	for _, bar := range f.BARs {
		at := 0x10 + 4*bar.Index
		if bar.Index > 5 || f.Class.Sub() == pci.ClassPCIBridge && bar.Index > 1 {
			continue
		}
		low := uint32(bar.Start)&^0xf | uint32(bar.Flags)&0xf
		binary.LittleEndian.PutUint32(b[at:], low)
		if bar.Flags&flagMem64 != 0 && bar.Index < 5 {
			binary.LittleEndian.PutUint32(b[at+4:], uint32(bar.Start>>32))
		}
	}
}

func (e *Express) put(b []byte, vf bool) {
	le := binary.LittleEndian
	mps, supported, mrrs := or(e.MPSBytes, 256), or(e.MPSSupportedBytes, 512), or(e.MRRS, 512)
	b[0] = 0x10
	le.PutUint16(b[2:], 2|uint16(e.Port)<<4)
	le.PutUint32(b[4:], sizeCode(max(supported, mps)))
	ctl := sizeCode(mps)<<5 | sizeCode(mrrs)<<12
	if e.RelaxedOrdering {
		ctl |= 0x10
	}
	if e.ExtendedTag {
		ctl |= 0x100
	}
	sta := speedCode(e.Link.SpeedGTPerSec) | uint32(e.Link.Width)<<4
	if vf { // reserved there
		ctl, sta = 0, 0
	}
	le.PutUint16(b[8:], uint16(ctl))
	le.PutUint32(b[0x0c:], speedCode(e.Link.MaxSpeedGTPerSec)|uint32(e.Link.MaxWidth)<<4)
	le.PutUint16(b[0x12:], uint16(sta))
}

// sizeCode is n of 128<<n.
func sizeCode(size int) uint32 { return uint32(bits.Len(uint(size/128))) - 1 }

func speedCode(gt float64) uint32 { return uint32(pci.Generation(gt)) }

// putExtended chains ACS, ATS and Resizable BAR.
func (f *Function) putExtended(b []byte) {
	le := binary.LittleEndian
	at, last := 0x100, 0
	add := func(id uint32, size int) []byte {
		if last != 0 {
			le.PutUint32(b[last:], le.Uint32(b[last:])|uint32(at)<<20)
		}
		c := b[at : at+size]
		le.PutUint32(c, id|1<<16)
		last, at = at, at+size
		return c
	}
	if f.ACS != nil {
		c := add(0x0d, 8)
		le.PutUint16(c[4:], f.ACS.Cap)
		le.PutUint16(c[6:], f.ACS.Ctl)
	}
	if f.ATS != nil {
		c := add(0x0f, 8)
		if *f.ATS {
			le.PutUint16(c[6:], 0x8000)
		}
	}
	if n := len(f.ReBAR); n > 0 {
		c := add(0x15, 4+8*n)
		for i, r := range f.ReBAR {
			var sizes, ctl uint32
			for _, s := range r.SupportedBytes {
				if bit := bits.Len64(s) - 21; bit < 28 {
					sizes |= 1 << (bit + 4)
				} else {
					ctl |= 1 << (bit - 28 + 16)
				}
			}
			ctl |= uint32(r.BAR) | uint32(n)<<5 | uint32(bits.Len64(r.SizeBytes)-21)<<8
			le.PutUint32(c[4+8*i:], sizes)
			le.PutUint32(c[8+8*i:], ctl)
		}
	}
}
