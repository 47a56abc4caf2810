package report

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/olekukonko/tablewriter/pkg/twwidth"

	"github.com/gdrcheck/gdrcheck/checks"
	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/topo"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func step(r checks.Rung, v checks.Verdict, note string) checks.Step {
	return checks.Step{Rung: r, Verdict: v, Note: note}
}

func machine() *topo.Machine {
	m := &topo.Machine{CollectedAt: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), Origin: "live"}
	for range 2 {
		m.GPU.GPUs = append(m.GPU.GPUs, gpu.GPU{Vendor: gpu.VendorNVIDIA, Name: "NVIDIA H100 80GB HBM3"})
		m.RDMA.Devices = append(m.RDMA.Devices, rdma.Device{Model: fact.Of(rdma.Model{Name: "ConnectX-7"}, "table")})
	}
	m.RDMA.Listed = fact.Of(2, "/sys/class/infiniband")
	m.GPU.NVIDIA.Version = fact.Of("570.86.15", "/proc/driver/nvidia/version")
	m.GPU.NVIDIA.Flavour = fact.Of("open", "/proc/driver/nvidia/version")
	m.Host.KernelRelease = fact.Of("6.8.0-52-generic", "/proc/sys/kernel/osrelease")
	m.Host.Hypervisor = fact.Missing[string](fact.Absent, "", "")
	m.Host.Root = fact.Of(false, "getuid")
	return m
}

// sample has one of everything: each verdict, several subjects of one check, a
// long command, a sentence with a command, wide cells.
func sample() *Check {
	acs := func(addr, pair string) checks.Finding {
		return checks.Finding{
			Check: "acs-redirect", Subject: addr, Verdict: checks.Fail, Severity: checks.SeverityError, Rung: checks.RungACS,
			Message: "ACS sends the traffic between " + pair + " up to the root complex instead of through the switch",
			Evidence: []checks.Evidence{
				{Name: "ACS control", Got: "0x1d (SrcValid+ ReqRedir+ CmpltRedir+ UpstreamFwd+)", Want: "ReqRedir- CmpltRedir- EgressCtrl-", Source: "/sys/bus/pci/devices/" + addr + "/config"},
				{Name: "hypervisor", Got: "absent", Source: "/proc/cpuinfo"},
			},
			Why: "Peer-to-peer reads and writes then take the way through the root complex, which costs half of the bandwidth or more on most servers.",
			Fix: []string{
				"Turn ACS off on the switch ports until the next boot:",
				"setpci -s " + addr + " ECAP_ACS+6.w=0000 && setpci -s " + addr + " ECAP_ACS+6.w && lspci -s " + addr + " -vvv | grep ACSCtl",
				"Make it last with a unit that runs at each boot, after the drivers have been loaded and before jobs start, for instance: systemctl edit --full --force gdrcheck-acs-off-at-boot.service",
			},
			Refs: []string{"https://docs.nvidia.com/gpudirect-storage/troubleshooting-guide/index.html"},
		}
	}
	o := checks.Outcome{
		Verdict: checks.Fail, ExitCode: 1,
		Counts: map[checks.Verdict]int{checks.Fail: 2, checks.Warn: 1, checks.Unknown: 2, checks.Pass: 3, checks.Blocked: 1, checks.NotApplicable: 1, checks.Info: 1},
		Findings: []checks.Finding{
			acs("0000:3a:00.0", "GPU0 and mlx5_0"),
			{
				Check: "link-width", Subject: "mlx5_1", Verdict: checks.Warn, Severity: checks.SeverityWarning, Rung: checks.RungLink,
				Message:  "the link runs at 8 of 16 lanes",
				Unsure:   "some boards wire eight lanes only: compare with a sister node",
				Evidence: []checks.Evidence{{Name: "lanes", Got: "8", Want: "16", Source: "/sys/bus/pci/devices/0000:5b:00.0/current_link_width"}},
				Why:      "Half of the lanes carry half of the rate.", Fix: []string{"Reseat the card."},
			},
			acs("0000:5a:00.0", "GPU1 and mlx5_1"),
			{Check: "bar1-size", Subject: "GPU0", Verdict: checks.Pass, Message: "BAR1 covers all of the memory"},
			{Check: "bar1-size", Subject: "GPU1", Verdict: checks.Pass, Message: "BAR1 covers all of the memory"},
			{Check: "gdr-way", Subject: "node", Verdict: checks.Pass, Message: "DMA-BUF"},
			{Check: "memlock", Subject: "node", Verdict: checks.Unknown, Severity: checks.SeverityError, Message: "cannot tell: limits may not be read"},
			{Check: "mps", Subject: "GPU0", Verdict: checks.Unknown, Message: "cannot tell: config space may not be read"},
			{Check: "mps", Subject: "GPU1", Verdict: checks.Unknown, Message: "cannot tell: config space may not be read"},
			{Check: "rate", Subject: "mlx5_1/1", Verdict: checks.Blocked, BlockedBy: "port-state mlx5_1/1", Message: "not judged: port-state mlx5_1/1 comes first"},
			{Check: "vmd", Subject: "node", Verdict: checks.NotApplicable, Message: "this node has nothing that the check judges"},
			{Check: "dmabuf-vmm", Subject: "node", Verdict: checks.Info, Message: "CUDA's virtual memory can be registered, too"},
		},
		Ladders: []checks.Ladder{
			{GPU: "GPU0", NIC: "mlx5_0", Broken: checks.RungACS, Steps: []checks.Step{
				step(checks.RungLink, checks.Pass, "Gen5 x16"), step(checks.RungPath, checks.Pass, "PIX"), step(checks.RungACS, checks.Fail, "redirect"),
				step(checks.RungBAR1, checks.Pass, "128 GiB"), step(checks.RungWay, checks.Pass, "dma-buf"), step(checks.RungPort, checks.Pass, "400 Gb/s RoCE v2")}},
			{GPU: "GPU1", NIC: "mlx5_1", Broken: checks.RungACS, Steps: []checks.Step{
				step(checks.RungLink, checks.Warn, "Gen5 x8"), step(checks.RungPath, checks.Pass, "PIX"), step(checks.RungACS, checks.Fail, "redirect"),
				step(checks.RungBAR1, checks.Pass, "128 GiB"), step(checks.RungWay, checks.Unknown, ""), step(checks.RungPort, checks.Blocked, "")}},
		},
	}
	return NewCheck(machine(), o, nil, nil, "1.2.3")
}

func TestCheckTable(t *testing.T) {
	for _, tt := range []struct {
		name  string
		style Style
	}{
		{"faulty.1.table", Style{}},
		{"faulty.1.table-80", Style{Width: 80}},
		{"faulty.1.table-ascii-verbose", Style{ASCII: true, Verbose: true}},
		{"faulty.1.table-color", Style{Color: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var buf bytes.Buffer
			if err := CheckTable(&buf, sample(), tt.style); err != nil {
				t.Fatal(err)
			}
			golden(t, tt.name, buf.Bytes())
		})
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// Every line fits but those that hold a command, a URL or another word that must
// stay whole.
func TestCheckTableWidth(t *testing.T) {
	for _, width := range []int{60, 72, 80, 100, 120} {
		var buf bytes.Buffer
		if err := CheckTable(&buf, sample(), Style{Width: width, Verbose: true}); err != nil {
			t.Fatal(err)
		}
		for l := range strings.Lines(buf.String()) {
			l = strings.TrimSuffix(l, "\n")
			whole := strings.Contains(l, "setpci -s") || strings.Contains(l, "https://") || strings.Contains(l, "systemctl edit")
			if w := twwidth.Width(l); w > width && !whole {
				t.Errorf("width %d: %d columns: %s", width, w, l)
			}
			if strings.HasSuffix(l, " ") {
				t.Errorf("width %d: trailing space: %q", width, l)
			}
		}
	}
}

// Names come from devices and recordings: none may steer the terminal or start
// a line of its own.
func TestControlCharacters(t *testing.T) {
	const evil = "x\x1b[2J\r\nNOT \x9b31m\x07"
	doc := sample()
	doc.Summary.Node, doc.Version, doc.HowToSee = evil, evil, evil
	doc.Machine.Problems = []topo.Problem{{Part: evil, Reason: evil}}
	for i := range doc.Findings {
		f := &doc.Findings[i]
		f.Check, f.Subject, f.Message, f.Why, f.Unsure = evil, evil, evil, evil, evil
		f.Fix, f.Refs = []string{evil}, []string{evil}
		for j := range f.Evidence {
			f.Evidence[j] = checks.Evidence{Name: evil, Got: evil, Want: evil, Source: evil}
		}
	}
	for i := range doc.Ladders {
		doc.Ladders[i].GPU, doc.Ladders[i].NIC, doc.Ladders[i].Steps[0].Note = evil, evil, evil
	}
	for _, verbose := range []bool{false, true} {
		var buf bytes.Buffer
		if err := CheckTable(&buf, doc, Style{Verbose: verbose}); err != nil {
			t.Fatal(err)
		}
		if i := bytes.IndexAny(buf.Bytes(), "\x1b\r\x07\u009b"); i >= 0 {
			t.Errorf("control character %q", buf.Bytes()[i:min(i+20, buf.Len())])
		}
		if strings.Contains(buf.String(), "\nNOT \x9b") {
			t.Error("a name starts a line")
		}
	}
}

// The last line says of every outcome why it is what it is, also where nothing
// failed, warned or passed.
func TestVerdictLineIsWhole(t *testing.T) {
	none := map[checks.Verdict]int{checks.NotApplicable: 1}
	noted := map[checks.Verdict]int{checks.Info: 2}
	for want, o := range map[string]checks.Outcome{
		"UNDETERMINED: nothing was judged; exit code 3: no check applies here": {ExitCode: 3, Counts: none},
		"READY: 2 noted; exit code 0":                                          {Verdict: checks.Pass, Counts: noted},
		"READY: 3 passed; exit code 0":                                         {Verdict: checks.Pass, Counts: map[checks.Verdict]int{checks.Pass: 3, checks.Info: 1}},
	} {
		var buf bytes.Buffer
		if err := CheckTable(&buf, NewCheck(machine(), o, nil, nil, "1"), Style{}); err != nil || !strings.Contains(buf.String(), want) {
			t.Errorf("want %q in\n%s", want, buf.String())
		}
	}
}

// What a script reads are arrays, even where there is nothing in them.
func TestEmptyOutcome(t *testing.T) {
	var buf bytes.Buffer
	if err := JSON(&buf, NewCheck(&topo.Machine{}, checks.Outcome{ExitCode: 3}, nil, nil, "1")); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"findings":[]`, `"ladders":[]`, `"verdict":"unknown"`, `"exit_code":3`} {
		if !strings.Contains(buf.String(), want) {
			t.Errorf("no %s in\n%s", want, buf.String())
		}
	}
}

func TestFix(t *testing.T) {
	long := strings.Repeat(" --option=value", 8)
	for _, tt := range []struct{ text, want string }{
		{"sudo setpci" + long, "fix sudo setpci" + long + "\n"},
		{"NCCL_X=1 mpirun" + long, "fix NCCL_X=1 mpirun" + long + "\n"},
		{"Until the next boot: sudo setpci" + long, "fix Until the next boot:\n      sudo setpci" + long + "\n"},
		{"Until the next boot: sudo setpci", "fix Until the next boot: sudo setpci\n"},
		{
			"If it stays narrow after all of this: swap the card with a good one from a sister node",
			"fix If it stays narrow after all of this: swap the card with\n    a good one from a sister node\n",
		},
	} {
		p := &page{Style: Style{Width: 60}}
		p.fix("fix ", tt.text)
		if got := p.String(); got != tt.want {
			t.Errorf("%q:\n got %q\nwant %q", tt.text, got, tt.want)
		}
	}
}
