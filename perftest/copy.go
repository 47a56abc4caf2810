package perftest

import "context"

// Copies measures the copies that the routes through host memory make, without
// any network: out of the device's memory into pinned host memory at the
// initiator's side, and into it at the responder's. The result's steps hold only
// that side's figures. It closes the engine.
func Copies(ctx context.Context, e Engine, side Side, p Plan, l Local, progress func(Progress)) (*Result, error) {
	defer e.Close()
	r := &Result{Plan: p}
	at, err := r.copies(ctx, e, side, l, progress)
	r.Simulated = r.Initiator.simulated() || r.Responder.simulated()
	if err != nil && ctx.Err() == nil {
		r.Failure, r.Faulty, r.FailedAt, err = AsFailure(err), side, at, nil
	}
	return r, err
}

// CopiedOut says of a result of RouteCopy that the copies went out of the device's
// memory, into pinned host memory, rather than the other way.
func (r *Result) CopiedOut() bool {
	return r.Initiator.Memory.Kind != "" || r.Faulty == Initiator
}

func (r *Result) copies(ctx context.Context, e Engine, side Side, l Local, progress func(Progress)) (Stage, error) {
	end, err := e.Open(ctx, r.Plan, l, side)
	if err != nil {
		return StageOpened, err
	}
	if side == Initiator {
		r.Initiator = end.public()
	} else {
		r.Responder = end.public()
	}
	for _, size := range r.Plan.SizesBytes {
		if err := e.Prepare(ctx, size); err != nil {
			return StagePrepared, err
		}
		o, err := e.Run(ctx, size, progress)
		if err != nil {
			return StageRan, err
		}
		data, err := e.Verify(ctx, size, o)
		if err != nil {
			return StageVerified, err
		}
		r.Steps = append(r.Steps, newStep(&r.Plan, size, o, Outcome{}, data, nil))
	}
	return "", nil
}
