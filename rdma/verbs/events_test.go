package verbs

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gdrcheck/gdrcheck/perftest"
)

// What the double of libibverbs reports during a run stands in the result, and what
// is harmful in the error of a run that failed. Numbers are those of enum
// ibv_event_type in infiniband/verbs.h.
func TestEvents(t *testing.T) {
	both := []perftest.Side{perftest.Initiator, perftest.Responder}
	tests := map[string]struct {
		fault   string
		typ     string
		subject string
		sides   []perftest.Side
		fails   string // in the error's words
		check   string
	}{
		"device fatal":  {"event:20:8", "IBV_EVENT_DEVICE_FATAL", "stub0", both, "IBV_EVENT_DEVICE_FATAL on stub0 ", "kernel log"},
		"QP fatal":      {"event:20:1", "IBV_EVENT_QP_FATAL", "stub0 QP 0", both[:1], "IBV_EVENT_QP_FATAL on stub0 QP 0 ", "PCIe errors"},
		"port down":     {"event:20:10", "IBV_EVENT_PORT_ERR", "stub0/1", both, "IBV_EVENT_PORT_ERR on stub0/1 ", "cable"},
		"cable pulled":  {"unplug:20", "IBV_EVENT_PORT_ERR", "stub0/1", both, "PORT_DOWN by now", "cable"},
		"path migrated": {"event:20:6", "IBV_EVENT_PATH_MIG", "stub0 QP 0", both[:1], "", ""},
		"port up":       {"event:20:9", "IBV_EVENT_PORT_ACTIVE", "stub0/1", both, "", ""},
		"SM change":     {"event:20:13", "IBV_EVENT_SM_CHANGE", "stub0/1", both, "", ""},
		"GID change":    {"event:20:18", "IBV_EVENT_GID_CHANGE", "stub0/1", both, "", ""},
		"a later one":   {"event:20:99", "event type 99", "stub0", both, "", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Setenv("GDR_STUB_FAULT", tt.fault)
			p := small(perftest.Write, perftest.Bandwidth, 64)
			p.IdleNs = int64(300 * time.Millisecond)
			r := loopback(t, p)
			switch {
			case tt.fails == "" && !r.Good():
				t.Errorf("%v, %+v", r.Failure, r.Steps)
			case tt.fails != "" && (r.Failure == nil || !strings.Contains(r.Failure.Error(), tt.fails) || !strings.Contains(r.Failure.Check, tt.check)):
				t.Errorf("got %v, want %q with %q", r.Failure, tt.fails, tt.check)
			}
			var sides []perftest.Side
			for _, e := range r.Events {
				sides = append(sides, e.Side)
				if e.Type != tt.typ || e.Subject != tt.subject || e.SizeBytes != 64 || e.AtNs < 0 || e.AtNs > int64(10*time.Second) || e.Meaning == "" {
					t.Errorf("%+v", e)
				}
			}
			slices.Sort(sides)
			if diff := cmp.Diff(tt.sides, sides); diff != "" {
				t.Errorf("reported by (-want +got)\n%s", diff)
			}
		})
	}
}

// A library that cannot tell of events measures as before, and says so.
func TestNoEvents(t *testing.T) {
	lib := olderProvider(t, "ibv_get_async_event")
	t.Setenv("GDR_STUB_FAULT", "event:20:18")
	r, err := measureBy(t.Context(), lib, small(perftest.Write, perftest.Bandwidth, 64), perftest.NewLocal("stub0"))
	if err != nil || !r.Good() || len(r.Events) > 0 || !slices.Contains(r.Initiator.Notes, noEvents) || !slices.Contains(r.Responder.Notes, noEvents) {
		t.Errorf("%v, %+v", err, r)
	}
	r = loopback(t, small(perftest.Write, perftest.Bandwidth, 64))
	if slices.Contains(r.Initiator.Notes, noEvents) {
		t.Error("said of a library that tells of events")
	}
}

// The names are those of the header, in its order.
func TestEventNames(t *testing.T) {
	b, err := os.ReadFile("/usr/include/infiniband/verbs.h")
	if err != nil {
		t.Fatal(err)
	}
	enum := regexp.MustCompile(`(?s)enum ibv_event_type \{(.*?)\};`).FindSubmatch(b)
	if enum == nil {
		t.Fatal("the header has no enum ibv_event_type")
	}
	for i, name := range regexp.MustCompile(`IBV_EVENT_\w+`).FindAllString(string(enum[1]), -1) {
		if got := perftest.NewAsyncEvent(i, "", 0, 0).Type; got != name {
			t.Errorf("type %d is %s, want %s", i, got, name)
		}
	}
}

// The port's rate is what ibv_query_port_speed says, in units of 100 Mb/s; where
// nothing can tell, what sysfs said stays, and the result says which it is.
func TestPortSpeed(t *testing.T) {
	older := olderProvider(t, "ibv_query_port_speed")
	now, err := provider()
	if err != nil {
		t.Fatal(err)
	}
	const gbit = 1e9 / 8
	sysfs := perftest.Limits{PortBytesPerSec: 400 * gbit, PortSource: perftest.PortSourceSysfs}
	for name, tt := range map[string]struct {
		lib, speed string
		want       float64
		source     string
		note       string
	}{
		"a bond of two":     {now, "8000", 800 * gbit, "ibv_query_port_speed", ""},
		"a share of a port": {now, "1250", 125 * gbit, "ibv_query_port_speed", ""},
		"driver cannot":     {now, "", 400 * gbit, "sysfs", ""},
		"driver fails":      {now, "0", 400 * gbit, "sysfs", "ibv_query_port_speed: errno 5"},
		"older library":     {older, "8000", 400 * gbit, "sysfs", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.speed != "" {
				t.Setenv("GDR_STUB_SPEED", tt.speed)
			}
			r, err := measureBy(t.Context(), tt.lib, small(perftest.Write, perftest.Bandwidth, 64), perftest.NewLocal("stub0"))
			if err != nil || !r.Good() {
				t.Fatalf("%v, %+v", err, r)
			}
			r.SetLimits(sysfs, sysfs)
			for side, l := range r.Limits {
				if l.PortBytesPerSec != tt.want || l.PortSource != tt.source {
					t.Errorf("%s: %+v, want %g by %s", side, l, tt.want, tt.source)
				}
			}
			if said := strings.Contains(strings.Join(r.Initiator.Notes, "\n"), "ibv_query_port_speed"); said != (tt.note != "") || !strings.Contains(strings.Join(r.Initiator.Notes, "\n"), tt.note) {
				t.Errorf("notes %q, want %q", r.Initiator.Notes, tt.note)
			}
		})
	}
}
