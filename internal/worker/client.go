package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/gdrcheck/gdrcheck/internal/fact"
)

// Default time limits. A library's Init brings GPUs up one by one where no
// persistence daemon runs, which takes seconds each.
const (
	defaultSubject = 5 * time.Second
	defaultGate    = 15 * time.Second
	defaultOverall = 30 * time.Second
)

// Client asks workers; it implements fact.Asker. The zero value is ready.
// It is safe for concurrent use: each Ask has workers of its own.
type Client struct {
	SubjectTimeout time.Duration // for one subject; 0: 5 s
	GateTimeout    time.Duration // for a worker's start and for a subject that all others wait for; 0: 15 s
	OverallTimeout time.Duration // for one Ask whose context has no deadline; 0: 30 s
}

var _ fact.Asker = (*Client)(nil)

// Ask implements fact.Asker. It returns at the context's deadline at the
// latest, with what was answered until then; what hung, crashed or garbled its
// answer is Failed and named, what was not reached is NotCollected. The error
// is for a question of which no subject could be asked.
func (c *Client) Ask(ctx context.Context, name string, args ...string) ([]fact.Record, error) {
	overall := time.Now().Add(or(c.OverallTimeout, defaultOverall))
	if d, ok := ctx.Deadline(); ok {
		overall = d
	}
	q := &question{
		client: c, req: request{Ask: name, Args: args}, overall: overall,
		answered: map[string]bool{},
	}
	if slices.Contains(fact.PerSubject, name) {
		q.expected = args
	}
	for {
		again, err := q.run(ctx)
		if err != nil && len(q.records) == 0 {
			return nil, fmt.Errorf("asking %s: %w", name, err)
		}
		if err != nil {
			q.giveUp(err.Error())
		}
		if !again || err != nil {
			return q.records, nil
		}
	}
}

func or(d, def time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return def
}

// question is one Ask over as many workers as it takes.
type question struct {
	client   *Client
	req      request
	overall  time.Time
	expected []string // subjects that are to come, as far as known
	records  []fact.Record
	answered map[string]bool

	// What the worker in progress is at.
	subject string
	gate    bool
	at      string
	part    json.RawMessage
}

// run asks one worker for what is missing. again says that the worker was lost
// with one subject and that a new one can go on.
func (q *question) run(ctx context.Context) (again bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, fmt.Errorf("not reached: %w", context.Cause(ctx))
	}
	p, err := start(q.req)
	if err != nil {
		return false, err
	}
	defer p.kill()
	// This ends a read that is under way.
	stop := context.AfterFunc(ctx, func() { _ = p.answers.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()

	q.begin("", true)
	limit := q.limit()
	for {
		m, err := p.next(ctx, limit)
		if err != nil {
			return q.lost(ctx, p, err)
		}
		if bad := q.take(m); bad != nil {
			return q.lost(ctx, p, bad)
		}
		switch {
		case m.Done:
			q.giveUp("the worker did not come to it")
			return false, nil
		case m.Error != "":
			return false, errors.New(m.Error)
		case m.Start != "" || m.Record != nil:
			limit = q.limit()
		}
	}
}

// limit is the time by which the next step must be through.
func (q *question) limit() time.Time {
	l := time.Now().Add(q.allowed())
	if q.overall.Before(l) {
		return q.overall
	}
	return l
}

func (q *question) allowed() time.Duration {
	if q.gate || q.req.Ask == fact.AskRegistration || q.req.Ask == fact.AskGDRCopy { // the first one of a GPU brings its driver up
		return or(q.client.GateTimeout, defaultGate)
	}
	return or(q.client.SubjectTimeout, defaultSubject)
}

func (q *question) begin(subject string, gate bool) {
	q.subject, q.gate, q.at, q.part = subject, gate, "", nil
}

// take notes a message; it fails on one that makes no sense where it stands.
func (q *question) take(m message) error {
	switch {
	case m.Start != "":
		q.begin(m.Start, m.Gate)
	case m.At != "":
		q.at = m.At
	case m.Part != nil:
		q.part = m.Part
	case m.Subjects != nil:
		if len(m.Subjects) > maxSubjects {
			return fmt.Errorf("the worker announced %d subjects", len(m.Subjects))
		}
		if slices.Contains(m.Subjects, "") {
			return errors.New("the worker announced a subject without a name")
		}
		q.expected = m.Subjects
	case m.Record != nil:
		r := *m.Record
		stray := q.subject != "" && r.Subject != q.subject
		if r.Subject == "" || stray || q.answered[r.Subject] || len(q.records) >= maxSubjects {
			return fmt.Errorf("an answer for %.60q that was not asked", r.Subject)
		}
		q.add(r)
		q.begin("", q.gate)
	case !m.Done && m.Error == "":
		return errors.New("an empty message")
	}
	return nil
}

func (q *question) add(r fact.Record) {
	q.records = append(q.records, r)
	q.answered[r.Subject] = true
	q.req.Skip = append(q.req.Skip, r.Subject)
}

// lost settles what a lost worker was at: its subject is Failed with the
// cause, and a new worker goes on with the others unless they need that one.
func (q *question) lost(ctx context.Context, p *process, cause error) (again bool, err error) {
	late := errors.Is(cause, os.ErrDeadlineExceeded)
	out := late && (ctx.Err() != nil || !time.Now().Before(q.overall))
	reason := cause.Error()
	switch {
	case out:
		reason = "no answer in the time allowed for everything"
	case late:
		reason = fmt.Sprintf("no answer within %s", q.allowed())
	case errors.Is(cause, io.EOF):
		reason = p.ending()
	default:
		reason = oneLine(reason)
	}
	if q.at != "" {
		reason = q.at + ": " + reason
	}
	if q.subject == "" && q.gate { // no subject begun: the next worker would fare no better
		return false, errors.New(reason)
	}
	if q.subject == "" {
		q.subject = q.next()
	}
	if q.subject != "" && !q.answered[q.subject] {
		q.add(fact.Record{Subject: q.subject, State: fact.Failed, Reason: reason, Data: q.part})
	}
	if out {
		return false, errors.New("not reached in the time allowed for everything")
	}
	if q.gate {
		return false, fmt.Errorf("not reached: %s: %s", q.subject, reason)
	}
	return q.next() != "", nil
}

// next is the first expected subject without an answer.
func (q *question) next() string {
	i := slices.IndexFunc(q.expected, func(s string) bool { return !q.answered[s] })
	if i < 0 {
		return ""
	}
	return q.expected[i]
}

// giveUp marks every expected subject without an answer NotCollected.
func (q *question) giveUp(reason string) {
	for _, s := range q.expected {
		if !q.answered[s] {
			q.add(fact.Record{Subject: s, State: fact.NotCollected, Reason: reason})
		}
	}
}
