package checks

import (
	"fmt"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
)

var rdmaModule = Check{
	ID: "rdma-module", Title: "the port's module is ready and within its limits", Area: AreaRDMA, Severity: SeverityWarning,
	DependsOn:                  []string{"rdma-device-present"},
	Why:                        "A module that is too hot, gets too little light or power, or stays in low power mode shows as bit errors, a lower rate or a link that flaps, and the module itself says which. It is asked with --module only: reading clears the alarms that it has latched, for whoever watches them.",
	Fix:                        []string{"See all that it says: sudo ethtool -m INTERFACE", "In low power mode: sudo ethtool --set-module INTERFACE power-mode-policy high", "No command cools or cleans it: see to its cooling, clean or change it or the fibre"},
	Refs:                       []string{"https://docs.kernel.org/networking/ethtool-netlink.html", "https://man7.org/linux/man-pages/man8/ethtool.8.html"},
	UnsupportedIsNotApplicable: true,
	Subjects:                   EachLeg,
	Eval: func(c *Case) {
		leg := c.Subject.Leg
		m := &leg.Module
		if !linkCase(c) {
			return
		}
		if m.Type.State == fact.NotCollected {
			c.NotApplicable("not asked: gdrcheck check --module reads it, which clears the alarms that the module has latched")
			return
		}
		kind, ok := Need(c, "module", m.Type, leg.NetDir)
		if !ok {
			c.NotApplicable("no module is plugged in, or the port has none")
			return
		}
		for _, part := range []string{m.Vendor.Or(""), m.PartNumber.Or(""), m.Medium.Or("")} {
			kind = strings.TrimSpace(kind + " " + part)
		}
		if t, ok := m.TemperatureC.Get(); ok {
			c.Row("temperature", fmt.Sprintf("%.0f °C", t), c.source(m.TemperatureC.Source, leg.NetDir))
			kind += fmt.Sprintf(", %.0f °C", t)
		}
		look := fmt.Sprintf("See all that it says: sudo ethtool -m %s", orElse(leg.NetDev, "INTERFACE"))
		state, stateOf := "", fact.Absent
		if m.State.State == fact.Known {
			state, stateOf = See(c, "state", m.State, leg.NetDir)
		}
		alarms, _ := m.Alarms.Get()
		if len(alarms) > 0 {
			See(c, "alarms", m.Alarms, leg.NetDir)
			c.Want("none")
		}
		switch {
		case stateOf == fact.Known && state == "ModuleFault":
			c.Warn("%s is in the state ModuleFault", kind)
			c.Fix("Take it out and plug it in again; change it if it stays", look)
		case m.PowerMode.Or("") == "low" && leg.Link.Up.Or(true):
			See(c, "power mode", m.PowerMode, leg.NetDir)
			c.Want("high")
			c.Warn("%s is in low power mode", kind)
			c.Fix(fmt.Sprintf("sudo ethtool --set-module %s power-mode-policy high", orElse(leg.NetDev, "INTERFACE")), look)
		case len(alarms) > 0:
			c.Warn("%s: %s", kind, strings.Join(alarms, ", "))
			c.Unsure("they stay until they are read: look twice")
			c.Fix(look, "High temperature: see to the cooling; low receive power: clean or change the fibre, then the module at the other end")
		default:
			mustSee(c, "state", m.State, leg.NetDir)
			mustSee(c, "power mode", m.PowerMode, leg.NetDir)
			// A cable without a monitor has no alarms.
			Need(c, "alarms", fact.Map(m.Alarms, func([]string) (string, error) { return "none", nil }), leg.NetDir)
			c.Pass("%s", kind)
		}
	},
}
