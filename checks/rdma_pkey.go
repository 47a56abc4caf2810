package checks

import (
	"fmt"
	"slices"

	"github.com/gdrcheck/gdrcheck/rdma"
)

var rdmaPKey = Check{
	ID: "rdma-pkey", Title: "the port is a full member of a partition at the index that programs take", Area: AreaRDMA, Severity: SeverityError, Rung: RungPort,
	DependsOn: []string{"rdma-port-state"},
	Why:       "Programs use P_Key index 0 unless told otherwise. Two limited members of a partition cannot talk to each other, and where index 0 holds another partition than the peers', connecting fails or times out.",
	Fix:       []string{"Name the index of a full membership to the program: NCCL_IB_PKEY=N", "Else have the subnet manager make the port a full member, then: smpquery pkeys -C DEVICE -D 0"},
	Refs: []string{
		"https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-ib-pkey",
		"https://github.com/NVIDIA/nccl/issues/1323",
	},
	Subjects: EachPort,
	Eval: func(c *Case) {
		p, nic := c.Subject.Port, c.Subject.NIC
		if !c.matters(nic) {
			c.Lower(SeverityWarning)
		}
		transport, _ := Need(c, "transport", nic.Transport)
		if transport != rdma.InfiniBand {
			c.NotApplicable("partitions are InfiniBand's; this is %s", orElse(string(transport), "another transport"))
			return
		}
		if state, known := p.State.Get(); known && state != "ACTIVE" {
			c.NotApplicable("the port is %s: no subnet manager has set its partitions", state)
			return
		}
		keys, ok := Need(c, "P_Keys", p.PKeys)
		c.Want("a full member (0x8000 set) at index 0")
		const full = 0x8000
		first := pkeyAt(keys, 0)
		at := slices.IndexFunc(keys, func(k rdma.PKey) bool { return k.Value&full != 0 })
		switch {
		case !ok:
			c.Unknown("cannot tell: the kernel shows no P_Keys for this port")
		case first&full != 0:
			c.Pass("full member of %#04x at index 0", first)
		case at >= 0:
			c.Fail("index 0 holds %#04x; the port is a full member only at index %d", first, keys[at].Index)
			c.Fix(fmt.Sprintf("Name the index: NCCL_IB_PKEY=%d; UCX: UCX_IB_PKEY=%#x", keys[at].Index, keys[at].Value&^full),
				"Or have the subnet manager put the partition at index 0 (opensm: partitions.conf; UFM: the partition's \"index 0\")")
		default:
			c.Fail("the port is a full member of no partition")
			c.Fix("On the subnet manager, make it one (opensm's partitions.conf: GUID=full; UFM: membership full); GUIDs: ibstat "+nic.Name,
				"Then: smpquery pkeys -C "+nic.Name+" -D 0")
		}
	},
}

func pkeyAt(keys []rdma.PKey, index int) uint16 {
	for _, k := range keys {
		if k.Index == index {
			return k.Value
		}
	}
	return 0
}
