package perftest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unicode"

	"github.com/gdrcheck/gdrcheck/rdma/qos"
)

// protocolVersion is raised with every change that an older end would not
// understand: any field that is new, since both ends refuse what they do not know. A hello keeps its shape for ever, so that ends of different
// versions can tell each other.
const protocolVersion = 5

// message is one line on the control connection: a JSON object with one field.
type message struct {
	Hello    *hello    `json:"hello,omitempty"`    // client, first
	Welcome  *welcome  `json:"welcome,omitempty"`  // server, to a client that proved itself
	Test     *test     `json:"test,omitempty"`     // client: run this
	Accept   *accept   `json:"accept,omitempty"`   // server: it is prepared to
	Step     *step     `json:"step,omitempty"`     // both, within a test
	Finished *finished `json:"finished,omitempty"` // both, after a test
	Alive    *alive    `json:"alive,omitempty"`    // both, all the time
	Bye      *bye      `json:"bye,omitempty"`      // client: no more tests
	List     *list     `json:"list,omitempty"`     // client: which rails are there
	Rails    *railList `json:"rails,omitempty"`    // server: these
	Error    *refusal  `json:"error,omitempty"`    // both
}

// hello is the one message of somebody unknown.
type hello struct {
	Version int    `json:"version"`
	Proof   []byte `json:"proof"` // Token.proof
	// Group is the client's own name for sessions of which it wants several at
	// the same time; empty: it wants one.
	Group string `json:"group,omitempty"`
}

type welcome struct {
	Version int    `json:"version"`
	Tool    string `json:"tool,omitempty"` // version of the program
}

type test struct {
	ID   uint64 `json:"id"` // counts up
	Plan Plan   `json:"plan"`
	// Side is the server's.
	Side Side `json:"side"`
	// Device is the one that the server is to use, as "mlx5_0" or "mlx5_0/1";
	// empty: the server chooses.
	Device string `json:"device,omitempty"`
	// Memory is what its memory is to be.
	Memory MemoryAsk `json:"memory,omitzero"`
	// Simulated: the client moves no data over RDMA.
	Simulated bool `json:"simulated,omitempty"`
}

type accept struct {
	ID        uint64 `json:"id"`
	Simulated bool   `json:"simulated,omitempty"`
}

type step struct {
	ID uint64 `json:"id"`
	Message
}

type finished struct {
	ID       uint64       `json:"id"`
	Counters SideCounters `json:"counters"`
	Limits   Limits       `json:"limits"`
	Load     *GPULoad     `json:"load,omitempty"`
	Reported
}

type alive struct{}

type bye struct{}

type list struct{}

// Code says what kind of refusal or end an error is.
type Code string

// Codes.
const (
	CodeVersion     Code = "version"     // the ends speak different versions
	CodeBusy        Code = "busy"        // the server serves somebody else
	CodeRefused     Code = "refused"     // this test is not run; others may be
	CodeProtocol    Code = "protocol"    // the other end sent what it should not have
	CodeInterrupted Code = "interrupted" // somebody ended this end
	CodeFailed      Code = "failed"      // this end cannot go on
)

var codes = []Code{CodeVersion, CodeBusy, CodeRefused, CodeProtocol, CodeInterrupted, CodeFailed}

// ends says whether nothing can follow.
func (c Code) ends() bool { return c != CodeRefused }

type refusal struct {
	Code Code   `json:"code"`
	Text string `json:"text"`
}

// decodeMessage reads one line: one object with one known field, all of it
// within bounds, every text printable.
func decodeMessage(line []byte) (message, error) {
	var m message
	line, err := printable(line)
	if err != nil {
		return message{}, fmt.Errorf("the other side sent what is no message: %w", err)
	}
	if err := strictJSON(line, &m); err != nil {
		return message{}, fmt.Errorf("the other side sent what is no message: %w", err)
	}
	if err := m.check(); err != nil {
		return message{}, fmt.Errorf("the other side sent a wrong message: %w", err)
	}
	return m, nil
}

// decodeHello reads the first line of a client. Fields that a later version
// may have beside the two are let pass, so that it can be told of the version.
func decodeHello(line []byte) (hello, error) {
	var m struct {
		Hello *hello `json:"hello"`
	}
	if err := json.Unmarshal(line, &m); err != nil || m.Hello == nil {
		return hello{}, errors.New("the first message is no hello")
	}
	return *m.Hello, nil
}

// welcomeVersion is the version in a server's first line, whatever else a later one
// may say; 0: it is no welcome.
func welcomeVersion(line []byte) int {
	var m struct {
		Welcome *struct {
			Version int `json:"version"`
		} `json:"welcome"`
	}
	if json.Unmarshal(line, &m) != nil || m.Welcome == nil {
		return 0
	}
	return m.Welcome.Version
}

// printable replaces what would upset a terminal in every text of a JSON value.
func printable(line []byte) ([]byte, error) {
	var v any
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(line[dec.InputOffset():])) > 0 {
		return nil, errors.New("more than one value")
	}
	return json.Marshal(cleaned(v))
}

func cleaned(v any) any {
	switch v := v.(type) {
	case string:
		return PrintableText(v)
	case []any:
		for i := range v {
			v[i] = cleaned(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = cleaned(v[k])
		}
	}
	return v
}

// PrintableText replaces control and formatting characters by "?", so that a
// text from elsewhere can be shown on a terminal.
func PrintableText(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, strings.ToValidUTF8(s, "?"))
}

// Bounds of single fields, in bytes and elements.
const (
	maxText  = 4096
	maxTexts = 64
)

// check says what is out of bounds.
func (m *message) check() error {
	var given int
	for _, set := range []bool{
		m.Hello != nil, m.Welcome != nil, m.Test != nil, m.Accept != nil, m.Step != nil,
		m.Finished != nil, m.Alive != nil, m.Bye != nil, m.Error != nil, m.List != nil, m.Rails != nil,
	} {
		if set {
			given++
		}
	}
	if given != 1 {
		return fmt.Errorf("%d fields in place of one", given)
	}
	switch {
	case m.Welcome != nil:
		return short(m.Welcome.Tool)
	case m.Test != nil:
		if m.Test.Side != Initiator && m.Test.Side != Responder {
			return fmt.Errorf("no side %q", m.Test.Side)
		}
		return short(m.Test.Device, m.Test.Memory.Memory, m.Test.Memory.GPU) // the plan is judged by the server, with an answer
	case m.Step != nil:
		return m.Step.check()
	case m.Finished != nil:
		l := &m.Finished.Limits
		if l.PortBytesPerSec < 0 || l.PCIeBytesPerSec < 0 {
			return errors.New("a limit below zero")
		}
		texts := []string{l.PCIeReason, l.LimitedBy, l.PortSource}
		if m.Finished.Load != nil {
			texts = append(texts, m.Finished.Load.Reason)
		}
		if err := short(texts...); err != nil {
			return err
		}
		if err := m.Finished.check(); err != nil {
			return err
		}
		return m.Finished.Counters.check()
	case m.Rails != nil:
		return m.Rails.check()
	case m.Error != nil:
		if !slices.Contains(codes, m.Error.Code) {
			return fmt.Errorf("no code %q", m.Error.Code)
		}
		return short(m.Error.Text)
	}
	return nil
}

func short(texts ...string) error {
	for _, t := range texts {
		if len(t) > maxText {
			return fmt.Errorf("a text of %d bytes", len(t))
		}
	}
	return nil
}

var stages = []Stage{StageOpened, StageConnected, StagePrepared, StageRan, StageVerified}

func (m *Message) check() error {
	if !slices.Contains(stages, m.Stage) {
		return fmt.Errorf("no stage %q", m.Stage)
	}
	if m.Size < 0 || m.Size > MaxSizeBytes {
		return fmt.Errorf("size %d", m.Size)
	}
	if f := m.Failure; f != nil {
		return f.check()
	}
	if m.Stage == StageOpened && m.Endpoint == nil || m.Stage == StageRan && m.Outcome == nil {
		return fmt.Errorf("stage %s lacks what belongs to it", m.Stage)
	}
	for _, err := range []error{m.Endpoint.check(), m.Outcome.check(), m.Data.check()} {
		if err != nil {
			return err
		}
	}
	return nil
}

// Bounds of the fields that the InfiniBand specification gives (9.2, BTH).
const max24 = 1<<24 - 1

func (e *Endpoint) check() error {
	if e == nil {
		return nil
	}
	if len(e.QPs) > MaxQPs {
		return fmt.Errorf("%d queue pairs", len(e.QPs))
	}
	for _, q := range e.QPs {
		if q.Number > max24 || q.PSN > max24 {
			return fmt.Errorf("queue pair %d, PSN %d: more than 24 bits", q.Number, q.PSN)
		}
	}
	if e.GID != "" {
		if _, err := netip.ParseAddr(e.GID); err != nil {
			return fmt.Errorf("GID %q", e.GID)
		}
	}
	if err := e.Stream.check(); err != nil {
		return err
	}
	if e.PortBytesPerSec < 0 {
		return errors.New("a port's rate below zero")
	}
	if e.Address+e.Bytes < e.Address {
		return errors.New("memory that wraps around")
	}
	if len(e.Notes) > maxTexts {
		return fmt.Errorf("%d notes", len(e.Notes))
	}
	if err := short(e.Notes...); err != nil {
		return err
	}
	if err := e.Memory.check(); err != nil {
		return err
	}
	return short(e.Device, e.LinkLayer, e.GIDType, e.GIDReason, e.Firmware, e.Double)
}

func (o *Outcome) check() error {
	if o == nil {
		return nil
	}
	for _, r := range []*Rate{o.Rate} {
		if r != nil && (r.BytesPerSec < 0 || r.MessagesPerSec < 0 || r.WindowNs < 0 || r.CPUNs < 0 || r.IntervalNs < 0) {
			return errors.New("a rate below zero")
		}
	}
	if len(o.Sent) > MaxQPs || len(o.Received) > MaxQPs {
		return errors.New("messages of more queue pairs than there may be")
	}
	if o.CPUNs < 0 {
		return errors.New("CPU time below zero")
	}
	if err := short(o.Path); err != nil {
		return err
	}
	if len(o.Flush) > maxTexts {
		return fmt.Errorf("%d flushes", len(o.Flush))
	}
	for i := range o.Flush {
		if err := o.Flush[i].check(); err != nil {
			return err
		}
	}
	return o.Latency.check()
}

func (l *LatencyDist) check() error {
	if l == nil {
		return nil
	}
	if l.LostAfterNs < 0 {
		return errors.New("a message lost before it was sent")
	}
	if l.MinNs < 0 || l.MinNs > l.MedianNs || l.MedianNs > l.P99Ns || l.P99Ns > l.P999Ns || l.P999Ns > l.MaxNs || l.StdevNs < 0 {
		return errors.New("a latency whose percentiles are not in order")
	}
	return nil
}

// fits says whether a message goes with the plan that both ends run.
func (m *Message) fits(p *Plan) error {
	if m.Endpoint != nil && len(m.Endpoint.QPs) == 0 && p.Route != RouteTCP {
		return fmt.Errorf("%w: 0 queue pairs", errProtocol)
	}
	if o := m.Outcome; o != nil {
		for _, n := range []int{len(o.Sent), len(o.Received)} {
			if n != 0 && n != p.QPs {
				return fmt.Errorf("%w: messages of %d queue pairs, of %d", errProtocol, n, p.QPs)
			}
		}
	}
	return nil
}

func (d *DataCheck) check() error {
	if d == nil {
		return nil
	}
	if d.Side != Initiator && d.Side != Responder {
		return fmt.Errorf("no side %q", d.Side)
	}
	return short(d.Skipped)
}

func (c *SideCounters) check() error {
	if len(c.Watched) > maxText || len(c.Moved) > maxText || len(c.Priorities) > qos.PriorityCount {
		return errors.New("too many counters")
	}
	for _, d := range c.Moved {
		if !slices.Contains(qos.Signs, d.Sign) {
			return fmt.Errorf("no sign %q", d.Sign)
		}
		if err := short(d.Name, d.Counted); err != nil {
			return err
		}
	}
	return short(c.Reason)
}
