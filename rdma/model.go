package rdma

import (
	_ "embed" // the NIC table
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/pci"
)

// nicTable has one model a line: vendor, device and, where one id covers
// several models, subsystem in hex; flags are "vf" and "data-direct".
//
//go:embed nics.tsv
var nicTable string

const nicColumns = "vendor\tdevice\tsubsystem\tmodel\tmax_gbps\tgpudirect\tflags\tnote\treference"

// nicKey identifies a model; sub is 0 where the ids alone tell it.
type nicKey struct {
	vendor, device pci.ID
	sub            uint32 // subsystem vendor << 16 | subsystem device
}

var nics = sync.OnceValues(func() (map[nicKey]Model, error) { return parseNICs(nicTable) })

func parseNICs(s string) (map[nicKey]Model, error) {
	out := map[nicKey]Model{}
	head, rows, _ := strings.Cut(s, "\n")
	if head != nicColumns {
		return nil, fmt.Errorf("NIC table: columns %q", head)
	}
	line := 1
	for row := range strings.Lines(rows) {
		line++
		k, m, err := parseNIC(strings.Split(strings.TrimSuffix(row, "\n"), "\t"))
		if err != nil {
			return nil, fmt.Errorf("NIC table line %d: %w", line, err)
		}
		if _, twice := out[k]; twice {
			return nil, fmt.Errorf("NIC table line %d: %v is there twice", line, k)
		}
		out[k] = m
	}
	return out, nil
}

var gpuDirectWays = []string{"dmabuf+peermem", "dmabuf", "peermem", "none", "unknown"}

func parseNIC(f []string) (nicKey, Model, error) {
	var k nicKey
	if len(f) != strings.Count(nicColumns, "\t")+1 {
		return k, Model{}, fmt.Errorf("%d columns", len(f))
	}
	m := Model{Name: f[3], GPUDirect: f[5], Note: f[7], Reference: f[8]}
	m.IsVF = strings.Contains(f[6], "vf")
	m.DataDirect = strings.Contains(f[6], "data-direct")
	var errs [4]error
	k.vendor, errs[0] = hexID(f[0])
	k.device, errs[1] = hexID(f[1])
	if sv, sd, ok := strings.Cut(f[2], ":"); ok {
		var v, d pci.ID
		v, errs[2] = hexID(sv)
		d, errs[3] = hexID(sd)
		k.sub = uint32(v)<<16 | uint32(d)
	}
	for _, err := range errs {
		if err != nil {
			return k, m, err
		}
	}
	if m.Name == "" || !slices.Contains(gpuDirectWays, m.GPUDirect) {
		return k, m, fmt.Errorf("model %q, gpudirect %q", m.Name, m.GPUDirect)
	}
	if f[4] != "" {
		var err error
		if m.MaxGbps, err = strconv.ParseFloat(f[4], 64); err != nil {
			return k, m, err
		}
	}
	return k, m, nil
}

func hexID(s string) (pci.ID, error) {
	n, err := strconv.ParseUint(s, 16, 16)
	return pci.ID(n), err
}

const mellanox pci.ID = 0x15b3

// mlx5Generation maps the major firmware version to the PF's device id: several
// generations share the VF id 101e, and a guest sees no PF.
var mlx5Generation = map[string]pci.ID{
	"22": 0x101d, "24": 0xa2d6, "26": 0x101f, "28": 0x1021, "32": 0xa2dc, "40": 0x1023,
}

// model looks the device up in the NIC table.
func (c *collector) model(d *Device) fact.Value[Model] {
	const source = "NIC table"
	if d.Software {
		return fact.Missing[Model](fact.Absent, source, "a software device")
	}
	a, ok := d.PCI.Get()
	f := c.functions[a]
	if m, known := modelByType(d.HCAType.Or("")); known && f == nil {
		return fact.Of(m, source+", hca_type")
	}
	if !ok {
		return fact.As(d.PCI, Model{})
	}
	if f == nil {
		return fact.Missing[Model](fact.NotCollected, source, a.String()+" is not among the PCI functions")
	}
	pf, isVF := f.PhysFn.Get()
	if isVF && c.functions[pf] != nil {
		f = c.functions[pf]
	}
	return fact.Map(findModel(f, d.Firmware.V), func(m Model) (Model, error) {
		m.IsVF = m.IsVF || isVF
		return m, nil
	})
}

// modelByType looks up what mlx5 and mlx4 call their hardware, "MT4129": the PCI
// device id in decimal, for where the PCI tree was not seen.
func modelByType(hcaType string) (Model, bool) {
	n, err := strconv.ParseUint(strings.TrimPrefix(hcaType, "MT"), 10, 16)
	if err != nil || !strings.HasPrefix(hcaType, "MT") {
		return Model{}, false
	}
	table, err := nics()
	if err != nil {
		return Model{}, false
	}
	m, ok := table[nicKey{mellanox, pci.ID(n), 0}]
	return m, ok
}

// findModel looks a function up by its ids; firmware ("28.39.1002") tells the
// generation of an mlx5 VF.
func findModel(f *pci.Function, firmware string) fact.Value[Model] {
	table, err := nics()
	if err != nil {
		return fact.Missing[Model](fact.Failed, "NIC table", err.Error())
	}
	vendor, ok1 := f.Vendor.Get()
	device, ok2 := f.Device.Get()
	if !ok1 {
		return fact.As(f.Vendor, Model{})
	}
	if !ok2 {
		return fact.As(f.Device, Model{})
	}
	source := fmt.Sprintf("NIC table, %s:%s", vendor, device)
	sub := uint32(f.SubsystemVendor.V)<<16 | uint32(f.SubsystemDevice.V)
	m, ok := table[nicKey{vendor, device, sub}]
	if !ok {
		m, ok = table[nicKey{vendor, device, 0}]
	}
	if !ok {
		return fact.Missing[Model](fact.Absent, source, "a model that the table does not know")
	}
	major, _, _ := strings.Cut(firmware, ".")
	if pf, known := mlx5Generation[major]; known && vendor == mellanox && device == 0x101e {
		gen := table[nicKey{vendor, pf, 0}]
		gen.IsVF = true
		gen.Name += " VF"
		return fact.Of(gen, source+" and firmware "+major)
	}
	return fact.Of(m, source)
}
