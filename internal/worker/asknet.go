package worker

import (
	"os"
	"path/filepath"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/netif"
	"github.com/gdrcheck/gdrcheck/rdma/qos"
)

// askEnviron answers for the worker itself, which inherits its parent's.
func askEnviron(s *session, _ []string) {
	s.subject("self", func() fact.Record {
		e := qos.Environ{Variables: map[string]string{}, Files: map[string]string{}}
		for _, name := range qos.JobVariables {
			if value, ok := os.LookupEnv(name); ok {
				e.Variables[name] = value
			}
		}
		for _, f := range qos.UserFiles {
			dir := os.Getenv(f.Dir)
			if dir == "" {
				continue
			}
			s.at(f.Name)
			if b, err := fact.ReadBounded(filepath.Join(dir, f.Base)); err == nil {
				e.Files[f.Name] = string(b)
			}
		}
		return toRecord(fact.Of(e, "environment"))
	})
}

// askDCB asks for the DCB settings of network interfaces.
func askDCB(s *session, netdevs []string) {
	eachOver(s, netdevs, "route netlink", netif.OpenDCB, func(dcb *netif.DCB, name string) fact.Record {
		return toRecord(fact.Of(dcb.Get(name, s.at), "netlink"))
	})
}

// askEthtool asks for link, FEC and global pause of network interfaces.
func askEthtool(s *session, netdevs []string) {
	eachOver(s, netdevs, "ethtool netlink", netif.OpenEthtool, func(e *netif.Ethtool, name string) fact.Record {
		return toRecord(fact.Of(e.Get(name, s.at, s.part), "ethtool"))
	})
}

// askModules asks for the modules of network interfaces.
func askModules(s *session, netdevs []string) {
	eachOver(s, netdevs, "ethtool netlink", netif.OpenEthtool, func(e *netif.Ethtool, name string) fact.Record {
		return toRecord(fact.Of(e.Module(name, s.at), "ethtool"))
	})
}

// askSMP asks InfiniBand ports for what is at the other end of their cables.
func askSMP(s *session, ports []string) {
	for _, name := range ports {
		s.subject(name, func() fact.Record {
			return toRecord(fact.Of(netif.Neighbour(name, s.at), "smp"))
		})
	}
}

// askStats asks for the statistics of network interfaces (ethtool -S).
func askStats(s *session, netdevs []string) {
	for _, name := range netdevs {
		s.subject(name, func() fact.Record {
			s.at("ETHTOOL_GSTATS")
			return toRecord(netif.Stats(name))
		})
	}
}

// askDevlink asks about PCI functions.
func askDevlink(s *session, functions []string) {
	eachOver(s, functions, "devlink netlink", netif.OpenDevlink, func(d *netif.Devlink, address string) fact.Record {
		return toRecord(fact.Of(d.Get(address, s.at, s.part), "devlink"))
	})
}

// eachOver asks about each subject over one connection, which is opened with
// the first; where it cannot be, every subject says why.
func eachOver[C any](s *session, subjects []string, opening string, open func() (C, error), ask func(C, string) fact.Record) {
	var conn C
	opened := false
	for _, name := range subjects {
		s.subject(name, func() fact.Record {
			if !opened {
				s.at(opening)
				var err error
				if conn, err = open(); err != nil {
					return failed(err)
				}
				opened = true
			}
			return ask(conn, name)
		})
	}
}
