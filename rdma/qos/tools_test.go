package qos

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gdrcheck/gdrcheck/internal/fact"
)

// The file is what lldpcli 1.0.16 printed of a neighbour on the other end of a
// pair of virtual interfaces.
func TestParseLLDP(t *testing.T) {
	text, err := os.ReadFile("testdata/lldpcli-json0.json")
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseLLDP(text)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]Neighbour{"ens3": {
		System: fact.Of("leaf1.example", srcLLDP), Chassis: fact.Of("02:7c:e3:9d:73:c4", srcLLDP),
		Port: fact.Of("02:7c:e3:9d:73:c4", srcLLDP), PortText: fact.Of("rail 3 gpu node", srcLLDP),
	}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	two := strings.Replace(string(text), `"interface": [`, `"interface": [{"name":"ens3","chassis":[{"id":[{"value":"a"}]}],"port":[{"id":[{"value":"Ethernet12"}]}]},`, 1)
	if got, err = ParseLLDP([]byte(two)); err != nil || got["ens3"].Port.V != "Ethernet12" || got["ens3"].System.State != fact.Absent {
		t.Errorf("two neighbours: %+v %v", got, err)
	}
	if got, err = ParseLLDP([]byte(`{"lldp": [{}]}`)); err != nil || len(got) != 0 {
		t.Errorf("nobody heard: %+v %v", got, err)
	}
	if _, err = ParseLLDP([]byte(`{"lldp": {"interface": {}}}`)); err == nil {
		t.Error("the other format was read")
	}
}

func FuzzParseLLDP(f *testing.F) {
	if text, err := os.ReadFile("testdata/lldpcli-json0.json"); err == nil {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := ParseLLDP(b)
		for name, n := range got {
			if err != nil || n.Chassis.State == fact.NotCollected {
				t.Errorf("%s: %+v %v", name, n, err)
			}
		}
	})
}

const mstconfig = `
Device #1:
----------

Device type:    ConnectX7
Name:           MCX75310AAS-NEA_Ax
Description:    NVIDIA ConnectX-7 HHHL Adapter card; 400GbE / NDR IB (default mode); Single-port OSFP
Device:         0000:3b:00.0

Configurations:                              Default         Current         Next Boot
         MEMIC_SIZE_LIMIT                    _256KB(1)       _256KB(1)       _256KB(1)
*        ATS_ENABLED                         False(0)        False(0)        True(1)
*        PCI_WR_ORDERING                     per_mkey(0)     force_relax(1)  force_relax(1)
         LINK_TYPE_P1                        IB(1)           IB(1)           IB(1)
         ESWITCH_HAIRPIN_DESCRIPTORS         Array[0..7]     Array[0..7]     Array[0..7]
*    RO  INTERNAL_CPU_MODEL                  SEPARATED_HOST(0) EMBEDDED_CPU(1) EMBEDDED_CPU(1)
The '*' shows parameters with next value different from default/current value.
`

func TestParseMST(t *testing.T) {
	got, err := ParseMST(mstconfig)
	if err != nil {
		t.Fatal(err)
	}
	want := []NVSetting{
		{"MEMIC_SIZE_LIMIT", "_256KB(1)", "_256KB(1)", "_256KB(1)"},
		{"ATS_ENABLED", "False(0)", "False(0)", "True(1)"},
		{"PCI_WR_ORDERING", "per_mkey(0)", "force_relax(1)", "force_relax(1)"},
		{"LINK_TYPE_P1", "IB(1)", "IB(1)", "IB(1)"},
		{"ESWITCH_HAIRPIN_DESCRIPTORS", "Array[0..7]", "Array[0..7]", "Array[0..7]"},
		{"INTERNAL_CPU_MODEL", "SEPARATED_HOST(0)", "EMBEDDED_CPU(1)", "EMBEDDED_CPU(1)"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for _, bad := range []string{"", "-E- Failed to open device", strings.ReplaceAll(mstconfig, "Default         Current ", "")} {
		if got, err := ParseMST(bad); err == nil {
			t.Errorf("%.40q gives %v", bad, got)
		}
	}
}

func FuzzParseMST(f *testing.F) {
	f.Add(mstconfig)
	f.Fuzz(func(t *testing.T, s string) {
		got, err := ParseMST(s)
		if (err == nil) != (len(got) > 0) {
			t.Errorf("%d settings, %v", len(got), err)
		}
		for _, x := range got {
			if x.Name == "" || x.Current == "" || !strings.Contains(s, x.Name) {
				t.Errorf("%+v", x)
			}
		}
	})
}

func TestConfFiles(t *testing.T) {
	nccl := ParseNCCLConf("# fabric\nNCCL_IB_TC=106\nNCCL_IB_HCA==mlx5_0,mlx5_1\n\nbroken\nNCCL_IB_SL = 3\n")
	if d := cmp.Diff([][2]string{{"NCCL_IB_TC", "106"}, {"NCCL_IB_HCA", "=mlx5_0,mlx5_1"}, {"NCCL_IB_SL ", " 3"}}, nccl); d != "" {
		t.Errorf("nccl.conf (-want +got):\n%s", d) // NCCL itself would not find "NCCL_IB_SL "
	}
	ucx := ParseUCXConf("; comment\n# comment\nUCX_IB_TRAFFIC_CLASS = 106 ; lossless\nUCX_TLS=\"rc,cuda\"\n[DGX]\nUCX_IB_SL=1\n")
	if d := cmp.Diff([][2]string{{"UCX_IB_TRAFFIC_CLASS", "106"}, {"UCX_TLS", "rc,cuda"}}, ucx); d != "" {
		t.Errorf("ucx.conf (-want +got):\n%s", d)
	}
}

func FuzzConfFiles(f *testing.F) {
	f.Add("NCCL_IB_TC=106\n# x\nUCX_TLS = \"rc\" ; y\n[DGX]\nUCX_IB_SL=1\n")
	f.Fuzz(func(t *testing.T, s string) {
		for _, kv := range ParseNCCLConf(s) {
			if strings.ContainsAny(kv[0], "=\n") || strings.Contains(kv[1], "\n") {
				t.Errorf("%q", kv)
			}
		}
		for _, kv := range ParseUCXConf(s) {
			if strings.ContainsAny(kv[0], "=\n") || strings.Contains(kv[1], "\n") {
				t.Errorf("%q", kv)
			}
		}
	})
}
