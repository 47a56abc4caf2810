package fact

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/klauspost/compress/zstd"
)

// recordingVersion is the version of the file format. A reader takes its own
// version only: a recording is judged by the program that can read all of it.
const recordingVersion = 1

// recording is the file: one JSON document, compressed with zstd. Maps are
// written sorted, so the same answers give the same bytes.
type recording struct {
	Version     int                    `json:"gdrcheck_recording"`
	Tool        string                 `json:"tool"`
	CollectedAt time.Time              `json:"collected_at"`
	Origin      string                 `json:"origin,omitempty"`
	Simulated   bool                   `json:"simulated,omitempty"`
	Lost        map[string]string      `json:"lost,omitempty"` // parts that were given up, with the reason
	Files       byName[recordedFile]   `json:"files,omitempty"`
	Dirs        byName[recordedDir]    `json:"dirs,omitempty"`
	Links       byName[recordedLink]   `json:"links,omitempty"`
	Stats       byName[recordedStat]   `json:"stats,omitempty"`
	Served      byName[recordedServed] `json:"served,omitempty"` // AskFiles, by path
	Asks        []recordedAsk          `json:"asks,omitempty"`   // by name, then arguments
}

// recordedFile holds a file as text where it is UTF-8, so that people can read
// and redact a recording, and in base64 else.
type recordedFile struct {
	Text   *string        `json:"text,omitempty"`
	Base64 []byte         `json:"base64,omitempty"`
	Error  *recordedError `json:"error,omitempty"`
}

type recordedDir struct {
	Entries []Entry        `json:"entries,omitempty"`
	Error   *recordedError `json:"error,omitempty"`
}

type recordedLink struct {
	Target string         `json:"target,omitempty"`
	Error  *recordedError `json:"error,omitempty"`
}

type recordedStat struct {
	Info  *Info          `json:"info,omitempty"`
	Error *recordedError `json:"error,omitempty"`
}

// recordedServed is a Record of AskFiles without its subject, the content held
// as a file's is.
type recordedServed struct {
	recordedFile
	State  State  `json:"state"`
	Source string `json:"source,omitempty"`
	Errno  int    `json:"errno,omitempty"`
	Reason string `json:"reason,omitempty"`
}

type recordedAsk struct {
	Name    string         `json:"name"`
	Args    []string       `json:"args,omitempty"`
	Records []Record       `json:"records,omitempty"`
	Error   *recordedError `json:"error,omitempty"`
}

// recordedError is an error with all that StateOf and Cause tell apart.
type recordedError struct {
	Errno        int    `json:"errno,omitempty"`
	NotCollected bool   `json:"not_collected,omitempty"`
	Cause        string `json:"cause"`
}

func (e *recordedError) Error() string { return e.Cause }

func (e *recordedError) Is(target error) bool {
	return e.NotCollected && target == ErrNotCollected
}

// Unwrap gives the errno, through which fs.ErrNotExist and its like are found.
func (e *recordedError) Unwrap() error {
	if e.Errno == 0 {
		return nil
	}
	return syscall.Errno(e.Errno)
}

func recordError(err error) *recordedError {
	if err == nil {
		return nil
	}
	var no syscall.Errno
	errors.As(err, &no)
	return &recordedError{Errno: int(no), NotCollected: errors.Is(err, ErrNotCollected), Cause: Cause(err)}
}

// Recorder is a Source that passes questions on and remembers every answer,
// errors too. A question asked twice gets its first answer again, so that what
// was judged is what is saved. It is safe for concurrent use.
type Recorder struct {
	src  Source
	tool string

	origin    string
	lost      map[string]string
	simulated bool

	mu     sync.Mutex
	files  map[string]answer[[]byte]
	dirs   map[string]answer[[]Entry]
	links  map[string]answer[string]
	stats  map[string]answer[Info]
	served map[string]Record
	asks   map[string]recordedAsk
}

type answer[T any] struct {
	v   T
	err error
}

// NewRecorder records what is asked of src.
func NewRecorder(src Source) *Recorder {
	return &Recorder{
		src: src, tool: "gdrcheck",
		files: map[string]answer[[]byte]{}, dirs: map[string]answer[[]Entry]{},
		links: map[string]answer[string]{}, stats: map[string]answer[Info]{},
		served: map[string]Record{}, asks: map[string]recordedAsk{},
	}
}

// SetLost names the parts of the collection, and the PCI functions by their
// folders, that were given up at the deadline or broke, with the reason: what had been read of them is not what was judged.
func (r *Recorder) SetLost(lost map[string]string) { r.lost = lost }

// SetOrigin says what was recorded, as a document's origin does: a replay must
// be judged as what it was recorded of (a tree has no device nodes, a live
// machine without them has a fault).
func (r *Recorder) SetOrigin(origin string, simulated bool) {
	r.origin, r.simulated = origin, simulated
}

// remember asks outside the lock, since a read may take its time, and keeps
// the answer that came first.
func remember[T any](r *Recorder, m map[string]answer[T], name string, ask func(string) (T, error)) (T, error) {
	r.mu.Lock()
	a, ok := m[name]
	r.mu.Unlock()
	if ok {
		return a.v, a.err
	}
	v, err := ask(name)
	r.mu.Lock()
	defer r.mu.Unlock()
	if a, ok := m[name]; ok {
		return a.v, a.err
	}
	m[name] = answer[T]{v, err}
	return v, err
}

// ReadFile implements Source.
func (r *Recorder) ReadFile(name string) ([]byte, error) {
	b, err := remember(r, r.files, name, r.src.ReadFile)
	return slices.Clone(b), err
}

// ReadDir implements Source.
func (r *Recorder) ReadDir(name string) ([]Entry, error) {
	list, err := remember(r, r.dirs, name, r.src.ReadDir)
	return slices.Clone(list), err
}

// Readlink implements Source.
func (r *Recorder) Readlink(name string) (string, error) {
	return remember(r, r.links, name, r.src.Readlink)
}

// Stat implements Source.
func (r *Recorder) Stat(name string) (Info, error) { return remember(r, r.stats, name, r.src.Stat) }

// Ask implements Source. Files are remembered one by one, other questions as
// they were put.
func (r *Recorder) Ask(ctx context.Context, name string, args ...string) ([]Record, error) {
	if name == AskFiles {
		return r.askFiles(ctx, args)
	}
	key := askKey(name, args)
	r.mu.Lock()
	a, ok := r.asks[key]
	r.mu.Unlock()
	if ok {
		return a.answer()
	}
	recs, err := r.src.Ask(ctx, name, args...)
	r.mu.Lock()
	defer r.mu.Unlock()
	if a, ok := r.asks[key]; ok {
		return a.answer()
	}
	a = recordedAsk{Name: name, Args: slices.Clone(args), Records: slices.Clone(recs), Error: recordError(err)}
	r.asks[key] = a
	return recs, err
}

// Keep remembers records as the answer to a question that the source was not
// asked: what was measured is no part of a collection.
func (r *Recorder) Keep(name string, recs []Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asks[askKey(name, nil)] = recordedAsk{Name: name, Records: slices.Clone(recs)}
}

func (a recordedAsk) answer() ([]Record, error) {
	if a.Error != nil {
		return slices.Clone(a.Records), a.Error
	}
	return slices.Clone(a.Records), nil
}

// askKey names a question. JSON keeps apart what joining by a space would not.
func askKey(name string, args []string) string {
	b, _ := json.Marshal(append([]string{name}, args...)) // strings always marshal
	return string(b)
}

func (r *Recorder) askFiles(ctx context.Context, paths []string) ([]Record, error) {
	r.mu.Lock()
	var missing []string
	for _, p := range paths {
		if _, ok := r.served[p]; !ok {
			missing = append(missing, p)
		}
	}
	r.mu.Unlock()
	var err error
	if len(missing) > 0 {
		var recs []Record
		recs, err = r.src.Ask(ctx, AskFiles, missing...)
		r.keepServed(missing, recs, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]Record, 0, len(paths))
	for _, p := range paths {
		out = append(out, r.served[p])
	}
	return out, nil
}

// keepServed remembers one record for every path, also where the question as a
// whole failed: replayed one by one, each must have the same state and reason.
func (r *Recorder) keepServed(paths []string, recs []Record, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rec := range recs {
		if _, ok := r.served[rec.Subject]; !ok {
			r.served[rec.Subject] = rec
		}
	}
	if err == nil {
		err = ErrNotCollected
	}
	e := recordError(err)
	for _, p := range paths {
		if _, ok := r.served[p]; !ok {
			r.served[p] = Record{Subject: p, State: StateOf(e), Errno: e.Errno, Reason: e.Cause}
		}
	}
}

// Save writes what was answered so far. collectedAt is the time that a replay
// will say the machine was read.
func (r *Recorder) Save(w io.Writer, collectedAt time.Time) error {
	doc, err := r.document(collectedAt)
	if err != nil {
		return err
	}
	return encode(w, doc)
}

func encode(w io.Writer, doc *recording) error {
	// One encoder goroutine: the same document gives the same bytes.
	z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedDefault))
	if err != nil {
		return err
	}
	enc := json.NewEncoder(z)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(doc); err != nil {
		_ = z.Close()
		return err
	}
	return z.Close()
}

func (r *Recorder) document(collectedAt time.Time) (*recording, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	doc := &recording{
		Version: recordingVersion, Tool: r.tool, CollectedAt: collectedAt.UTC(), Origin: r.origin, Simulated: r.simulated,
		Lost:  r.lost,
		Files: map[string]recordedFile{}, Dirs: map[string]recordedDir{}, Links: map[string]recordedLink{},
		Stats: map[string]recordedStat{}, Served: map[string]recordedServed{},
	}
	for name, a := range r.files {
		doc.Files[name] = fileOf(a.v, a.err)
	}
	for name, a := range r.dirs {
		doc.Dirs[name] = recordedDir{a.v, recordError(a.err)}
	}
	for name, a := range r.links {
		doc.Links[name] = recordedLink{a.v, recordError(a.err)}
	}
	for name, a := range r.stats {
		s := recordedStat{Error: recordError(a.err)}
		if a.err == nil {
			s.Info = &a.v
		}
		doc.Stats[name] = s
	}
	for name, rec := range r.served {
		s := recordedServed{State: rec.State, Source: rec.Source, Errno: rec.Errno, Reason: rec.Reason}
		if rec.State == Known {
			v := Decode[[]byte](rec)
			if v.State != Known {
				return nil, errors.New(name + ": " + v.Reason)
			}
			s.recordedFile = fileOf(v.V, nil)
		}
		doc.Served[name] = s
	}
	keys := make([]string, 0, len(r.asks))
	for k := range r.asks {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		doc.Asks = append(doc.Asks, r.asks[k])
	}
	return doc, nil
}

func fileOf(b []byte, err error) recordedFile {
	switch {
	case err != nil:
		return recordedFile{Error: recordError(err)}
	case utf8.Valid(b):
		s := string(b)
		return recordedFile{Text: &s}
	}
	return recordedFile{Base64: b}
}
