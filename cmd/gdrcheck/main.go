// Command gdrcheck tells whether GPUDirect RDMA can work on this node, and what
// breaks it.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if isWorker(os.Args) {
		os.Exit(workerMain())
	}
	// With a handler a write to a closed pipe is an error instead of our death.
	// Ignoring the signal would hand that down to the children.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	os.Exit(run(systemStreams(), os.Args[1:]))
}
