package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/gdrcheck/gdrcheck/checks"
	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/rdma/qos"
	"github.com/gdrcheck/gdrcheck/topo"
)

// KindQoS is the kind of "gdrcheck rdma qos".
const KindQoS Kind = "qos"

// QoS is the document of "gdrcheck rdma qos".
type QoS struct {
	Header
	Network checks.NetworkProfile `json:"network"`
	Ports   []QoSPort             `json:"ports"`
	// Reason says why there is no port, where nobody could tell whether there is.
	Reason string `json:"reason,omitempty"`
}

// noPorts is why the RDMA devices were not seen; empty: they were, or there is none.
func noPorts(m *topo.Machine) string {
	why := func(what string, state fact.State, reason, source string) string {
		if state == fact.Known || state == fact.Absent {
			return ""
		}
		return fmt.Sprintf("%s: %s (%s)", what, strings.ReplaceAll(state.String(), "_", " "), cmp.Or(reason, source))
	}
	l := m.RDMA.Listed
	text := why("RDMA devices", l.State, l.Reason, l.Source)
	for i := range m.RDMA.Devices {
		d := &m.RDMA.Devices[i]
		text = cmp.Or(text, why("ports of "+d.Name, d.PortsListed.State, d.PortsListed.Reason, d.PortsListed.Source))
	}
	return text
}

// sayNoPorts is the table of a document without ports.
func (p *page) sayNoPorts(reason string) {
	if reason != "" {
		p.para("? ", reason)
		return
	}
	p.line("No RDMA port was seen.")
}

// QoSPort is one way out of one RDMA port: its settings, and what becomes of
// the packets of each program there.
type QoSPort struct {
	Device    string                     `json:"device"`
	Port      int                        `json:"port"`
	NetDev    string                     `json:"netdev,omitempty"`
	Transport fact.Value[rdma.Transport] `json:"transport,omitzero"`
	MTUBytes  fact.Value[int]            `json:"mtu_bytes,omitzero"` // of the RDMA port
	Marks     []QoSMark                  `json:"marks,omitempty"`    // RoCE only
	GIDs      []QoSGID                   `json:"gids,omitempty"`     // RoCE only
	Settings  qos.Port                   `json:"settings"`
}

// QoSMark is what the packets of a program are marked with, and where it leads.
type QoSMark struct {
	Program  qos.Program      `json:"program"`
	ToS      fact.Value[int]  `json:"tos"`
	From     string           `json:"from"`
	Chosen   bool             `json:"chosen"` // somebody set it
	DSCP     *int             `json:"dscp,omitempty"`
	Priority fact.Value[int]  `json:"priority,omitzero"`
	Lossless fact.Value[bool] `json:"lossless,omitzero"`
	Buffer   fact.Value[int]  `json:"buffer,omitzero"`
}

// QoSGID is the GID that a program takes unless it is told another.
type QoSGID struct {
	Program  qos.Program     `json:"program"`
	Index    fact.Value[int] `json:"index"`
	GID      string          `json:"gid,omitempty"`
	Routable bool            `json:"routable"`
}

// NewQoS puts the settings of a machine's RDMA ports into a document.
func NewQoS(m *topo.Machine, n *checks.Node, version string) *QoS {
	doc := &QoS{Header: NewHeader(KindQoS, m, version), Network: n.Network, Ports: []QoSPort{}, Reason: noPorts(m)}
	for _, s := range checks.EachLeg(n) {
		p := QoSPort{Device: s.NIC.Name, Port: s.Port.Number, NetDev: s.Leg.NetDev, Transport: s.NIC.Transport,
			MTUBytes: s.Port.ActiveMTU, Settings: *s.Leg}
		if s.NIC.Transport.Or("") == rdma.RoCE {
			p.Marks, p.GIDs = marksOf(m, s.Leg), gidsOf(s.Port, s.Leg)
		}
		doc.Ports = append(doc.Ports, p)
	}
	return doc
}

func marksOf(m *topo.Machine, leg *qos.Port) []QoSMark {
	var out []QoSMark
	for _, mark := range m.QoS.Marks(leg) {
		q := QoSMark{Program: mark.Program, ToS: mark.ToS, From: mark.From, Chosen: mark.Chosen,
			Priority: fact.As(mark.ToS, 0), Lossless: fact.As(mark.ToS, false), Buffer: fact.As(mark.ToS, 0)}
		if tos, ok := mark.ToS.Get(); ok {
			path := leg.PathOf(tos)
			q.DSCP, q.Priority, q.Lossless, q.Buffer = &path.DSCP, path.Priority, path.Lossless, path.Buffer
		}
		out = append(out, q)
	}
	return out
}

func gidsOf(p *rdma.Port, leg *qos.Port) []QoSGID {
	var out []QoSGID
	for _, g := range []struct {
		program qos.Program
		index   fact.Value[int]
	}{{qos.NCCL, p.NCCLGID()}, {qos.UCX, p.UCXGID()}, {qos.RDMACM, p.CMGID(leg.ToS.RDMACMMode.Or("") == "IB/RoCE v1")}} {
		q := QoSGID{Program: g.program, Index: g.index}
		if i, ok := g.index.Get(); ok {
			entry := p.GIDAt(i)
			q.GID, q.Routable = entry.GID, entry.Routable()
		}
		out = append(out, q)
	}
	return out
}

// QoSTable draws a row for each port and mark: what programs give their packets
// and where that leads.
func QoSTable(w io.Writer, doc *QoS, s Style) error {
	p := &page{Style: s}
	p.para("", fmt.Sprintf("%s%s", doc.Network.Title, map[bool]string{true: " (assumed; --network names another)"}[doc.Network.Assumed]))
	p.blank()
	if len(doc.Ports) == 0 {
		p.sayNoPorts(doc.Reason)
	}
	g := grid{head: []string{"NIC", "trust", "ToS", "of", "DSCP", "prio", "PFC", "ECN NP/RP", "CNP", "buffer", "DCBX", "MTU", "GID"}}
	var gaps unseenList
	for _, port := range doc.Ports {
		gaps.rows(&g, port)
	}
	switch {
	case len(g.rows) == 0:
	case g.width() <= p.width():
		p.table(g)
	default: // what differs by program, then what is the port's
		p.table(g.columns(0, 1, 2, 3, 4, 5, 9))
		p.blank()
		p.table(g.columns(0, 6, 7, 8, 10, 11, 12))
	}
	p.gaps(gaps)
	_, err := io.WriteString(w, p.String())
	return err
}

// columns is the table of some columns, without the rows that have nothing there.
func (g *grid) columns(of ...int) grid {
	out := grid{indent: g.indent, gap: g.gap}
	for _, i := range of {
		out.head = append(out.head, g.head[i])
	}
	for _, row := range g.rows {
		var cells []cell
		filled := false
		for _, i := range of {
			cells = append(cells, row[i])
			filled = filled || row[i].text != ""
		}
		if filled {
			out.rows = append(out.rows, cells)
		}
	}
	return out
}

// unseenList gathers what was not seen of which ports, by reason.
type unseenList struct {
	port string // the one at work
	list []unseenThing
}

type unseenThing struct {
	reason      string
	what, ports []string
}

func (u *unseenList) add(what, reason string) {
	i := slices.IndexFunc(u.list, func(x unseenThing) bool { return x.reason == reason })
	if i < 0 {
		i = len(u.list)
		u.list = append(u.list, unseenThing{reason: reason})
	}
	u.list[i].what, u.list[i].ports = appendNew(u.list[i].what, what), appendNew(u.list[i].ports, u.port)
}

func (p *page) gaps(u unseenList) {
	if len(u.list) > 0 {
		p.blank()
	}
	for _, x := range u.list {
		of := x.ports[0]
		if n := len(x.ports); n > 1 {
			of += fmt.Sprintf(" and %d more", n-1)
		}
		p.para("? ", strings.Join(x.what, ", ")+" of "+of+": "+x.reason)
	}
}

// seen writes a setting, or "?" with an entry in the list.
func seen[T any](u *unseenList, what string, v fact.Value[T], write func(T) string) string {
	switch v.State {
	case fact.Known:
		return write(v.V)
	case fact.Absent:
		return "-"
	case fact.NotCollected, fact.Unsupported, fact.Denied, fact.Failed:
	}
	text := strings.ReplaceAll(v.State.String(), "_", " ")
	if v.Reason != "" {
		text += " (" + v.Reason + ")"
	}
	u.add(what, text)
	return "?"
}

// rows draws a port: a row for each mark that some program's packets have.
func (u *unseenList) rows(g *grid, port QoSPort) {
	name := fmt.Sprintf("%s/%d", port.Device, port.Port)
	u.port = name
	if port.NetDev != "" {
		name += " " + port.NetDev
	}
	if t, ok := port.Transport.Get(); !ok || t != rdma.RoCE {
		text := "?"
		if ok {
			text = string(t)
		} else {
			u.add("transport", strings.ReplaceAll(port.Transport.State.String(), "_", " "))
		}
		mtu := seen(u, "MTU", port.MTUBytes, strconv.Itoa)
		g.add(name, text, "-", "-", "-", "-", "-", "-", "-", "-", "-", mtu, "-")
		return
	}
	d, e := &port.Settings.DCB, &port.Settings.ECN
	head := []string{name, seen(u, "trust", d.Trust, func(t qos.Trust) string { return string(t) })}
	tail := []string{
		seen(u, "PFC", d.PFC, func(x qos.PFC) string { return x.Enabled.String() }),
		seen(u, "ECN", e.NP, priorities) + "/" + seen(u, "ECN", e.RP, priorities),
		seen(u, "CNP", e.CNPDSCP, strconv.Itoa) + "/" + seen(u, "CNP", e.CNPPriority, strconv.Itoa),
		"", // buffer, by priority
		seen(u, "DCBX", d.DCBX, func(x qos.DCBX) string { return map[bool]string{true: "host", false: "firmware"}[x.Host] }),
		seen(u, "MTU", port.MTUBytes, strconv.Itoa), u.gids(port.GIDs),
	}
	marks := sameMarks(port.Marks)
	if len(marks) == 1 {
		marks[0].programs = "all"
	}
	for i, mark := range marks {
		row := slices.Clone(head)
		dscp := "?"
		if mark.DSCP != nil {
			dscp = strconv.Itoa(*mark.DSCP)
		}
		row = append(row, seen(u, "ToS", mark.ToS, strconv.Itoa), mark.programs, dscp, seen(u, "priority", mark.Priority, strconv.Itoa)+lossless(mark.Lossless))
		row = append(row, tail...)
		const buffer = 9
		row[buffer] = seen(u, "buffer", mark.Buffer, strconv.Itoa)
		if i > 0 { // the port's own are said above
			for _, col := range []int{0, 1, 6, 7, 8, 10, 11, 12} {
				row[col] = ""
			}
		}
		g.add(row...)
	}
}

// priorities writes a mask: "all", "off" or the numbers.
func priorities(p qos.Priorities) string {
	switch p {
	case 0:
		return "off"
	case 1<<qos.PriorityCount - 1:
		return "all"
	}
	return p.String()
}

func lossless(v fact.Value[bool]) string {
	switch yes, ok := v.Get(); {
	case !ok:
		return ""
	case yes:
		return " lossless"
	}
	return " lossy"
}

// markRow is a mark with all programs that use it.
type markRow struct {
	QoSMark
	programs string
}

func sameMarks(marks []QoSMark) []markRow {
	var out []markRow
	for _, m := range marks {
		i := slices.IndexFunc(out, func(r markRow) bool { return r.ToS.State == m.ToS.State && r.ToS.V == m.ToS.V })
		if i < 0 {
			out = append(out, markRow{m, string(m.Program)})
			continue
		}
		out[i].programs += ", " + string(m.Program)
	}
	return out
}

// gids writes the index that programs take, each with its own where they differ;
// those that no other subnet reaches are marked.
func (u *unseenList) gids(list []QoSGID) string {
	var texts, programs []string
	for _, g := range list {
		text := seen(u, "GID", g.Index, strconv.Itoa)
		if g.Index.State == fact.Known && !g.Routable {
			text += " not routable"
		}
		if i := slices.Index(texts, text); i >= 0 {
			programs[i] += ", " + string(g.Program)
			continue
		}
		texts, programs = append(texts, text), append(programs, string(g.Program))
	}
	if len(texts) == 1 {
		return texts[0]
	}
	for i := range texts {
		texts[i] = programs[i] + " " + texts[i]
	}
	return strings.Join(texts, "; ")
}
