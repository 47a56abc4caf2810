package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// writeFiles writes each file as a whole or not at all. One that cannot be written
// leaves the others as they are.
func writeFiles(files []file) error {
	var s staging
	defer s.discard()
	defer s.discardOnSignal()()
	var faults []error
	for _, f := range files {
		if err := s.stage(f.name, f.data); err != nil {
			faults = append(faults, err)
		}
	}
	return joined(append(faults, s.commit()...))
}

// joined makes one line of errors; nil: there is none.
func joined(faults []error) error {
	var err error
	for _, f := range faults {
		switch {
		case err == nil:
			err = f
		case f != nil:
			err = fmt.Errorf("%w; %w", err, f)
		}
	}
	return err
}

// writable says what hinders a file from being written, by writing one beside it:
// who measures for minutes is not to learn it after them.
func writable(name string) error {
	var s staging
	defer s.discard()
	defer s.discardOnSignal()()
	if err := s.stage(name, nil); err != nil {
		return err
	}
	if f := s.files[0]; f.temp == "" {
		if err := unix.Access(f.name, unix.W_OK); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// staging holds the bytes of files until they are given their names.
type staging struct {
	mu    sync.Mutex
	files []stagedFile
}

type stagedFile struct {
	bad  bool // not all of it was taken
	name string
	temp string // empty: name is a device or a pipe, written in place at commit
	data []byte
}

// stage writes data beside the given file, on the same file system, and syncs it.
func (s *staging) stage(given string, data []byte) error {
	mode := fs.FileMode(0o666)
	name := followLinks(given) // replace what a link points to, not the link
	switch st, err := os.Stat(name); {
	case err == nil && st.IsDir():
		return fmt.Errorf("%s: it is a directory", given)
	case err == nil && (isDescriptor(name) || !st.Mode().IsRegular()): // a rename would replace it
		s.add(stagedFile{name: name, data: data})
		return nil
	case err == nil:
		mode = st.Mode().Perm()
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: %w", given, pathCause(err))
	}
	temp := filepath.Join(filepath.Dir(name), "."+filepath.Base(name)+"."+rand.Text())
	s.add(stagedFile{name: name, temp: temp, bad: true}) // before it is there: a signal may come between
	// Not os.CreateTemp: its files are 0600 whatever the umask.
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return fmt.Errorf("%s: %w", given, pathCause(err))
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync() // some file systems tell only here that they are full
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("%s: %w", given, pathCause(err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files[len(s.files)-1].bad = false
	return nil
}

func (s *staging) add(f stagedFile) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files = append(s.files, f)
}

// commit gives each whole file its name.
func (s *staging) commit() []error {
	var faults []error
	for _, f := range s.files {
		switch {
		case f.bad:
		case f.temp == "":
			faults = append(faults, writeInPlace(f.name, f.data))
		default:
			faults = append(faults, os.Rename(f.temp, f.name))
		}
	}
	return faults
}

func (s *staging) discard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.files {
		if f.temp != "" {
			_ = os.Remove(f.temp) // gone already where it has its name
		}
	}
}

// discardOnSignal has a signal that ends the program take what is staged along;
// the function that it returns ends that.
func (s *staging) discardOnSignal() (stop func()) {
	ending := make(chan os.Signal, 1)
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(sig) { // nohup
			signal.Notify(ending, sig)
		}
	}
	go func() {
		for sig := range ending {
			if ended.Load() { // what was interrupted is being written
				continue
			}
			s.discard()
			signal.Reset(sig)
			_ = syscall.Kill(os.Getpid(), sig.(syscall.Signal))
			return
		}
	}()
	return func() {
		signal.Stop(ending)
		close(ending)
	}
}

// isDescriptor says whether a name stands for an open file: written from its
// start, or replaced, it would lose what others wrote there.
func isDescriptor(name string) bool {
	return name == "/dev/stdout" || name == "/dev/stderr" || strings.HasPrefix(name, "/dev/fd/") || strings.HasPrefix(name, "/proc/")
}

// followLinks returns the absolute name of the file that name leads to, also
// where a link's target is yet to be made. Names that fail elsewhere stay.
func followLinks(name string) string {
	const most = 40 // as the kernel follows
	for range most {
		abs, err := filepath.Abs(name)
		if err != nil {
			return name
		}
		if isDescriptor(abs) {
			return abs
		}
		if dir, err := filepath.EvalSymlinks(filepath.Dir(abs)); err == nil {
			abs = filepath.Join(dir, filepath.Base(abs))
		}
		target, err := os.Readlink(abs)
		if err != nil {
			return abs
		}
		if name = target; !filepath.IsAbs(target) {
			name = filepath.Join(filepath.Dir(abs), target)
		}
	}
	return name
}

// How long somebody may take to open a pipe and to read it. Who gave a FIFO as
// output that nobody reads shall not wait for ever.
const (
	pipeOpenTime  = 5 * time.Second
	pipeWriteTime = time.Minute
)

// writeInPlace writes to a device, a pipe or an open file.
func writeInPlace(name string, data []byte) error {
	give := time.Now().Add(pipeOpenTime)
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND|syscall.O_NONBLOCK, 0)
	for errors.Is(err, syscall.ENXIO) && time.Now().Before(give) { // no reader yet
		time.Sleep(pipeOpenTime / 100)
		f, err = os.OpenFile(name, os.O_WRONLY|os.O_APPEND|syscall.O_NONBLOCK, 0)
	}
	if errors.Is(err, syscall.ENXIO) {
		return fmt.Errorf("%s: nobody reads it", name)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, pathCause(err))
	}
	_ = f.SetWriteDeadline(time.Now().Add(pipeWriteTime)) // devices and files have none
	_, err = f.Write(data)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil && !isBrokenPipe(err) {
		return fmt.Errorf("%s: %w", name, pathCause(err))
	}
	return nil
}
