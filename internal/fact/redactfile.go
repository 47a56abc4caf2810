package fact

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"io"
	"path"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// file redacts a file by what is known of its form.
func (r *redactor) file(name string, b []byte) []byte {
	dir, base := path.Split(name)
	switch {
	case name == "/proc/config.gz":
		return recompress(b, gunzip, gzipped, configOnly)
	case strings.HasPrefix(name, "/boot/config-"), strings.HasPrefix(name, "/lib/modules/") && base == "config":
		return configOnly(b)
	case strings.HasPrefix(name, "/lib/modules/") && strings.Contains(base, ".ko"):
		return r.module(base, b)
	case name == "/proc/cmdline":
		return []byte(r.commandLine(string(b)))
	case strings.HasSuffix(name, "/mountinfo"), strings.HasSuffix(name, "/cgroup"):
		return []byte(r.words(string(b), pathWords()))
	case base == "nccl.conf", base == "ucx.conf":
		return []byte(r.text(jobConf(string(b))))
	case base == "node_desc":
		return []byte(r.words(string(b), deviceWords()))
	case base == "chassis_asset_tag":
		return []byte(r.assetTag(string(b)))
	case strings.HasSuffix(strings.TrimSuffix(dir, "/"), "modprobe.d"):
		return []byte(r.modprobe(string(b)))
	case base == "config" && strings.Contains(dir, "/devices/"):
		return r.configSpace(b)
	case base == "vpd":
		return r.vpd(b)
	case strings.HasPrefix(name, "/sys/kernel/btf/"):
		return b // types of the kernel, compiled from its source
	case utf8.Valid(b):
		return []byte(r.text(string(b)))
	case len(b) <= 16: // a flag or a number
		return b
	}
	return nil // not known, and not to be searched: left out
}

var configLine = lazy(`^(CONFIG_\w+=([ymn]|-?\d+|0x[0-9a-fA-F]+)|# CONFIG_\w+ is not set)$`)

// configOnly leaves out of a kernel's configuration what is text: builder's
// paths, host names, keys.
func configOnly(b []byte) []byte {
	var out bytes.Buffer
	for line := range bytes.Lines(b) {
		if configLine().Match(bytes.TrimSpace(line)) {
			out.Write(line)
		}
	}
	return out.Bytes()
}

// most is the largest file that is unpacked for redaction.
const most = 64 << 20

// recompress changes a compressed file; what cannot be read becomes empty.
func recompress(b []byte, open func(io.Reader) (io.ReadCloser, error), pack func(io.Writer) (io.WriteCloser, error), change func([]byte) []byte) []byte {
	z, err := open(bytes.NewReader(b))
	if err != nil {
		return nil
	}
	defer func() { _ = z.Close() }()
	plain, err := io.ReadAll(io.LimitReader(z, most+1))
	if err != nil || len(plain) > most {
		return nil
	}
	var out bytes.Buffer
	w, err := pack(&out)
	if err != nil {
		return nil
	}
	if _, err := w.Write(change(plain)); err != nil || w.Close() != nil {
		return nil
	}
	return out.Bytes()
}

func gunzip(r io.Reader) (io.ReadCloser, error)   { return gzip.NewReader(r) }
func gzipped(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriter(w), nil }

func unzstd(r io.Reader) (io.ReadCloser, error) {
	z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(most))
	if err != nil {
		return nil, err
	}
	return z.IOReadCloser(), nil
}

func zstded(w io.Writer) (io.WriteCloser, error) {
	return zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
}

func (r *redactor) module(base string, b []byte) []byte {
	switch path.Ext(base) {
	case ".ko":
		return unsigned(b)
	case ".zst":
		return recompress(b, unzstd, zstded, unsigned)
	case ".gz":
		return recompress(b, gunzip, gzipped, unsigned)
	}
	return nil
}

var (
	signatureMark = []byte("~Module signature appended~\n") // kernel/module/signing.c
	author        = lazy(`\x00author=[^\x00]+`)
	mail          = lazy(`[\w.+-]+@[\w.-]+`)
	buildPath     = lazy(`/(?:home|root|build|var|tmp|usr/src)/[\x21-\x7e]+`)
)

// unsigned blanks in a module what names people: its signature, whose
// certificate often bears the host's name, authors, mail addresses and the
// builder's paths. No byte moves.
func unsigned(b []byte) []byte {
	b = bytes.Clone(b)
	const trailer = 12 // struct module_signature; the last four bytes are the length
	if n := len(b) - len(signatureMark) - trailer; n >= 0 && bytes.HasSuffix(b, signatureMark) {
		size := int64(binary.BigEndian.Uint32(b[n+trailer-4:]))
		clear(b[max(0, int64(n)-size):n])
	}
	for _, re := range []*regexp.Regexp{author(), mail(), buildPath()} {
		for _, m := range re.FindAllIndex(b, -1) {
			if re == author() {
				m[0] += len("\x00author=")
			}
			copy(b[m[0]:m[1]], bytes.Repeat([]byte("x"), m[1]-m[0]))
		}
	}
	return b
}

// keptParameters are those of the kernel's command line that checks look at or
// that are told to nobody by their values.
var keptParameters = lazy(`^(--|quiet|splash|ro|rw|nosmt|nomodeset|noapic|nopat|` +
	`(pci|pcie_\w+|iommu(\.\w+)?|intel_iommu|amd_iommu\w*|arm-smmu\S*|swiotlb|vfio\S*|` +
	`hugepages|hugepagesz|default_hugepagesz|transparent_hugepage|numa\w*|isolcpus|nohz\w*|rcu_nocbs|irqaffinity|` +
	`mitigations|intel_idle\.\w+|processor\.\w+|intel_pstate|amd_pstate|cpufreq\.\w+|cpuidle\.\w+|idle|` +
	`lockdown|module\.sig_enforce|module_blacklist|modprobe\.blacklist|random\.trust_cpu|panic|reboot|console|nouveau\.\w+|` +
	`(nvidia[\w-]*|nv_peer_mem|mlx[45][_-]\w+|ib[_-]\w+|rdma[_-]\w+|irdma|bnxt[_-]\w+|efa|gdrdrv|amdgpu|ice)\.\w+)(=.*)?)$`)

func (r *redactor) commandLine(s string) string {
	var out []string
	for w := range strings.FieldsSeq(s) {
		if !keptParameters().MatchString(w) {
			w = r.word(w)
		}
		out = append(out, r.text(w))
	}
	return strings.Join(out, " ") + "\n"
}

// Words that stay in files of which all others are replaced.
var (
	pathWords = lazy(`^(\d{1,4}|rw|ro|fd|ns|id|proc|sysfs|sys|dev|run|tmp|var|lib|etc|usr|boot|host|none|shared|master|relatime|noatime|nosuid|nodev|noexec|` +
		`overlay2?|overlayfs|lowerdir|upperdir|workdir|fs|diff|merged|work|snapshots|containers?|containerd|storage|docker|podman|libpod|lxc|kubepods|kubelet|pods|cri|` +
		`io|snapshotter|v1|rootfs|devtmpfs|tmpfs|devpts|mqueue|cgroup2?|bpf|ext4|xfs|btrfs|squashfs|vfat|nfs4?|lustre|` +
		`system|user|init|scope|slice|service|session|machine|besteffort|burstable|guaranteed|unified|memory|cpu|cpuset|cpuacct|devices|freezer|pids|hugetlb|blkio|net_cls|net_prio|perf_event|rdma|misc|` +
		`hostname|hosts|resolv|conf|infiniband|nvidia\d*|nvidiactl|shm|pts|ptmx|self|mode|size|xino|off|index|metacopy|nfs_export|redirect_dir|volatile|errors|remount|gid|uid|inode64)$`)
	deviceWords = lazy(`^(HCA|\d{1,2}|mlx\d|rxe\w*|siw\w*|ib|roce\w*|Software|iWARP|stack|Mellanox|Technologies|ConnectX|MT\d+|Broadcom|Intel|bnxt|re|irdma|efa|hns|erdma|` + `mlx\d_\d+|bnxt_re\d+|irdma\d+)$`)
)

var word = lazy(`\w+`)

// words replaces all words but those that are known to identify nothing.
func (r *redactor) words(s string, known *regexp.Regexp) string {
	return word().ReplaceAllStringFunc(s, func(w string) string {
		if known.MatchString(w) {
			return w
		}
		return r.word(w)
	})
}

// assetTag keeps the tags that name a cloud or nothing; others are an owner's.
func (r *redactor) assetTag(s string) string {
	switch t := strings.TrimSpace(s); t {
	case "", "None", "Not Specified", "No Asset Tag", "To Be Filled By O.E.M.", "Default string",
		"Amazon EC2", "OracleCloud.com", "7783-7084-3265-9085-8269-3286-77":
		return s
	default:
		return r.word(t) + "\n"
	}
}

// configSpace replaces the Device Serial Number, extended capability 3 (PCI
// Express Base Specification 7.9.3), which NICs form from their MAC address.
func (r *redactor) configSpace(b []byte) []byte {
	b = bytes.Clone(b)
	const first, serialNumber = 0x100, 3
	seen := map[int]bool{}
	for at := first; at >= first && at+12 <= len(b) && !seen[at]; {
		seen[at] = true
		head := binary.LittleEndian.Uint32(b[at:])
		if head&0xffff == serialNumber {
			var id [8]byte
			binary.BigEndian.PutUint64(id[:], binary.LittleEndian.Uint64(b[at+4:]))
			binary.LittleEndian.PutUint64(b[at+4:], binary.BigEndian.Uint64(r.eui64(id[:])))
		}
		at = int(head >> 20)
	}
	return b
}

// vpdKept are the fields of Vital Product Data that name a product.
var vpdKept = map[string]bool{"PN": true, "EC": true, "V0": true, "RV": true, "RW": true}

// vpd replaces serial numbers and whatever else is not the product's own; V3,
// by which mlx5 pairs a NIC with its Data Direct function, stays a pair.
func (r *redactor) vpd(b []byte) []byte {
	b = bytes.Clone(b)
	for at := 0; at+3 <= len(b); {
		tag := b[at]
		if tag&0x80 == 0 {
			if tag>>3 == 0x0f { // end tag: what follows is filling
				clear(b[at+1:])
				return b
			}
			at += 1 + int(tag&7)
			continue
		}
		end := at + 3 + int(binary.LittleEndian.Uint16(b[at+1:]))
		if end > len(b) {
			break
		}
		if tag == 0x90 || tag == 0x91 { // VPD-R and VPD-W
			r.vpdFields(b[at+3 : end])
		}
		at = end
	}
	return b
}

func (r *redactor) vpdFields(b []byte) {
	for len(b) >= 3 {
		end := 3 + int(b[2])
		if end > len(b) {
			return
		}
		if !vpdKept[string(b[:2])] {
			body := b[3:end]
			p := r.pseudonym("vpd", string(body), func(random []byte) string {
				return strings.Repeat(hex.EncodeToString(random), 1+len(body)/64)[:len(body)]
			})
			copy(body, p)
		}
		b = b[end:]
	}
}

// release replaces what a builder added to the kernel's version, by words that
// distributions do not use.
func (r *redactor) release(s string) {
	version := kernelVersion().FindString(s)
	rest := kernelWord().ReplaceAllStringFunc(s[len(version):], func(w string) string {
		if distribution().MatchString(w) {
			return w
		}
		return r.word(w)
	})
	if version != "" && version+rest != s {
		r.kernel = [2]string{s, version + rest}
		r.originals[s] = true
	}
}

var (
	kernelVersion = lazy(`^\d+(\.\d+)*`)
	kernelWord    = lazy(`[A-Za-z0-9_]+`)
	distribution  = lazy(`^(\d+|rc\d+|generic|lowlatency|azure|aws|gcp|gke|oracle|nvidia|nvidia_64k|64k|hwe|kvm|cloud|rt\d*|amd64|arm64|x86_64|aarch64|ppc64le|` +
		`el\d+\w*|fc\d+|amzn\d+|deb\d+u?\d*|bpo\d+|default|pve|lts|arch\d*|uek\w*|cm\d|tegra|server|preempt|smp|WSL2|microsoft|standard)$`)
)
