package perftest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// AsyncEvent is what a device, a port or a queue pair reported during a run, of its own
// accord: ibv_get_async_event(3).
type AsyncEvent struct {
	Type    string `json:"type"`    // as enum ibv_event_type calls it
	Meaning string `json:"meaning"` // in words
	// Subject is "mlx5_0", "mlx5_0/1" for its port 1, or "mlx5_0 QP 0".
	Subject string `json:"subject"`
	Side    Side   `json:"side,omitempty"`
	// SizeBytes and AtNs: so long after the run of this size began; without a size,
	// before the first one, after the end was opened.
	SizeBytes int   `json:"size_bytes,omitempty"`
	AtNs      int64 `json:"at_ns"`
	// Harmful: it ends connections, or what it tells of does.
	Harmful bool `json:"harmful,omitempty"`
}

// MaxAsyncEvents is how many events are kept; the others are counted.
const MaxAsyncEvents = 64

// eventTypes are enum ibv_event_type of libibverbs, in its order; what each means is
// in ibv_get_async_event(3) and in the InfiniBand Architecture Specification,
// volume 1, section 11.6.3. The last one came with rdma-core 61.
var eventTypes = []struct {
	name, meaning string
	harmful       bool
	check         string
}{
	{"IBV_EVENT_CQ_ERR", "a completion queue overran", true, "a smaller depth"},
	{"IBV_EVENT_QP_FATAL", "the queue pair failed: the NIC met an error while it served it, such as a PCIe read or write that failed", true, "the kernel log, and PCIe errors of NIC and GPU: dmesg | grep -i -e aer -e mlx5"},
	{"IBV_EVENT_QP_REQ_ERR", "an invalid request arrived", true, "compare firmware versions of both ends"},
	{"IBV_EVENT_QP_ACCESS_ERR", "a request of the other end reached for memory that it has no right to", true, "with GPU memory: see whether its registration is still there (peer memory, dma-buf)"},
	{"IBV_EVENT_COMM_EST", "the first message arrived", false, ""},
	{"IBV_EVENT_SQ_DRAINED", "the send queue ran empty", false, ""},
	{"IBV_EVENT_PATH_MIG", "the connection moved to its alternate path", false, ""},
	{"IBV_EVENT_PATH_MIG_ERR", "the connection could not move to its alternate path", true, "the alternate path's port and cable"},
	{"IBV_EVENT_DEVICE_FATAL", "the device failed", true, "the kernel log for the NIC's health and reset messages: dmesg"},
	{"IBV_EVENT_PORT_ACTIVE", "the port came up", false, ""},
	{"IBV_EVENT_PORT_ERR", "the port went down", true, "cable, transceiver, switch port or network interface of this end; the kernel log says when"},
	{"IBV_EVENT_LID_CHANGE", "the subnet manager gave the port another LID", true, "the subnet manager's log; measure again"},
	{"IBV_EVENT_PKEY_CHANGE", "the port's partition keys changed", true, "the subnet manager's partitions; measure again"},
	{"IBV_EVENT_SM_CHANGE", "another subnet manager took over", false, "the subnet managers' logs"},
	{"IBV_EVENT_SRQ_ERR", "a shared receive queue failed", true, ""},
	{"IBV_EVENT_SRQ_LIMIT_REACHED", "a shared receive queue ran low", false, ""},
	{"IBV_EVENT_QP_LAST_WQE_REACHED", "the queue pair took its last receive", false, ""},
	{"IBV_EVENT_CLIENT_REREGISTER", "the subnet manager wants its clients to register anew", false, ""},
	{"IBV_EVENT_GID_CHANGE", "the port's GID table changed", true, "who changes addresses, VLANs or bonds of the port's network interface: ip monitor address; measure again"},
	{"IBV_EVENT_WQ_FATAL", "a work queue failed", true, "the kernel log"},
	{"IBV_EVENT_DEVICE_SPEED_CHANGE", "the speed of the device's ports changed", false, ""},
}

// NewAsyncEvent describes an event of enum ibv_event_type, in the run of a size, so long after it began.
func NewAsyncEvent(typ int, subject string, size int, at time.Duration) AsyncEvent {
	e := AsyncEvent{SizeBytes: size, Type: fmt.Sprintf("event type %d", typ), Meaning: "an event that this program does not know", Subject: subject, AtNs: int64(at)}
	if typ >= 0 && typ < len(eventTypes) {
		t := eventTypes[typ]
		e.Type, e.Meaning, e.Harmful = t.name, t.meaning, t.harmful
	}
	return e
}

// String is the event for people.
func (e *AsyncEvent) String() string {
	at := time.Duration(e.AtNs).Round(time.Millisecond / 10).String()
	if e.SizeBytes > 0 {
		at += fmt.Sprintf(" into the run of %d bytes", e.SizeBytes)
	} else {
		at += " after it was opened"
	}
	return fmt.Sprintf("%s on %s %s: %s", e.Type, e.Subject, at, e.Meaning)
}

// Explain has a failure tell of the harmful events of its run, the first of which
// is the likelier cause.
func (f *Failure) Explain(events []AsyncEvent) {
	var told []string
	for i := range events {
		e := &events[i]
		if !e.Harmful {
			continue
		}
		if told == nil {
			for _, t := range eventTypes {
				if t.name == e.Type && t.check != "" {
					f.Check = t.check
				}
			}
		}
		told = append(told, e.String())
	}
	if told == nil {
		return
	}
	const few = 3
	if n := len(told); n > few {
		told = append(told[:few], fmt.Sprintf("and %d more", n-few))
	}
	f.Cause = fmt.Sprintf("the device reported %s; %s", strings.Join(told, ", "), f.Cause)
}

// Reported is what devices, ports and queue pairs reported of their own accord.
type Reported struct {
	Events []AsyncEvent `json:"events,omitempty"`
	// MoreEvents is how many came beside those.
	MoreEvents uint64 `json:"more_events,omitempty"`
}

// Add adds an event.
func (r *Reported) Add(e AsyncEvent) {
	if len(r.Events) < MaxAsyncEvents {
		r.Events = append(r.Events, e)
	} else {
		r.MoreEvents++
	}
}

// Join adds what others reported.
func (r *Reported) Join(more Reported) {
	for _, e := range more.Events {
		r.Add(e)
	}
	r.MoreEvents += more.MoreEvents
}

// of says whose events they are.
func (r Reported) of(s Side) Reported {
	out := Reported{MoreEvents: r.MoreEvents}
	for _, e := range r.Events {
		e.Side = s
		out.Events = append(out.Events, e)
	}
	return out
}

// eventEndLost is what is reported of an end whose process ended while no call of it ran:
// the side that answers a write has none to do.
const eventEndLost = "end lost"

// Lost says that the process of an end is gone, and why.
func (r *Reported) Lost(f *Failure) {
	if n := len(r.Events); n >= MaxAsyncEvents {
		r.Events = r.Events[:MaxAsyncEvents-1]
		r.MoreEvents += uint64(n - len(r.Events))
	}
	r.Events = append(r.Events, AsyncEvent{Type: eventEndLost, Meaning: f.Cause[:min(len(f.Cause), maxText)], Subject: f.Subject, Harmful: true})
}

// blameLost has a failure be that of the end whose process was lost: that no packet
// was acknowledged at the other one came of it.
func (r *Result) blameLost() {
	lost := func(s Side) bool {
		return slices.ContainsFunc(r.Events, func(e AsyncEvent) bool { return e.Type == eventEndLost && e.Side == s })
	}
	known := lost(r.Faulty) // of two losses, the one that ended the test
	r.Events = slices.DeleteFunc(r.Events, func(e AsyncEvent) bool {
		if e.Type != eventEndLost || r.Failure == nil {
			return false
		}
		if !known && e.Side != r.Faulty {
			f := &Failure{Call: "run", Subject: e.Subject, Cause: e.Meaning}
			if r.Failure.Status != "" {
				f.Cause += "; what the other end saw of it was " + r.Failure.Status
			}
			r.Failure, r.Faulty = f, e.Side
		}
		return true
	})
}

func (r *Reported) check() error {
	if len(r.Events) > MaxAsyncEvents {
		return fmt.Errorf("%d events", len(r.Events))
	}
	for i := range r.Events {
		e := &r.Events[i]
		if e.AtNs < 0 || e.SizeBytes < 0 {
			return errors.New("an event before its run")
		}
		if err := short(e.Type, e.Meaning, e.Subject, string(e.Side)); err != nil {
			return err
		}
	}
	return nil
}
