package qos

import "github.com/gdrcheck/gdrcheck/internal/fact"

// Devlink is what the driver tells over devlink about the function of a port.
type Devlink struct {
	Versions fact.Value[[]Version] `json:"versions,omitzero"`
	// Params are enable_roce, enable_rdma, enable_iwarp and esw_multiport, as far
	// as the driver has them.
	Params fact.Value[[]Param] `json:"params,omitzero"`
	// EswitchMode is legacy, switchdev or switchdev_inactive; root sees it.
	EswitchMode fact.Value[string] `json:"eswitch_mode,omitzero"`
	// Ports are those of the function, representors of its VFs and SFs too.
	Ports fact.Value[[]DevlinkPort] `json:"ports,omitzero"`
}

// DevlinkPort is one port of a function.
type DevlinkPort struct {
	NetDev  string `json:"netdev,omitempty"`
	Type    string `json:"type,omitempty"`    // eth, ib, auto, notset
	Flavour string `json:"flavour,omitempty"` // physical, pcipf, pcivf, pcisf, virtual, …
}

// Version is one of devlink dev info: "fw.version", "fw.psid", "board.id".
type Version struct {
	Name  string `json:"name"`
	Kind  string `json:"kind"` // fixed, running, stored; stored other than running: waits for a reset
	Value string `json:"value"`
}

// Param is one of devlink dev param: "enable_roce", "enable_iwarp".
type Param struct {
	Name string `json:"name"`
	// Values by configuration mode: runtime, driverinit (from the next reload
	// on), permanent (from the next reset on).
	Values map[string]string `json:"values"`
}

// NVConfig are a NIC's non-volatile settings, which only the vendor's tool
// (mstconfig) reads. NotCollected unless asked for.
type NVConfig struct {
	Settings fact.Value[[]NVSetting] `json:"settings,omitzero"`
}

// NVSetting is one line of mstconfig -e query: "ATS_ENABLED".
type NVSetting struct {
	Name     string `json:"name"`
	Default  string `json:"default"`
	Current  string `json:"current"`
	NextBoot string `json:"next_boot"` // other than Current: a reset is pending
}
