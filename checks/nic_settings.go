package checks

import (
	"fmt"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/rdma/qos"
)

var nicSettings = Check{
	ID: "nic-settings", Title: "the NIC's non-volatile settings keep writes in order and leave the host in charge", Area: AreaRDMA, Severity: SeverityError,
	DependsOn:                  []string{"rdma-device-present"},
	Why:                        "With PCI_WR_ORDERING at force_relax the NIC reorders all its writes, those too whose order applications rely on: a flag can be seen before its data. A BlueField in DPU mode has its own Arm cores rule its ports: what the host sets may not hold.",
	Fix:                        []string{"sudo mlxconfig -d DEVICE set PCI_WR_ORDERING=0, then reset the NIC", "For a BlueField that is to be a NIC: sudo mlxconfig -d DEVICE set INTERNAL_CPU_OFFLOAD_ENGINE=1, then a power cycle"},
	Refs:                       []string{"https://github.com/NVIDIA/nccl/issues/615", "https://docs.nvidia.com/networking/display/bluefieldbsp454/modes+of+operation"},
	UnsupportedIsNotApplicable: true,
	Subjects:                   EachLeg,
	Eval: func(c *Case) {
		settings := c.Subject.Leg.NVConfig.Settings
		if !linkCase(c) {
			return
		}
		if settings.State == fact.NotCollected {
			c.NotApplicable("not asked: sudo gdrcheck check --mst")
			return
		}
		list, ok := mustSee(c, "settings", settings)
		order, ordered := nvSetting(list, "PCI_WR_ORDERING")
		engine, card := nvSetting(list, "INTERNAL_CPU_OFFLOAD_ENGINE")
		if ordered {
			c.Row("PCI_WR_ORDERING", order, settings.Source)
			c.Want("per_mkey(0): as each application asks")
		}
		if card {
			c.Row("INTERNAL_CPU_OFFLOAD_ENGINE", engine, settings.Source)
			c.Want("DISABLED(1): a NIC")
		}
		// DPU mode is this setting's zero, "ENABLED".
		dpu := strings.HasPrefix(engine, "ENABLED")
		if dpu {
			c.Fix(fmt.Sprintf("If it is to be a plain NIC: sudo mlxconfig -d %s set INTERNAL_CPU_OFFLOAD_ENGINE=1, then a power cycle", c.firmwareName()))
		}
		switch {
		case strings.HasPrefix(order, "force_relax"):
			c.Fail("the NIC reorders all its writes, whatever applications ask for")
			c.Fix(fmt.Sprintf("sudo mlxconfig -d %s set PCI_WR_ORDERING=0", c.firmwareName()),
				fmt.Sprintf("Then, in a maintenance window: sudo mlxfwreset -d %s reset, or reboot", c.firmwareName()))
		case dpu:
			c.Warn("the BlueField is in DPU mode: its Arm cores rule this port")
			c.Unsure("DPU mode is right where the card's cores serve this node, as with OVS offload")
		case !ok:
			c.NotApplicable("mstconfig tells nothing of this NIC")
		case !ordered:
			c.NotApplicable("this NIC's firmware has no PCI_WR_ORDERING")
		default:
			c.Pass("writes keep the order that applications ask for")
		}
	},
}

func nvSetting(list []qos.NVSetting, name string) (current string, ok bool) {
	for _, s := range list {
		if s.Name == name {
			return s.Current, true
		}
	}
	return "", false
}
