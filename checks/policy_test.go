package checks

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/topo"
)

func mustPolicy(t *testing.T, text string) *Policy {
	t.Helper()
	p, err := ParsePolicy([]byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return p
}

func TestParsePolicy(t *testing.T) {
	p := mustPolicy(t, `
preset: none
expect:
  gpus: {count: 8, model: H100}
  nics: {min: 8, model: ConnectX-7, rate_gbps: 400, firmware: "28.39"}
  path: PXB
severity: {rdma-port-rate: error}
thresholds: {memlock_min_bytes: 1}
off: [gdrdrv, host]
waivers:
  - {check: acs-redirect, subject: "0000:3a:*", reason: ticket 7, expires: 2026-12-31}
`)
	if *p.Expect.GPUs.Count != 8 || p.Expect.NICs.RateGbps != 400 || p.Severity["rdma-port-rate"] != SeverityError ||
		p.Waivers[0].Expires != "2026-12-31" || p.Thresholds.MemlockMinBytes != 1 {
		t.Errorf("%+v", p)
	}
}

// What editors and people write and mean the same by is taken.
func TestPolicyForms(t *testing.T) {
	for name, text := range map[string]string{
		"byte order mark": "\ufeffexpect:\n  nics: {firmware: '28.10', rate_gbps: 400, model: H7}\n",
		"CRLF":            "expect:\r\n  nics:\r\n    firmware: '28.10'\r\n    rate_gbps: 400.0\r\n    model: \"H7\"\r\n",
		"end mark":        "expect: {nics: {firmware: '28.10', rate_gbps: 400, model: H7}}\noff:\nthresholds:\n...\n",
	} {
		e := mustPolicy(t, text).Expect.NICs
		if e.Firmware != "28.10" || e.RateGbps != 400 || e.Model != "H7" {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

// What is wrong with a policy is said with its line and column.
func TestBadPolicies(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		line, col  int
		say        string
	}{
		{"empty", "", 0, 0, "one YAML document"},
		{"only a comment", "# nothing\n", 0, 0, "one YAML document"},
		{"two documents", "off: [gdrdrv]\n---\noff: []\n", 0, 0, "one YAML document"},
		{"no YAML", "expect: [\n", 1, 9, ""},
		{"a list", "- a\n", 1, 1, ""},
		{"unknown key", "expect:\n  gpu: {count: 1}\n", 2, 3, `unknown field "gpu"`},
		{"unknown key below", "expect:\n  gpus:\n    number: 1\n", 3, 5, `unknown field "number"`},
		{"key twice", "off: [gdrdrv]\noff: [memlock]\n", 2, 1, "off"},
		{"wrong type", "expect:\n  gpus: {count: many}\n", 2, 17, ""},
		{"unknown check", "severity:\n  memlock: error\n  acs-redirct: error\n", 3, 16, `no check is called "acs-redirct"`},
		{"unknown severity", "severity:\n  memlock: fatal\n", 2, 12, "error, warning, info"},
		{"unknown check off", "off: [memlock, everything]\n", 1, 16, `"everything"`},
		{"unknown preset", "preset: dgx-9\n", 1, 9, "dgx-h100"},
		{"path class", "expect:\n  path: PBX\n", 2, 9, "PIX, PXB"},
		{"threshold", "thresholds:\n  memlock_min_byte: 1\n", 2, 3, "memlock_min_byte"},
		{"threshold class", "thresholds: {path_good: good}\n", 1, 25, "PIX, PXB"},
		{"negative", "expect: {nics: {count: -1}}\n", 1, 0, "below zero"},
		{"waiver without a reason", "waivers:\n- {check: memlock, subject: node, expires: 2026-01-01}\n", 2, 0, "reason"},
		{"waiver without an end", "waivers:\n- {check: memlock, subject: node, reason: x}\n", 2, 0, "expires"},
		{"waiver's day", "waivers:\n- {check: memlock, subject: node, reason: x,\n   expires: 2026-02-30}\n", 3, 13, "2026-12-31"},
		{"waiver's check", "waivers:\n- {check: memlok, subject: node, reason: x, expires: 2026-02-20}\n", 2, 11, "memlok"},
		{"waiver's pattern", "waivers:\n- {check: memlock, subject: '[', reason: x, expires: 2026-02-20}\n", 2, 0, "pattern"},
		{"alias", "off: &a [memlock]\nwaivers: *a\n", 2, 10, "aliases"},
		{"anchor", "off: &a [memlock]\n", 1, 6, "anchors"},
		{"tag", "off: !!str memlock\n", 1, 6, "tags"},
		{"huge", "#" + strings.Repeat("x", MaxPolicyBytes), 0, 0, "too large"},
		{"as large as may be", "#" + strings.Repeat("x", MaxPolicyBytes-1), 0, 0, "one YAML document"},
		{"not UTF-8", "off: [memlock]\n# caf\xe9\n", 2, 6, "not UTF-8"},
		{"UTF-16", "\xff\xfeo\x00f\x00f\x00", 1, 1, "UTF-16"},
		{"a fraction", "expect:\n  gpus: {count: 8.5}\n", 2, 17, "whole number"},
		{"a fraction below", "thresholds: {xid_fatal: [79, 1.5]}\n", 1, 30, "whole number"},
		{"a text for a number", "thresholds: {memlock_min_bytes: 17GB}\n", 1, 33, "whole number"},
		{"no number", "expect:\n  nics: {rate_gbps: .nan}\n", 2, 21, "want a number"},
		{"infinite", "expect:\n  nics: {rate_gbps: .inf}\n", 2, 21, "want a number"},
		{"negative threshold", "thresholds:\n  idle_max_latency_us: -1\n", 2, 24, "below zero"},
		{"negative share", "thresholds:\n  bar1_min_share: -0.5\n", 2, 19, "below zero"},
		{"too large", "expect: {gpus: {count: 99999999999999999999}}\n", 1, 24, "whole number"},
		{"one word for a list", "off: memlock\n", 1, 6, "want a list"},
		{"a list for a word", "preset: [dgx-h100]\n", 1, 9, "want a text"},
		{"a list for keys", "expect: [gpus]\n", 1, 9, "want keys"},
		{"a number for a key", "1: 2\n", 1, 1, "unknown field"},
		{"nothing for a key", "~: 2\n", 1, 1, "unknown field"},
		{"a neighbour without a name", "network: {neighbours: {mlx5_0: }}\n", 1, 24, "no value"},
		{"a number for a text", "expect: {nics: {firmware: 28.10}}\n", 1, 27, "\"28.10\""},
		{"a tab", "expect:\n\tgpus: {count: 8}\n", 2, 1, "tab"},
		{"exactly and at least", "expect:\n  gpus: {count: 8, min: 9}\n", 2, 0, "exact"},
		{"waiver without a check", "waivers:\n- {subject: node, reason: x, expires: 2026-01-01}\n", 2, 0, "wants check"},
		{"waiver without a subject", "waivers:\n- {check: memlock, reason: x, expires: 2026-01-01}\n", 2, 0, "wants check"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := ParsePolicy([]byte(tc.text))
			var e *PolicyError
			if !errors.As(err, &e) {
				t.Fatalf("%v", err)
			}
			if e.Line != tc.line || tc.col != 0 && e.Column != tc.col || !strings.Contains(e.Message, tc.say) {
				t.Errorf("%v, want %d:%d with %q", err, tc.line, tc.col, tc.say)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("%q is more than one line", err)
			}
			if placed := strings.HasPrefix(err.Error(), fmt.Sprintf("%d:%d: ", e.Line, e.Column)); placed != (e.Line > 0) {
				t.Errorf("%q, of line %d", err, e.Line)
			}
		})
	}
}

// The policy that a node gets is valid and met by it, and a machine that was not
// seen whole gets none.
func TestPolicyOf(t *testing.T) {
	m := goodNode()
	nic(m).Firmware = known("28.39.1002")
	text, err := PolicyOf(m)
	if err != nil {
		t.Fatal(err)
	}
	p := mustPolicy(t, string(text))
	one := 1
	want := Expect{GPUs: GPUExpect{Count: &one, Model: "NVIDIA H100 80GB HBM3"},
		NICs: NICExpect{Count: &one, Model: "ConnectX-7", RateGbps: 400, Firmware: "28.39.1002"}, Path: topo.ClassPIX}
	if diff := cmp.Diff(want, p.Expect); diff != "" {
		t.Error(diff)
	}
	for _, f := range mustRun(t, m, Options{Policy: p, Only: []string{"policy", "gpu-nic-path"}}).Findings {
		if f.Verdict != Pass {
			t.Errorf("%s %s: %s %s", f.Check, f.Subject, f.Verdict, f.Message)
		}
	}
	// Other NICs and slower ports: the policy is of those for GPUs, and of the slowest.
	other := goodNode()
	storageNIC(other)
	thirdNIC(other)
	other.RDMA.Devices[1].Model.V.Name = "ConnectX-6 Lx"
	other.RDMA.Devices[2].Ports[0].Rate.V.BitsPerSec = 200e9
	soft := goodNIC("rxe0", nicAddr, "ens1")
	soft.Software, soft.PCI, soft.Model = true, absent[pci.Address](), absent[rdma.Model]()
	other.RDMA.Devices = append(other.RDMA.Devices, soft)
	other.PCI = append(other.PCI, function("0000:0c:00.0", rootPort, pci.ClassEthernet<<8, pci.PortEndpoint)) // no RDMA at all
	if text, err = PolicyOf(other); err != nil {
		t.Fatal(err)
	}
	if e := mustPolicy(t, string(text)).Expect.NICs; *e.Count != 2 || e.Model != "ConnectX-7" || e.RateGbps != 200 {
		t.Errorf("with other NICs: %+v", e)
	}
	// The worst of the GPUs' best paths.
	two := goodNode()
	twoGPUs(two)
	apart := func(m *topo.Machine) {
		m.PCI = append(m.PCI, function("0000:00:02.0", "", pci.ClassPCIBridge<<8, pci.PortRoot))
		fn(m, "0000:05:00.0").Parent = new(at("0000:00:02.0"))
	}
	apart(two)
	for range 10 { // maps have no order
		if text, err = PolicyOf(two); err != nil {
			t.Fatal(err)
		}
		if path := mustPolicy(t, string(text)).Expect.Path; path != topo.ClassPHB {
			t.Errorf("of PIX and PHB: %s", path)
		}
	}
	// Models that differ, a port that is down: nothing is promised of them.
	m.RDMA.Devices = append(m.RDMA.Devices, goodNIC("mlx5_1", nicAddr, "ens2"))
	m.RDMA.Devices[1].Model = known(rdma.Model{Name: "ConnectX-8"})
	port(m).State, m.RDMA.Devices[1].Ports[0].State = known("DOWN"), known("DOWN")
	if text, err = PolicyOf(m); err != nil {
		t.Fatal(err)
	}
	if e := mustPolicy(t, string(text)).Expect.NICs; *e.Count != 2 || e.Model != "" || e.RateGbps != 0 {
		t.Errorf("%+v", e)
	}
	m.Problems = []topo.Problem{{Part: "rdma", Reason: "timeout"}}
	if _, err = PolicyOf(m); err == nil || !strings.Contains(err.Error(), "timeout") {
		t.Errorf("%v", err)
	}
}

// What is shown as a policy is one.
func TestPolicyExamples(t *testing.T) {
	doc, err := os.ReadFile("../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(doc), "```yaml\n")
	block, _, ok := strings.Cut(block, "```")
	if !ok {
		t.Fatal("docs/policy.md shows no policy")
	}
	mustPolicy(t, block)
	mustPolicy(t, strings.ReplaceAll(policyTail, "\n# ", "\n"))
}

func FuzzParsePolicy(f *testing.F) {
	f.Add([]byte("expect: {gpus: {count: 8}}\nwaivers:\n- {check: memlock, subject: '*', reason: x, expires: 2026-01-01}\n"))
	f.Add([]byte("severity: {memlock: error}\nthresholds: {memlock_min_bytes: 1}\noff: [host]\n"))
	f.Add([]byte("network: {profile: custom, dscp: 26, priority: 3, cnp_dscp: 48, neighbours: {mlx5_0: leaf1}}\n"))
	m := goodNode()
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := ParsePolicy(text)
		var e *PolicyError
		switch {
		case err != nil && !errors.As(err, &e):
			t.Errorf("%T %v is no PolicyError", err, err)
		case err == nil:
			if _, err := Run(m, Options{Policy: p}); err != nil {
				t.Errorf("what is valid cannot be run: %v", err)
			}
		}
	})
}

func runPolicy(t *testing.T, m *topo.Machine, text string) Outcome {
	t.Helper()
	return mustRun(t, m, Options{Policy: mustPolicy(t, text)})
}

func verdictOn(t *testing.T, o Outcome, check, subject string) Finding {
	t.Helper()
	for _, f := range o.Findings {
		if f.Check == check && f.Subject == subject {
			checkFinding(t, f)
			return f
		}
	}
	t.Fatalf("no finding of %s on %q", check, subject)
	return Finding{}
}

func dgxH100(m *topo.Machine) { m.Host.DMI.ProductName = known("DGXH100") }

func TestExpectations(t *testing.T) {
	listed := func(n int) func(*topo.Machine) {
		return func(m *topo.Machine) {
			for i := 1; i < n; i++ {
				m.RDMA.Devices = append(m.RDMA.Devices, goodNIC("mlx5_9", nicAddr, "ens9"))
			}
		}
	}
	lost := func(m *topo.Machine) { m.Problems = []topo.Problem{{Part: "gpu", Reason: "timeout"}} }
	for _, tc := range []struct {
		name, policy   string
		change         func(*topo.Machine)
		check, subject string
		want           Verdict
		say            string
	}{
		{"GPUs there", "expect: {gpus: {count: 1}}", nil, "policy-gpus", "node", Pass, "1 GPU"},
		{"a GPU is missing", "expect: {gpus: {count: 2}}", nil, "policy-gpus", "node", Fail, "1 GPU, the policy says 2"},
		{"a GPU too many", "expect: {gpus: {count: 0}}", nil, "policy-gpus", "node", Fail, "says 0"},
		{"at least", "expect: {gpus: {min: 1}}", nil, "policy-gpus", "node", Pass, ""},
		{"fewer", "expect: {gpus: {min: 2}}", nil, "policy-gpus", "node", Fail, ""},
		{"GPUs not collected", "expect: {gpus: {count: 1}}", lost, "policy-gpus", "node", Unknown, "timeout"},
		{"no number", "off: [gdrdrv]", nil, "policy-gpus", "node", NotApplicable, ""},
		{"model", "expect: {gpus: {model: H100}}", nil, "policy-gpu-model", "GPU0", Pass, ""},
		{"other model", "expect: {gpus: {model: H200}}", nil, "policy-gpu-model", "GPU0", Fail, "expected H200"},
		{"no name", "expect: {gpus: {model: H200}}", func(m *topo.Machine) { m.GPU.GPUs[0].Name = "" }, "policy-gpu-model", "GPU0", Unknown, ""},
		{"no model wanted", "off: [gdrdrv]", nil, "policy-gpu-model", "node", NotApplicable, ""},
		{"NICs there", "expect: {nics: {count: 1, model: ConnectX-7}}", nil, "policy-nics", "node", Pass, ""},
		{"two of them", "expect: {nics: {count: 2}}", listed(2), "policy-nics", "node", Pass, ""},
		{"software does not count", "expect: {nics: {count: 2}}", func(m *topo.Machine) {
			listed(2)(m)
			m.RDMA.Devices[1].Software = true
		}, "policy-nics", "node", Fail, "1 RDMA NIC,"},
		{"other NICs", "expect: {nics: {count: 1, model: ConnectX-6}}", nil, "policy-nics", "node", Fail, "0 ConnectX-6 NICs, the policy says 1"},
		{"a model and no number", "expect: {nics: {model: ConnectX-6}}", nil, "policy-nics", "node", Fail, "0 ConnectX-6"},
		{"NICs not listed", "expect: {nics: {count: 1}}", func(m *topo.Machine) { denied(&m.RDMA.Listed) }, "policy-nics", "node", Unknown, ""},
		{"no number of NICs", "off: [gdrdrv]", nil, "policy-nics", "node", NotApplicable, ""},
		{"rate", "expect: {nics: {rate_gbps: 400}}", nil, "policy-nic-rate", "mlx5_0/1", Pass, ""},
		{"low rate", "expect: {nics: {rate_gbps: 400}}", func(m *topo.Machine) {
			port(m).Rate = known(rdma.Rate{BitsPerSec: 200e9, Text: "200"})
		}, "policy-nic-rate", "mlx5_0/1", Fail, "200 Gb/s, expected 400 Gb/s"},
		{"rate denied", "expect: {nics: {rate_gbps: 400}}", func(m *topo.Machine) { denied(&port(m).Rate) }, "policy-nic-rate", "mlx5_0/1", Unknown, ""},
		{"no rate wanted", "off: [gdrdrv]", nil, "policy-nic-rate", "node", NotApplicable, ""},
		{"rate not shown", "expect: {nics: {rate_gbps: 400}}", func(m *topo.Machine) { port(m).Rate = absent[rdma.Rate]() }, "policy-nic-rate", "mlx5_0/1", Unknown, "shows no rate"},
		{"a port that nobody needs is down", "expect: {nics: {rate_gbps: 400}}", idleNIC(func(d *rdma.Device) { d.Ports[0].State.V = "DOWN" }), "policy-nic-rate", "mlx5_1/1", NotApplicable, "DOWN"},
		{"NICs not collected", "expect: {nics: {count: 1}}", func(m *topo.Machine) { m.Problems = []topo.Problem{{Part: "rdma", Reason: "timeout"}} }, "policy-nics", "node", Unknown, "timeout"},
		{"firmware not shown", `expect: {nics: {firmware: "28.39"}}`, func(m *topo.Machine) { nic(m).Firmware = absent[string]() }, "policy-nic-firmware", "mlx5_0", Unknown, "shows no firmware"},
		{"fewer than the preset's, as the policy says", "expect: {gpus: {min: 1}}", dgxH100, "policy-gpus", "node", Pass, "1 GPU"},
		{"exactly, beside a preset", "expect: {gpus: {count: 1}}", dgxH100, "policy-gpus", "node", Pass, "1 GPU"},
		{"NICs fewer than the preset's, as the policy says", "expect: {nics: {min: 1}}", dgxH100, "policy-nics", "node", Pass, "1 RDMA NIC"},
		{"NICs exactly, beside a preset", "expect: {nics: {count: 1}}", dgxH100, "policy-nics", "node", Pass, "1 RDMA NIC"},
		{"NICs of a model, beside a preset", "expect: {nics: {model: ConnectX-7}}", dgxH100, "policy-nics", "node", Pass, "1 ConnectX-7"},
		{"a policy on rates leaves the preset's number", "expect: {nics: {rate_gbps: 400}}", dgxH100, "policy-nics", "node", Warn, "a NVIDIA DGX H100 or H200 has 8"},
		{"EFA", "expect: {nics: {rate_gbps: 400}}", func(m *topo.Machine) { nic(m).Transport = known(rdma.EFA) }, "policy-nic-rate", "mlx5_0/1", NotApplicable, "EFA"},
		{"firmware", `expect: {nics: {firmware: "28.39"}}`, func(m *topo.Machine) { nic(m).Firmware = known("28.39.1002") }, "policy-nic-firmware", "mlx5_0", Pass, ""},
		{"other firmware", `expect: {nics: {firmware: "28.39"}}`, func(m *topo.Machine) { nic(m).Firmware = known("28.391.1") }, "policy-nic-firmware", "mlx5_0", Fail, ""},
		{"firmware denied", `expect: {nics: {firmware: "28.39"}}`, func(m *topo.Machine) { denied(&nic(m).Firmware) }, "policy-nic-firmware", "mlx5_0", Unknown, ""},
		{"no firmware wanted", "off: [gdrdrv]", nil, "policy-nic-firmware", "node", NotApplicable, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := goodNode()
			if tc.change != nil {
				tc.change(m)
			}
			f := verdictOn(t, runPolicy(t, m, tc.policy), tc.check, tc.subject)
			if f.Verdict != tc.want || !strings.Contains(f.Message, tc.say) {
				t.Errorf("%s %q, want %s with %q", f.Verdict, f.Message, tc.want, tc.say)
			}
		})
	}
}

// A promised path makes a poor class a failure, in a guest as well; a modest
// promise makes it a pass.
func TestPolicyPath(t *testing.T) {
	far := func(m *topo.Machine) { // the NIC below a root port of its own
		m.PCI = append(m.PCI, function("0000:80:00.0", "", pci.ClassPCIBridge<<8, pci.PortRoot))
		m.PCI[len(m.PCI)-1].HostBridge = "pci0000:80"
		nicFn, p := fn(m, nicAddr), at("0000:80:00.0")
		nicFn.Parent, nicFn.HostBridge = &p, "pci0000:80"
	}
	for _, tc := range []struct {
		name, policy string
		change       func(*topo.Machine)
		want         Verdict
	}{
		{"no policy", "off: [gdrdrv]", far, Warn},
		{"PXB promised", "expect: {path: PXB}", far, Fail},
		{"PXB promised in a guest", "expect: {path: PXB}", all2(far, guest), Fail},
		{"nothing promised in a guest", "off: [gdrdrv]", all2(far, guest), Info},
		{"NODE accepted", "expect: {path: NODE}", far, Pass},
		{"by threshold", "thresholds: {path_promised: PXB}", far, Fail},
		{"better than promised", "expect: {path: NODE}", nil, Pass},
		{"as promised, and better is asked for", "thresholds: {path_good: PIX, path_promised: PXB}", deeperNIC, Warn},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := goodNode()
			if tc.change != nil {
				tc.change(m)
			}
			f := verdictOn(t, runPolicy(t, m, tc.policy), "gpu-nic-path", "GPU0")
			if f.Verdict != tc.want || f.Verdict == Fail && !strings.Contains(f.Message, "the policy says that every GPU") {
				t.Errorf("%s %q, want %s", f.Verdict, f.Message, tc.want)
			}
		})
	}
	m := goodNode()
	far(m)
	dgxH100(m)
	if f := verdictOn(t, runPolicy(t, m, "off: [gdrdrv]"), "gpu-nic-path", "GPU0"); !strings.Contains(f.Message, "on a dgx-h100 every GPU") {
		t.Errorf("promised by the preset: %q", f.Message)
	}
}

func lowLimit(m *topo.Machine) { m.Host.Limits.V.MemlockSoft = 8 << 20 }

func slowPort(m *topo.Machine) { port(m).Rate.V = rdma.Rate{BitsPerSec: 200e9, Text: "200"} }

func TestPolicySeverityAndOff(t *testing.T) {
	m := goodNode()
	slowPort(m)
	if o := runPolicy(t, m, "off: [gdrdrv]"); o.Verdict != Warn {
		t.Fatalf("without: %s", o.Verdict)
	}
	o := runPolicy(t, m, "severity: {rdma-port-rate: error}")
	if f := verdictOn(t, o, "rdma-port-rate", "mlx5_0/1"); f.Verdict != Fail || f.Severity != SeverityError || o.Verdict != Fail || o.ExitCode != 1 {
		t.Errorf("error: %s %s, node %s", f.Verdict, f.Severity, o.Verdict)
	}
	if o = runPolicy(t, m, "severity: {rdma-port-rate: info}"); o.Verdict != Pass {
		t.Errorf("info: node %s", o.Verdict)
	}
	o = runPolicy(t, m, "off: [rdma-port-rate, policy]")
	if o.Verdict != Pass || len(o.Rules.Off) != 6 || o.Rules.Off[0] != "rdma-port-rate" {
		t.Errorf("off: %s %v", o.Verdict, o.Rules.Off)
	}
	for _, f := range o.Findings {
		if f.Check == "rdma-port-rate" {
			t.Error("a check that is off has run")
		}
	}
}

func TestPolicyThresholds(t *testing.T) {
	m := goodNode()
	lowLimit(m)
	before := verdictOn(t, runPolicy(t, m, "off: [gdrdrv]"), "memlock", "node")
	after := verdictOn(t, runPolicy(t, m, "thresholds: {memlock_min_bytes: 1048576}"), "memlock", "node")
	if before.Verdict == Pass || after.Verdict != Pass {
		t.Errorf("before %s, after %s", before.Verdict, after.Verdict)
	}
}

func TestWaivers(t *testing.T) {
	day := time.Date(2026, 6, 30, 23, 59, 0, 0, time.UTC)
	waiver := func(check, subject, expires string) string {
		return "expect: {gpus: {count: 2}}\nwaivers:\n- {check: " + check + ", subject: '" + subject + "', reason: ticket 7, expires: " + expires + "}\n"
	}
	for _, tc := range []struct {
		name, policy string
		want         Verdict
		state        WaiverState
		findings     int
	}{
		{"applied", waiver("policy-gpus", "node", "2026-12-31"), Pass, WaiverApplied, 1},
		{"on its last day", waiver("policy-gpus", "n*", "2026-06-30"), Pass, WaiverApplied, 1},
		{"expired", waiver("policy-gpus", "node", "2026-06-29"), Fail, WaiverExpired, 1},
		{"other subject", waiver("policy-gpus", "GPU0", "2026-12-31"), Fail, WaiverUnused, 0},
		{"other check", waiver("policy-nics", "node", "2026-12-31"), Fail, WaiverUnused, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := goodNode()
			m.CollectedAt = day
			o := runPolicy(t, m, tc.policy)
			use := o.Rules.Waivers[0]
			if o.Verdict != tc.want || use.State != tc.state || use.Findings != tc.findings {
				t.Errorf("node %s, waiver %+v; want %s, %s of %d", o.Verdict, use, tc.want, tc.state, tc.findings)
			}
			f := verdictOn(t, o, "policy-gpus", "node")
			if f.Verdict != Fail || (f.Waived != nil) != (tc.state == WaiverApplied) {
				t.Errorf("the finding is %s, waived %v", f.Verdict, f.Waived)
			}
			if want := map[bool]int{true: 0, false: 1}[f.Waived != nil]; o.Counts[Fail] != want {
				t.Errorf("%d failures counted, want %d", o.Counts[Fail], want)
			}
		})
	}
	// What nobody could see may be waived, too; a pass may not.
	m := goodNode()
	m.CollectedAt = day
	denied(&m.Host.Limits)
	o := runPolicy(t, m, "severity: {memlock: error}\nwaivers:\n- {check: memlock, subject: node, reason: x, expires: 2027-01-01}\n- {check: nic-model, subject: '*', reason: x, expires: 2027-01-01}\n")
	if o.Verdict != Pass || o.Rules.Waivers[0].State != WaiverApplied || o.Rules.Waivers[1].State != WaiverUnused {
		t.Errorf("node %s, %+v", o.Verdict, o.Rules.Waivers)
	}
}

// Each preset is found by a machine that its match describes, and has a source
// for what it expects.
func TestPresets(t *testing.T) {
	list, err := Presets()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, p := range list {
		m := goodNode()
		first := func(l []string) fact.Value[string] {
			if len(l) == 0 {
				return absent[string]()
			}
			return known(l[0])
		}
		m.Host.DMI.SysVendor, m.Host.DMI.ProductName, m.Host.DMI.ChassisTag = first(p.Match.Vendor), first(p.Match.Product), first(p.Match.ChassisTag)
		m.GPU.GPUs[0].Name = first(p.Match.GPU).V
		if p.Match.PCI != nil {
			f := function("0000:90:00.0", "", pci.ClassPCIBridge<<8, pci.PortEndpoint)
			f.Vendor = known(pci.ID(0x10de))
			f.Device = known(map[string]pci.ID{"10de:22a3": 0x22a3, "10de:1af1": 0x1af1}[p.Match.PCI[0]])
			m.PCI = append(m.PCI, f)
		}
		o := mustRun(t, m, Options{})
		if o.Rules.Preset != p.Name || o.Rules.Note != "" {
			t.Errorf("%s: its own machine is taken for %q (%s)", p.Name, o.Rules.Preset, o.Rules.Note)
		}
		if seen[p.Name] || p.Title == "" || len(p.Sources) == 0 {
			t.Errorf("%s: twice, or without title or source", p.Name)
		}
		seen[p.Name] = true
	}
	for _, want := range []string{"dgx-a100", "dgx-h100", "dgx-b200", "hgx-a100", "hgx-h100", "hgx-b200", "gb200", "azure-nd-a100", "azure-nd-h100", "oci-bm-gpu-h100", "aws-p4d", "aws-p5"} {
		if !seen[want] {
			t.Errorf("no preset %s", want)
		}
	}
}

// A preset is none of a machine whose GPUs are others, or not there; and the
// choice of an option outranks a policy's.
func TestPresetChoice(t *testing.T) {
	azure := goodNode()
	azure.Host.DMI.SysVendor, azure.Host.DMI.ProductName = known("Microsoft Corporation"), known("Virtual Machine")
	if o := mustRun(t, azure, Options{}); o.Rules.Preset != "azure-nd-h100" {
		t.Errorf("8 H100: %+v", o.Rules)
	}
	azure.GPU.GPUs = nil
	if o := mustRun(t, azure, Options{}); o.Rules.Preset != "" {
		t.Errorf("no GPU: %+v", o.Rules)
	}
	list, err := Presets()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []Preset{list[0], list[len(list)-1]} {
		if o := mustRun(t, goodNode(), Options{Preset: p.Name}); o.Rules.Preset != p.Name {
			t.Errorf("%s: %+v", p.Name, o.Rules)
		}
	}
	policy := mustPolicy(t, "preset: dgx-h100")
	for opt, want := range map[string]string{"": "dgx-h100", "dgx-b200": "dgx-b200", PresetNone: ""} {
		if o := mustRun(t, goodNode(), Options{Preset: opt, Policy: policy}); o.Rules.Preset != want {
			t.Errorf("option %q over the policy's: %+v", opt, o.Rules)
		}
	}
	for name, valid := range map[string]bool{"": true, PresetNone: true, "dgx-h100": true, "dgx-9": false} {
		if err := (Options{Preset: name}).Validate(); (err == nil) != valid {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestPresetRules(t *testing.T) {
	dgx := func(m *topo.Machine) {
		m.Host.DMI.ProductName = known("DGXH100")
		for i := 1; i < 8; i++ {
			m.GPU.GPUs = append(m.GPU.GPUs, gpu.GPU{Index: i, Vendor: gpu.VendorNVIDIA, Addr: at(gpuAddr), Name: "NVIDIA H100 80GB HBM3"})
		}
	}
	m := goodNode()
	dgx(m)
	o := mustRun(t, m, Options{Only: []string{"policy"}})
	if f := verdictOn(t, o, "policy-gpus", "node"); f.Verdict != Pass {
		t.Errorf("8 GPUs: %s %s", f.Verdict, f.Message)
	}
	if f := verdictOn(t, o, "policy-nics", "node"); f.Verdict != Warn || f.Unsure == "" {
		t.Errorf("1 NIC: %s %s", f.Verdict, f.Message)
	}
	m.GPU.GPUs = m.GPU.GPUs[:7]
	if f := verdictOn(t, mustRun(t, m, Options{Only: []string{"policy"}}), "policy-gpus", "node"); f.Verdict != Fail || !strings.Contains(f.Message, "DGX H100") {
		t.Errorf("7 GPUs: %s %s", f.Verdict, f.Message)
	}
	// A policy that says nothing of numbers leaves the preset's in force.
	if f := verdictOn(t, runPolicy(t, m, "expect: {gpus: {model: H100}, nics: {rate_gbps: 400}}"), "policy-gpus", "node"); f.Verdict != Fail {
		t.Errorf("7 GPUs and a policy on models: %s", f.Verdict)
	}
	o = mustRun(t, m, Options{Preset: PresetNone})
	if verdictOn(t, o, "policy-gpus", "node").Verdict != NotApplicable || o.Rules.Preset != "" || !strings.Contains(o.Rules.Note, "as chosen") {
		t.Errorf("none: %+v", o.Rules)
	}
	// The platform that nobody knows is said, never passed in silence.
	m.Host.DMI.ProductName = known("Box 9000")
	if o = mustRun(t, m, Options{}); !strings.Contains(o.Rules.Note, "no preset for this machine (Box 9000)") {
		t.Errorf("unknown platform: %+v", o.Rules)
	}
	var e *UnknownPresetError
	if _, err := Run(m, Options{Preset: "dgx-9"}); !errors.As(err, &e) || (Options{Preset: "dgx-9"}).Validate() == nil {
		t.Errorf("%v", err)
	}
}
