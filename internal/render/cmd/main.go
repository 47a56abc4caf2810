// Command cmd writes one of the machines of package render, for benchmarks:
//
//	go run ./internal/render/cmd eightgpu|many|FILE.md DIR
package main

import (
	"fmt"
	"os"

	"github.com/gdrcheck/gdrcheck/internal/render"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("usage: cmd eightgpu|many|LSPCI-TEXT DIR")
	}
	var t render.Tree
	switch args[0] {
	case "eightgpu": // with the peripherals of a real one: 400 functions
		t = render.EightGPU()
		t.AddUncore(400 - len(t.Functions))
	case "many":
		t = render.Many(4096)
	default:
		text, err := os.ReadFile(args[0])
		if err != nil {
			return err
		}
		if t, err = render.FromLspci(string(text)); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(args[1], 0o755); err != nil {
		return err
	}
	return t.Write(args[1])
}
