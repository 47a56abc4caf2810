package topo_test

import (
	"math"
	"testing"

	"github.com/gdrcheck/gdrcheck/internal/topotest"
	"github.com/gdrcheck/gdrcheck/topo"
)

// Two ports of one card share its slot, two cards below one switch its uplink;
// cards below different root ports share nothing.
func TestCommonLink(t *testing.T) {
	g := topo.New(topotest.Machine(t, `
pci0000:00
  00:01.0 root link=16x16 mps=256
    01:00.0 nic=mlx5_0 link=16x16 mps=256
    01:00.1 nic=mlx5_1 link=16x16 mps=256
  00:02.0 root mps=256
    02:00.0 up link=16x8/32x16 mps=256
      03:00.0 down mps=256
        04:00.0 nic=mlx5_2 link=32x16 mps=256
      03:01.0 down mps=256
        05:00.0 nic=mlx5_3 link=32x16 mps=256
  00:03.0 root mps=256
    06:00.0 nic=mlx5_4 mps=256
    06:00.1 nic=mlx5_5 mps=256
  00:04.0 nic=mlx5_6 mps=256`))
	// By hand from the specification: GT/s × lanes / 8 × 128/130 × 256/280.
	const eff = 128.0 / 130 * 256 / 280
	for name, tt := range map[string]struct {
		nics        []string
		port        string
		bytesPerSec float64
	}{
		"two ports of a card":      {[]string{"mlx5_0", "mlx5_1"}, "0000:00:01.0", 16e9 * 16 / 8 * eff},
		"two cards of a switch":    {[]string{"mlx5_2", "mlx5_3"}, "0000:00:02.0", 16e9 * 8 / 8 * eff},
		"one alone":                {[]string{"mlx5_2"}, "0000:03:00.0", 32e9 * 16 / 8 * eff},
		"two root ports":           {[]string{"mlx5_0", "mlx5_2"}, "", 0},
		"a link that is not known": {[]string{"mlx5_4", "mlx5_5"}, "0000:00:03.0", 0},
		"no bridge above":          {[]string{"mlx5_6"}, "", 0},
		"not there":                {[]string{"mlx5_0", "nothing"}, "", 0},
		"none":                     {nil, "", 0},
	} {
		port, rate, ok := g.CommonLink(tt.nics)
		if ok != (tt.port != "") || ok && port.String() != tt.port || math.Abs(rate-tt.bytesPerSec) > 1 {
			t.Errorf("%s: %s, %g, %v, want %s, %g", name, port, rate, ok, tt.port, tt.bytesPerSec)
		}
	}
}
