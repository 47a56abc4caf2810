package perftest_test

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/google/go-cmp/cmp"

	"github.com/gdrcheck/gdrcheck/perftest"
)

// The distribution is compared with the sorted samples themselves.
func TestLatencyDist(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	samples := make([]float64, 100_000)
	for i := range samples {
		samples[i] = 1000 + 300*r.ExpFloat64()
	}
	samples[17] = 5e6 // the largest samples stay in
	d, err := perftest.NewLatencyDist(samples)
	if err != nil {
		t.Fatal(err)
	}
	sorted := slices.Sorted(slices.Values(samples))
	n := len(sorted)
	var mean, squares float64
	for _, s := range samples {
		mean += s / float64(n)
	}
	for _, s := range samples {
		squares += (s - mean) * (s - mean)
	}
	const digits = 2e-3 // of the histogram
	for _, tt := range []struct {
		name            string
		got, want, near float64
	}{
		{"minimum", d.MinNs, sorted[0], 0},
		{"maximum", d.MaxNs, 5e6, 0},
		{"median", d.MedianNs, sorted[n/2], digits},
		{"p99", d.P99Ns, sorted[n*99/100], digits},
		{"p99.9", d.P999Ns, sorted[n*999/1000], digits},
		{"mean", d.MeanNs, mean, 1e-9},
		{"standard deviation", d.StdevNs, math.Sqrt(squares / float64(n)), 1e-9},
	} {
		if math.Abs(tt.got-tt.want) > tt.near*tt.want {
			t.Errorf("%s %v, want %v", tt.name, tt.got, tt.want)
		}
	}
	h, err := hdrhistogram.Decode([]byte(d.Histogram))
	if err != nil {
		t.Fatal(err)
	}
	if h.TotalCount() != int64(n) {
		t.Errorf("the histogram holds %d samples, want all %d", h.TotalCount(), n)
	}
	if _, err := perftest.NewLatencyDist(nil); err == nil {
		t.Error("no samples have no distribution")
	}
}

func TestChooseGID(t *testing.T) {
	entry := func(i int, addr string, typ perftest.GIDType) perftest.GIDEntry {
		return perftest.GIDEntry{Index: i, Addr: netip.AddrFrom16(netip.MustParseAddr(addr).As16()), Type: typ}
	}
	// A usual table: each address as v1 and as v2.
	usual := []perftest.GIDEntry{
		entry(0, "fe80::1", perftest.GIDRoCEv1), entry(1, "fe80::1", perftest.GIDRoCEv2),
		entry(2, "192.0.2.7", perftest.GIDRoCEv1), entry(3, "192.0.2.7", perftest.GIDRoCEv2),
		entry(4, "2001:db8::7", perftest.GIDRoCEv1), entry(5, "2001:db8::7", perftest.GIDRoCEv2),
	}
	for name, tt := range map[string]struct {
		entries []perftest.GIDEntry
		ipv6    bool
		want    int
		reason  string
	}{
		"IPv4":              {usual, false, 3, "192.0.2.7 (RoCE v2, IPv4)"},
		"IPv6":              {usual, true, 5, "2001:db8::7 (RoCE v2, IPv6)"},
		"link-local only":   {usual[:2], false, 1, "link-local"},
		"v1 only":           {[]perftest.GIDEntry{usual[0], usual[2]}, false, 2, "RoCE v1"},
		"no IPv6 but local": {usual[:4], true, 1, "link-local"},
	} {
		t.Run(name, func(t *testing.T) {
			got, reason, err := perftest.ChooseGID(tt.entries, tt.ipv6)
			if err != nil || got.Index != tt.want || !strings.Contains(reason, tt.reason) {
				t.Errorf("index %d, %q, %v; want %d with %q", got.Index, reason, err, tt.want, tt.reason)
			}
		})
	}
	if _, _, err := perftest.ChooseGID(nil, false); err == nil {
		t.Error("an empty table has no GID")
	}
	if _, _, err := perftest.ChooseGID([]perftest.GIDEntry{entry(0, "192.0.2.7", perftest.GIDUnknownType)}, false); err == nil {
		t.Error("an entry of unknown type is not chosen by itself")
	}
}

// Numbers and names of enum ibv_wc_status in infiniband/verbs.h.
func TestCompletionFailure(t *testing.T) {
	for status, want := range map[int]string{
		1: "IBV_WC_LOC_LEN_ERR", 4: "IBV_WC_LOC_PROT_ERR", 5: "IBV_WC_WR_FLUSH_ERR", 9: "IBV_WC_REM_INV_REQ_ERR", 10: "IBV_WC_REM_ACCESS_ERR",
		11: "IBV_WC_REM_OP_ERR", 12: "IBV_WC_RETRY_EXC_ERR", 13: "IBV_WC_RNR_RETRY_EXC_ERR", 19: "IBV_WC_FATAL_ERR", 21: "IBV_WC_GENERAL_ERR", 22: "IBV_WC_TM_ERR",
	} {
		f := perftest.CompletionFailure("mlx5_0 QP 0", status, 0)
		if f.Status != want || f.Cause == "" {
			t.Errorf("status %d: %+v, want %s", status, f, want)
		}
	}
	for _, status := range []int{-1, 99} {
		if f := perftest.CompletionFailure("", status, 7); f.Cause == "" || !strings.Contains(f.Status, "0x7") {
			t.Errorf("status %d: %+v", status, f)
		}
	}
}

func TestCallFailure(t *testing.T) {
	for _, tt := range []struct {
		call  string
		errno syscall.Errno
		words string
	}{
		{"ibv_reg_mr", syscall.ENOMEM, "memlock"},
		{"ibv_reg_mr", syscall.EFAULT, "peer memory"},
		{"ibv_modify_qp to RTR", syscall.EINVAL, "GID"},
		{"ibv_modify_qp to RTR", syscall.ETIMEDOUT, "resolved"},
		{"ibv_open_device", syscall.EACCES, "/dev/infiniband"},
		{"ibv_create_qp", syscall.EOPNOTSUPP, "EFA"},
		{"ibv_something_new", syscall.EIO, "input/output error"},
	} {
		f := perftest.CallFailure(tt.call, "mlx5_0", tt.errno)
		if !strings.Contains(f.Error(), tt.words) || !strings.Contains(f.Error(), tt.errno.Error()) || f.Errno != int(tt.errno) {
			t.Errorf("%s %v: %v lacks %q", tt.call, tt.errno, f, tt.words)
		}
	}
}

func TestSweep(t *testing.T) {
	if diff := cmp.Diff([]int{2, 4, 8, 16}, perftest.Sweep(2, 31)); diff != "" {
		t.Error(diff)
	}
	if got := perftest.Sweep(1, 8<<20); len(got) != 24 || got[23] != 8<<20 {
		t.Errorf("%v", got)
	}
	if got := perftest.Sweep(5, 7); got != nil {
		t.Errorf("%v, but there is no power of two from 5 to 7", got)
	}
}

func TestPlanValidate(t *testing.T) {
	for _, op := range perftest.Operations {
		for _, m := range []perftest.Measure{perftest.Bandwidth, perftest.Latency} {
			p := perftest.NewPlan(op, m)
			if err := p.Validate(); err != nil {
				t.Errorf("the defaults of %s %s: %v", op, m, err)
			}
		}
	}
	for words, change := range map[string]func(*perftest.Plan){
		"not defined for UD":       func(p *perftest.Plan) { p.Transport = perftest.UD },
		"no transport":             func(p *perftest.Plan) { p.Transport = "SRD" },
		"no operation":             func(p *perftest.Plan) { p.Operation = "atomic" },
		"CQ moderation":            func(p *perftest.Plan) { p.CQModeration = 200 },
		"post list":                func(p *perftest.Plan) { p.PostList = 129 },
		"size 0":                   func(p *perftest.Plan) { p.SizesBytes = []int{64, 0} },
		"number of sizes":          func(p *perftest.Plan) { p.SizesBytes = nil },
		"either a number":          func(p *perftest.Plan) { p.Messages = 5 },
		"two margins":              func(p *perftest.Plan) { p.MarginNs = p.DurationNs / 2 },
		"MTU 1500":                 func(p *perftest.Plan) { p.MTUBytes = 1500 },
		"latency test has one QP":  func(p *perftest.Plan) { p.Measure, p.Depth = perftest.Latency, 2 },
		"want 1 to 1024":           func(p *perftest.Plan) { p.QPs = 1 << 20 },
		"footprint":                func(p *perftest.Plan) { p.FootprintBytes = 1 << 50 },
		"a write latency test has": func(p *perftest.Plan) { *p = perftest.NewPlan(perftest.Write, perftest.Latency); p.Events = true },
	} {
		p := perftest.NewPlan(perftest.Write, perftest.Bandwidth)
		change(&p)
		if err := p.Validate(); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, want %q", err, words)
		}
	}
}

// A test of hours has a series that goes into a message, and whose extremes are
// those of single intervals.
func TestLongSeries(t *testing.T) {
	const n = 100_003
	long := make([]float64, n)
	for i := range long {
		long[i] = 123456789.123 + float64(i%1000)
	}
	long[7], long[n-1] = 1, 9e9
	var r perftest.Rate
	r.SetSeries(long, int64(perftest.DefaultInterval))
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if len(b) > 1<<16 || len(r.Series) > 1000 || len(r.Series)*r.SeriesOf > n || (len(r.Series)+1)*r.SeriesOf < n {
		t.Errorf("%d bytes, %d entries of %d intervals", len(b), len(r.Series), r.SeriesOf)
	}
	if r.SeriesMin != 1 || r.SeriesMax != 9e9 || r.IntervalNs != int64(perftest.DefaultInterval) {
		t.Errorf("from %g to %g", r.SeriesMin, r.SeriesMax)
	}
	if got, want := r.Series[1], (123456789.123+float64(101)+123456789.123+float64(201))/2; math.Abs(got-want) > 1 {
		t.Errorf("second entry %g, want the mean of intervals 101 to 201, %g", got, want)
	}
	short := perftest.Rate{}
	if short.SetSeries(long[:1000], 1); len(short.Series) != 1000 || short.SeriesOf != 0 {
		t.Errorf("%d entries of %d", len(short.Series), short.SeriesOf)
	}
}

func TestSeries(t *testing.T) {
	var r perftest.Rate
	if r.SetSeries([]float64{5}, 1); r.Series != nil {
		t.Error("one interval is no series")
	}
	r.SetSeries([]float64{4, 1, 3, 2}, 1)
	if r.SeriesMin != 1 || r.SeriesMax != 4 || r.SeriesMed != 2.5 {
		t.Errorf("%+v", r)
	}
}
