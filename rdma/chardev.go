package rdma

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gdrcheck/gdrcheck/internal/fact"
)

// DevNumber writes a device number as sysfs does, "231:192", to compare a node
// below /dev with the device that the kernel has.
func DevNumber(rdev uint64) string {
	return fmt.Sprintf("%d:%d", unix.Major(rdev), unix.Minor(rdev))
}

// charDevices gives each device its uverbs and umad nodes.
func (c *collector) charDevices(f *Facts) {
	byName := map[string]*Device{}
	for i := range f.Devices {
		byName[f.Devices[i].Name] = &f.Devices[i]
	}
	for _, kind := range []struct {
		dir, prefix string
		add         func(*Device, CharDev)
	}{
		{"/sys/class/infiniband_verbs", "uverbs", func(d *Device, n CharDev) { d.Uverbs = append(d.Uverbs, n) }},
		{"/sys/class/infiniband_mad", "umad", func(d *Device, n CharDev) { d.Umad = append(d.Umad, n) }},
	} {
		names, err := listDir(c.src, kind.dir)
		if err != nil && fact.StateOf(err) != fact.Absent {
			// No entry would mean that the kernel has none.
			unseen := CharDev{
				Dev:  fact.FromError[string](err, kind.dir),
				Node: fact.FromError[fact.Info](err, kind.dir), Access: fact.FromError[bool](err, kind.dir),
			}
			for i := range f.Devices {
				kind.add(&f.Devices[i], unseen)
			}
		}
		given := map[string]bool{}
		var nameless *CharDev // one of which the device could not be read
		for _, n := range names {
			if !strings.HasPrefix(n, kind.prefix) {
				continue
			}
			ibdev := fact.Text(c.src, kind.dir+"/"+n, "ibdev")
			if d := byName[ibdev.V]; d != nil {
				given[d.Name] = true
				kind.add(d, c.charDev(kind.dir, n))
			}
			if ibdev.State != fact.Known && ibdev.State != fact.Absent { // Absent: just unplugged
				ibdev.Source = kind.dir + "/" + n + "/ibdev"
				nameless = &CharDev{Dev: ibdev, Node: fact.As(ibdev, fact.Info{}), Access: fact.As(ibdev, false)}
			}
		}
		for i := range f.Devices { // it may be that of any that has none
			if d := &f.Devices[i]; nameless != nil && !given[d.Name] {
				kind.add(d, *nameless)
			}
		}
	}
	f.RDMACM = c.charDev("/sys/class/misc", "rdma_cm")
}

func (c *collector) charDev(class, name string) CharDev {
	d := CharDev{Name: name}
	path := class + "/" + name + "/dev"
	d.Dev = fact.Text(c.src, "", path)
	d.Node = fact.StatOf(c.src, "/dev/infiniband/"+name)
	d.Access = fact.Access(c.caller, d.Node)
	return d
}
