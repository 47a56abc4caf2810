package checks

import (
	_ "embed" // the commands
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/rdma/qos"
)

//go:embed qos_fixes.yaml
var qosFixesYAML []byte

// otherDriver is the entry of qos_fixes.yaml for drivers that have none.
const otherDriver = "other"

// qosFixes are the command templates by driver and setting; qos_fixes.yaml
// explains them. A fault in it is found by a test.
var qosFixes = sync.OnceValue(func() map[string]map[string][]string {
	var out map[string]map[string][]string
	if err := strictYAML(qosFixesYAML, &out); err != nil {
		panic(fmt.Sprintf("qos_fixes.yaml: %v", err))
	}
	return out
})

// What the commonest recipe sets, for commands that want a value which neither
// the network's profile nor the NIC gives: NVIDIA's defaults for CNPs, and the
// RoCE priority of everybody's documents.
const (
	usualPriority    = 3
	usualCNPDSCP     = 48
	usualCNPPriority = 6
)

// qosFix are the commands that set one thing on the leg, each with its names.
// priority below 0: the network's, else the usual one.
func (c *Case) qosFix(leg *qos.Port, setting string, priority int) []string {
	v := c.fixValues(leg, priority)
	tos := c.tosFor(leg, atoi(v["priority"]))
	v["tos"], v["dscp"] = strconv.Itoa(tos), strconv.Itoa(qos.DSCP(tos))
	return fillFix(leg, v, setting, "keep")
}

// cnpPriority is the network's for CNPs, else the usual one, or the highest that
// is not lossless. Its first DSCP by the default map is eight times it, 48 for 6.
func (c *Case) cnpPriority(leg *qos.Port) int {
	lossless := leg.DCB.PFC.V.Enabled
	switch {
	case c.Network.CNPPriority != nil:
		return *c.Network.CNPPriority
	case c.Network.CNPDSCP != nil || !lossless.Has(usualCNPPriority):
		return usualCNPPriority
	}
	for n := qos.PriorityCount - 1; n > 0; n-- {
		if !lossless.Has(n) {
			return n
		}
	}
	return usualCNPPriority
}

// joined writes each index and value of a list.
func joined[T any](list []T, format, between string) string {
	words := make([]string, len(list))
	for i, x := range list {
		words[i] = fmt.Sprintf(format, i, x)
	}
	return strings.Join(words, between)
}

// bufferSizes are the parts of dcb's and mlnx_qos's commands that size buffers 0
// and 1, half of what there is for each, where buffer 1 has none yet; mlx5
// refuses a lossless priority a buffer too small for its thresholds
// (mlx5e_port_manual_buffer_config). Empty: it has a size, or none is known.
func bufferSizes(b qos.Buffer) (dcb, mlnxQoS string) {
	const granuleBytes = 1024 // whole cells, of 128 or 256 bytes
	all := uint64(0)
	for _, size := range b.SizeBytes {
		all += uint64(size)
	}
	if all == 0 {
		all = uint64(b.TotalBytes)
	}
	half := all / 2 / granuleBytes * granuleBytes
	if b.SizeBytes[1] > 0 || half == 0 {
		return "", ""
	}
	return fmt.Sprintf("buffer-size all:0 0:%d 1:%d ", half, half), fmt.Sprintf(" --buffer_size=%d,%d,0,0,0,0,0,0", half, half)
}

// alignFix are the commands that set a leg as its siblings are, of which model
// is one.
func (c *Case) alignFix(l likeness, leg, model *qos.Port) []string {
	if l.fix == "" {
		return []string{fmt.Sprintf("Set %s of %s as on %s", l.name, orElse(leg.NetDev, leg.Device), orElse(model.NetDev, model.Device))}
	}
	v := c.fixValues(leg, first(model.DCB.PFC.V.Enabled, -1))
	v["dscp"] = strconv.Itoa(qos.DSCP(c.tosFor(model, atoi(v["priority"]))))
	v["tos"] = strconv.Itoa(model.ToS.Forced.Or(model.ToS.RDMACM.Or(0)))
	v["cnp_dscp"], v["cnp_priority"] = strconv.Itoa(model.ECN.CNPDSCP.Or(usualCNPDSCP)), strconv.Itoa(model.ECN.CNPPriority.Or(usualCNPPriority))
	v["rx"], v["tx"] = onOff(model.Pause.RX.V), onOff(model.Pause.TX.V)
	settings := []string{l.fix, "keep"}
	switch {
	case l.fix == "pfc" && model.DCB.PFC.V.Enabled == 0:
		settings[0] = "no_pfc"
	case l.fix == "trust" && model.DCB.Trust.V == qos.TrustPCP:
		settings[0] = "trust_pcp"
	case l.fix == "buffer":
		b := model.DCB.Buffer.V
		v["buffers"], v["dcb_buffers"] = joined(b.Priority[:], "%[2]d", ","), joined(b.Priority[:], "%d:%d", " ")
		v["dcb_sizes"], v["mlnx_sizes"] = "", ""
		if b.SizeBytes != leg.DCB.Buffer.V.SizeBytes {
			v["dcb_sizes"], v["mlnx_sizes"] = "buffer-size "+joined(b.SizeBytes[:], "%d:%d", " ")+" ", " --buffer_size="+joined(b.SizeBytes[:], "%[2]d", ",")
		}
	case l.fix == "ecn":
		differ := model.ECN.NP.V ^ leg.ECN.NP.V | model.ECN.RP.V ^ leg.ECN.RP.V
		n := first(differ, 0)
		v["priority"], v["on"] = strconv.Itoa(n), map[bool]string{true: "1", false: "0"}[model.ECN.NP.V.Has(n)]
	case l.fix == "dscp":
		var out []string
		for dscp := range 64 {
			want, _ := qos.PriorityOf(model.DCB.Apps.V, dscp)
			if have, _ := qos.PriorityOf(leg.DCB.Apps.V, dscp); have != want {
				v["dscp"], v["priority"] = strconv.Itoa(dscp), strconv.Itoa(want)
				out = append(out, fillFix(leg, v, "dscp")[:1]...)
			}
		}
		return append(out, fillFix(leg, v, "keep")...)
	}
	return fillFix(leg, v, settings...)
}

func (c *Case) fixValues(leg *qos.Port, priority int) map[string]string {
	if priority < 0 {
		priority = orNumber(c.Network.Priority, usualPriority)
	}
	v := map[string]string{
		"netdev": orElse(leg.NetDev, "INTERFACE"), "ibdev": leg.Device, "port": strconv.Itoa(leg.Number),
		"priority": strconv.Itoa(priority), "mask": qos.Priorities(1 << priority).Mask(), "on": "1", "rx": "off", "tx": "off",
	}
	cnp := c.cnpPriority(leg)
	v["cnp_priority"], v["cnp_dscp"] = strconv.Itoa(cnp), strconv.Itoa(orNumber(c.Network.CNPDSCP, cnp<<3))
	v["buffers"], v["dcb_buffers"] = v["mask"], "all:0 "+v["priority"]+":1"
	v["dcb_sizes"], v["mlnx_sizes"] = bufferSizes(leg.DCB.Buffer.V)
	if a, ok := leg.PCI.Get(); ok {
		v["pci"], v["nvport"] = a.String(), firmwarePort(a)
	}
	return v
}

// firmwarePort is the number that names of mlxconfig end with: NVIDIA's NICs have
// a physical function for each port.
func firmwarePort(a pci.Address) string { return strconv.Itoa(int(a.Function) + 1) }

// fillFix are the driver's lines for the settings, with the values in them.
func fillFix(leg *qos.Port, values map[string]string, settings ...string) []string {
	name, _, _ := strings.Cut(leg.NetDriver.Or(""), ".") // a subfunction's is mlx5_core.sf
	table, ok := qosFixes()[name]
	if !ok {
		table = qosFixes()[otherDriver]
	}
	var out []string
	for _, key := range settings {
		for _, line := range table[key] {
			if filled, ok := fill(line, values); ok {
				out = append(out, filled)
			}
		}
	}
	return out
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

func atoi(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}

// tosFor is the mark that RoCE traffic should have to reach a priority: the
// network's, else as the NIC maps it, or by the default map where that was not
// seen.
func (c *Case) tosFor(leg *qos.Port, priority int) int {
	if c.Network.DSCP != nil {
		return qos.ToSOf(*c.Network.DSCP)
	}
	if tos, ok := leg.ToSFor(priority); ok {
		return tos
	}
	var byDefault qos.Port
	byDefault.DCB.Trust, byDefault.DCB.Apps = fact.Of(qos.TrustDSCP, ""), fact.Of[[]qos.App](nil, "")
	tos, _ := byDefault.ToSFor(priority)
	return tos
}

var placeholder = regexp.MustCompile(`\{[a-z_]+\}`)

// fill replaces the names in braces; false: one has no value.
func fill(line string, values map[string]string) (string, bool) {
	ok := true
	filled := placeholder.ReplaceAllStringFunc(line, func(name string) string {
		v, there := values[strings.Trim(name, "{}")]
		ok = ok && there
		return v
	})
	return filled, ok
}

func orNumber(n *int, def int) int {
	if n == nil {
		return def
	}
	return *n
}

// showBuffers writes the buffer of each priority as mlnx_qos does, with the
// sizes of those in use.
func showBuffers(b qos.Buffer) string {
	of := make([]string, len(b.Priority))
	sizes := map[int]bool{}
	var text []string
	for n, i := range b.Priority {
		of[n] = strconv.Itoa(i)
		if i >= 0 && i < len(b.SizeBytes) && !sizes[i] {
			sizes[i] = true
			text = append(text, fmt.Sprintf("buffer %d: %s", i, showBytes(uint64(b.SizeBytes[i]))))
		}
	}
	return fmt.Sprintf("of priorities 0 to 7: %s (%s)", strings.Join(of, ","), strings.Join(text, ", "))
}

// showDCBX says who negotiates, and how.
func showDCBX(d qos.DCBX) string {
	words := []string{"by firmware"}
	if d.Host {
		words[0] = "by the host"
	}
	for _, w := range []struct {
		on   bool
		text string
	}{{d.LLDManaged, "LLD managed"}, {d.IEEE, "IEEE"}, {d.CEE, "CEE"}, {d.Static, "static"}} {
		if w.on {
			words = append(words, w.text)
		}
	}
	return strings.Join(words, ", ")
}
