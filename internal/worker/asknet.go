package worker

import (
	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/netif"
)

// askDCB asks for the DCB settings of network interfaces.
func askDCB(s *session, netdevs []string) {
	var dcb *netif.DCB
	for _, name := range netdevs {
		s.subject(name, func() fact.Record {
			if dcb == nil {
				s.at("route netlink")
				var err error
				if dcb, err = netif.OpenDCB(); err != nil {
					return failed(err)
				}
			}
			return toRecord(fact.Of(dcb.Get(name, s.at), "netlink"))
		})
	}
}
