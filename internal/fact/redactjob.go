package fact

import "strings"

// jobSetting is a line of NCCL's or UCX's configuration, or a variable, that
// says something about RDMA.
var jobSetting = lazy(`^(NCCL_(IB|NET|CROSS|P2P|DMABUF|SOCKET_IFNAME)|UCX_(IB|NET|TLS))[A-Z_]*$`)

// keepsJob says whether a setting may be shared: neither a path, which names
// people, nor an address.
func keepsJob(name, value string) bool {
	return jobSetting().MatchString(name) && !strings.ContainsAny(value, "/.") && !strings.HasSuffix(name, "_ADDR_RANGE")
}

// jobConf leaves of a configuration file what may be shared.
func jobConf(text string) string {
	var out strings.Builder
	for l := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimSpace(l), "=")
		if ok && keepsJob(strings.TrimSpace(name), value) || strings.HasPrefix(name, "[") {
			out.WriteString(l)
		}
	}
	return out.String()
}

// jobValue goes through an answer about the environment: a map of variables and
// one of files.
func jobValue(name string, v any) any {
	switch x := v.(type) {
	case string:
		if strings.HasSuffix(name, "conf") || name == "$NCCL_CONF_FILE" {
			return jobConf(x)
		}
	case map[string]any:
		for k, val := range x {
			if s, ok := val.(string); ok && name == "variables" && !keepsJob(k, s) {
				delete(x, k)
				continue
			}
			x[k] = jobValue(k, val)
		}
	}
	return v
}

// portNumber is how the makers of switches name ports: Ethernet12, swp1s0,
// Eth1/12/1, et-0/0/12:0, HundredGigE1/0/1, 1/1/c12/1.
var portNumber = lazy(`(?i)^(?:ethernet|eth|\w{0,16}gig\w{0,14}|swp|[a-z]{1,2}|port)?[ -]?\d{1,5}(?:[/:.-]?[cs]?\d{1,3}){0,5}$`)

// names replaces in an answer about neighbours what people call switches and
// their ports; the number of a port stays where it is one (Ethernet12), since a
// port's id may be what its owner calls it, and what has a form of its own, as a
// MAC address has.
func (r *redactor) names(v any) any {
	switch x := v.(type) {
	case []any:
		for i := range x {
			x[i] = r.names(x[i])
		}
	case map[string]any:
		for k, val := range x {
			given := k == "system" || k == "chassis" || k == "port_text" || k == "port"
			if fact, ok := val.(map[string]any); ok && given {
				s, ok := fact["value"].(string)
				number := k == "port" && portNumber().MatchString(s)
				if ok && !number && r.text(s) == s {
					fact["value"] = r.word(s)
				}
			}
			x[k] = r.names(val)
		}
	}
	return v
}
