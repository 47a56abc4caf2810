package checks

// Result is how a run ended, for the exit code.
type Result string

// Results.
const (
	Ready         Result = "ready"
	ReadyWarnings Result = "ready with warnings"
	NotReady      Result = "not ready"
	BadUsage      Result = "bad usage or input"
	Undetermined  Result = "undetermined"
	ToolFailed    Result = "gdrcheck itself failed"
)

// Exit is one line of the exit code table.
type Exit struct {
	Result  Result
	Code    int // gdrcheck's own
	Nagios  int // 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN (monitoring-plugins guidelines)
	NPD     int // node-problem-detector's custom plugin: 0 OK, 1 NonOK, 2 Unknown
	Meaning string
}

// ExitCodes is the one table of exit codes. Warnings do not fail a node (a
// Slurm prolog drains on any code but 0); with Strict they make it NotReady.
var ExitCodes = []Exit{
	{Ready, 0, 0, 0, "every check of severity error passed"},
	{ReadyWarnings, 0, 1, 0, "the same, with warnings"},
	{NotReady, 1, 2, 1, "a check of severity error failed, or with --strict any check warned"},
	{BadUsage, 2, 3, 2, "unknown flag or check, unreadable input"},
	{Undetermined, 3, 3, 2, "nothing failed, but a check of severity error could not be decided"},
	{ToolFailed, 4, 3, 2, "a bug, or output that could not be written: says nothing about the node"},
}

// ExitOf returns the table's line of a result.
func ExitOf(r Result) Exit {
	for _, e := range ExitCodes {
		if e.Result == r {
			return e
		}
	}
	return ExitCodes[len(ExitCodes)-1]
}

// Result says how the node came out.
func (o Outcome) Result() Result {
	switch o.Verdict {
	case Pass:
		return Ready
	case Warn:
		return ReadyWarnings
	case Fail:
		return NotReady
	case Unknown, Info, NotApplicable, Blocked:
	}
	return Undetermined
}

// Incomplete says that a part of what was to be judged is missing: what there is decides
// nothing unless it failed.
func (o *Outcome) Incomplete() {
	if o.Verdict != Fail {
		o.Verdict, o.ExitCode = Unknown, ExitOf(Undetermined).Code
	}
}

// overall sums up the findings of a run.
//
// A node without a GPU or without an RDMA NIC is "fail", not "pass": who runs
// gdrcheck asks whether GPUDirect RDMA can work here, and there it cannot. The
// presence checks say so; nothing in here is special about it. A run that
// judged nothing at all (everything not applicable, or deselected) is unknown:
// what nobody looked at is never ready.
func overall(findings []Finding, strict bool) Verdict {
	var failed, unknown, warned, judged bool
	for _, f := range findings {
		if f.Waived != nil {
			judged = true
			continue
		}
		serious := f.Severity == SeverityError
		switch f.Verdict {
		case Fail:
			failed = failed || serious
			warned = warned || f.Severity != SeverityInfo
		case Warn:
			warned = warned || f.Severity != SeverityInfo
			judged = true
		case Unknown:
			unknown = unknown || serious
		case Pass, Info:
			judged = true
		case NotApplicable, Blocked:
		}
	}
	switch {
	case failed, strict && warned:
		return Fail
	case unknown:
		return Unknown
	case warned:
		return Warn
	case judged:
		return Pass
	}
	return Unknown
}
