package fact

import (
	"encoding/json"
	"strings"
	"testing"
)

// What stands in sentences, in lines for modules of others and in names that
// people give to ports tells as much as a file of addresses.
func TestRedactSentences(t *testing.T) {
	const said = "lldpcli on node17.acme.example (NODE17): 10.1.2.3 and fe80::ba3f:d2ff:feab:cdef by b8-3f-d2-ab-cd-ef, 2001:db9::77, node17x"
	doc := &recording{
		Version: recordingVersion, Tool: "gdrcheck", CollectedAt: when,
		Lost: map[string]string{"qos": said},
		Files: map[string]recordedFile{
			"/sys/class/infiniband/mlx5_0/node_desc": textFile("node17.acme.example mlx5_0\n"),
			"/sys/class/net/eth0/address":            textFile("b8:3f:d2:ab:cd:ef\n"),
			"/sys/class/infiniband/mlx5_0/fw_ver":    textFile("230.2.52.0\n"), // bnxt_re's have four parts
			"/sys/x":                                 {Error: &recordedError{Errno: 5, Cause: said}},
			"/proc/cmdline":                          textFile("ice.key=4711 ibmsecret.key=hunter2 nvme_core.hostnqn=nqn.jane mlx5_core.prof_sel=2 nvidia-drm.modeset=1 bnxt_re.x=y\n"),
			"/etc/modprobe.d/site.conf": textFile("# jane\n" +
				"options nvidia NVreg_RegistryDwords=\"PeerMappingOverride=1;\" NVreg_TemporaryFilePath=/var/tmp # jane\n" +
				"install nvidia_peermem /opt/acme/bin/hook --key=x && /bin/true\n" +
				"options acme key=hunter2 \\\n  user=jane\nblacklist nouveau\noptions mlx5_core \\\n  prof_sel=2\n"),
		},
		Served: map[string]recordedServed{"/sys/y": {State: Failed, Reason: said}},
		Asks: []recordedAsk{
			{Name: AskEnviron, Records: []Record{{Subject: "self", State: Known, Data: json.RawMessage(`{"variables":{"NCCL_IB_ADDR_RANGE":"2001:db9::77","NCCL_IB_HCA":"mlx5_0:1"}}`)}}},
			{Name: AskKernelLog, Records: []Record{{Subject: "system", State: Known, Data: json.RawMessage(`{"events":[{"kind":"xid","text":"` + said + `"}],"messages":7}`)}}},
			{Name: AskLLDP, Args: []string{"eth0"}, Records: []Record{
				{Subject: "eth0", State: Known, Data: json.RawMessage(`{"port":{"value":"node17-rail0"}}`)},
				{Subject: "eth1", State: Known, Data: json.RawMessage(`{"port":{"value":"HundredGigE1/0/1"},"at":{"reason":"` + said + `"}}`)},
			}},
		},
	}
	was, out := all(t, doc), mustRedact(t, doc, testKey)
	left := all(t, out)
	for _, secret := range []string{"node17.acme", "node17-", "(node17)", "acme", "10.1.2.3", "ba3f:d2ff", "b8-3f", "2001:db9", "jane", "hunter2", "--key"} {
		if !strings.Contains(was, secret) {
			t.Errorf("the test's machine has no %q", secret)
		}
		if strings.Contains(left, secret) {
			t.Errorf("%q is left", secret)
		}
	}
	// What checks judge stays.
	for _, kept := range []string{
		"230.2.52.0", "mlx5_core.prof_sel=2 nvidia-drm.modeset=1 bnxt_re.x=y", "HundredGigE1/0/1", `"NCCL_IB_HCA":"mlx5_0:1"`,
		"options nvidia NVreg_RegistryDwords=\"PeerMappingOverride=1;\" NVreg_TemporaryFilePath=/var/tmp", "install nvidia_peermem ", "&& /bin/true", "blacklist nouveau\noptions mlx5_core \\\n  prof_sel=2\n",
	} {
		if !strings.Contains(left, kept) {
			t.Errorf("%q is gone from\n%s", kept, left)
		}
	}
	// One thing, one pseudonym, in whatever form.
	mac := strings.TrimSpace(*out.Files["/sys/class/net/eth0/address"].Text)
	if dashed := strings.ReplaceAll(mac, ":", "-"); strings.Count(left, dashed) < 4 {
		t.Errorf("MAC address %s does not stand as %s in\n%s", mac, dashed, left)
	}
	if desc := strings.Fields(*out.Files["/sys/class/infiniband/mlx5_0/node_desc"].Text)[0]; strings.Count(left, desc) < 5 {
		t.Errorf("the machine's name %s stands nowhere else in\n%s", desc, left)
	}
	if cause := out.Files["/sys/x"].Error.Cause; cause != out.Lost["qos"] || cause != out.Served["/sys/y"].Reason {
		t.Errorf("one sentence, several forms: %q, %q", cause, out.Lost["qos"])
	}
}

// How makers of switches number their ports (Cisco, Arista, NVIDIA Cumulus and
// SONiC, Juniper, Nokia, H3C); what people call them has no such form.
func TestPortNumber(t *testing.T) {
	for _, s := range []string{"Ethernet12", "Ethernet1/12/1", "Eth1/12", "swp1", "swp1s0", "et-0/0/12", "et-0/0/12:0", "HundredGigE1/0/1", "GigabitEthernet1/0/24", "TwentyFiveGigE1/0/3", "1/1/c12/1", "517", "Te1/1", "port 7"} {
		if !portNumber().MatchString(s) {
			t.Errorf("%s is a port's number", s)
		}
	}
	for _, s := range []string{"node17-rail0", "node17", "acme", "gpu12 rail3", "rack7gpu3", ""} {
		if portNumber().MatchString(s) {
			t.Errorf("%q is a name", s)
		}
	}
}
