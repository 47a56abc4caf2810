package perftest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/rdma/qos"
)

func TestToken(t *testing.T) {
	a, b := newToken([]byte("certificate")), newToken([]byte("certificate"))
	if a.secret == b.secret || a.cert != b.cert {
		t.Error("two tokens share their secret, or differ in the certificate")
	}
	text := a.Encode()
	if strings.ContainsFunc(text, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-", r)
	}) {
		t.Errorf("%q needs quoting in a shell", text)
	}
	got, err := ParseToken(" " + text + "\n")
	if err != nil || got != a {
		t.Errorf("%v, %v", got, err)
	}
	for _, shown := range []string{fmt.Sprint(a), fmt.Sprintf("%v %+v %#v %s", a, a, a, a)} {
		if strings.Contains(shown, text) || strings.Contains(shown, fmt.Sprintf("%x", a.secret[:4])) || strings.Contains(shown, fmt.Sprint(a.secret[0], " ", a.secret[1])) {
			t.Errorf("the token shows in %q", shown)
		}
	}
	for _, bad := range []string{"", "  ", "x", text[1:], text[:len(text)-1], text + "A", strings.Replace(text, "1.", "2.", 1), text[:20] + "!" + text[21:]} {
		if _, err := ParseToken(bad); err == nil {
			t.Errorf("%q was taken", bad)
		} else if bad != "" && len(bad) > 30 && strings.Contains(err.Error(), bad) {
			t.Errorf("the error tells the text: %v", err)
		}
	}
}

func FuzzToken(f *testing.F) {
	f.Add(newToken(nil).Encode())
	f.Add("gdrcheck1.")
	f.Fuzz(func(t *testing.T, text string) {
		token, err := ParseToken(text)
		if err == nil && token.Encode() != strings.TrimSpace(text) {
			t.Errorf("%q is read as %q", text, token.Encode())
		}
	})
}

func FuzzMessage(f *testing.F) {
	for _, m := range []message{
		{Hello: &hello{1, []byte("x"), "g"}},
		{List: &list{}},
		{Rails: &railList{[]Rail{{Device: "mlx5_0", Port: 1, LinkLayer: "Ethernet", Unfit: "DOWN", Why: WhyDown, Subnets: []string{"10.0.0.0/24", "2001:db8::/64"}}}}},
		{Welcome: &welcome{1, "v"}},
		{Test: &test{ID: 1, Plan: NewPlan(Write, Bandwidth), Side: Responder, Device: "mlx5_0"}},
		{Accept: &accept{ID: 1}},
		{Step: &step{ID: 1, Message: Message{Stage: StageOpened, Endpoint: &Endpoint{QPs: []QP{{1, 2}}, GID: "fe80::1"}}}},
		{Step: &step{ID: 1, Message: Message{Stage: StageRan, Size: 2, Outcome: &Outcome{Rate: &Rate{BytesPerSec: 1}, Latency: &LatencyDist{}}}}},
		{Step: &step{ID: 1, Message: Message{Stage: StageVerified, Data: &DataCheck{Side: Initiator}}}},
		{Step: &step{ID: 1, Message: Message{Stage: StagePrepared, Failure: &Failure{Call: "a", Cause: "\x1b[2J\u202e"}}}},
		{Finished: &finished{ID: 1, Counters: SideCounters{Watched: []string{"a"}, Moved: []CounterDelta{{"a", qos.SignLink, "b", 1}}}}},
		{Alive: &alive{}}, {Bye: &bye{}},
		{Error: &refusal{CodeBusy, "busy"}},
	} {
		b, err := json.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		_, _ = decodeHello(line)
		m, err := decodeMessage(line)
		if err != nil {
			return
		}
		b, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		again, err := decodeMessage(b)
		if err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		if diff := cmp.Diff(m, again, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s", diff)
		}
		var texts any
		_ = json.Unmarshal(b, &texts)
		if s := fmt.Sprint(texts); strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("unprintable: %q", s)
		}
	})
}

func TestReadLineBounds(t *testing.T) {
	if err := writeMessage(&bytes.Buffer{}, message{Error: &refusal{Text: strings.Repeat("x", maxMessageBytes)}}); err == nil {
		t.Error("a message beyond the bound was written")
	}
}

func counter(name string, v uint64) rdma.Counter {
	return rdma.Counter{Name: name, Value: fact.Of(v, name)}
}

func TestCompareCounters(t *testing.T) {
	failed := rdma.Counter{Name: "out_of_buffer", Value: fact.Missing[uint64](fact.Failed, "out_of_buffer", "EIO")}
	unsupported := rdma.Counter{Name: "out_of_buffer", Value: fact.Missing[uint64](fact.Unsupported, "out_of_buffer", "EOPNOTSUPP")}
	denied := rdma.Counter{Name: "ports/1/hw_counters", Group: true, Value: fact.Missing[uint64](fact.Denied, "hw_counters", "permission denied")}
	for _, tt := range []struct {
		name          string
		before, after []rdma.Counter
		want          SideCounters
	}{
		{
			"what matters, worst first",
			[]rdma.Counter{counter("np_cnp_sent", 5), counter("port_xmit_data", 1), counter("local_ack_timeout_err", 7), counter("link_downed", 0), counter("tcpRetransSegs", 1)},
			[]rdma.Counter{counter("np_cnp_sent", 9), counter("port_xmit_data", 99), counter("local_ack_timeout_err", 8), counter("link_downed", 0), counter("tcpRetransSegs", 1)},
			SideCounters{
				Watched: []string{"link_downed", "local_ack_timeout_err", "tcpRetransSegs", "np_cnp_sent"},
				Moved: []CounterDelta{
					{"local_ack_timeout_err", qos.SignRetransmission, "timeouts without an acknowledgement", 1},
					{"np_cnp_sent", qos.SignCongestion, "congestion notifications sent", 4},
				},
			},
		},
		{"priorities", []rdma.Counter{counter("rx_prio3_pause", 1)}, []rdma.Counter{counter("rx_prio3_pause", 3)}, SideCounters{
			Watched: []string{"rx_prio3_pause"},
			Moved:   []CounterDelta{{"rx_prio3_pause", qos.SignPause, "priority pause frames received", 2}},
		}},
		{"bytes by priority", []rdma.Counter{counter("tx_prio3_bytes", 1), counter("rx_prio3_bytes", 5), counter("rx_bytes_pri0", 0)},
			[]rdma.Counter{counter("tx_prio3_bytes", 11), counter("rx_prio3_bytes", 7), counter("rx_bytes_pri0", 0)}, SideCounters{
				Reason:     "the driver keeps no counter that would tell",
				Priorities: []PriorityBytes{{Priority: 0}, {Priority: 3, Sent: 10, Received: 2}},
			}},
		{"reset", []rdma.Counter{counter("link_downed", 5)}, []rdma.Counter{counter("link_downed", 0)}, SideCounters{Reason: "the driver keeps no counter that would tell"}},
		{"at its end", []rdma.Counter{counter("link_downed", 255)}, []rdma.Counter{counter("link_downed", 255)}, SideCounters{Reason: "the driver keeps no counter that would tell"}},
		{"unread", []rdma.Counter{counter("out_of_buffer", 5)}, []rdma.Counter{failed}, SideCounters{Reason: "EIO"}},
		{"unread beside others", []rdma.Counter{counter("link_downed", 5), counter("out_of_buffer", 5)}, []rdma.Counter{counter("link_downed", 5), failed}, SideCounters{Watched: []string{"link_downed"}, Reason: "EIO"}},
		{"a folder denied beside others", []rdma.Counter{counter("link_downed", 5), denied}, []rdma.Counter{counter("link_downed", 5), denied}, SideCounters{Watched: []string{"link_downed"}, Reason: "ports/1/hw_counters was not seen: permission denied"}},
		{"a folder denied before", []rdma.Counter{counter("link_downed", 5), denied}, []rdma.Counter{counter("link_downed", 5), counter("out_of_buffer", 5)}, SideCounters{Watched: []string{"link_downed"}, Reason: "ports/1/hw_counters was not seen: permission denied"}},
		{"not supported beside others", []rdma.Counter{counter("link_downed", 5), unsupported}, []rdma.Counter{counter("link_downed", 5), unsupported}, SideCounters{Watched: []string{"link_downed"}}},
		{"new", nil, []rdma.Counter{counter("link_downed", 5)}, SideCounters{Reason: "the driver keeps no counter that would tell"}},
		{"nothing", nil, nil, SideCounters{Reason: "no counters were found"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, CompareCounters(tt.before, tt.after)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
