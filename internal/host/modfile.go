package host

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/gdrcheck/gdrcheck/internal/fact"
)

// moduleFilesThatMatter can be missing where GPUDirect RDMA, GDRCopy or
// GPUDirect Storage is wanted; nvidia stands for the driver itself.
var moduleFilesThatMatter = []string{"gdrdrv", "nv_peer_mem", "nvidia", "nvidia_fs", "nvidia_peermem"}

// peerMemoryFiles export ib_register_peer_memory_client, in one release or
// another of a vendor's RDMA core. Their files are opened, loaded or not, where
// nvidia_peermem could be loaded: they tell whether that will succeed.
var peerMemoryFiles = []string{"ib_core", "ib_uverbs"}

// maxModuleBytes is the largest module file that is opened: nvidia.ko has some
// hundred megabytes, the others a few hundred kilobytes.
const maxModuleBytes = 4 << 20

// moduleFiles looks the modules up in modules.dep. The file itself is opened
// only for a module that is not loaded: a loaded one tells by itself.
func moduleFiles(src fact.Source, release fact.Value[string], loaded fact.Value[[]Module]) []ModuleFile {
	dir := "/lib/modules/" + release.V
	deps := fact.As(release, map[string]string(nil))
	if release.State == fact.Known {
		deps = fact.Map(raw(src, dir+"/modules.dep"), func(b []byte) (map[string]string, error) {
			return ParseModulesDep(b), nil
		})
		if deps.State == fact.Absent {
			// A container seldom has the host's modules: that says nothing of the host.
			deps = fact.Missing[map[string]string](fact.NotCollected, deps.Source, "no modules of this kernel here")
		}
	}
	var out []ModuleFile
	for _, name := range moduleFilesThatMatter {
		f := ModuleFile{Name: name, Path: fact.As(deps, "")}
		if deps.State == fact.Known {
			f.Path = fact.Missing[string](fact.Absent, deps.Source, "no such module for this kernel")
		}
		if rel, ok := deps.V[name]; ok {
			f.Path = fact.Of(path.Join(dir, rel), deps.Source)
			if !isLoaded(loaded, name) {
				f.readInfo(src)
			}
		}
		out = append(out, f)
	}
	if _, ok := deps.V["nvidia_peermem"]; ok && loaded.State == fact.Known && !isLoaded(loaded, "nvidia_peermem") {
		for _, name := range peerMemoryFiles {
			if rel, ok := deps.V[name]; ok {
				f := ModuleFile{Name: name, Path: fact.Of(path.Join(dir, rel), deps.Source)}
				f.readInfo(src)
				out = append(out, f)
			}
		}
	}
	return out
}

func isLoaded(loaded fact.Value[[]Module], name string) bool {
	return slices.ContainsFunc(loaded.V, func(m Module) bool { return m.Name == name })
}

// ParseModulesDep parses modules.dep ("updates/dkms/nvidia.ko.zst: dependencies",
// modules.dep(5)) and returns the paths of the modules that matter.
func ParseModulesDep(b []byte) map[string]string {
	out := map[string]string{}
	for line := range bytes.Lines(b) {
		file, _, ok := bytes.Cut(line, []byte(":"))
		if !ok {
			continue
		}
		base, _, ok := strings.Cut(string(file[bytes.LastIndexByte(file, '/')+1:]), ".ko")
		base = strings.ReplaceAll(base, "-", "_") // the kernel takes both as equal
		if ok && (slices.Contains(moduleFilesThatMatter, base) || slices.Contains(peerMemoryFiles, base)) {
			out[base] = string(file)
		}
	}
	return out
}

func (f *ModuleFile) readInfo(src fact.Source) {
	name := f.Path.V
	info := fact.Map(fact.StatOf(src, name), func(i fact.Info) (string, error) {
		if i.Size > maxModuleBytes {
			return "", errTooLarge
		}
		return name, nil
	})
	if info.State == fact.Failed {
		info.State = fact.Unsupported
	}
	var image []byte
	v := fact.As(info, image)
	if info.State == fact.Known {
		v = fact.Map(raw(src, name), func(b []byte) ([]byte, error) { return unpack(b, path.Ext(name)) })
		if v.State == fact.Failed && v.Reason == errCompression.Error() {
			v.State = fact.Unsupported
		}
	}
	f.Signed = fact.As(v, hasSignature(v.V))
	fields := fact.Map(v, modInfo)
	field := func(key string) fact.Value[string] {
		if s, ok := fields.V[key]; ok || fields.State != fact.Known {
			return fact.As(fields, s)
		}
		return fact.Missing[string](fact.Absent, name, "no "+key+" in .modinfo")
	}
	f.VerMagic, f.Version, f.License = field("vermagic"), field("version"), field("license")
	if f.Name == "gdrdrv" {
		f.Description = field("description")
	}
	if f.Name == "nvidia_peermem" || slices.Contains(peerMemoryFiles, f.Name) {
		f.PeerMemory = fact.Map(v, peerMemory)
	}
}

var (
	errTooLarge    = fmt.Errorf("larger than %d bytes", maxModuleBytes)
	errCompression = errors.New("compressed in a way that gdrcheck cannot read")
)

// ModInfo returns the fields of a kernel module's .modinfo section (NUL
// separated "key=value"; the first of a key counts). ext is the file name's
// extension: .ko, .zst, .gz or another compression, which is an error.
func ModInfo(b []byte, ext string) (map[string]string, error) {
	image, err := unpack(b, ext)
	if err != nil {
		return nil, err
	}
	return modInfo(image)
}

// unpack returns the ELF image of a module's file.
func unpack(b []byte, ext string) ([]byte, error) {
	const most = 64 << 20 // unpacked
	switch ext {
	case ".ko":
		return b, nil
	case ".zst":
		z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(most))
		if err != nil {
			return nil, err
		}
		defer z.Close()
		return z.DecodeAll(b, nil)
	case ".gz":
		z, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			return nil, err
		}
		return io.ReadAll(io.LimitReader(z, most))
	}
	return nil, errCompression
}

func modInfo(b []byte) (map[string]string, error) {
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	s := f.Section(".modinfo")
	if s == nil {
		return nil, errors.New("no .modinfo section")
	}
	data, err := s.Data()
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for field := range strings.SplitSeq(string(data), "\x00") {
		key, value, ok := strings.Cut(field, "=")
		if _, there := out[key]; ok && !there {
			out[key] = value
		}
	}
	return out, nil
}
