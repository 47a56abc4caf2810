package perftest

import "slices"

// Endpoint is what one end tells the other so that they can be connected. The
// keys in it are of no use once the engine is closed.
type Endpoint struct {
	Device    string `json:"device"`
	Port      int    `json:"port"`
	LinkLayer string `json:"link_layer"` // InfiniBand, Ethernet
	LID       uint16 `json:"lid,omitempty"`
	GID       string `json:"gid,omitempty"`      // as net/netip prints it
	GIDIndex  int    `json:"gid_index"`          // -1: none is used
	GIDType   string `json:"gid_type,omitempty"` // IB, RoCE v1, RoCE v2
	GIDReason string `json:"gid_reason,omitempty"`
	MTUBytes  int    `json:"mtu_bytes"` // active
	// PortBytesPerSec is what ibv_query_port_speed says that the port carries: from
	// rdma-core 61 on, where kernel and driver can tell. 0: they cannot.
	PortBytesPerSec float64 `json:"port_bytes_per_sec,omitempty"`
	Bytes           uint64  `json:"bytes"` // length of the registered memory
	Memory          Buffer  `json:"memory"`
	// For the peer alone; a Result does not hold them.
	QPs        []QP     `json:"qps,omitempty"` //nolint:revive // queue pairs, not queries per second
	Address    uint64   `json:"address,omitempty"`
	RemoteKey  uint32   `json:"remote_key,omitempty"`
	Stream     *Stream  `json:"stream,omitempty"` // RouteTCP; of the responder
	MaxReads   int      `json:"max_reads"`        // RDMA READs in flight that the device can answer
	CPU        int      `json:"cpu"`              // of the measuring thread; -1: not pinned
	NUMANode   int      `json:"numa_node"`        // where the buffer's first page is; -1: unknown
	DeviceNode int      `json:"device_numa_node"`
	Firmware   string   `json:"firmware,omitempty"`
	Double     string   `json:"test_double,omitempty"` // a library that stood in for libibverbs
	Notes      []string `json:"notes,omitempty"`       // what was chosen or given up, and why
}

// public is the endpoint without what only its peer has a use for.
func (e Endpoint) public() Endpoint {
	e.QPs, e.Address, e.RemoteKey, e.Stream = nil, 0, 0, nil
	return e
}

// simulated says whether a test double stood for a part of this end.
func (e Endpoint) simulated() bool { return e.Double != "" || e.Memory.Double != "" }

// QP is one queue pair.
type QP struct {
	Number uint32 `json:"number"`
	PSN    uint32 `json:"psn"`
}

// Result is one plan that was run.
type Result struct {
	// Rail and Peer are the ports of a test that is one of several, this node's
	// and the other end's, as "mlx5_0/1"; of copies Rail alone is set, the GPU, as
	// "GPU0".
	Rail string `json:"rail,omitempty"`
	Peer string `json:"peer,omitempty"`
	// Reverse: the other node was the initiator.
	Reverse bool `json:"reverse,omitempty"`
	// Together is how many tests ran at the same time, this one among them; 0: it
	// ran alone.
	Together int `json:"together,omitempty"`
	// Reference: of the same port in host memory, beside a GPU's, to compare with.
	Reference bool `json:"reference,omitempty"`

	Plan      Plan     `json:"plan"`
	Initiator Endpoint `json:"initiator"`
	Responder Endpoint `json:"responder"`
	MTUBytes  int      `json:"mtu_bytes"` // of the connection
	Steps     []Step   `json:"steps"`     // one a size, as far as the test came
	// Scope says what the figures cover, where that is less than it seems.
	Scope   string   `json:"scope,omitempty"`
	Failure *Failure `json:"failure,omitempty"` // what ended the test
	// Faulty is which end Failure happened at.
	Faulty Side `json:"faulty,omitempty"`
	// FailedAt is the stage that was not reached, with Failure alone.
	FailedAt Stage    `json:"failed_at,omitempty"`
	Reported          // by both ends
	Notes    []string `json:"notes,omitempty"`
	// Limits is what each end's port and its path to memory carry.
	Limits map[Side]Limits `json:"limits,omitempty"`
	// Load is each end's GPU during the test, where its memory was part of it.
	Load map[Side]GPULoad `json:"load,omitempty"`
	// Counters is what each side's port and NIC counted during the test.
	Counters map[Side]SideCounters `json:"counters,omitempty"`
	// Simulated: a test double stood for the RDMA stack of an end.
	Simulated bool `json:"simulated,omitempty"`
}

func (r *Result) setLoad(s Side, l *GPULoad) {
	if l == nil {
		return
	}
	if r.Load == nil {
		r.Load = map[Side]GPULoad{}
	}
	r.Load[s] = *l
}

// Limits are what one end could reach at best, one direction. 0: not known.
type Limits struct {
	PortBytesPerSec float64 `json:"port_bytes_per_sec,omitempty"` // the port's rate
	// PortSource says where that is from: PortSourceVerbs or PortSourceSysfs.
	PortSource      string  `json:"port_source,omitempty"`
	PCIeBytesPerSec float64 `json:"pcie_bytes_per_sec,omitempty"` // payload, from the NIC to the host's memory
	// PCIeReason says why it is not known; LimitedBy is the function whose link sets it.
	PCIeReason string `json:"pcie_reason,omitempty"`
	LimitedBy  string `json:"limited_by,omitempty"`
	// Software: the CPU moves the data, as fast as it can.
	Software bool `json:"software,omitempty"`
}

// Sources of a port's rate. The exact one goes first: sysfs knows no rate that is not
// a link width times a lane speed, as a bond's or a virtual function's share is.
const (
	PortSourceVerbs = "ibv_query_port_speed"
	PortSourceSysfs = "sysfs" // rate: width times speed
)

// SetLimits sets what each end could reach, from what was read of the nodes and what
// the ends themselves say.
func (r *Result) SetLimits(initiator, responder Limits) {
	r.Limits = map[Side]Limits{Initiator: initiator.at(&r.Initiator), Responder: responder.at(&r.Responder)}
}

func (l Limits) at(e *Endpoint) Limits {
	if e.PortBytesPerSec > 0 {
		l.PortBytesPerSec, l.PortSource = e.PortBytesPerSec, PortSourceVerbs
	}
	return l
}

// Step is the measure of one size.
type Step struct {
	SizeBytes int `json:"size_bytes"`
	// Forward is what the initiator's operations moved, Reverse, in a
	// bidirectional test, what the responder's did.
	Forward *Rate `json:"forward,omitempty"`
	Reverse *Rate `json:"reverse,omitempty"`
	// BytesPerSec is the sum of both directions.
	BytesPerSec float64      `json:"bytes_per_sec,omitempty"`
	Latency     *LatencyDist `json:"latency,omitempty"`
	CPU         *CPUUse      `json:"cpu,omitempty"`
	// Path names the network interfaces that carried the data of RouteTCP.
	Path string `json:"path,omitempty"`
	// Data is what the comparison of the destinations gave, one for each end
	// that data arrived at.
	Data []DataCheck `json:"data,omitempty"`
	// Flush is what makes arrived data visible to a GPU whose memory it is in.
	Flush []Flush `json:"flush,omitempty"`
}

// CPUUse is what a step took of the processors that the measuring threads ran
// on, from its warm-up to its last message, and what it moved meanwhile. A loop
// that polls is busy all the time. What the kernel does in interrupts is not in it.
type CPUUse struct {
	InitiatorNs float64 `json:"initiator_ns"`
	ResponderNs float64 `json:"responder_ns"`
	Bytes       uint64  `json:"bytes"`
}

// Rate is a measured bandwidth in one direction.
type Rate struct {
	BytesPerSec    float64 `json:"bytes_per_sec"`
	MessagesPerSec float64 `json:"messages_per_sec"`
	Messages       uint64  `json:"messages"`  // within the window
	WindowNs       float64 `json:"window_ns"` // that BytesPerSec is the average of
	// FromStart: a test by time was too short for its margins, so the window is
	// all of it, from its first message to its last completion.
	FromStart bool `json:"from_start,omitempty"`
	// Series is the rate of each whole interval of the window, in bytes a
	// second; empty when the window is shorter than two intervals.
	Series     []float64 `json:"series,omitempty"`
	IntervalNs int64     `json:"interval_ns,omitempty"`
	// SeriesOf: there were so many intervals that each entry of Series is the mean
	// of this many, one after another; a rest that is shorter is left out.
	SeriesOf int `json:"series_of,omitempty"`
	// Of single intervals, however many stand in an entry.
	SeriesMin float64 `json:"series_min,omitempty"`
	SeriesMed float64 `json:"series_median,omitempty"`
	SeriesMax float64 `json:"series_max,omitempty"`
	// Lost is how many messages did not arrive: UD only, counted by the receiver.
	Lost uint64 `json:"lost,omitempty"`
	// CPUNs is the processor time of the measuring thread, warm-up included.
	CPUNs float64 `json:"cpu_ns,omitempty"`
}

// Good says that the test came to its end and that all data arrived right.
func (r *Result) Good() bool {
	for _, s := range r.Steps {
		for _, d := range s.Data {
			if !d.Correct && d.Skipped == "" {
				return false
			}
		}
	}
	return r.Failure == nil && len(r.Steps) > 0
}

// SetUp says that both ends were opened and connected, whatever came of the runs.
func (r *Result) SetUp() bool {
	return r.Failure == nil || r.FailedAt != StageOpened && r.FailedAt != StageConnected
}

// maxSeries is how many entries a series has at most: of a test of hours, each
// interval by itself would be more than a message may hold.
const maxSeries = 1000

// SetSeries sets the series with its minimum, median and maximum; one of less
// than two intervals says nothing and is dropped.
func (r *Rate) SetSeries(series []float64, intervalNs int64) {
	n := len(series)
	if n < 2 {
		return
	}
	sorted := slices.Sorted(slices.Values(series))
	r.Series, r.IntervalNs = series, intervalNs
	if n > maxSeries {
		r.SeriesOf = (n + maxSeries - 1) / maxSeries
		r.Series = means(series, r.SeriesOf)
	}
	r.SeriesMin, r.SeriesMed, r.SeriesMax = sorted[0], (sorted[(n-1)/2]+sorted[n/2])/2, sorted[n-1]
}

// means of so many values each, without the rest.
func means(values []float64, of int) []float64 {
	out := make([]float64, 0, len(values)/of)
	for chunk := range slices.Chunk(values, of) {
		if len(chunk) < of {
			break
		}
		mean := 0.0
		for _, v := range chunk {
			mean += v / float64(of)
		}
		out = append(out, mean)
	}
	return out
}

// LatencyDist is the distribution of a latency: half of a round trip, and for
// a read the whole of it, since a read is one.
type LatencyDist struct {
	Samples  uint64  `json:"samples"`
	MinNs    float64 `json:"min_ns"`
	MedianNs float64 `json:"median_ns"`
	MeanNs   float64 `json:"mean_ns"`
	P99Ns    float64 `json:"p99_ns"`
	P999Ns   float64 `json:"p99_9_ns"`
	MaxNs    float64 `json:"max_ns"`
	StdevNs  float64 `json:"stdev_ns"`
	// Lost is how many messages have no sample, since they or their answers did not
	// come within LostAfterNs: UD only.
	Lost        uint64 `json:"lost,omitempty"`
	LostAfterNs int64  `json:"lost_after_ns,omitempty"`
	// Histogram holds every sample: an HdrHistogram, V2 compressed, in base64,
	// in units of HistogramUnitNs.
	Histogram       string  `json:"histogram,omitempty"`
	HistogramUnitNs float64 `json:"histogram_unit_ns,omitempty"`
}

// DataCheck is the comparison of a destination with what must have arrived.
type DataCheck struct {
	Side    Side   `json:"side"`  // whose memory was compared
	Bytes   uint64 `json:"bytes"` // compared; those between messages are among them
	Correct bool   `json:"correct"`
	// FirstWrongOffset is where the first wrong byte is, from the start of the
	// destination, with what it is and what it should be. Only if not Correct.
	FirstWrongOffset uint64 `json:"first_wrong_offset,omitempty"`
	Got              byte   `json:"got,omitempty"`
	Want             byte   `json:"want,omitempty"`
	// OverwrittenBytes arrived too, and could not be compared after the run: later
	// messages had taken their place.
	OverwrittenBytes uint64 `json:"overwritten_bytes,omitempty"`
	// Untouched: the byte was one that no message was to reach.
	Untouched bool `json:"untouched,omitempty"`
	// Skipped says why nothing could be compared.
	Skipped string `json:"skipped,omitempty"`
}

// Outcome is what one engine measured of one size.
type Outcome struct {
	Rate    *Rate        `json:"rate,omitempty"`
	Latency *LatencyDist `json:"latency,omitempty"`
	// Sent and Received are the messages of each QP in the whole step, warm-up
	// included.
	Sent     []uint64 `json:"sent,omitempty"`
	Received []uint64 `json:"received,omitempty"`
	LastMark byte     `json:"last_mark,omitempty"` // last byte of the last message of a write latency test
	CPUNs    float64  `json:"cpu_ns,omitempty"`    // of the measuring thread
	Path     string   `json:"path,omitempty"`      // network interfaces that carried what this end sent over TCP
	Flush    []Flush  `json:"flush,omitempty"`
}

// Progress is a live figure of a bandwidth test, or the share of a latency test.
type Progress struct {
	SizeBytes   int     `json:"size_bytes"`
	Messages    uint64  `json:"messages"`
	BytesPerSec float64 `json:"bytes_per_sec"`
	Done        float64 `json:"done"` // 0 to 1
}

// Failure is an error of the RDMA stack with its cause in words. It implements
// error and goes over the wire.
type Failure struct {
	Call      string `json:"call"`                 // ibv_reg_mr, or "work completion"
	Subject   string `json:"subject,omitempty"`    // mlx5_0, QP 3
	Errno     int    `json:"errno,omitempty"`      // of a call
	Code      int    `json:"code,omitempty"`       // of a vendor's library: its own error
	Status    string `json:"status,omitempty"`     // of a completion, or of Code: IBV_WC_RETRY_EXC_ERR, CUDA_ERROR_NO_DEVICE
	VendorErr uint32 `json:"vendor_err,omitempty"` // of a completion
	Cause     string `json:"cause"`                // the likely reason
	Check     string `json:"check,omitempty"`      // what to look at
}

// CallStart is the call of a Failure that kept gdrcheck from starting an end.
const CallStart = "starting an end of the measurement"

// Error implements error.
func (f *Failure) Error() string {
	text := f.Call
	if f.Subject != "" {
		text += " on " + f.Subject
	}
	if f.Status != "" {
		text += ": " + f.Status
	}
	text += ": " + f.Cause
	if f.Check != "" {
		text += "; " + f.Check
	}
	return text
}
