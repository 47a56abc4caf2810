package rdma

import (
	"path"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
)

// libDirs are where loaders look without a configuration: Debian's multiarch
// folders, then those of the other distributions.
var libDirs = []string{
	"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu",
	"/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
	"/lib/powerpc64le-linux-gnu", "/usr/lib/powerpc64le-linux-gnu",
	"/usr/local/lib", "/lib64", "/usr/lib64", "/lib", "/usr/lib",
}

// libIBVerbs tells the version in the name of the file that libibverbs.so.1
// links to: "1.14.44.0" for libibverbs.so.1.14.44.0.
func libIBVerbs(src fact.Source) fact.Value[string] {
	const soname = "libibverbs.so.1"
	for _, dir := range libDirs {
		file := dir + "/" + soname
		if _, err := src.Stat(file); err != nil {
			if fact.StateOf(err) != fact.Absent {
				return fact.FromError[string](err, file)
			}
			continue
		}
		target, err := src.Readlink(file)
		version, ok := strings.CutPrefix(path.Base(target), "libibverbs.so.")
		if err != nil || !ok {
			return fact.Missing[string](fact.Unsupported, file, "not a symbolic link: its name tells no version")
		}
		return fact.Of(version, file)
	}
	return fact.Missing[string](fact.Absent, soname, "in none of the usual library folders")
}

// libCopies finds every libibverbs.so.1 in the usual folders. A folder that is
// itself a link, as /lib is to usr/lib, leads to another of them.
func libCopies(src fact.Source) []Library {
	var out []Library
	for _, dir := range libDirs {
		top, _, _ := strings.Cut(strings.TrimPrefix(dir, "/"), "/")
		if _, err := src.Readlink("/" + top); err == nil {
			continue
		}
		if _, err := src.Readlink(dir); err == nil {
			continue
		}
		file := dir + "/libibverbs.so.1"
		if _, err := src.Stat(file); err != nil {
			continue
		}
		target, _ := src.Readlink(file)
		version, _ := strings.CutPrefix(path.Base(target), "libibverbs.so.")
		if target == "" {
			version = ""
		}
		out = append(out, Library{File: file, Version: version})
	}
	return out
}

// providers lists libibverbs' configuration, one NAME.driver for each driver
// that it may load.
func providers(src fact.Source) fact.Value[[]string] {
	const dir = "/etc/libibverbs.d"
	list, err := listDir(src, dir)
	if err != nil {
		return fact.FromError[[]string](err, dir)
	}
	out := []string{}
	for _, n := range list {
		if name, ok := strings.CutSuffix(n, ".driver"); ok {
			out = append(out, name)
		}
	}
	return fact.Of(out, dir)
}
