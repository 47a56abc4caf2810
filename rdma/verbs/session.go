package verbs

/*
#cgo CFLAGS: -I${SRCDIR}/../../internal/mem
#include <stdlib.h>
#include "session.h"
*/
import "C"

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"syscall"
	"time"
	"unsafe"

	"github.com/gdrcheck/gdrcheck/perftest"
)

// Session is one end of a test. All calls but Completed come from one thread,
// which the caller has locked and placed.
type Session struct {
	s      *C.struct_gdr_session
	ops    *C.struct_gdr_mem_ops
	plan   perftest.Plan
	local  perftest.Local
	side   perftest.Side
	own    perftest.Endpoint
	data   stream
	events *watch
}

var ops = map[perftest.Operation]C.int{
	perftest.Write: C.GDR_WRITE, perftest.WriteImm: C.GDR_WRITE_IMM, perftest.Read: C.GDR_READ, perftest.Send: C.GDR_SEND,
}

// Memory is what a session's data is to be in.
type Memory struct {
	Ops    unsafe.Pointer // a const struct gdr_mem_ops * of package mem
	Device int            // of its kind: a NUMA node (-1: any), or a GPU's number
}

// Open opens the device, registers memory and makes queue pairs. library is a
// test double to load, or empty. What was opened is closed again on an error,
// which is a *perftest.Failure.
func Open(library string, memory Memory, p perftest.Plan, l perftest.Local, side perftest.Side) (*Session, perftest.Endpoint, error) {
	if p.Route == perftest.RouteTCP || p.Route == perftest.RouteCopy {
		return openBare(memory, p, l, side)
	}
	const byteMax = 255
	if l.Port < 1 || l.Port > byteMax || l.GIDIndex > byteMax || l.PKeyIndex < 0 || l.PKeyIndex > 1<<16-1 {
		return nil, perftest.Endpoint{}, &perftest.Failure{
			Call: "open", Subject: l.Device,
			Cause: fmt.Sprintf("port %d, GID index %d and P_Key index %d: want 1 to 255, up to 255, and 0 to 65535", l.Port, l.GIDIndex, l.PKeyIndex),
		}
	}
	library = cmp.Or(library, soname)
	table, err := load(library)
	if err != nil {
		return nil, perftest.Endpoint{}, loadFailure(library, err)
	}
	ways := l.Ways()
	if slices.Contains(ways, perftest.WayDataDirect) {
		loadMLX5(table, library)
	}
	name := C.CString(l.Device)
	defer C.free(unsafe.Pointer(name))
	var (
		cs *C.struct_gdr_session
		ce C.struct_gdr_error
	)
	if C.gdr_session_open(&cs, table, name, C.uint8_t(l.Port), &ce) != 0 {
		f := failure(&ce, nil, &l)
		f.Subject = fmt.Sprintf("%s/%d", l.Device, l.Port)
		return nil, perftest.Endpoint{}, f
	}
	s := &Session{s: cs, ops: (*C.struct_gdr_mem_ops)(memory.Ops), plan: p, local: l, side: side}
	e, err := s.setup(memory.Device, ways)
	if err != nil {
		s.Close()
		return nil, perftest.Endpoint{}, err
	}
	s.own = e
	if s.events, err = s.watch(); err != nil {
		s.Close()
		return nil, perftest.Endpoint{}, err
	}
	return s, e, nil
}

func loadFailure(library string, err error) error {
	f := &perftest.Failure{Call: "dlopen " + library, Cause: err.Error(), Check: "reinstall libibverbs (rdma-core)"}
	if errors.Is(err, fs.ErrNotExist) {
		f.Cause, f.Check = "the library is not installed", "install libibverbs1 and ibverbs-providers (Debian, Ubuntu) or libibverbs (RHEL)"
	}
	return f
}

// failure explains an error of C. ops is the memory's kind, whose library an
// error may be of.
func failure(e *C.struct_gdr_error, ops *C.struct_gdr_mem_ops, l *perftest.Local) *perftest.Failure {
	call := C.GoString(e.call)
	switch {
	case e.status != 0:
		return perftest.CompletionFailure(fmt.Sprintf("%s QP %d", l.Device, e.qp), int(e.status), uint32(e.vendor_err))
	case e.code != 0 && ops != nil:
		f := perftest.LibraryFailure(C.GoString(ops.library), call, int(e.code), C.GoString(C.gdr_mem_error_name(ops, e.code)))
		if f.Subject = l.Device; l.GPU != nil {
			f.Subject = l.GPU.String()
		}
		return f
	}
	return perftest.CallFailure(call, l.Subject(call), syscall.Errno(e.err))
}

func (s *Session) failure() error { return failure(&s.s.error, s.ops, &s.local) }

func cbool(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

func (s *Session) setup(device int, ways []perftest.Way) (perftest.Endpoint, error) {
	e := perftest.Endpoint{
		Device: s.local.Device, Port: s.local.Port, LID: uint16(s.s.port.lid),
		MTUBytes: mtuBytes(int(s.s.port.active_mtu)), MaxReads: int(s.s.device.max_qp_rd_atom),
		Firmware: C.GoString(&s.s.device.fw_ver[0]), CPU: s.local.CPU,
	}
	if err := transport(int(s.s.ctx.device.transport_type), s.local.Device); err != nil {
		return e, err
	}
	if st := int(s.s.port.state); st != C.IBV_PORT_ACTIVE {
		return e, &perftest.Failure{
			Call: "ibv_query_port", Subject: fmt.Sprintf("%s/%d", s.local.Device, s.local.Port),
			Cause: "the port is " + portState(st) + ", not PORT_ACTIVE", Check: "cable, switch port, subnet manager or network interface",
		}
	}
	if err := s.chooseGID(&e); err != nil {
		return e, err
	}
	if s.plan.Route == perftest.RouteDirect && s.plan.Polls() && s.ops.cpu_access == 0 {
		return e, &perftest.Failure{
			Call: "open", Subject: s.local.Device, Cause: "the latency of a plain write is seen by polling the memory, and the CPU cannot poll a GPU's",
			Check: "measure write_imm: the same write, and a completion that tells of it",
		}
	}
	c := s.config(e.GIDIndex, device, ways)
	if C.gdr_session_setup(s.s, &c, s.ops) != 0 {
		return e, s.setupFailure()
	}
	e.Memory = s.buffer()
	for _, q := range s.qps() {
		e.QPs = append(e.QPs, perftest.QP{Number: uint32(q.qp.qp_num), PSN: uint32(q.psn)})
	}
	s.tellMemory(&e)
	s.tellSpeed(&e)
	if C.gdr_can_watch(s.s) == 0 {
		e.Notes = append(e.Notes, noEvents)
	}
	if want := int(c.inline_bytes); int(s.s.max_inline) < want {
		e.Notes = append(e.Notes, fmt.Sprintf("the device inlines %d bytes at most, not the %d asked for", s.s.max_inline, want))
	}
	return e, nil
}

// tellMemory says where the other end's operations go.
func (s *Session) tellMemory(e *perftest.Endpoint) {
	m := &s.s.mem
	if s.s.staging != nil {
		m = &s.s.staging.host
	}
	e.Address, e.Bytes, e.NUMANode = uint64(uintptr(m.addr)), uint64(m.bytes), int(C.gdr_session_node(s.s))
	if s.s.mr != nil {
		e.RemoteKey = uint32(s.s.mr.rkey)
	}
}

// tellSpeed says what the port carries, where libibverbs, kernel and driver can tell.
func (s *Session) tellSpeed(e *perftest.Endpoint) {
	const unitBytesPerSec = 100e6 / 8
	var speed C.uint64_t
	switch rc := syscall.Errno(C.gdr_query_port_speed(&s.s.v, s.s.ctx, C.uint8_t(s.local.Port), &speed)); rc {
	case 0:
		e.PortBytesPerSec = float64(speed) * unitBytesPerSec
	case syscall.ENOSYS, syscall.EOPNOTSUPP, syscall.EPROTONOSUPPORT: // libibverbs, driver, kernel
	default:
		e.Notes = append(e.Notes, fmt.Sprintf("ibv_query_port_speed: errno %d, %s", int(rc), rc.Error()))
	}
}

var routes = map[perftest.Route]C.int{
	perftest.RouteDirect: C.GDR_DIRECT, perftest.RouteStaged: C.GDR_STAGED, perftest.RouteTCP: C.GDR_TCP, perftest.RouteCopy: C.GDR_COPY,
}

// config is the plan in C's terms.
func (s *Session) config(gid, device int, ways []perftest.Way) C.struct_gdr_config {
	p := s.plan
	c := C.struct_gdr_config{
		op: ops[p.Operation], latency: cbool(p.Measure == perftest.Latency), ud: cbool(p.Transport == perftest.UD),
		initiator: cbool(s.side == perftest.Initiator), bidirectional: cbool(p.Bidirectional), events: cbool(p.Events),
		relaxed_ordering: cbool(p.RelaxedOrdering),
		qps:              C.uint32_t(p.QPs), depth: C.uint32_t(p.Depth), recv_depth: C.uint32_t(p.RecvDepth),
		post_list: C.uint32_t(p.PostList), inline_bytes: C.uint32_t(min(p.InlineBytes, slices.Max(p.SizesBytes))),
		max_size: C.uint64_t(slices.Max(p.SizesBytes)), footprint: C.uint64_t(p.FootprintBytes), seed: C.uint64_t(p.Seed),
		idle_ns: C.uint64_t(p.IdleNs), device: C.int(device), flush: cbool(s.flushes()), numa_node: C.int(s.local.NUMANode), ways_n: C.int(len(ways)),
		sl: C.uint8_t(p.ServiceLevel), traffic_class: C.uint8_t(p.TrafficClass), retry: C.uint8_t(p.RetryCount),
		rnr_retry: C.uint8_t(p.RNRRetry), timeout: C.uint8_t(p.TimeoutExponent),
		pkey_index: C.uint16_t(s.local.PKeyIndex), gid_index: C.int(gid),
		route: routes[p.Route], chunk: C.uint64_t(p.ChunkBytes), chunks: C.uint32_t(p.Chunks),
	}
	if p.Route != perftest.RouteDirect {
		// Chunks and credits, in both directions. A chunk is written with immediate.
		c.op, c.depth, c.recv_depth = C.GDR_WRITE_IMM, 2*c.chunks, 2*c.chunks
	}
	for i, w := range ways {
		c.ways[i] = wayNumbers[w]
	}
	if s.ops.cpu_access == 0 {
		c.inline_bytes = 0 // the CPU would have to read the memory
	}
	return c
}

// transport refuses devices whose queue pairs are connected in other ways.
func transport(typ int, device string) error {
	f := &perftest.Failure{Call: "ibv_create_qp", Subject: device, Errno: int(syscall.EOPNOTSUPP)}
	switch typ {
	case C.IBV_TRANSPORT_IB: // RoCE and Soft-RoCE too
		return nil
	case C.IBV_TRANSPORT_IWARP:
		f.Cause, f.Check = "this is an iWARP device, whose queue pairs only the connection manager connects: not supported here", "rping or linux-rdma/perftest with -R"
	case C.IBV_TRANSPORT_UNSPECIFIED:
		f.Cause, f.Check = "this device has a transport of its own, as EFA's SRD: not supported here", "on EFA: fi_pingpong and fi_rdm_bw of libfabric"
	default:
		f.Cause = fmt.Sprintf("a device of transport type %d: not supported here", typ)
	}
	return f
}

func (s *Session) qps() []C.struct_gdr_qp { return unsafe.Slice(s.s.qps, s.plan.QPs) }

// chooseGID fills the endpoint's GID, unless the port is native InfiniBand and
// none was asked for: there the LID is the address.
func (s *Session) chooseGID(e *perftest.Endpoint) error {
	e.GIDIndex = s.local.GIDIndex
	e.LinkLayer = "InfiniBand"
	if s.s.port.link_layer == C.IBV_LINK_LAYER_ETHERNET {
		e.LinkLayer = "Ethernet"
	} else if e.GIDIndex < 0 {
		e.GIDReason = fmt.Sprintf("none: on InfiniBand the LID, %d, is the address", e.LID)
		return nil
	}
	entries, err := s.gids()
	if err != nil {
		return err
	}
	var chosen perftest.GIDEntry
	if e.GIDIndex < 0 {
		if chosen, e.GIDReason, err = perftest.ChooseGID(entries, s.local.IPv6); err != nil {
			return err
		}
	} else {
		i := slices.IndexFunc(entries, func(x perftest.GIDEntry) bool { return x.Index == e.GIDIndex })
		if i < 0 {
			return &perftest.Failure{Call: "ibv_query_gid", Subject: s.local.Device, Cause: fmt.Sprintf("GID index %d is empty or beyond the table", e.GIDIndex)}
		}
		chosen = entries[i]
		e.GIDReason = fmt.Sprintf("%s (%s), as asked for", chosen.Addr.Unmap(), chosen.Type)
	}
	e.GIDIndex, e.GID, e.GIDType = chosen.Index, chosen.Addr.String(), chosen.Type.String()
	return nil
}

func (s *Session) gids() ([]perftest.GIDEntry, error) {
	var out []perftest.GIDEntry
	for i := range int(s.s.port.gid_tbl_len) {
		var e C.struct_ibv_gid_entry
		rc := syscall.Errno(C.gdr_session_gid(s.s, C.uint32_t(i), &e))
		addr := netip.AddrFrom16(*(*[16]byte)(unsafe.Pointer(&e.gid)))
		switch {
		case rc == syscall.EOPNOTSUPP && !addr.IsUnspecified():
			out = append(out, perftest.GIDEntry{Index: i, Addr: addr, Type: perftest.GIDUnknownType})
		case rc == 0:
			out = append(out, perftest.GIDEntry{Index: i, Addr: addr, Type: perftest.GIDType(e.gid_type)})
		case rc != syscall.ENODATA && rc != syscall.EOPNOTSUPP:
			return nil, perftest.CallFailure("ibv_query_gid", s.local.Device, rc)
		}
	}
	return out, nil
}

// Connect brings the queue pairs up to the peer's.
func (s *Session) Connect(peer perftest.Endpoint) error {
	if s.plan.Route == perftest.RouteTCP {
		return s.connectStream(peer)
	}
	const firstMTU = 256 // enum ibv_mtu counts powers of two from 1 on
	p := C.struct_gdr_peer{
		lid: C.uint16_t(peer.LID), rkey: C.uint32_t(peer.RemoteKey),
		addr: C.uint64_t(peer.Address), bytes: C.uint64_t(peer.Bytes), max_reads: C.int(peer.MaxReads), mtu: 1,
	}
	for m := firstMTU; m < perftest.MTU(s.plan, s.own, peer); m *= 2 {
		p.mtu++
	}
	if peer.GID != "" {
		addr, err := netip.ParseAddr(peer.GID)
		if err != nil {
			return &perftest.Failure{Call: "connect", Cause: "the other end's GID cannot be read: " + err.Error()}
		}
		*(*[16]byte)(unsafe.Pointer(&p.gid)) = addr.As16()
	}
	if len(peer.QPs) != s.plan.QPs {
		return &perftest.Failure{Call: "connect", Cause: fmt.Sprintf("the other end has %d QPs, not %d", len(peer.QPs), s.plan.QPs)}
	}
	for i := range s.qps() {
		s.qps()[i].peer_number, s.qps()[i].peer_psn = C.uint32_t(peer.QPs[i].Number), C.uint32_t(peer.QPs[i].PSN)
	}
	if C.gdr_session_connect(s.s, &p) != 0 {
		return s.failure()
	}
	return nil
}

// Prepare readies one size.
func (s *Session) Prepare(size int) error {
	p := s.plan
	step := C.struct_gdr_step{
		size: C.uint64_t(size), messages: C.uint64_t(p.Messages), warm_up: C.uint64_t(p.WarmUp),
		duration_ns: C.uint64_t(p.DurationNs), margin_ns: C.uint64_t(p.MarginNs), interval_ns: C.uint64_t(p.IntervalNs),
		moderation: C.uint32_t(p.Moderation(size)),
	}
	if C.gdr_session_prepare(s.s, &step) != 0 {
		return s.failure()
	}
	s.events.prepared(size)
	return nil
}

// Run measures the size that was prepared.
func (s *Session) Run(size int) (perftest.Outcome, error) {
	s.events.begin()
	if C.gdr_session_run(s.s) != 0 {
		return perftest.Outcome{}, s.brokeOff()
	}
	o := perftest.Outcome{LastMark: byte(s.s.last_mark), CPUNs: float64(s.s.cpu_ns)}
	for _, q := range s.qps() {
		o.Sent = append(o.Sent, uint64(q.posted))
		o.Received = append(o.Received, uint64(q.received))
	}
	if n := int(s.s.samples_n); n > 0 {
		var err error
		o.Latency, err = perftest.NewLatencyDist(s.samples(n))
		if err != nil {
			return o, err
		}
	}
	if lost := uint64(s.s.lost); lost > 0 {
		after := time.Duration(C.gdr_lost_after_ns(s.s))
		if o.Latency == nil {
			return o, &perftest.Failure{
				Call: "datagrams", Subject: s.local.Device, Cause: fmt.Sprintf("none of %d messages was answered within %s", lost, after),
				Check: "ping between the addresses of both GIDs; measure RC, which says what is wrong with the path",
			}
		}
		o.Latency.Lost, o.Latency.LostAfterNs = lost, int64(after)
	}
	if s.flushes() {
		o.Flush = s.flush()
	}
	if o.Latency != nil {
		return o, nil
	}
	o.Rate = s.rate(&s.s.sent, size)
	return o, nil
}

// brokeOff is why a run failed. To a queue pair, a cable that was pulled looks
// like a peer that does not answer; port and events know better.
func (s *Session) brokeOff() error {
	f := failure(&s.s.error, s.ops, &s.local)
	defer func() { f.Explain(s.events.ofFailedRun()) }()
	var port C.struct_ibv_port_attr
	if s.s.ctx == nil || C.gdr_query_port(&s.s.v, s.s.ctx, C.uint8_t(s.local.Port), &port) != 0 || port.state >= C.IBV_PORT_ACTIVE {
		return f
	}
	f.Cause = fmt.Sprintf("%s/%d is %s by now: its link went down during the run; %s", s.local.Device, s.local.Port, portState(int(port.state)), f.Cause)
	f.Check = "cable, switch port or network interface of this end; the kernel log says when"
	return f
}

// samples turns round trips in cycles into latencies in ns.
func (s *Session) samples(n int) []float64 {
	scale := float64(s.s.ns_per_cycle)
	if s.plan.Operation != perftest.Read && s.plan.Route != perftest.RouteCopy {
		scale /= 2
	}
	out := make([]float64, n)
	for i, c := range unsafe.Slice(s.s.samples, n) {
		out[i] = float64(c) * scale
	}
	return out
}

func (s *Session) rate(w *C.struct_gdr_window, size int) *perftest.Rate {
	window := float64(w.last-w.first) * float64(s.s.ns_per_cycle)
	if w.messages == 0 || window <= 0 || s.plan.Measure == perftest.Latency {
		return nil
	}
	const ns = 1e9
	pieces := 1.0 // of a message, that the window counts
	if s.s.staging != nil {
		pieces = float64(s.s.staging.pieces)
	}
	r := &perftest.Rate{WindowNs: window, CPUNs: float64(s.s.cpu_ns), FromStart: w.from_start != 0}
	messages := float64(w.messages) / pieces
	r.Messages, r.MessagesPerSec = uint64(messages), messages*ns/window
	r.BytesPerSec = r.MessagesPerSec * float64(size)
	counts := unsafe.Slice(w.series, int(w.intervals))
	series := make([]float64, len(counts))
	for i, n := range counts {
		series[i] = float64(n) / pieces * float64(size) * ns / float64(s.plan.IntervalNs)
	}
	r.SetSeries(series, s.plan.IntervalNs)
	return r
}

// Completed is how many messages of the running step are through, or samples
// taken; it may be called from any thread until Close.
func (s *Session) Completed() uint64 { return uint64(C.gdr_session_progress(s.s)) }

// Verify compares what arrived at this end; nil where nothing does.
func (s *Session) Verify(own, peer perftest.Outcome) (*perftest.DataCheck, error) {
	if s.plan.Route == perftest.RouteCopy {
		return s.verifyCopies()
	}
	if C.gdr_gets_data(&s.s.c) == 0 {
		return nil, nil
	}
	counts := peer.Sent
	switch {
	case s.plan.Operation == perftest.Read:
		counts = own.Sent
	case s.plan.Transport == perftest.UD:
		counts = own.Received
	}
	if len(counts) != s.plan.QPs {
		return nil, &perftest.Failure{Call: "data check", Cause: fmt.Sprintf("the other end counts %d QPs, not %d", len(counts), s.plan.QPs)}
	}
	messages := make([]C.uint64_t, len(counts))
	for i, n := range counts {
		messages[i] = C.uint64_t(n)
	}
	var m C.struct_gdr_mismatch
	if C.gdr_session_verify(s.s, &messages[0], C.uint8_t(peer.LastMark), &m) != 0 {
		return nil, s.failure()
	}
	return s.dataCheck(&m), nil
}

func (s *Session) dataCheck(m *C.struct_gdr_mismatch) *perftest.DataCheck {
	d := &perftest.DataCheck{Side: s.side, Bytes: uint64(m.compared), Correct: m.wrong == 0}
	d.OverwrittenBytes = uint64(m.overwritten) * uint64(s.s.step.size)
	if m.compared == 0 {
		d.Skipped = "no message arrived"
	}
	if !d.Correct {
		d.FirstWrongOffset, d.Got, d.Want, d.Untouched = uint64(m.offset), byte(m.got), byte(m.want), m.untouched != 0
	}
	return d
}

// Close frees everything.
func (s *Session) Close() {
	s.data.close()
	s.events.close()
	s.events = nil
	if s.s != nil {
		C.gdr_session_close(s.s)
		s.s = nil
	}
}
