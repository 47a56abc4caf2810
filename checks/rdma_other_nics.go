package checks

import (
	"slices"
	"strings"

	"github.com/gdrcheck/gdrcheck/rdma"
)

var rdmaOtherNICs = Check{
	ID: "rdma-other-nics", Title: "jobs find the NICs for GPUs and no others", Area: AreaRDMA, Severity: SeverityInfo,
	DependsOn: []string{"rdma-device-present"},
	Why:       "NCCL, UCX and MPI take every active RDMA port that they find, also those of storage or management NICs. One at 25 Gb/s among several at 400 slows the whole, or leads into another network.",
	Fix:       []string{"Name the NICs for GPUs to the program: NCCL_IB_HCA==DEVICE,DEVICE"},
	Refs: []string{
		"https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-ib-hca",
		"https://github.com/NVIDIA/nccl/issues/1277",
		"https://github.com/NVIDIA/nccl/issues/1412",
	},
	Subjects: TheNode,
	Eval: func(c *Case) {
		var compute []*rdma.Device
		var others, left, taken []string
		spec, source := c.jobSetting("NCCL_IB_HCA")
		for _, s := range EachRDMA(c.Node) {
			if c.matters(s.NIC) {
				compute = append(compute, s.NIC)
			}
			for _, p := range s.NIC.Ports {
				state, _ := Need(c, "state of "+s.ID, p.State, s.NIC.Dir)
				selected := ncclTakes(spec, s.ID, p.Number)
				switch {
				case state != "ACTIVE":
				case c.matters(s.NIC) && !selected:
					left = append(left, s.ID)
				case !c.matters(s.NIC):
					text := s.ID
					if r, ok := p.Rate.Get(); ok {
						text += " (" + gbps(r.BitsPerSec) + ")"
					}
					others = append(others, text)
					if selected {
						taken = append(taken, text)
					}
				}
			}
		}
		if spec != "" {
			c.Row("NCCL_IB_HCA", spec, source)
			c.Want("=%s", nicNames(compute))
		}
		name := "name those for GPUs: NCCL_IB_HCA==" + nicNames(compute)
		switch {
		case len(compute) == 0:
			c.none("no NIC here is a GPU's")
		case spec != "" && left != nil:
			c.Warn("NCCL_IB_HCA=%s (%s) leaves out %s, which is next to GPUs", spec, source, strings.Join(left, ", "))
			c.Fix("Take it out of " + source + ", or " + name)
		case spec != "" && taken != nil:
			c.Warn("NCCL_IB_HCA=%s (%s) takes in %s, which is no GPU's", spec, source, strings.Join(taken, ", "))
			c.Fix("In " + source + ", " + name)
		case spec != "" && others != nil:
			c.Pass("NCCL_IB_HCA=%s (%s) names those for GPUs", spec, source)
		case others == nil:
			c.Pass("every active NIC is a GPU's")
		default:
			c.Info("also active: %s; %s", strings.Join(others, ", "), name)
		}
	},
}

// jobSetting is a variable of the job environment that was seen, and where it
// stands; empty: none.
func (c *Case) jobSetting(name string) (value, source string) {
	for _, s := range c.Machine.QoS.Job.Or(nil) {
		if s.Name == name {
			return s.Value, s.Source
		}
	}
	return "", ""
}

// ncclTakes says whether NCCL_IB_HCA takes a port: names by their beginning, or
// whole after "=", all but those after "^", each with ":port" or without
// (parseStringList and matchIfList in NCCL's src/misc/socket.cc).
func ncclTakes(spec, device string, port int) bool {
	spec, but := strings.CutPrefix(spec, "^")
	spec, exact := strings.CutPrefix(spec, "=")
	if spec == "" {
		return true
	}
	return but != slices.ContainsFunc(strings.Split(spec, ","), func(entry string) bool {
		name, number, numbered := strings.Cut(entry, ":")
		if numbered && atoi(number) != port {
			return false
		}
		return name == device || !exact && strings.HasPrefix(device, name)
	})
}
