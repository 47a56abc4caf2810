package pci

import (
	_ "embed"
	"fmt"
	"os"
	"strings"

	"github.com/jaypipes/pcidb"
	"golang.org/x/sys/unix"
)

//go:generate ids/update

//go:embed ids/pci.ids
var ids string

// addNames fills in the names of fns. They are for people, never judged, so a
// host where the list cannot be parsed shows numbers instead.
func addNames(fns []Function) {
	want := map[string]map[string]bool{}
	for i := range fns {
		v, ok := fns[i].Vendor.Get()
		if !ok {
			continue
		}
		if want[v.String()] == nil {
			want[v.String()] = map[string]bool{}
		}
		if d, ok := fns[i].Device.Get(); ok {
			want[v.String()][d.String()] = true
		}
	}
	db, err := parseIDs(pick(ids, want))
	if err != nil {
		return
	}
	for i := range fns {
		v, d := fns[i].Vendor.V.String(), fns[i].Device.V.String()
		if vendor := db.Vendors[v]; vendor != nil {
			fns[i].VendorName = vendor.Name
		}
		if product := db.Products[v+d]; product != nil {
			fns[i].DeviceName = product.Name
		}
	}
}

// NameDB parses the whole embedded list, vendors, devices and classes. It
// takes tens of milliseconds: Collect does without.
func NameDB() (*pcidb.DB, error) { return parseIDs(ids) }

// pick cuts the list down to the vendors and devices of one machine, since
// parsing all of it takes longer than reading all of sysfs.
func pick(list string, want map[string]map[string]bool) string {
	var out strings.Builder
	var devices map[string]bool
	for line := range strings.Lines(list) {
		switch {
		case len(line) > 5 && line[0] == '\t':
			if devices[line[1:5]] {
				out.WriteString(line)
			}
		case strings.HasPrefix(line, "C "): // vendors are before classes
			return out.String()
		case len(line) > 4:
			if devices = want[line[:4]]; devices != nil {
				out.WriteString(line)
			}
		}
	}
	return out.String()
}

// parseIDs hands the list to pcidb, which reads nothing but named files, by
// way of a file in memory.
func parseIDs(list string) (*pcidb.DB, error) {
	fd, err := unix.MemfdCreate("pci.ids", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd for pci.ids: %w", err)
	}
	f := os.NewFile(uintptr(fd), "pci.ids")
	defer f.Close()
	if _, err := f.WriteString(list); err != nil {
		return nil, fmt.Errorf("write pci.ids: %w", err)
	}
	return pcidb.New(pcidb.WithPath(fmt.Sprintf("/proc/self/fd/%d", fd)))
}
