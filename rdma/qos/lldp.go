package qos

import (
	"encoding/json"
	"fmt"

	"github.com/gdrcheck/gdrcheck/internal/fact"
)

const srcLLDP = "lldpcli"

// ParseLLDP reads what lldpcli -f json0 show neighbors prints: the neighbour on
// each interface. Where several were heard, the first counts.
func ParseLLDP(text []byte) (map[string]Neighbour, error) {
	type value struct{ Value string }
	var doc struct {
		LLDP []struct {
			Interface []struct {
				Name    string
				Chassis []struct{ ID, Name []value }
				Port    []struct{ ID, Descr []value }
			}
		}
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("unreadable answer of lldpcli: %w", err)
	}
	first := func(what string, list []value) fact.Value[string] {
		if len(list) == 0 || list[0].Value == "" {
			return fact.Missing[string](fact.Absent, srcLLDP, "the neighbour gives no "+what)
		}
		return fact.Of(list[0].Value, srcLLDP)
	}
	out := map[string]Neighbour{}
	for _, l := range doc.LLDP {
		for _, i := range l.Interface {
			if _, twice := out[i.Name]; twice || len(i.Chassis) == 0 || len(i.Port) == 0 {
				continue
			}
			c, p := i.Chassis[0], i.Port[0]
			out[i.Name] = Neighbour{
				System: first("name", c.Name), Chassis: first("chassis id", c.ID),
				Port: first("port id", p.ID), PortText: first("description of its port", p.Descr),
			}
		}
	}
	return out, nil
}
