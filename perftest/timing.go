package perftest

import "time"

// Timing bounds every wait of a session. A field that is zero has its default.
type Timing struct {
	Handshake time.Duration // from connection to proof: 10 s
	Queue     time.Duration // for the session before to end, until "busy": 2 s
	Heartbeat time.Duration // how often each side says that it lives: 1 s
	Silence   time.Duration // a peer that says nothing for so long is gone: 5 s
	Idle      time.Duration // from one test to the next: 30 s
	Step      time.Duration // each step but the run itself, longer than an engine gives a driver: 130 s
	Run       time.Duration // a run that goes by number of messages: 10 min
	Grace     time.Duration // how much later than oneself the other side may notice a limit: 5 s
	Farewell  time.Duration // to tell the other side why this one ends: 1 s
}

func (t Timing) withDefaults() Timing {
	for _, f := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&t.Handshake, 10 * time.Second},
		{&t.Queue, 2 * time.Second},
		{&t.Heartbeat, time.Second},
		{&t.Silence, 5 * time.Second},
		{&t.Idle, 30 * time.Second},
		{&t.Step, 130 * time.Second},
		{&t.Run, 10 * time.Minute},
		{&t.Grace, 5 * time.Second},
		{&t.Farewell, time.Second},
	} {
		if *f.field <= 0 {
			*f.field = f.value
		}
	}
	return t
}

// run is the longest time that one size of a plan may take.
func (t Timing) run(p *Plan) time.Duration {
	if p.DurationNs > 0 {
		return time.Duration(p.DurationNs) + t.Step
	}
	return t.Run
}
