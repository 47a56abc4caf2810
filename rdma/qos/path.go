package qos

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
)

// Program is what makes the packets: libraries differ in what they mark them with.
type Program string

// Programs.
const (
	NCCL   Program = "NCCL"
	UCX    Program = "UCX"
	RDMACM Program = "rdma_cm"
)

// ucxToS is UCX's own choice for RoCE v2 where nothing names another
// (UCT_IB_DEFAULT_ROCEV2_DSCP of its src/uct/ib/base/ib_device.h, which holds
// the whole byte despite its name).
const ucxToS = 106

// Mark is what one program's packets leave a port with.
type Mark struct {
	Program Program
	ToS     fact.Value[int] // the whole byte
	From    string          // what says so, for people
	Chosen  bool            // somebody set it; else it is the program's or the kernel's default
}

// Marks are the marks of the programs that GPUs' traffic comes from, in the
// order NCCL, UCX, rdma_cm. What a job's script sets is seen only as far as
// Facts.Job goes, and rdma_cm's only where somebody made the directory that
// shows it: cma_roce_tos takes it away when it has set the value.
func (f *Facts) Marks(p *Port) []Mark {
	if forced := p.ToS.Forced; forced.State != fact.Absent {
		if forced.State != fact.Known && forced.State != fact.Unsupported {
			return allMarks(Mark{ToS: forced, From: "the port's own traffic class was not seen"})
		}
		if forced.State == fact.Known {
			return allMarks(Mark{ToS: forced, From: "the port's own traffic class", Chosen: true})
		}
	}
	out := []Mark{f.jobMark(NCCL, "NCCL_IB_TC", 0, p), f.jobMark(UCX, "UCX_IB_TRAFFIC_CLASS", ucxToS, p)}
	cm := Mark{Program: RDMACM, ToS: p.ToS.RDMACM, From: "default_roce_tos"}
	switch tos, ok := cm.ToS.Get(); {
	case ok && tos != 0:
		cm.Chosen = true
	case ok || cm.ToS.State == fact.Absent:
		cm = driverMark(p, Mark{Program: RDMACM, ToS: fact.Of(0, cm.ToS.Source), From: "rdma_cm's default"})
	}
	return append(out, cm)
}

func allMarks(m Mark) []Mark {
	var out []Mark
	for _, p := range []Program{NCCL, UCX, RDMACM} {
		m.Program = p
		out = append(out, m)
	}
	return out
}

// jobMark is what a program's variable says, or its default.
func (f *Facts) jobMark(program Program, variable string, def int, p *Port) Mark {
	for _, s := range f.Job.Or(nil) {
		if s.Name != variable {
			continue
		}
		tos, read := readToS(program, s.Value)
		if read == byDefault {
			break
		}
		if read == refused {
			return Mark{Program: program, From: variable, Chosen: true,
				ToS: fact.Missing[int](fact.Failed, s.Source, fmt.Sprintf("%s does not take %s=%q", program, variable, cut(s.Value)))}
		}
		m := Mark{Program: program, ToS: fact.Of(tos, s.Source), From: variable, Chosen: true}
		if strings.TrimSpace(s.Value) != strconv.Itoa(tos) { // 0x6a, 106x, 362
			m.From = fmt.Sprintf("%s=%q, of which %s makes %d", variable, cut(s.Value), program, tos)
		}
		return m
	}
	m := Mark{Program: program, ToS: fact.Of(def, string(program)), From: fmt.Sprintf("%s's default", program)}
	if def == 0 {
		return driverMark(p, m)
	}
	return m
}

// driverMark replaces an unmarked packet's ToS by the DSCP that the driver
// itself gives RoCE traffic, where it does.
func driverMark(p *Port, m Mark) Mark {
	if dscp, ok := p.ECN.DSCP.Get(); ok && dscp != 0 {
		return Mark{Program: m.Program, ToS: fact.Of(dscp<<2, p.ECN.DSCP.Source), From: "the driver's own DSCP for RoCE", Chosen: true}
	}
	return m
}

// Path is what becomes of packets with one mark: their priority, whether that
// is lossless, and the receive buffer that it has. A step that was not seen
// leaves those after it unseen, with its reason.
type Path struct {
	DSCP     int
	Priority fact.Value[int]
	How      string // what gives the priority: "DSCP table", "dscp>>3", "no VLAN tag"
	Lossless fact.Value[bool]
	Buffer   fact.Value[int]
}

// PathOf follows a mark through the port's settings.
func (p *Port) PathOf(tos int) Path {
	out := Path{DSCP: DSCP(tos)}
	out.Priority, out.How = p.priorityOf(out.DSCP)
	n, ok := out.Priority.Get()
	if !ok {
		out.Lossless, out.Buffer = fact.As(out.Priority, false), fact.As(out.Priority, 0)
		return out
	}
	out.Lossless = fact.Map(p.DCB.PFC, func(pfc PFC) (bool, error) { return pfc.Enabled.Has(n), nil })
	out.Buffer = fact.Map(p.DCB.Buffer, func(b Buffer) (int, error) {
		if n < 0 || n >= len(b.Priority) {
			return 0, fmt.Errorf("there is no priority %d", n)
		}
		return b.Priority[n], nil
	})
	return out
}

// priorityOf goes by what the port trusts. Untagged packets have the default
// priority where that is the VLAN tag.
func (p *Port) priorityOf(dscp int) (fact.Value[int], string) {
	trust, ok := p.DCB.Trust.Get()
	if !ok {
		return fact.As(p.DCB.Trust, 0), ""
	}
	if trust == TrustPCP {
		priority := 0
		for _, a := range p.DCB.Apps.Or(nil) {
			if a.Selector == ByEtherType && a.Protocol == 0 {
				priority = a.Priority
			}
		}
		return fact.Of(priority, p.DCB.Trust.Source), "no VLAN tag"
	}
	apps, ok := p.DCB.Apps.Get()
	if !ok {
		return fact.As(p.DCB.Apps, 0), ""
	}
	priority, byTable := PriorityOf(apps, dscp)
	if byTable {
		return fact.Of(priority, p.DCB.Apps.Source), "DSCP table"
	}
	return fact.Of(priority, p.DCB.Apps.Source), "dscp>>3"
}

// String writes the path as far as it was seen: "DSCP 26 → priority 3 (DSCP
// table) → lossless → buffer 1".
func (w Path) String() string {
	s := fmt.Sprintf("DSCP %d", w.DSCP)
	n, ok := w.Priority.Get()
	if !ok {
		return s + " → priority " + unseen(w.Priority.State)
	}
	s += fmt.Sprintf(" → priority %d (%s)", n, w.How)
	switch lossless, ok := w.Lossless.Get(); {
	case !ok:
		return s + " → PFC " + unseen(w.Lossless.State)
	case lossless:
		s += " → lossless"
	default:
		s += " → lossy"
	}
	if b, ok := w.Buffer.Get(); ok {
		s += fmt.Sprintf(" → buffer %d", b)
	}
	return s
}

func unseen(s fact.State) string { return "(" + strings.ReplaceAll(s.String(), "_", " ") + ")" }

// ToSFor is the byte that programs should mark packets with to reach a
// priority: of DSCP 26, which everybody's documents name, where it leads there,
// else of the lowest that does. False: none leads there, or it was not seen.
func (p *Port) ToSFor(priority int) (int, bool) {
	const usual = 26
	for i := range 65 {
		dscp := i - 1
		if i == 0 {
			dscp = usual
		}
		if n, how := p.priorityOf(dscp); how != "" && n.V == priority {
			return ToSOf(dscp), true
		}
	}
	return 0, false
}

// ToSOf is a DSCP as a traffic class byte whose last two bits say that the
// packets take part in ECN (RFC 3168): 26 is 106.
func ToSOf(dscp int) int {
	const capable = 2
	return dscp<<2 | capable
}

type reading int

const (
	taken reading = iota
	byDefault
	refused
)

// readToS reads a traffic class as the program does: NCCL as strtoll with any
// base, where -1 and what is no number are its default (ncclLoadParam of its
// src/misc/param.cc); UCX decimal alone, so that 0x6a is 0, and it refuses what
// is no number (ucs_config_sscanf_ulunits of its src/ucs/config/parser.c). Both
// go by how the text begins, and keep a byte of the number.
func readToS(program Program, text string) (int, reading) {
	base, noNumber := 0, byDefault
	if program == UCX {
		base, noNumber = 10, refused
		switch strings.ToLower(text) {
		case "auto":
			return 0, byDefault
		case "inf":
			text = "-1"
		}
	}
	n, err := leadingNumber(text, base)
	switch {
	case err != nil && program == UCX && errors.Is(err, strconv.ErrRange):
		n = -1 // ULONG_MAX
	case err != nil:
		return 0, noNumber
	case program == NCCL && n == -1:
		return 0, byDefault
	}
	return int(uint8(n)), taken
}

// leadingNumber is the number that a text begins with, as strtoll(3) reads it.
func leadingNumber(text string, base int) (int64, error) {
	text = strings.TrimLeft(text, " \t\n\v\f\r")
	end := strings.IndexFunc(text, func(r rune) bool { return !strings.ContainsRune("+-0123456789abcdefxABCDEFX", r) })
	if end >= 0 {
		text = text[:end]
	}
	const longest = len("-0x7fffffffffffffff") + 1
	for end = min(len(text), longest); end > 0; end-- {
		if strings.ContainsAny(text[:end], "bB") && !strings.ContainsAny(text[:end], "xX") {
			continue // Go's 0b1, which C does not know
		}
		n, err := strconv.ParseInt(text[:end], base, 64)
		if err == nil || errors.Is(err, strconv.ErrRange) {
			return n, err
		}
	}
	return 0, strconv.ErrSyntax
}

// cut keeps a text short enough for a sentence.
func cut(text string) string {
	const enough = 40
	if len(text) > enough {
		return text[:enough] + "…"
	}
	return text
}
