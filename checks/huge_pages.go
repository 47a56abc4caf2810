package checks

var hugePages = Check{
	ID: "huge-pages", Title: "huge pages are set aside", Area: AreaHost, Severity: SeverityInfo,
	Why:      "Host buffers on huge pages need fewer entries in the NIC's address table. GPU memory does not need them; some MPI and UCX set-ups use them where they are there.",
	Fix:      []string{"sudo sysctl vm.nr_hugepages=N"},
	Refs:     []string{"https://docs.kernel.org/admin-guide/mm/hugetlbpage.html"},
	Subjects: TheNode,
	Eval: func(c *Case) {
		n, ok := Need(c, "vm.nr_hugepages", c.Machine.Host.HugePages)
		switch {
		case !ok:
			c.NotApplicable("this kernel has none, or does not show them here")
		case n == 0:
			c.Info("none set aside; GPUDirect RDMA does not need them")
		default:
			c.Pass("%d", n)
		}
	},
}
