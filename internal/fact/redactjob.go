package fact

import "strings"

// jobSetting is a line of NCCL's or UCX's configuration, or a variable, that
// says something about RDMA.
var jobSetting = lazy(`^(NCCL_(IB|NET|CROSS|P2P|DMABUF|SOCKET_IFNAME)|UCX_(IB|NET|TLS))[A-Z_]*$`)

// keepsJob says whether a setting may be shared: neither a path, which names
// people, nor an address.
func keepsJob(name, value string) bool {
	return jobSetting().MatchString(name) && !strings.ContainsAny(value, "/.")
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

// names replaces in an answer about neighbours what people call switches and
// their ports; the number of a port stays (Ethernet12), and what has a form of
// its own, as a MAC address has.
func (r *redactor) names(v any) any {
	switch x := v.(type) {
	case []any:
		for i := range x {
			x[i] = r.names(x[i])
		}
	case map[string]any:
		for k, val := range x {
			given := k == "system" || k == "chassis" || k == "port_text"
			if fact, ok := val.(map[string]any); ok && given {
				if s, ok := fact["value"].(string); ok && r.text(s) == s {
					fact["value"] = r.word(s)
				}
			}
			x[k] = r.names(val)
		}
	}
	return v
}
