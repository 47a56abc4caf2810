package checks

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/rdma/qos"
)

var nicConsistency = Check{
	ID: "nic-consistency", Title: "all NICs of one model and role are set alike", Area: AreaRDMA, Severity: SeverityError,
	DependsOn: []string{"rdma-device-present"}, UnknownIs: SeverityWarning,
	Why:      "A collective runs at the pace of its slowest NIC. One of eight with other flow control, marks or congestion control loses packets or is paused under load, and nothing on the node says which it was.",
	Fix:      []string{"See what is odd, and the command that sets it as on the siblings: gdrcheck check --only nic-consistency"},
	Refs:     []string{refRoCEGuide, "https://github.com/Mellanox/nic-configuration-operator"},
	Subjects: EachRDMA,
	Eval:     evalConsistency,
}

// likeness is one setting that must not differ between siblings.
type likeness struct {
	name   string
	of     func(*qos.Facts, *qos.Port) fact.Value[string]
	grave  bool   // a difference loses packets, or lets others wait
	fix    string // of qos_fixes.yaml
	needed bool   // where the siblings' was seen and this one's was not, that is said
}

var likenesses = []likeness{
	{"trust", func(_ *qos.Facts, p *qos.Port) fact.Value[string] { return words(p.DCB.Trust) }, true, "trust", true},
	{"PFC", func(_ *qos.Facts, p *qos.Port) fact.Value[string] { return words(p.DCB.PFC) }, true, "pfc", true},
	{"DSCP map", dscpMap, true, "dscp", false},
	{"ToS of NCCL, UCX", marksOf(qos.NCCL, qos.UCX), true, "tos", false},
	{"ToS of rdma_cm", marksOf(qos.RDMACM), true, "tos", false},
	{"ECN, notification point", func(_ *qos.Facts, p *qos.Port) fact.Value[string] { return words(p.ECN.NP) }, true, "ecn", false},
	{"ECN, reaction point", func(_ *qos.Facts, p *qos.Port) fact.Value[string] { return words(p.ECN.RP) }, true, "ecn", false},
	{"DSCP of CNPs", func(_ *qos.Facts, p *qos.Port) fact.Value[string] { return words(p.ECN.CNPDSCP) }, true, "cnp", false},
	{"priority of CNPs", func(_ *qos.Facts, p *qos.Port) fact.Value[string] { return words(p.ECN.CNPPriority) }, true, "cnp", false},
	{"global pause, obeyed", func(_ *qos.Facts, p *qos.Port) fact.Value[string] { return words(p.Pause.RX) }, true, "pause", false},
	{"global pause, sent", func(_ *qos.Facts, p *qos.Port) fact.Value[string] { return words(p.Pause.TX) }, true, "pause", false},
	{"buffer of each priority", func(_ *qos.Facts, p *qos.Port) fact.Value[string] {
		return fact.Map(p.DCB.Buffer, func(b qos.Buffer) (string, error) { return fmt.Sprint(b.Priority), nil })
	}, true, "buffer", false},
	{"DCBX", func(_ *qos.Facts, p *qos.Port) fact.Value[string] { return words(p.DCB.DCBX) }, false, "dcbx", false},
	{"forward error correction", func(_ *qos.Facts, p *qos.Port) fact.Value[string] { return words(p.FEC.Active) }, false, "", false},
	{"eswitch mode", func(_ *qos.Facts, p *qos.Port) fact.Value[string] { return words(p.Devlink.EswitchMode) }, false, "", false},
}

// words is a setting as text, to be compared and shown. That there is none is
// a setting, too; that there is no interface to ask is not.
func words[T any](v fact.Value[T]) fact.Value[string] {
	if v.State == fact.Absent && v.Errno != syscall.ENODEV && v.Source != "" {
		return fact.Of("none", v.Source)
	}
	return fact.Map(v, func(x T) (string, error) { return show(x), nil })
}

// dscpMap lists the DSCPs whose priority is not the default one.
func dscpMap(_ *qos.Facts, p *qos.Port) fact.Value[string] {
	return fact.Map(p.DCB.Apps, func(apps []qos.App) (string, error) {
		var odd []string
		for dscp := range 64 {
			if n, _ := qos.PriorityOf(apps, dscp); n != dscp>>3 {
				odd = append(odd, fmt.Sprintf("%d:%d", dscp, n))
			}
		}
		return orElse(strings.Join(odd, " "), "dscp>>3"), nil
	})
}

// marksOf lists the marks of programs. One that was not seen, as rdma_cm's where
// nobody made its directory, is not another one.
func marksOf(programs ...qos.Program) func(*qos.Facts, *qos.Port) fact.Value[string] {
	return func(f *qos.Facts, p *qos.Port) fact.Value[string] {
		var all []string
		for _, m := range f.Marks(p) {
			if !slices.Contains(programs, m.Program) {
				continue
			}
			tos, ok := m.ToS.Get()
			if !ok {
				return fact.As(m.ToS, "")
			}
			all = append(all, strconv.Itoa(tos))
		}
		return fact.Of(strings.Join(all, ", "), "the marks of each program")
	}
}

// siblings are the legs of the NICs of the subject's model and role, its own
// among them.
func (c *Case) siblings() []Subject {
	var out []Subject
	for _, s := range EachLeg(c.Node) {
		if !s.NIC.Software && oneModel(s.NIC, c.Subject.NIC) && c.matters(s.NIC) == c.matters(c.Subject.NIC) &&
			s.NIC.Transport.V == c.Subject.NIC.Transport.V {
			out = append(out, s)
		}
	}
	return out
}

// oneModel says whether two NICs are of one model; of one board is more.
func oneModel(a, b *rdma.Device) bool {
	x, okX := a.Model.Get()
	y, okY := b.Model.Get()
	if okX && okY {
		return x.Name == y.Name
	}
	return a == b || sameModel(a, b)
}

func evalConsistency(c *Case) {
	nic := c.Subject.NIC
	transport, _ := Need(c, "transport", nic.Transport)
	all := c.siblings()
	own := slices.DeleteFunc(slices.Clone(all), func(s Subject) bool { return s.NIC != nic })
	switch {
	case nic.Software:
		c.NotApplicable("software RDMA")
		return
	case transport != rdma.RoCE && transport != rdma.InfiniBand:
		c.NotApplicable("%s has none of these settings", orElse(string(transport), "this transport"))
		return
	case len(all) == len(own):
		c.NotApplicable("the only NIC of its model and role")
		return
	}
	if !c.matters(nic) || len(c.Machine.GPU.GPUs) == 0 {
		c.Lower(SeverityWarning)
	}
	r := c.likeSiblings(own, all)
	if r.odd == nil && r.unseen != nil && transport == rdma.RoCE {
		r.unseen()
	}
	message := "set otherwise than its siblings: " + strings.Join(r.odd, "; ")
	switch {
	case r.odd == nil && r.compared == 0 && transport == rdma.InfiniBand:
		c.NotApplicable("InfiniBand's settings are the subnet manager's")
	case r.odd == nil && r.compared == 0:
		c.Unknown("cannot tell: none of the settings was seen on it and its siblings")
		c.Fix(c.howToSee(fact.NotCollected)...)
	case r.odd == nil:
		c.Pass("%d settings as on its siblings", r.compared)
	case r.grave && r.majority:
		c.Fail("%s", message)
	default:
		c.Lower(SeverityWarning)
		c.Warn("%s", message)
	}
}

// resemblance is how a NIC compares with its siblings.
type resemblance struct {
	compared int
	odd      []string
	grave    bool // a difference loses packets
	majority bool // of each difference more than half of the NICs have the other value
	// unseen gives the verdict for a setting that must be seen and was not, where
	// nothing else is odd; nil: none. That no sibling's driver has it is no loss.
	unseen func()
}

// likeSiblings compares all settings of a NIC's legs, with a row and a fix for
// each that differs.
func (c *Case) likeSiblings(own, all []Subject) resemblance {
	r := resemblance{majority: true}
	var fixes []string // each once, where it is last needed
	for _, leg := range own {
		for _, l := range likenesses {
			d, seen := c.compare(l, leg, all)
			switch mine := l.of(&c.Machine.QoS, leg.Leg); {
			case seen:
				r.compared++
			case l.needed && r.unseen == nil && mine.State != fact.Known && (d.of > 0 || mine.State != fact.Unsupported):
				r.unseen = func() {
					Need(c, l.name+" of "+leg.ID, mine, leg.Leg.NetDir)
					c.Unknown("cannot tell: the network interface of %s is not in this network namespace", leg.ID)
					panic(stop{})
				}
			}
			if d.mine == "" {
				continue
			}
			r.odd = append(r.odd, d.String())
			r.grave, r.majority = r.grave || l.grave, r.majority && d.majority
			c.Row(l.name+" of "+leg.ID, d.mine, d.source)
			c.Want("%s", d.theirs)
			for _, line := range c.alignFix(l, leg.Leg, d.like[0].Leg) {
				fixes = append(slices.DeleteFunc(fixes, func(x string) bool { return x == line }), line)
			}
		}
	}
	c.Fix(fixes...)
	return r
}

// difference is a setting that is not as on the siblings; mine is empty where
// there is none.
type difference struct {
	name, mine, theirs, source string
	like                       []Subject // the siblings with the commonest value
	of                         int       // the NICs compared, this one among them
	majority                   bool      // more than half have it
}

func (d difference) String() string {
	return fmt.Sprintf("%s %s, while %d of %d have %s", d.name, d.mine, len(d.like), d.of, d.theirs)
}

// compare says how a setting differs from its commonest value, and whether it
// could be compared. Of two values that are equally common the one on the first
// NIC counts.
func (c *Case) compare(l likeness, leg Subject, all []Subject) (d difference, seen bool) {
	mine := l.of(&c.Machine.QoS, leg.Leg)
	have := map[string][]Subject{}
	var order []string
	for _, s := range all {
		v, ok := l.of(&c.Machine.QoS, s.Leg).Get()
		if !ok {
			continue
		}
		if have[v] == nil {
			order = append(order, v)
		}
		have[v] = append(have[v], s)
		d.of++
	}
	text, ok := mine.Get()
	if !ok {
		return d, false
	}
	common := slices.MaxFunc(order, func(a, b string) int { return cmp.Compare(len(have[a]), len(have[b])) })
	if common != text {
		d.name, d.mine, d.theirs, d.source = l.name, text, common, c.source(mine.Source, leg.Leg.NetDir)
		d.like, d.majority = have[common], 2*len(have[common]) > d.of
	}
	return d, d.of > 1
}
