package checks

import (
	_ "embed" // the profiles
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/gdrcheck/gdrcheck/rdma/qos"
)

//go:embed networks.yaml
var networksYAML []byte

// NetworkProfile is what a network asks of its RoCE NICs; networks.yaml explains
// the fields and lists them.
type NetworkProfile struct {
	Name        string    `yaml:"name" json:"name"`
	Title       string    `yaml:"title" json:"title"`
	Lossless    bool      `yaml:"lossless" json:"lossless"`
	MaxLossless int       `yaml:"max_lossless" json:"max_lossless,omitempty"`
	ECN         bool      `yaml:"ecn" json:"ecn"`
	Trust       qos.Trust `yaml:"trust" json:"trust,omitempty"`
	DSCP        *int      `yaml:"dscp" json:"dscp,omitempty"`
	Priority    *int      `yaml:"priority" json:"priority,omitempty"`
	CNPDSCP     *int      `yaml:"cnp_dscp" json:"cnp_dscp,omitempty"`
	CNPPriority *int      `yaml:"cnp_priority" json:"cnp_priority,omitempty"`
	Reorders    bool      `yaml:"reorders" json:"reorders,omitempty"`
	Sources     []string  `yaml:"sources" json:"sources,omitempty"`

	// Assumed: nobody named it. What speaks against it may be meant so.
	Assumed bool `yaml:"-" json:"assumed,omitempty"`
}

// Network is what a site says of its RoCE network: a profile and where it differs.
type Network struct {
	// Profile is one of networks.yaml; empty or "custom": the first, with the
	// values below.
	Profile     string `yaml:"profile,omitempty"`
	DSCP        *int   `yaml:"dscp,omitempty"`         // of RoCE traffic
	Priority    *int   `yaml:"priority,omitempty"`     // of RoCE traffic, IEEE 802.1p
	CNPDSCP     *int   `yaml:"cnp_dscp,omitempty"`     // of congestion notifications
	CNPPriority *int   `yaml:"cnp_priority,omitempty"` // of congestion notifications
	// Neighbours are what the other end of each NIC's cable must call itself
	// over LLDP, or on InfiniBand to --neighbour, by RDMA device: part of the switch's name, or name and port,
	// "leaf1 Ethernet12".
	Neighbours map[string]string `yaml:"neighbours,omitempty"`
}

// customNetwork is the profile's name where a site gives values alone.
const customNetwork = "custom"

var networkProfiles = sync.OnceValues(func() ([]NetworkProfile, error) {
	var out []NetworkProfile
	if err := strictYAML(networksYAML, &out); err != nil {
		return nil, fmt.Errorf("networks: %w", err)
	}
	return out, nil
})

// NetworkNames are the names that a profile can have.
func NetworkNames() []string {
	list, _ := networkProfiles()
	var names []string
	for _, p := range list {
		names = append(names, p.Name)
	}
	return append(names, customNetwork)
}

// ParseNetwork reads what --network takes: a profile's name, or values, or both,
// separated by commas: "lossless", "dscp=26,priority=3,cnp_dscp=48".
func ParseNetwork(text string) (*Network, error) {
	n := new(Network)
	for part := range strings.SplitSeq(text, ",") {
		key, value, valued := strings.Cut(part, "=")
		if !valued {
			if n.Profile != "" {
				return nil, fmt.Errorf("%q and %q: want one profile", n.Profile, part)
			}
			n.Profile = part
			continue
		}
		into := map[string]**int{"dscp": &n.DSCP, "priority": &n.Priority, "cnp_dscp": &n.CNPDSCP, "cnp_priority": &n.CNPPriority}[key]
		if into == nil {
			return nil, fmt.Errorf("no value is called %q; there are: dscp, priority, cnp_dscp, cnp_priority", key)
		}
		i, err := strconv.Atoi(value)
		if err != nil {
			return nil, fmt.Errorf("%s=%q: want a number", key, value)
		}
		*into = &i
	}
	if key, message := n.fault(); key != "" {
		return nil, fmt.Errorf("%s: %s", key, message)
	}
	return n, nil
}

// fault names the field that is wrong and says why; both empty: none is.
func (n *Network) fault() (key, message string) {
	if n.Profile != "" && !slices.Contains(NetworkNames(), n.Profile) {
		return "profile", fmt.Sprintf("no network profile is called %q; there are: %s", n.Profile, strings.Join(NetworkNames(), ", "))
	}
	if n.Profile == customNetwork && n.DSCP == nil && n.Priority == nil {
		return "profile", "custom wants a dscp or a priority"
	}
	const maxDSCP, maxPriority = 63, qos.PriorityCount - 1
	for _, f := range []struct {
		key   string
		value *int
		most  int
	}{{"dscp", n.DSCP, maxDSCP}, {"priority", n.Priority, maxPriority}, {"cnp_dscp", n.CNPDSCP, maxDSCP}, {"cnp_priority", n.CNPPriority, maxPriority}} {
		if f.value != nil && (*f.value < 0 || *f.value > f.most) {
			return f.key, fmt.Sprintf("%d: want 0 to %d", *f.value, f.most)
		}
	}
	return "", ""
}

// profile is the profile that the network says, or the first as an assumption.
func (n *Network) profile() (NetworkProfile, error) {
	list, err := networkProfiles()
	if err != nil {
		return NetworkProfile{}, err
	}
	p := list[0]
	p.Assumed = true
	if n == nil {
		return p, nil
	}
	if i := slices.IndexFunc(list, func(x NetworkProfile) bool { return x.Name == n.Profile }); i >= 0 {
		p = list[i]
		p.Assumed = false
	}
	for _, v := range []struct{ from, into **int }{
		{&n.DSCP, &p.DSCP}, {&n.Priority, &p.Priority}, {&n.CNPDSCP, &p.CNPDSCP}, {&n.CNPPriority, &p.CNPPriority},
	} {
		if *v.from != nil {
			*v.into, p.Assumed = *v.from, false
		}
	}
	if n.Profile == customNetwork {
		p.Name, p.Title = customNetwork, "the site's own values over "+p.Title
	}
	return p, nil
}
