// Command gdrcheck tells whether GPUDirect RDMA can work on this node, and what
// breaks it.
package main

import (
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/gdrcheck/gdrcheck/internal/worker"
)

func main() {
	if worker.IsWorker(os.Args) {
		os.Exit(worker.Main())
	}
	// The node's memory is for its jobs: collecting garbage a little earlier takes
	// a fifth off our peak and costs a few milliseconds.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50)
	}
	// With a handler a write to a closed pipe is an error instead of our death.
	// Ignoring the signal would hand that down to the children.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	os.Exit(run(systemStreams(), os.Args[1:]))
}
