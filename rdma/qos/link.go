package qos

import "github.com/gdrcheck/gdrcheck/internal/fact"

// Ethtool is what ethtool netlink says of one interface.
type Ethtool struct {
	Link  Link  `json:"link,omitzero"`
	FEC   FEC   `json:"fec,omitzero"`
	Pause Pause `json:"pause,omitzero"`
}

// Pause is global flow control (IEEE 802.3x), which stops all priorities at once.
type Pause struct {
	Autoneg  fact.Value[bool]   `json:"autoneg,omitzero"`
	RX       fact.Value[bool]   `json:"rx,omitzero"` // obeys pause frames
	TX       fact.Value[bool]   `json:"tx,omitzero"` // sends them
	Received fact.Value[uint64] `json:"received,omitzero"`
	Sent     fact.Value[uint64] `json:"sent,omitzero"`
}

// Link is the state of the Ethernet link as ethtool has it.
type Link struct {
	Up         fact.Value[bool]   `json:"up,omitzero"`
	SpeedMbps  fact.Value[int]    `json:"speed_mbps,omitzero"` // 10^6 bit/s; Absent: the driver knows none now
	Lanes      fact.Value[int]    `json:"lanes,omitzero"`
	FullDuplex fact.Value[bool]   `json:"full_duplex,omitzero"`
	Autoneg    fact.Value[bool]   `json:"autoneg,omitzero"`
	Modes      fact.Value[[]Mode] `json:"modes,omitzero"`       // what the port can do
	PeerModes  fact.Value[[]Mode] `json:"peer_modes,omitzero"`  // what the other end offers
	DownReason fact.Value[string] `json:"down_reason,omitzero"` // "no cable", "autoneg: no partner detected"; Absent: none given
	Downs      fact.Value[uint64] `json:"downs,omitzero"`       // since the driver was loaded (link_ext_down_cnt)
}

// Mode is a link mode by the kernel's name: "400000baseCR4/Full".
type Mode string

// FEC is forward error correction.
type FEC struct {
	Configured    fact.Value[[]string] `json:"configured,omitzero"` // of None, BASER, RS, LLRS, Auto
	Active        fact.Value[string]   `json:"active,omitzero"`     // None, BASER, RS, LLRS; Absent: no link
	Corrected     fact.Value[uint64]   `json:"corrected_blocks,omitzero"`
	Uncorrectable fact.Value[uint64]   `json:"uncorrectable_blocks,omitzero"`
	CorrectedBits fact.Value[uint64]   `json:"corrected_bits,omitzero"`
	// Lanes are the corrected and uncorrectable blocks of each lane.
	Lanes []FECLane `json:"lanes,omitempty"`
}

// FECLane counts the blocks of one lane.
type FECLane struct {
	Corrected     uint64 `json:"corrected_blocks"`
	Uncorrectable uint64 `json:"uncorrectable_blocks"`
}

// Module is the pluggable module or cable of a port.
type Module struct {
	Type         fact.Value[string]       `json:"type,omitzero"` // QSFP28, QSFP-DD, OSFP, …
	Vendor       fact.Value[string]       `json:"vendor,omitzero"`
	PartNumber   fact.Value[string]       `json:"part_number,omitzero"`
	Revision     fact.Value[string]       `json:"revision,omitzero"`
	Firmware     fact.Value[string]       `json:"firmware,omitzero"`      // CMIS active firmware, "61.100"
	Medium       fact.Value[string]       `json:"medium,omitzero"`        // "copper", "optical", "active copper"
	LengthM      fact.Value[float64]      `json:"length_m,omitzero"`      // of a fixed cable
	PowerPolicy  fact.Value[string]       `json:"power_policy,omitzero"`  // high, auto
	PowerMode    fact.Value[string]       `json:"power_mode,omitzero"`    // low, high
	State        fact.Value[string]       `json:"state,omitzero"`         // CMIS: ModuleReady, ModuleLowPwr, ModuleFault, …
	TemperatureC fact.Value[float64]      `json:"temperature_c,omitzero"` // Absent: the module has no monitor, as a copper cable
	SupplyVolts  fact.Value[float64]      `json:"supply_volts,omitzero"`
	Lanes        fact.Value[[]ModuleLane] `json:"lanes,omitzero"`
	Alarms       fact.Value[[]string]     `json:"alarms,omitzero"` // latched: "high temperature alarm", "rx loss of signal lane 3", …
}

// ModuleLane are one lane's light and current; nil: the module does not measure it.
type ModuleLane struct {
	RxMilliwatt *float64 `json:"rx_mw,omitempty"`
	TxMilliwatt *float64 `json:"tx_mw,omitempty"`
	BiasMilliA  *float64 `json:"tx_bias_ma,omitempty"`
}

// Stat is one counter of ethtool -S.
type Stat struct {
	Name  string `json:"name"`
	Value uint64 `json:"value"`
}
