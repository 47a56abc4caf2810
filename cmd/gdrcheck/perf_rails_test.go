package main

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/perftest"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/topo"
)

func TestRailsOf(t *testing.T) {
	port := func(n int, state, layer, netdev string, gids ...string) rdma.Port {
		p := rdma.Port{Number: n, State: fact.Of(state, "state"), LinkLayer: fact.Of(layer, "link_layer")}
		if netdev != "" {
			p.NetDev = fact.Of(netdev, "netdev")
		}
		for _, g := range gids {
			p.GIDs = append(p.GIDs, rdma.GID{GID: g})
		}
		return p
	}
	nic := func(name string, gbps float64, ports ...rdma.Port) rdma.Device {
		return rdma.Device{Name: name, Model: fact.Of(rdma.Model{Name: "X", MaxGbps: gbps}, "table"), Ports: ports}
	}
	soft := func(name string, ports ...rdma.Port) rdma.Device {
		return rdma.Device{Name: name, Software: true, Ports: ports}
	}
	efa := nic("efa_0", 400, port(1, "ACTIVE", "Unspecified", ""))
	efa.Transport = fact.Of(rdma.EFA, "node_type")
	vlan := port(1, "ACTIVE", "Ethernet", "eth1")
	vlan.GIDs = []rdma.GID{{GID: "fe80::1", NetDev: fact.Of("eth1.100", "ndevs")}}
	lost := rdma.Port{Number: 1, State: fact.Missing[string](fact.Failed, "state", "no answer"), LinkLayer: fact.Of("Ethernet", "link_layer")}
	subnets := map[string][]netip.Prefix{
		"eth0": {netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("2001:db8::/64")}, "eth1.100": {netip.MustParsePrefix("10.1.0.0/24")},
	}
	for name, tt := range map[string]struct {
		devices []rdma.Device
		want    []string
	}{
		"networks": {[]rdma.Device{nic("mlx5_0", 400, port(1, "ACTIVE", "Ethernet", "eth0")), nic("mlx5_1", 400, vlan)},
			[]string{"mlx5_0/1 Ethernet 10.0.0.0/24,2001:db8::/64", "mlx5_1/1 Ethernet 10.1.0.0/24"}},
		"an InfiniBand fabric": {[]rdma.Device{nic("mlx5_0", 400, port(1, "ACTIVE", "InfiniBand", "ib0", "fec0:0000:0000:0001:0002:c903:00ab:cdef"))},
			[]string{"mlx5_0/1 InfiniBand fec0:0:0:1::/64"}},
		"not the slow one": {[]rdma.Device{nic("mlx5_0", 400, port(1, "ACTIVE", "Ethernet", "")), nic("mlx5_1", 25, port(1, "ACTIVE", "Ethernet", "")), soft("rxe0", port(1, "ACTIVE", "Ethernet", ""))},
			[]string{"mlx5_0/1 Ethernet"}},
		"software alone":     {[]rdma.Device{soft("rxe0", port(1, "ACTIVE", "Ethernet", "eth0"))}, []string{"rxe0/1 Ethernet 10.0.0.0/24,2001:db8::/64"}},
		"one port of two up": {[]rdma.Device{nic("mlx5_0", 400, port(1, "DOWN", "Ethernet", ""), port(2, "ACTIVE", "Ethernet", ""))}, []string{"mlx5_0/2 Ethernet"}},
		"a NIC that is down": {[]rdma.Device{nic("mlx5_0", 400, port(1, "DOWN", "Ethernet", "")), nic("mlx5_1", 400, port(1, "ACTIVE", "Ethernet", ""))},
			[]string{"mlx5_0/1 Ethernet down:DOWN", "mlx5_1/1 Ethernet"}},
		"a state that is not known": {[]rdma.Device{nic("mlx5_0", 400, lost)}, []string{"mlx5_0/1 Ethernet"}},
		"EFA":                       {[]rdma.Device{efa}, []string{"efa_0/1 Unspecified unsupported:EFA, which is not measured here"}},
		"nothing":                   {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, r := range railsOf(&topo.Machine{RDMA: rdma.Facts{Devices: tt.devices}}, subnets) {
				words := []string{r.Name(), r.LinkLayer}
				if r.Why != "" {
					words = append(words, string(r.Why)+":"+r.Unfit)
				}
				if len(r.Subnets) > 0 {
					words = append(words, strings.Join(r.Subnets, ","))
				}
				got = append(got, strings.Join(words, " "))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
	if perftest.MaxRails < 1000 {
		t.Error("a thousand rails are to fit")
	}
}
