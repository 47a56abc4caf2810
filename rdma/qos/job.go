package qos

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
)

// JobVariables are what a job's environment says about its RDMA traffic and is
// worth knowing. Others are not read: an environment holds secrets.
var JobVariables = []string{
	"NCCL_CROSS_NIC", "NCCL_IB_ADAPTIVE_ROUTING", "NCCL_IB_ADDR_FAMILY", "NCCL_IB_DISABLE", "NCCL_IB_FIFO_TC", "NCCL_IB_GID_INDEX",
	"NCCL_IB_HCA", "NCCL_IB_PCI_RELAXED_ORDERING", "NCCL_IB_PKEY", "NCCL_IB_QPS_PER_CONNECTION", "NCCL_IB_RETRY_CNT",
	"NCCL_IB_ROCE_VERSION_NUM", "NCCL_IB_SL", "NCCL_IB_TC", "NCCL_IB_TIMEOUT", "NCCL_NET", "NCCL_NET_GDR_LEVEL", "NCCL_NET_GDR_READ",
	"NCCL_NET_PLUGIN", "NCCL_DMABUF_ENABLE", "NCCL_P2P_LEVEL", "NCCL_SOCKET_IFNAME", "NCCL_TOPO_FILE",
	"UCX_IB_GID_INDEX", "UCX_IB_GPU_DIRECT_RDMA", "UCX_IB_PKEY", "UCX_IB_SL", "UCX_IB_TRAFFIC_CLASS", "UCX_NET_DEVICES", "UCX_TLS",
}

// Environ is what the worker, which has the environment that gdrcheck was
// started with, says of it.
type Environ struct {
	Variables map[string]string `json:"variables,omitempty"` // of JobVariables, those that are set
	// Files are the user's own configuration files that are there, by the
	// names UserFile. Their directories name people and are left out.
	Files map[string]string `json:"files,omitempty"`
}

// UserFile names a configuration file of the user's.
type UserFile struct {
	Name string // "~/.nccl.conf"
	Dir  string // variable that names the directory, or the file where Base is empty
	Base string
}

// UserFiles are those of NCCL and UCX, first the ones that count more.
var UserFiles = []UserFile{
	{"$NCCL_CONF_FILE", "NCCL_CONF_FILE", ""}, {"~/.nccl.conf", "HOME", ".nccl.conf"},
	{"$UCX_CONFIG_DIR/ucx.conf", "UCX_CONFIG_DIR", "ucx.conf"}, {"~/ucx.conf", "HOME", "ucx.conf"},
}

// The system's own files.
const (
	ncclConf = "/etc/nccl.conf"
	ucxConf  = "/etc/ucx/ucx.conf"
)

// readJob says what a job that is started from here would find: variables of
// the environment first; then for NCCL its own file, or else the user's, and
// the system's (NCCL's src/misc/param.cc: what is set stays); for UCX its own
// file, the user's, and the system's (src/ucs/config/parser.c: the last one
// read counts).
func readJob(ctx context.Context, src fact.Source) fact.Value[[]Setting] {
	environ := fact.AskOne[Environ](ctx, src, fact.AskEnviron, "self")
	seen := "environment, "
	if environ.State != fact.Known {
		seen = ""
	}
	found := map[string]Setting{}
	add := func(name, value, source string) {
		if _, there := found[name]; !there && slices.Contains(JobVariables, name) {
			found[name] = Setting{Name: name, Value: value, Source: source}
		}
	}
	for name, value := range environ.V.Variables {
		add(name, value, "environment")
	}
	own := environ.V.Files["$NCCL_CONF_FILE"] != ""
	for _, f := range UserFiles {
		text, there := environ.V.Files[f.Name]
		if !there || own && f.Name == "~/.nccl.conf" {
			continue
		}
		for _, kv := range parseConf(f.Name, text) {
			add(kv[0], kv[1], f.Name)
		}
	}
	for _, name := range []string{ncclConf, ucxConf} {
		b, err := src.ReadFile(name)
		switch fact.StateOf(err) {
		case fact.Known:
		case fact.Absent:
			continue
		default:
			return fact.FromError[[]Setting](err, name)
		}
		for _, kv := range parseConf(name, string(b)) {
			add(kv[0], kv[1], name)
		}
	}
	out := slices.SortedFunc(maps.Values(found), func(a, b Setting) int { return strings.Compare(a.Name, b.Name) })
	if out == nil {
		out = []Setting{}
	}
	return fact.Of(out, seen+ncclConf+", "+ucxConf)
}

func parseConf(name, text string) [][2]string {
	if strings.HasSuffix(name, "ucx.conf") {
		return ParseUCXConf(text)
	}
	return ParseNCCLConf(text)
}

// ParseNCCLConf reads NAME=VALUE lines as NCCL does: to the end of the line,
// without quotes, and nothing but a line without "=" is left out.
func ParseNCCLConf(text string) [][2]string {
	var out [][2]string
	for l := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimRight(l, "\n"), "="); ok {
			out = append(out, [2]string{name, value})
		}
	}
	return out
}

// ParseUCXConf reads NAME = VALUE lines of UCX's ini file, quotes and comments
// aside. What stands in a section counts on some machines only and is left out.
func ParseUCXConf(text string) [][2]string {
	var out [][2]string
	for l := range strings.Lines(text) {
		l = strings.TrimSpace(l)
		if strings.HasPrefix(l, "[") {
			break // there is no way back out of a section
		}
		name, value, ok := strings.Cut(l, "=")
		if !ok || strings.HasPrefix(l, "#") || strings.HasPrefix(l, ";") {
			continue
		}
		value, _, _ = strings.Cut(value, " ;")
		out = append(out, [2]string{strings.TrimSpace(name), strings.Trim(strings.TrimSpace(value), `"'`)})
	}
	return out
}
