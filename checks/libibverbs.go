package checks

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/rdma"
)

var libibverbs = Check{
	ID: "libibverbs", Title: "libibverbs and its drivers are installed once and new enough", Area: AreaRDMA, Severity: SeverityWarning,
	DependsOn: []string{"rdma-device-present"},
	Why:       "NCCL, UCX, MPI and NVSHMEM load libibverbs.so.1 and through it a driver for the NIC. Without either they find no device and fall back to TCP without a word; before rdma-core 34 it has no DMA-BUF; and with two copies the loader may take the wrong one.",
	Fix:       []string{"Debian, Ubuntu: sudo apt install rdma-core ibverbs-providers", "RHEL: sudo dnf install rdma-core libibverbs", "Remove what was installed besides; see what is there: ldconfig -p | grep libibverbs"},
	Refs: []string{
		"https://github.com/linux-rdma/rdma-core",
		"https://github.com/NVIDIA/nccl/issues/778",
		"https://github.com/NVIDIA/nccl/issues/799",
		"https://github.com/ai-dynamo/dynamo/issues/1314",
	},
	Subjects: TheNode,
	Eval:     evalLibIBVerbs,
}

// verbsProviders are libibverbs' drivers by the NIC driver that they serve.
var verbsProviders = map[string]string{
	"mlx5_core": "mlx5", "mlx5_ib": "mlx5", "mlx4_core": "mlx4", "bnxt_en": "bnxt_re", "bnxt_re": "bnxt_re", "efa": "efa",
	"ice": "irdma", "irdma": "irdma", "mana": "mana", "cxgb4": "cxgb4", "hns3": "hns", "qede": "qedr", "erdma": "erdma", "ionic": "ionic",
}

var installVerbs = []string{
	"Debian, Ubuntu: sudo apt install libibverbs1 ibverbs-providers rdma-core",
	"RHEL: sudo dnf install libibverbs rdma-core",
}

func evalLibIBVerbs(c *Case) {
	if !slices.ContainsFunc(c.Machine.RDMA.Devices, func(d rdma.Device) bool { return !d.Software }) {
		c.none("no RDMA NIC to open")
		return
	}
	install := installVerbs
	if c.Platform.Container != "" {
		install = []string{
			"In an image of Debian or Ubuntu: apt install libibverbs1 ibverbs-providers",
			"In an image of RHEL: dnf install libibverbs",
		}
	}
	version, ok := Need(c, "libibverbs.so.1", c.Machine.RDMA.LibIBVerbs)
	c.Want("1.12 or newer")
	if !ok && c.Machine.Origin == "tree" && c.Machine.RDMA.Providers.State != fact.Known {
		c.Unknown("cannot tell: the tree that was read holds no libraries of RDMA")
		c.Fix(c.howToSee(fact.NotCollected)...)
		return
	}
	if !ok {
		c.Warn("libibverbs.so.1 is in none of the usual folders: programs here find no RDMA device")
		c.Fix(install...)
		c.Unsure("programs that bring their own, as containers do, are not concerned: ldconfig -p | grep ibverbs")
		return
	}
	if versions := differing(c); versions != nil {
		c.Warn("several copies of libibverbs: %s", strings.Join(versions, ", "))
		c.Fix("See which one a program takes: ldconfig -p | grep libibverbs; ldd $(command -v ibv_devinfo)",
			"Remove the one that was not installed by the package manager or DOCA-OFED, then: sudo ldconfig")
		return
	}
	if lacking := lackingProvider(c); lacking != "" {
		c.Warn("%s", lacking)
		c.Fix(install...)
		c.Fix("Then see that it lists the NICs: ibv_devices")
		return
	}
	const dmabuf = "1.12"
	ofed := c.moduleVersion("mlx5_core")
	if older(version, dmabuf) {
		if o, known := ofed.Get(); known && c.Platform.Container != "" {
			c.Row("the host's OFED (mlx5_core)", o, ofed.Source)
			c.Warn("the container's libibverbs %s is older than the host's OFED %s expects", version, o)
			c.Fix("Use an image with the same DOCA-OFED or with rdma-core 34 or newer")
			c.Fix(install...)
			return
		}
		c.Warn("libibverbs %s has no ibv_reg_dmabuf_mr: DMA-BUF needs rdma-core 34 (libibverbs 1.12) or newer", version)
		c.Fix(install...)
		c.Fix("Or use nvidia-peermem with DOCA-OFED")
		return
	}
	if untried := untriedNIC(c); untried != "" {
		c.Info("%s; whether it opens %s was not seen", version, untried)
		return
	}
	c.Pass("%s", version)
}

// untriedNIC is a NIC that libibverbs was not seen to open, nor to have a driver
// for; empty: none.
func untriedNIC(c *Case) string {
	for _, d := range c.Machine.RDMA.Devices {
		if d.Software || d.Verbs.State == fact.Known || d.Verbs.State == fact.Absent {
			continue
		}
		return d.Name
	}
	return ""
}

// differing are the copies, where they are not all of one version.
func differing(c *Case) []string {
	var versions, files []string
	for _, l := range c.Machine.RDMA.LibCopies {
		if l.Version == "" {
			continue
		}
		if !slices.Contains(versions, l.Version) {
			versions = append(versions, l.Version)
		}
		files = append(files, fmt.Sprintf("%s (%s)", l.File, l.Version))
	}
	if len(versions) < 2 {
		return nil
	}
	for _, l := range c.Machine.RDMA.LibCopies {
		c.Row("copy", orElse(l.Version, "version not known"), l.File)
	}
	return files
}

// lackingProvider names a NIC that libibverbs has no driver for. One that it
// could open needs no further proof.
func lackingProvider(c *Case) string {
	providers := c.Machine.RDMA.Providers
	for _, d := range c.Machine.RDMA.Devices {
		if d.Software || d.Verbs.State == fact.Known {
			continue
		}
		driver, _ := mustSee(c, "driver of "+d.Name, d.Driver, d.Dir)
		mustSee(c, "drivers of libibverbs", providers)
		want := verbsProviders[driver]
		const enodev = 19
		if d.Verbs.State == fact.Absent && d.Verbs.Errno == enodev {
			See(c, "libibverbs on "+d.Name, d.Verbs, d.Dir)
			return "libibverbs does not list " + d.Name + ", which the kernel has: its driver " + want + " is missing"
		}
		if want != "" && providers.State == fact.Known && !slices.Contains(providers.V, want) {
			See(c, "drivers of libibverbs", providers)
			c.Want("%s", want)
			return "libibverbs has no driver " + want + " for " + d.Name
		}
	}
	return ""
}
