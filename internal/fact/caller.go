package fact

import (
	"errors"
	"slices"
	"strconv"
	"strings"
)

// Caller is who reads the machine: effective ids and capabilities of the
// collecting process.
type Caller struct {
	UID    uint32
	GID    uint32
	Groups []uint32
	CapEff uint64
}

// ReadCaller reads /proc/self/status through the Source, so that a recording
// answers with who recorded, not with who replays. A tree without the file is
// NotCollected: every process has one.
func ReadCaller(src Source) Value[Caller] {
	return Unseen(Parsed(src, "", "/proc/self/status", ParseCaller))
}

// Unseen turns Absent into NotCollected, for what every live machine has: that
// it is missing tells of a partial tree, nothing of the machine.
func Unseen[T any](v Value[T]) Value[T] {
	if v.State == Absent {
		v.State, v.Errno, v.Reason = NotCollected, 0, v.Source+" is not in what was read"
	}
	return v
}

// ParseCaller parses /proc/PID/status (proc_pid_status(5)).
func ParseCaller(s string) (Caller, error) {
	var c Caller
	var uid, gid bool
	for line := range strings.Lines(s) {
		key, rest, _ := strings.Cut(line, ":")
		f := strings.Fields(rest)
		var err error
		switch key {
		case "Uid", "Gid": // real, effective, saved, file system
			if len(f) < 2 {
				return Caller{}, errors.New("bad line " + strconv.Quote(line))
			}
			id, e := parseID(f[1])
			if err = e; key == "Uid" {
				c.UID, uid = id, true
			} else {
				c.GID, gid = id, true
			}
		case "Groups":
			for _, g := range f {
				id, e := parseID(g)
				if e != nil {
					return Caller{}, e
				}
				c.Groups = append(c.Groups, id)
			}
		case "CapEff":
			if len(f) == 1 {
				c.CapEff, err = strconv.ParseUint(f[0], 16, 64)
			}
		}
		if err != nil {
			return Caller{}, err
		}
	}
	if !uid || !gid {
		return Caller{}, errors.New("no Uid and Gid lines")
	}
	return c, nil
}

func parseID(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	return uint32(n), err
}

// MayReadWrite says whether mode bits and owner let the caller open the file
// for reading and writing. A device cgroup or a security module can still refuse.
func (c Caller) MayReadWrite(f Info) bool {
	const capDACOverride = 1 // linux/capability.h
	perm := f.Mode.Perm()
	switch {
	case c.CapEff&(1<<capDACOverride) != 0:
		return true
	case c.UID == f.UID:
		perm >>= 6
	case c.GID == f.GID, slices.Contains(c.Groups, f.GID):
		perm >>= 3
	}
	return perm&0o6 == 0o6
}

// Access says whether the caller may read and write the file that node
// describes; a state other than Known of either passes on.
func Access(caller Value[Caller], node Value[Info]) Value[bool] {
	if node.State != Known {
		return As(node, false)
	}
	v := As(caller, caller.V.MayReadWrite(node.V))
	if v.State == Known {
		v.Source = node.Source
	}
	return v
}

// StatOf stats a file; sources are the path itself.
func StatOf(src Source, path string) Value[Info] {
	info, err := src.Stat(path)
	if err != nil {
		return FromError[Info](err, path)
	}
	return Of(info, path)
}
