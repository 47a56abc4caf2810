package perftest

import (
	"context"
)

// Engine is one end's memory, queue pairs and measuring loop. Calls are made in
// the order Open, Connect, then for each size Prepare, Run, Verify, and Close at
// any time. Each returns at its context's deadline or cancellation at the
// latest; the engine is then of no further use and must be closed. Errors of the
// RDMA stack are *Failure.
type Engine interface {
	// Open opens the device, registers memory for the largest size of the plan
	// and makes the queue pairs. Nothing can arrive before Connect.
	Open(ctx context.Context, p Plan, l Local, side Side) (Endpoint, error)
	// Connect brings the queue pairs up to those of the peer.
	Connect(ctx context.Context, peer Endpoint) error
	// Prepare fills source and destination and posts receives. No end may Run
	// before both are prepared.
	Prepare(ctx context.Context, sizeBytes int) error
	// Run measures one size. An end that has nothing to do returns at once.
	// progress, which may be nil, is called some times a second.
	Run(ctx context.Context, sizeBytes int, progress func(Progress)) (Outcome, error)
	// Verify compares the destination after both ends have Run. peer is the
	// other end's outcome. It returns nil where nothing arrives at this end.
	Verify(ctx context.Context, sizeBytes int, peer Outcome) (*DataCheck, error)
	// Events are what device and port have reported since Open, of their own accord.
	// It is called before Close, whatever the other calls came to.
	Events(ctx context.Context) Reported
	// Close frees everything. It never waits for a hung driver.
	Close() error
}

// Stage is a point at which both ends wait for each other.
type Stage string

// Stages, in order; the last three for each size.
const (
	StageOpened    Stage = "opened"    // with Endpoint
	StageConnected Stage = "connected" // both may Prepare
	StagePrepared  Stage = "prepared"  // both may Run
	StageRan       Stage = "ran"       // with Outcome; both may Verify
	StageVerified  Stage = "verified"  // with Data
)

// Message is what one end tells the other at a stage.
type Message struct {
	Stage    Stage      `json:"stage"`
	Size     int        `json:"size,omitempty"` // from StagePrepared on
	Endpoint *Endpoint  `json:"endpoint,omitempty"`
	Outcome  *Outcome   `json:"outcome,omitempty"`
	Data     *DataCheck `json:"data,omitempty"`
	// Failure: this end cannot go on; nothing follows.
	Failure *Failure `json:"failure,omitempty"`
}

// Channel carries messages between the two ends of one test.
type Channel interface {
	// Exchange sends ours and waits for the other end's message. It fails when
	// the other end is gone, and at ctx's end.
	Exchange(ctx context.Context, ours Message) (Message, error)
}
