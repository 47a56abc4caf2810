package worker

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/rdma/qos"
)

// tools puts shell scripts first in the path, in the place of programs.
func tools(t *testing.T, scripts map[string]string) {
	t.Helper()
	dir := t.TempDir()
	for name, script := range scripts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func ask(t *testing.T, name string, args ...string) []fact.Record {
	t.Helper()
	recs, err := new(Client).Ask(t.Context(), name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return recs
}

// The kernel of the machine that tests run on has these questions answered for
// an interface without DCB, and for none.
func TestAskNetDevs(t *testing.T) {
	for _, question := range []string{fact.AskDCB, fact.AskEthtool, fact.AskModules} {
		recs := ask(t, question, "lo", "no-such-netdev")
		check(t, recs, []outcome{{"lo", fact.Known, ""}, {"no-such-netdev", fact.Known, ""}})
	}
	var d qos.DCB
	if err := json.Unmarshal(ask(t, fact.AskDCB, "no-such-netdev")[0].Data, &d); err != nil || d.PFC.State != fact.Absent {
		t.Errorf("%+v %v", d.PFC, err)
	}
	check(t, ask(t, fact.AskStats, "no-such-netdev"), []outcome{{"no-such-netdev", fact.Absent, "no such device"}})
	recs := ask(t, fact.AskDevlink, "0000:ff:1f.7")
	if len(recs) != 1 || recs[0].State != fact.Unsupported && recs[0].State != fact.Known {
		t.Errorf("devlink: %+v", recs)
	}
}

func TestAskLLDP(t *testing.T) {
	json0, err := os.ReadFile("../../rdma/qos/testdata/lldpcli-json0.json")
	if err != nil {
		t.Fatal(err)
	}
	tools(t, map[string]string{"lldpcli": "[ \"$*\" = '-f json0 show neighbors' ] && cat <<'END'\n" + string(json0) + "\nEND\n"})
	recs := ask(t, fact.AskLLDP, "ens3", "ens4")
	check(t, recs, []outcome{{"ens3", fact.Known, ""}, {"ens4", fact.Absent, "lldpd heard nobody on ens4"}})
	if v := fact.Decode[qos.Neighbour](recs[0]); v.V.System.V != "leaf1.example" {
		t.Errorf("%+v", v)
	}
	for script, want := range map[string]outcome{
		"echo '[WARN/control] unable to connect to socket /run/lldpd.socket: No such file or directory' >&2; exit 1": {"ens3", fact.Absent, "No such file"},
		"echo 'unable to connect to socket /run/lldpd.socket: Permission denied' >&2; exit 1":                        {"ens3", fact.Denied, "Permission denied"},
		"echo '{'":  {"ens3", fact.Failed, "unreadable answer of lldpcli"},
		"exit 3":    {"ens3", fact.Failed, "exit status 3"},
		"sleep 100": {"ens3", fact.Failed, "no answer within"},
	} {
		tools(t, map[string]string{"lldpcli": script})
		within(t, 10*time.Second, func() { check(t, ask(t, fact.AskLLDP, "ens3"), []outcome{want}) })
	}
	t.Setenv("PATH", t.TempDir())
	check(t, ask(t, fact.AskLLDP, "ens3", "ens4"), []outcome{{"ens3", fact.Absent, "lldpcli is not installed"}, {"ens4", fact.Absent, "lldpcli is not installed"}})
}

func TestAskMST(t *testing.T) {
	tools(t, map[string]string{"mstconfig": `[ "$1 $3 $4" = "-d -e query" ] || exit 9
case "$2" in
0000:3b:00.0) printf 'Configurations:   Default   Current   Next Boot\n*  ATS_ENABLED  False(0)  False(0)  True(1)\n' ;;
*) echo "-E- Failed to open the device"; exit 3 ;;
esac
`})
	recs := ask(t, fact.AskMST, "0000:3b:00.0", "0000:af:00.0")
	check(t, recs, []outcome{{"0000:3b:00.0", fact.Known, ""}, {"0000:af:00.0", fact.Failed, "Failed to open the device"}})
	if v := fact.Decode[[]qos.NVSetting](recs[0]); len(v.V) != 1 || v.V[0].NextBoot != "True(1)" {
		t.Errorf("%+v", v)
	}
	t.Setenv("PATH", t.TempDir())
	check(t, ask(t, fact.AskMST, "0000:3b:00.0"), []outcome{{"0000:3b:00.0", fact.Absent, "mstconfig is not installed"}})
}

// Programs of somebody else's may do anything: each way costs its own answer and
// no more than its time. What they print is cut short in a reason, as it is in a
// terminal's line.
func TestHostileTools(t *testing.T) {
	const flood = "head -c 1G /dev/zero"
	for name, tt := range map[string]struct {
		script, reason string
		state          fact.State
	}{
		"hangs":                        {"sleep 100", "no answer within 3s", fact.Failed},
		"hangs with its output closed": {"exec >&- 2>&-; sleep 100", "no answer within 3s", fact.Failed},
		"leaves a child with the pipe": {"sleep 100 & exit 0", "WaitDelay expired", fact.Failed},
		"floods":                       {flood, "printed more than 8 MiB", fact.Failed},
		"floods stderr":                {flood + " >&2", "printed more than 8 MiB", fact.Failed},
		"floods and fails":             {flood + "; exit 7", "printed more than 8 MiB", fact.Failed},
		"garbage":                      {"head -c 100000 /dev/urandom", "unreadable", fact.Failed},
		"nothing":                      {"exit 0", "unreadable", fact.Failed},
		"complains at length":          {"head -c 5M /dev/zero | tr '\\0' x >&2; echo no >&2; exit 1", "xxxno", fact.Failed},
		"ends by a signal":             {"kill -SEGV $$", "signal: segmentation fault", fact.Failed},
		"a terminal's commands":        {`printf '\033[2J\007denied\n\nby nobody\n' >&2; exit 1`, "[2J denied; by nobody", fact.Failed},
	} {
		for tool, question := range map[string]struct{ ask, subject string }{"lldpcli": {fact.AskLLDP, "ens3"}, "mstconfig": {fact.AskMST, "0000:3b:00.0"}} {
			tools(t, map[string]string{tool: tt.script})
			within(t, 10*time.Second, func() {
				recs := ask(t, question.ask, question.subject)
				if len(recs) != 1 || recs[0].State != tt.state || !strings.Contains(recs[0].Reason, tt.reason) || len(recs[0].Reason) > 1000 {
					t.Errorf("%s %s: %+v", tool, name, recs)
				}
			})
		}
	}
}

// The environment is read for what is listed, and home for files of the user's,
// which are named without it.
func TestAskEnviron(t *testing.T) {
	home := t.TempDir()
	if err := os.WriteFile(home+"/.nccl.conf", []byte("NCCL_IB_TC=96\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for k, v := range map[string]string{"HOME": home, "NCCL_IB_TC": "106", "NCCL_SECRET_TOKEN": "x", "NCCL_CONF_FILE": "", "UCX_CONFIG_DIR": home + "/none"} {
		t.Setenv(k, v)
	}
	recs := ask(t, fact.AskEnviron)
	check(t, recs, []outcome{{"self", fact.Known, ""}})
	e := fact.Decode[qos.Environ](recs[0]).V
	if e.Variables["NCCL_IB_TC"] != "106" || e.Files["~/.nccl.conf"] != "NCCL_IB_TC=96\n" || len(e.Files) != 1 {
		t.Errorf("%+v", e)
	}
	if strings.Contains(string(recs[0].Data), home) || strings.Contains(string(recs[0].Data), "SECRET") {
		t.Errorf("%s", recs[0].Data)
	}
}
