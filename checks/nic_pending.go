package checks

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/rdma/qos"
)

var nicPending = Check{
	ID: "nic-pending", Title: "no new firmware or setting of the NIC waits for a reset", Area: AreaRDMA, Severity: SeverityWarning,
	DependsOn:                  []string{"rdma-device-present"},
	Why:                        "Firmware and non-volatile settings that were written take effect with the NIC's next reset. Until then the node runs the old ones, and it changes by itself with the next reboot.",
	Fix:                        []string{"Reboot, or in a maintenance window: sudo devlink dev reload pci/ADDRESS action fw_activate"},
	Refs:                       []string{"https://docs.kernel.org/networking/devlink/devlink-info.html", "https://docs.kernel.org/networking/devlink/devlink-reload.html"},
	UnsupportedIsNotApplicable: true,
	Subjects:                   EachLeg,
	Eval: func(c *Case) {
		leg := c.Subject.Leg
		if !linkCase(c) {
			return
		}
		var waiting []string
		versions := leg.Devlink.Versions.V
		for _, stored := range versions {
			i := slices.IndexFunc(versions, func(v qos.Version) bool { return v.Kind == "running" && v.Name == stored.Name })
			if stored.Kind != "stored" || i < 0 || versions[i].Value == stored.Value {
				continue
			}
			c.Row(stored.Name+", running", versions[i].Value, "devlink")
			c.Want("%s, as stored", stored.Value)
			waiting = append(waiting, fmt.Sprintf("%s %s (running: %s)", stored.Name, stored.Value, versions[i].Value))
		}
		for _, s := range leg.NVConfig.Settings.Or(nil) {
			if s.NextBoot != "" && s.NextBoot != s.Current {
				c.Row(s.Name, s.Current, "mstconfig")
				c.Want("%s, from the next reset on", s.NextBoot)
				waiting = append(waiting, fmt.Sprintf("%s=%s (now: %s)", s.Name, s.NextBoot, s.Current))
			}
		}
		if waiting != nil {
			c.Warn("waits for a reset: %s", strings.Join(waiting, ", "))
			c.Fix("Reboot, or in a maintenance window: sudo devlink dev reload pci/" + c.firmwareName() + " action fw_activate")
			if strings.HasPrefix(c.Subject.NIC.Driver.Or(""), "mlx5_core") {
				c.Fix("Or with DOCA-OFED's tool: sudo mlxfwreset -d " + c.firmwareName() + " reset")
			}
			return
		}
		_, shown := mustSee(c, "firmware versions", leg.Devlink.Versions)
		settings := leg.NVConfig.Settings
		if settings.State != fact.NotCollected { // they are asked for on request alone
			mustSee(c, "settings", settings)
		}
		switch known := settings.State == fact.Known; {
		case !shown && !known:
			c.NotApplicable("the driver shows no stored versions")
		case !known:
			c.Info("no firmware waits; settings were not seen%s", because(settings.Reason))
		default:
			c.Pass("nothing waits")
		}
	},
}
