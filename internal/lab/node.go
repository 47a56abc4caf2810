package lab

// Node returns qemu's arguments for the virtual node of the tests:
//
//	numa 0  pci0000:20  root port 20:00.0 ─ switch ┬ GPU stand-in A
//	                                               ├ NIC (eth0)
//	                                               └ second switch ─ NIC (eth1)
//	numa 1  pci0000:80  root port 80:00.0 ─ NIC (eth2)
//	                    root port 80:01.0 ─ GPU stand-in B
//	numa 1  pci0000:c0  root port c0:00.0 ─ NIC (eth3)
//
// So each path class has a pair of its own: A–eth0 PIX, A–eth1 PXB, B–eth2
// PHB, B–eth3 NODE, A–eth2 SYS. The stand-ins are qemu's pci-testdev with a
// BAR of 256 MiB: no display class, no vendor that makes GPUs. The NICs hang on
// one hub, so that their links are up.
func Node(iommu bool) []string {
	args := []string{
		"-machine", "q35", "-m", "1G",
		"-object", "memory-backend-ram,id=m0,size=512M", "-numa", "node,nodeid=0,cpus=0,memdev=m0",
		"-object", "memory-backend-ram,id=m1,size=512M", "-numa", "node,nodeid=1,cpus=1,memdev=m1",
		"-numa", "dist,src=0,dst=1,val=21",
	}
	if iommu {
		args = append(args, "-device", "intel-iommu")
	}
	for _, d := range []string{
		"pxb-pcie,id=hb0,bus=pcie.0,bus_nr=0x20,numa_node=0",
		"pcie-root-port,id=rp0,bus=hb0,addr=0,chassis=1",
		"x3130-upstream,id=up0,bus=rp0",
		"xio3130-downstream,id=dn0,bus=up0,chassis=2",
		"pci-testdev,bus=dn0,membar=256M",
		"xio3130-downstream,id=dn1,bus=up0,chassis=3",
		"e1000e,bus=dn1,netdev=n0",
		"xio3130-downstream,id=dn2,bus=up0,chassis=4",
		"x3130-upstream,id=up1,bus=dn2",
		"xio3130-downstream,id=dn3,bus=up1,chassis=5",
		"e1000e,bus=dn3,netdev=n1",

		"pxb-pcie,id=hb1,bus=pcie.0,bus_nr=0x80,numa_node=1",
		"pcie-root-port,id=rp1,bus=hb1,addr=0,chassis=6",
		"e1000e,bus=rp1,netdev=n2",
		"pcie-root-port,id=rp2,bus=hb1,addr=1,chassis=7",
		"pci-testdev,bus=rp2,membar=256M",

		"pxb-pcie,id=hb2,bus=pcie.0,bus_nr=0xc0,numa_node=1",
		"pcie-root-port,id=rp3,bus=hb2,addr=0,chassis=8",
		"e1000e,bus=rp3,netdev=n3",
	} {
		args = append(args, "-device", d)
	}
	for _, n := range []string{"n0", "n1", "n2", "n3"} {
		args = append(args, "-netdev", "hubport,hubid=0,id="+n)
	}
	return args
}
