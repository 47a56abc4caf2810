package checks

import (
	"testing"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/topo"
)

const (
	gidV4 = "0000:0000:0000:0000:0000:ffff:c0a8:0001"
	gidV6 = "2001:0db8:0000:0000:0000:0000:0000:0001"
	gidLL = "fe80:0000:0000:0000:0000:00ff:fe00:0001"
)

func gidEntry(i int, addr, kind string) rdma.GID {
	return rdma.GID{Index: i, GID: addr, Type: known(kind), NetDev: known("ens1")}
}

func TestRoCEGIDChoice(t *testing.T) {
	gids := func(list ...rdma.GID) func(*topo.Machine) {
		return func(m *topo.Machine) { port(m).GIDs = list }
	}
	ll1, ll2 := gidEntry(0, gidLL, "IB/RoCE v1"), gidEntry(1, gidLL, "RoCE v2")
	elsewhere := gidEntry(3, gidV4, "RoCE v2")
	elsewhere.NetDev = absent[string]()
	unreadable := gidEntry(7, gidV4, "")
	unreadable.Type = fact.Missing[string](fact.Failed, "ports/1/gid_attrs/types/7", "input/output error")
	runCases(t, "roce-gid-choice", []verdictCase{
		{"IPv4", nil, "mlx5_0/1", Pass, "NCCL and UCX take 3 (RoCE v2, 192.168.0.1)", ""},
		{"IPv6 alone", gids(ll1, ll2, gidEntry(5, gidV6, "RoCE v2")), "mlx5_0/1", Warn,
			"NCCL takes 0 (RoCE v1, fe80::ff:fe00:1, link-local), UCX 1 (RoCE v2, fe80::ff:fe00:1, link-local); a routable one is at index 5",
			"NCCL_IB_GID_INDEX=5 UCX_IB_GID_INDEX=5"},
		{"IPv6 where UCX finds it", gids(ll1, gidEntry(1, gidV6, "RoCE v2")), "mlx5_0/1", Warn, "NCCL takes 0 (RoCE v1", "sudo ip addr add ADDRESS/PREFIX dev ens1"},
		{"IPv4 of another namespace", gids(ll1, elsewhere, gidEntry(5, gidV6, "RoCE v2")), "mlx5_0/1", Warn, "NCCL takes 3 (RoCE v2, 192.168.0.1, no interface here), UCX 5", ""},
		{"nothing to choose", gids(ll1, ll2), "mlx5_0/1", NotApplicable, "no routable entry", ""},
		{"type unreadable", gids(gidEntry(3, gidV4, "RoCE v2"), unreadable), "mlx5_0/1", Unknown, "input/output error", "dmesg"},
		{"a tree without the table", all2(gids(), func(m *topo.Machine) {
			m.Origin, port(m).GIDTable = "tree", absent[int]()
		}), "mlx5_0/1", Unknown, "holds no GID table", "live node"},
		{"InfiniBand", infiniband, "mlx5_0/1", NotApplicable, "InfiniBand has no RoCE", ""},
	})
}

func TestRoCEGIDIndex(t *testing.T) {
	at := func(i int) func(*topo.Machine) {
		return secondPort(func(d *rdma.Device) {
			d.Ports[0].GIDs = []rdma.GID{gidEntry(i, gidV4, "RoCE v2")}
			d.Ports[0].NetDev.V = "ens2"
		})
	}
	runCases(t, "roce-gid-index", []verdictCase{
		{"one", nil, "node", Pass, "index 3 on all 1", ""},
		{"alike", at(3), "node", Pass, "index 3 on all 2", ""},
		{"moved", at(5), "node", Warn, "index 3 on mlx5_0/1; 5 on mlx5_1/1", "sudo ip addr flush dev ens2"},
		{"down", all2(at(5), func(m *topo.Machine) { m.RDMA.Devices[1].Ports[0].State.V = "DOWN" }), "node", Pass, "on all 1", ""},
		{"InfiniBand", infiniband, "node", NotApplicable, "no NIC for GPUs has an active RoCE port", ""},
		{"no address", func(m *topo.Machine) { port(m).GIDs = port(m).GIDs[:1] }, "node", NotApplicable, "no RoCE NIC for GPUs has a routable address", ""},
		{"not seen", all2(at(5), func(m *topo.Machine) { denied(&m.RDMA.Devices[1].Ports[0].GIDTable) }), "node", Unknown, "may not be read", ""},
	})
}
