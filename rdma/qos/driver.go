package qos

import (
	"embed"
	"fmt"
	"path"
	"sync"

	"github.com/goccy/go-yaml"
)

// driver says where one driver shows its settings: one file a driver below
// drivers. A list holds the places of one setting, of which the first that is
// there counts. In a place stand {net}, the interface's directory; {device} and
// {port}, the RDMA device's; {pci}, the function; {prio}, each priority.
type driver struct {
	Drivers []string `yaml:"drivers"` // that a network interface or an RDMA device names
	Trust   struct {
		Files []string `yaml:"files"`
		// ByApp: the driver trusts DSCP as soon as the app table has an entry
		// for one, else PCP.
		ByApp bool `yaml:"by_app"`
	} `yaml:"trust"`
	ZeroUnknown bool `yaml:"zero_unknown_with_host_dcbx"`
	ECN         struct {
		NP           []string `yaml:"np"`
		RP           []string `yaml:"rp"`
		CNPDSCP      []string `yaml:"cnp_dscp"`
		CNPPriority  []string `yaml:"cnp_priority"`
		RoCEDSCP     []string `yaml:"roce_dscp"`
		RoCEPriority []string `yaml:"roce_priority"`
		Unseen       string   `yaml:"unseen"` // why no place may be there
	} `yaml:"ecn"`
	LAG struct {
		State      string `yaml:"state"`
		PortSelect string `yaml:"port_select"`
	} `yaml:"lag"`
}

//go:embed drivers/*.yaml
var driverFiles embed.FS

var drivers = sync.OnceValues(func() (map[string]*driver, error) {
	files, err := driverFiles.ReadDir("drivers")
	if err != nil {
		return nil, err
	}
	out := map[string]*driver{}
	for _, f := range files {
		text, err := driverFiles.ReadFile(path.Join("drivers", f.Name()))
		if err != nil {
			return nil, err
		}
		d := new(driver)
		if err := yaml.UnmarshalWithOptions(text, d, yaml.Strict()); err != nil {
			return nil, fmt.Errorf("drivers/%s: %w", f.Name(), err)
		}
		for _, name := range d.Drivers {
			if out[name] != nil {
				return nil, fmt.Errorf("drivers/%s: %s is there twice", f.Name(), name)
			}
			out[name] = d
		}
	}
	return out, nil
})

// driverOf is the first of the names that is known; else one without places.
func driverOf(names ...string) *driver {
	all, err := drivers()
	if err != nil {
		panic(err) // the embedded files are tested
	}
	for _, n := range names {
		if d := all[n]; d != nil {
			return d
		}
	}
	d := new(driver)
	d.ECN.Unseen = "where this driver shows it is not known"
	return d
}
