package checks

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/internal/host"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/rdma/qos"
)

// callSource matches sources that are calls rather than files: "nvml:nvmlDeviceGetName".
var callSource = regexp.MustCompile(`^(nvml|cuda|verbs|rdmamap|ghw|limits|kernel|topo|table|netlink|devlink|ethtool|lldp|lldpcli|smp|mstconfig|environment|gdrcopy)(:| |$)`)

// source makes a fact's source absolute: the reader of a report has no device
// folder at hand to which "current_link_speed" would be relative.
func (c *Case) source(src string, dir ...string) string {
	if src == "" || strings.HasPrefix(src, "/") || callSource.MatchString(src) {
		return src
	}
	base := strings.Join(dir, "")
	switch {
	case base != "":
	case c.Subject.NIC != nil:
		base = c.Subject.NIC.Dir
	case c.Subject.Function != nil:
		base = c.Subject.Function.Dir
	}
	if base == "" {
		return src
	}
	return base + "/" + src
}

// show writes a fact for people, in the field's own terms and units.
func show(v any) string {
	switch x := v.(type) {
	case string:
		if x == "" {
			return `""`
		}
		return x
	case bool:
		if x {
			return "yes"
		}
		return "no"
	case []string:
		return strings.Join(x, ", ")
	case gpu.GDRCopyProbe:
		return fmt.Sprintf("libgdrapi %s, gdrdrv %s", orElse(x.Library, "unknown"), orElse(x.Driver, "unknown"))
	case pci.Link:
		return showLink(x.SpeedGTPerSec, x.Width)
	case pci.ACS:
		return showACS(x.Ctl)
	case rdma.Rate:
		return x.Text
	case rdma.Model:
		return x.Name
	case gpu.Memory:
		return showBytes(x.TotalBytes)
	case host.Module:
		return strings.TrimSpace("loaded " + x.Version.Or(""))
	case host.Limits:
		return showBytes(x.MemlockSoft)
	case []pci.BAR:
		return fmt.Sprintf("%d windows", len(x))
	case gpu.MIGMode:
		return show(x.Current)
	case gpu.ECC:
		return show(x.Current)
	case gpu.Remapped:
		return fmt.Sprintf("pending %s, failed %s", show(x.Pending), show(x.Failed))
	case []gpu.NVLink:
		return fmt.Sprintf("%d", len(x))
	case pci.AERCounts:
		return fmt.Sprintf("%d kinds", len(x.Correctable)+len(x.NonFatal)+len(x.Fatal))
	case []host.NUMANode:
		return fmt.Sprint(len(x))
	case host.KernelLog:
		return fmt.Sprintf("%d messages", x.Messages)
	case gpu.KFDNode:
		return fmt.Sprintf("node %d", x.Node)
	case map[string]string:
		return fmt.Sprintf("%d settings", len(x))
	case []host.ModprobeOption:
		return fmt.Sprintf("%d options", len(x))
	case []host.IdleState:
		var names []string
		for _, s := range x {
			names = append(names, s.Name)
		}
		return strings.Join(names, ", ")
	case []rdma.PKey:
		var keys []string
		for _, k := range x {
			keys = append(keys, fmt.Sprintf("%d: %#04x", k.Index, k.Value))
		}
		return orElse(strings.Join(keys, ", "), "none")
	case qos.PFC:
		return "priority " + x.Enabled.String()
	case qos.Buffer:
		return showBuffers(x)
	case qos.DCBX:
		return showDCBX(x)
	case []qos.App:
		return fmt.Sprintf("%d entries", len(x))
	case host.PeerMemory:
		return importText(x)
	case gpu.NVMLSystem:
		return x.NVMLVersion
	case rdma.VerbsProbe:
		return "opened"
	case fact.Info:
		return x.Mode.String()
	case fmt.Stringer:
		return x.String()
	}
	return fmt.Sprint(v)
}

func showLink(gts float64, width int) string {
	if gts == 0 || width == 0 {
		return "link down"
	}
	return fmt.Sprintf("%s GT/s x%d", trimFloat(gts), width)
}

func trimFloat(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// showACS writes the control bits as lspci does, those that are set.
func showACS(ctl uint16) string {
	names := []string{"SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl", "DirectTrans"}
	var on []string
	for i, n := range names {
		if ctl&(1<<i) != 0 {
			on = append(on, n+"+")
		}
	}
	if on == nil {
		return fmt.Sprintf("%#02x (all off)", ctl)
	}
	return fmt.Sprintf("%#02x (%s)", ctl, strings.Join(on, " "))
}

// showBytes writes a size in binary units, as nvidia-smi and free -h do.
func showBytes(n uint64) string {
	if n == math.MaxUint64 {
		return "unlimited"
	}
	const mib, gib = 1 << 20, 1 << 30
	switch {
	case n < mib:
		return fmt.Sprintf("%d KiB", n/1024)
	case n < gib:
		return fmt.Sprintf("%d MiB", n/mib)
	case n%gib != 0:
		return fmt.Sprintf("%.1f GiB", float64(n)/gib)
	}
	return fmt.Sprintf("%d GiB", n/gib)
}
