package qos

import "github.com/gdrcheck/gdrcheck/internal/fact"

// DCB are the Data Center Bridging settings of a network interface
// (include/uapi/linux/dcbnl.h). All are Unsupported where the driver has none:
// VFs, ionic, efa, software devices. One alone is Unsupported where the driver
// left its attribute out: unknown, never off.
type DCB struct {
	DCBX    fact.Value[DCBX]    `json:"dcbx,omitzero"`
	PFC     fact.Value[PFC]     `json:"pfc,omitzero"`
	ETS     fact.Value[ETS]     `json:"ets,omitzero"`
	Apps    fact.Value[[]App]   `json:"apps,omitzero"`
	Trust   fact.Value[Trust]   `json:"trust,omitzero"`
	Buffer  fact.Value[Buffer]  `json:"buffer,omitzero"`
	MaxRate fact.Value[MaxRate] `json:"max_rate,omitzero"`
	// What the other end of the link said over DCBX; Unsupported unless
	// firmware or the driver speaks DCBX itself.
	PeerPFC  fact.Value[PFC]   `json:"peer_pfc,omitzero"`
	PeerETS  fact.Value[ETS]   `json:"peer_ets,omitzero"`
	PeerApps fact.Value[[]App] `json:"peer_apps,omitzero"`
	// CEEPFC are the lossless priorities in the pre-standard form (CEE), which
	// counts where DCBX is CEE; Absent: it is not.
	CEEPFC     fact.Value[Priorities] `json:"cee_pfc,omitzero"`
	CEEPeerPFC fact.Value[Priorities] `json:"cee_peer_pfc,omitzero"`
}

// DCBX is who negotiates the settings, and how.
type DCBX struct {
	Host       bool `json:"host,omitempty"`        // software on this host does; else the NIC's firmware or the switch decides
	LLDManaged bool `json:"lld_managed,omitempty"` // the host's part is taken by firmware
	CEE        bool `json:"cee,omitempty"`
	IEEE       bool `json:"ieee,omitempty"`
	Static     bool `json:"static,omitempty"` // no negotiation
}

// PFC is Priority Flow Control (IEEE 802.1Qbb).
type PFC struct {
	Enabled    Priorities            `json:"enabled"` // bit N: priority N is lossless
	MaxClasses int                   `json:"max_classes"`
	MACsec     bool                  `json:"macsec_bypass,omitempty"`
	DelayBits  int                   `json:"delay_bits"`        // allowance for the way there and back
	Sent       [PriorityCount]uint64 `json:"sent,omitzero"`     // pause frames, by priority
	Received   [PriorityCount]uint64 `json:"received,omitzero"` // pause frames, by priority
}

// ETS is Enhanced Transmission Selection (IEEE 802.1Qaz).
type ETS struct {
	Willing       bool               `json:"willing,omitempty"` // takes over what the peer recommends
	MaxClasses    int                `json:"max_classes"`
	CreditShaper  bool               `json:"credit_shaper,omitempty"`
	TxPercent     [PriorityCount]int `json:"tx_percent"` // by traffic class
	RxPercent     [PriorityCount]int `json:"rx_percent"`
	Selection     [PriorityCount]TSA `json:"selection"`      // by traffic class
	PriorityClass [PriorityCount]int `json:"priority_class"` // traffic class of each priority
}

// TSA is a transmission selection algorithm: "strict", "cbs", "ets", "vendor".
type TSA string

// Selector is what an App entry goes by.
type Selector string

// Selectors, as iproute2 calls them.
const (
	ByEtherType Selector = "ethtype" // protocol 0: the default priority
	ByStream    Selector = "stream-port"
	ByDatagram  Selector = "dgram-port"
	ByPort      Selector = "port"
	ByDSCP      Selector = "dscp"
	ByPCP       Selector = "pcp"
)

// App maps one kind of traffic to a priority.
type App struct {
	Selector Selector `json:"selector"`
	Protocol int      `json:"protocol"` // EtherType, port number, or DSCP
	Priority int      `json:"priority"`
}

// Trust is what an arriving packet's priority is taken from: "dscp", "pcp", or
// both in the order of preference.
type Trust string

// The ways to trust.
const (
	TrustPCP  Trust = "pcp"
	TrustDSCP Trust = "dscp"
	TrustBoth Trust = "dscp pcp"
)

// Buffer is how the receive buffer is divided.
type Buffer struct {
	Priority   [PriorityCount]int    `json:"priority"` // buffer of each priority
	SizeBytes  [PriorityCount]uint32 `json:"size_bytes"`
	TotalBytes uint32                `json:"total_bytes"`
}

// MaxRate limits what a traffic class may send, in bit/s; 0: no limit.
type MaxRate [PriorityCount]uint64

// PriorityOf is the priority of packets with a DSCP, and whether an entry of the
// table says so; the kernel's default for one without is dscp>>3, by which most
// NICs go too.
func PriorityOf(apps []App, dscp int) (priority int, byTable bool) {
	priority = dscp >> 3
	for _, a := range apps {
		// Of several entries for one DSCP, drivers take the highest priority
		// out of the mask that dcb_ieee_getapp_mask gives them.
		if a.Selector == ByDSCP && a.Protocol == dscp && (!byTable || a.Priority > priority) {
			priority, byTable = a.Priority, true
		}
	}
	return priority, byTable
}
