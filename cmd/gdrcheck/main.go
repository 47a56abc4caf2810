// Command gdrcheck tells whether GPUDirect RDMA can work on this node, and what
// breaks it.
package main

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/gdrcheck/gdrcheck/internal/worker"
)

func main() {
	if worker.IsWorker(os.Args) {
		os.Exit(worker.Main())
	}
	// With a handler a write to a closed pipe is an error instead of our death.
	// Ignoring the signal would hand that down to the children.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	os.Exit(run(systemStreams(), os.Args[1:]))
}
