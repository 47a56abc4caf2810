// Package worker asks what can hang or crash: vendor libraries, netlink, and
// files that a driver or firmware serves. The asking is done by a child process
// ("gdrcheck __worker"), so that a hang or a crash costs one subject and never
// the program: Main is that child, Client starts it and reads its answers.
package worker

import (
	"encoding/json"

	"github.com/gdrcheck/gdrcheck/internal/fact"
)

// command is the hidden command that makes this program a worker.
const command = "__worker"

// Bounds on what a worker may send. A worker with a library gone mad in it is
// not to be believed, and not to fill the parent's memory.
const (
	maxRequestBytes = 8 << 20
	maxLineBytes    = fact.MaxFileBytes/3*4 + 64<<10 // one file in base64 and its record
	maxTotalBytes   = 256 << 20
	maxSubjects     = 1 << 16
	maxStderrBytes  = 2 << 10
)

// request is the one line that the parent writes to the worker's stdin. The
// parent then keeps stdin open: its end tells the worker that the parent died.
type request struct {
	Ask  string   `json:"ask"`
	Args []string `json:"args,omitempty"`
	Skip []string `json:"skip,omitempty"` // subjects answered, or given up, by an earlier worker
}

// message is one line on the worker's fd 3. One field is set, except that Gate
// goes with Start.
type message struct {
	Start string `json:"start,omitempty"` // the subject begun now
	// Gate: nothing else can be asked before this subject is through, as a
	// library that does not come out of its Init.
	Gate     bool            `json:"gate,omitempty"`
	At       string          `json:"at,omitempty"`       // the call begun now, to name it should it hang
	Part     json.RawMessage `json:"part,omitempty"`     // Data so far of the subject, kept if it fails
	Subjects []string        `json:"subjects,omitempty"` // what there is to ask, when the request did not list it
	Record   *fact.Record    `json:"record,omitempty"`
	Done     bool            `json:"done,omitempty"`
	Error    string          `json:"error,omitempty"` // the question as a whole cannot be answered
}
