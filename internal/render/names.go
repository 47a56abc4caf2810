package render

import (
	"regexp"
	"strings"

	"github.com/gdrcheck/gdrcheck/pci"
)

// names turns lspci's names back into numbers.
type names struct {
	vendors map[string]pci.ID
	devices map[pci.ID]map[string]pci.ID
	classes map[string]int
}

func newNames() (*names, error) {
	db, err := pci.NameDB()
	if err != nil {
		return nil, err
	}
	n := &names{vendors: map[string]pci.ID{}, devices: map[pci.ID]map[string]pci.ID{}, classes: map[string]int{}}
	for id, v := range db.Vendors {
		vendor := pci.ID(parseHex(id))
		n.vendors[v.Name] = vendor
		n.devices[vendor] = map[string]pci.ID{}
		for _, p := range v.Products {
			n.devices[vendor][p.Name] = pci.ID(parseHex(p.ID))
		}
	}
	for _, c := range db.Classes {
		for _, s := range c.Subclasses {
			n.classes[s.Name] = int(parseHex(c.ID + s.ID))
		}
	}
	return n, nil
}

var (
	reClassNumber = regexp.MustCompile(`(?:\[|^Class )([0-9a-f]{4})\]?$`)
	reDevice      = regexp.MustCompile(`^(?:.* )?Device ([0-9a-f]{4})$`)
	reNumbers     = regexp.MustCompile(`^Device ([0-9a-f]{4}):([0-9a-f]{4})$`)
)

// class returns base class and subclass of "3D controller", "Generic system
// peripheral [0807]" or "Class 0604"; -1 where it is none.
func (n *names) class(s string) int {
	if m := reClassNumber.FindStringSubmatch(s); m != nil {
		return int(parseHex(m[1]))
	}
	if c, ok := n.classes[s]; ok {
		return c
	}
	return -1
}

// ids splits "Mellanox Technologies MT2910 Family [ConnectX-7]" at the longest
// vendor name it begins with.
func (n *names) ids(model string) (vendor, device pci.ID) {
	if m := reNumbers.FindStringSubmatch(model); m != nil {
		return pci.ID(parseHex(m[1])), pci.ID(parseHex(m[2]))
	}
	vendor, device = 0xffff, 0xffff
	name := model
	for name != "" {
		if v, ok := n.vendors[name]; ok {
			vendor = v
			break
		}
		name = name[:max(strings.LastIndexByte(name, ' '), 0)]
	}
	rest := strings.TrimSpace(strings.TrimPrefix(model, name))
	if m := reDevice.FindStringSubmatch(rest); m != nil {
		return vendor, pci.ID(parseHex(m[1]))
	}
	if d, ok := n.devices[vendor][rest]; ok {
		return vendor, d
	}
	// Lists of other years call it "AD102GL [L6000 / RTX 6000 Ada Generation]".
	if i := strings.IndexByte(rest, '['); i >= 0 {
		for name, d := range n.devices[vendor] {
			if strings.Contains(name, strings.Trim(rest[i:], "[]")) && d < device {
				device = d
			}
		}
	}
	return vendor, device
}
