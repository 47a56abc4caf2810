package fact

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

// MaxFileBytes is the most that is read of one file; larger ones are Failed.
const MaxFileBytes = 16 << 20

func errno(n int) syscall.Errno { return syscall.Errno(n) }

// Text reads a file and trims trailing white space.
func Text(src Source, dir, name string) Value[string] {
	b, err := src.ReadFile(join(dir, name))
	if err != nil {
		return FromError[string](err, name)
	}
	return Of(strings.TrimRight(string(b), " \t\r\n\x00"), name)
}

// Parsed reads a file and parses its trimmed text.
func Parsed[T any](src Source, dir, name string, parse func(string) (T, error)) Value[T] {
	return Map(Text(src, dir, name), parse)
}

// LinkBase returns the last component of a symbolic link's target.
func LinkBase(src Source, dir, name string) Value[string] {
	target, err := src.Readlink(join(dir, name))
	if err != nil {
		return FromError[string](err, name)
	}
	return Of(filepath.Base(target), name)
}

func join(dir, name string) string {
	if strings.HasPrefix(name, "/") {
		return name
	}
	return dir + "/" + name
}

// ReadBounded reads a whole file of at most MaxFileBytes. It does not trust
// the size that stat gives, since sysfs and procfs files have none. Plain
// system calls, since package os asks two more of the kernel for each file, and
// a collection reads thousands.
func ReadBounded(name string) ([]byte, error) {
	// O_NONBLOCK: a FIFO in a hand-made tree must not hang the reader.
	fd, err := retry(func() (int, error) {
		return syscall.Open(name, syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer syscall.Close(fd)
	scratch := scratchPool.Get().(*[64 << 10]byte)
	defer scratchPool.Put(scratch)
	out := []byte{} // an empty file is an answer
	for {
		n, err := retry(func() (int, error) { return syscall.Read(fd, scratch[:]) })
		if err != nil {
			return nil, &fs.PathError{Op: "read", Path: name, Err: err}
		}
		if n <= 0 {
			return out, nil
		}
		if out = append(out, scratch[:n]...); len(out) > MaxFileBytes {
			return nil, fmt.Errorf("%s: larger than %d bytes", name, MaxFileBytes)
		}
	}
}

var scratchPool = sync.Pool{New: func() any { return new([64 << 10]byte) }}

// retry repeats a system call that a signal interrupted.
func retry(call func() (int, error)) (n int, err error) {
	for {
		if n, err = call(); !errors.Is(err, syscall.EINTR) {
			return n, err
		}
	}
}

// OS reads the machine, or a tree of files, below a root directory. It is live
// when its sys and proc are the kernel's own; only then does Ask reach the
// worker.
type OS struct {
	root string
	live bool
	ask  Asker

	folders sync.Map // with another root: directory and where its links lead, below root
}

// Asker answers questions about the live machine; the worker's client is one.
type Asker interface {
	Ask(ctx context.Context, name string, args ...string) ([]Record, error)
}

// NewOS opens a root directory: "/" for this machine. ask may be nil, and is
// not used unless the root is live.
func NewOS(root string, ask Asker) (*OS, error) {
	abs, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	st, err := os.Stat(abs)
	if err != nil {
		return nil, err
	}
	if !st.IsDir() {
		return nil, &fs.PathError{Op: "open root", Path: root, Err: syscall.ENOTDIR}
	}
	if abs, err = filepath.EvalSymlinks(abs); err != nil {
		return nil, err
	}
	if abs == "/" {
		abs = ""
	}
	const sysfsMagic, procMagic = 0x62656572, 0x9fa0 // linux/magic.h
	return &OS{root: abs, ask: ask, live: isFS(abs+"/sys", sysfsMagic) && isFS(abs+"/proc", procMagic)}, nil
}

func isFS(dir string, magic int64) bool {
	var st syscall.Statfs_t
	return syscall.Statfs(dir, &st) == nil && int64(st.Type) == magic
}

// Live says whether the root's sys and proc are the kernel's own.
func (o *OS) Live() bool { return o.live }

// ReadFile implements Source.
func (o *OS) ReadFile(name string) ([]byte, error) {
	p, err := o.path(name)
	if err != nil {
		return nil, err
	}
	return ReadBounded(p)
}

// ReadDir implements Source.
func (o *OS) ReadDir(name string) ([]Entry, error) {
	p, err := o.path(name)
	if err != nil {
		return nil, err
	}
	list, err := os.ReadDir(p)
	if err != nil {
		return nil, err
	}
	out := make([]Entry, len(list))
	for i, e := range list {
		out[i] = Entry{Name: e.Name(), Type: e.Type()}
	}
	return out, nil
}

// Readlink implements Source.
func (o *OS) Readlink(name string) (string, error) {
	name = path.Clean(name)
	dir, err := o.path(path.Dir(name))
	if err != nil {
		return "", err
	}
	return os.Readlink(dir + "/" + path.Base(name))
}

// Stat implements Source.
func (o *OS) Stat(name string) (Info, error) {
	p, err := o.path(name)
	if err != nil {
		return Info{}, err
	}
	st, err := os.Stat(p)
	if err != nil {
		return Info{}, err
	}
	info := Info{Mode: st.Mode(), Size: st.Size()}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		info.UID, info.GID, info.Rdev = sys.Uid, sys.Gid, uint64(sys.Rdev)
	}
	return info, nil
}

// Ask implements Source. In a tree that is not live, files are read in place
// and every other question is ErrNotCollected.
func (o *OS) Ask(ctx context.Context, name string, args ...string) ([]Record, error) {
	if name == AskFiles {
		return o.askFiles(ctx, args)
	}
	if o.live && o.ask != nil {
		return o.ask.Ask(ctx, name, args...)
	}
	return nil, fmt.Errorf("%s: only a live machine can answer: %w", name, ErrNotCollected)
}

func (o *OS) askFiles(ctx context.Context, names []string) ([]Record, error) {
	var recs []Record
	var paths []string
	named := make(map[string][]string, len(names)) // by path: links may lead to one file
	for _, name := range names {
		p, err := o.path(name)
		if err != nil {
			recs = append(recs, ContentRecord(name, nil, err))
			continue
		}
		paths, named[p] = append(paths, p), append(named[p], name)
	}
	var answers []Record
	if o.live && o.ask != nil {
		var err error
		if answers, err = o.ask.Ask(ctx, AskFiles, paths...); err != nil {
			return answers, err
		}
	} else {
		for _, p := range paths {
			answers = append(answers, FileRecord(p))
		}
	}
	for _, a := range answers {
		if list := named[a.Subject]; len(list) > 0 {
			a.Subject, named[a.Subject] = list[0], list[1:]
		}
		recs = append(recs, a)
	}
	return recs, nil
}

// FileRecord reads one file into an AskFiles record.
func FileRecord(name string) Record {
	b, err := ReadBounded(name)
	return ContentRecord(name, b, err)
}

// ContentRecord is the AskFiles record of a file that was read, or was not.
func ContentRecord(name string, content []byte, err error) Record {
	r := Record{Subject: name, State: StateOf(err)}
	if err != nil {
		var no syscall.Errno
		errors.As(err, &no)
		r.Errno, r.Reason = int(no), Cause(err)
		return r
	}
	r.Data, _ = json.Marshal(content) // a byte slice always marshals
	return r
}

// path is where a name of the machine is found. Below another root, links are
// followed as that machine would: the kernel takes an absolute one from the root
// of this machine, and would have its files read in place of the other's.
func (o *OS) path(name string) (string, error) {
	if o.root == "" {
		return name, nil
	}
	const most = 40 // as the kernel follows
	p, ok := o.follow(path.Clean(name), most)
	if !ok {
		return "", &fs.PathError{Op: "open", Path: name, Err: syscall.ELOOP}
	}
	return o.root + p, nil
}

func (o *OS) follow(name string, most int) (string, bool) {
	if name == "/" || most == 0 {
		return name, most > 0
	}
	dir, ok := o.folder(path.Dir(name), most)
	if !ok {
		return "", false
	}
	p := path.Join(dir, path.Base(name))
	target, err := os.Readlink(o.root + p)
	if err != nil { // no link
		return p, true
	}
	if !path.IsAbs(target) {
		target = path.Join(dir, target)
	}
	return o.follow(path.Clean(target), most-1)
}

// folder is follow of a directory, which many files share.
func (o *OS) folder(name string, most int) (string, bool) {
	if p, ok := o.folders.Load(name); ok {
		return p.(string), true
	}
	p, ok := o.follow(name, most)
	if ok {
		o.folders.Store(name, p)
	}
	return p, ok
}
