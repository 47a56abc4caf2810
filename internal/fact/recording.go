package fact

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
)

// Bounds on what is read of a recording: the file may come from anywhere.
const (
	maxRecordingFile = 64 << 20  // compressed
	maxRecording     = 128 << 20 // the document
)

// What can be wrong with a recording as a whole.
var (
	ErrNotRecording     = errors.New("not a gdrcheck recording")
	ErrRecordingVersion = errors.New("a recording of another version")
	ErrRecordingBroken  = errors.New("truncated or damaged")
	ErrRecordingTooBig  = errors.New("too large for a recording")
)

// Recording is a Source that answers from a file that a Recorder saved. What
// the file does not hold is ErrNotCollected. It is held in memory.
type Recording struct {
	doc  recording
	asks map[string]recordedAsk
}

// OpenRecording reads a recording. The error wraps one of ErrNotRecording,
// ErrRecordingVersion, ErrRecordingBroken, ErrRecordingTooBig, or is r's own.
func OpenRecording(r io.Reader) (*Recording, error) {
	doc, err := decompress(r)
	if err != nil {
		return nil, err
	}
	return newRecording(doc)
}

func newRecording(doc []byte) (*Recording, error) {
	rec := &Recording{asks: map[string]recordedAsk{}}
	if err := decodeRecording(doc, &rec.doc); err != nil {
		return nil, err
	}
	for _, a := range rec.doc.Asks {
		key := askKey(a.Name, a.Args)
		if _, twice := rec.asks[key]; twice {
			return nil, fmt.Errorf("%w: the question %s stands there twice", ErrRecordingBroken, key)
		}
		rec.asks[key] = a
	}
	return rec, nil
}

func decompress(r io.Reader) ([]byte, error) {
	file, err := io.ReadAll(io.LimitReader(r, maxRecordingFile+1))
	if err != nil {
		return nil, err
	}
	if len(file) > maxRecordingFile {
		return nil, fmt.Errorf("%w: more than %d MiB", ErrRecordingTooBig, maxRecordingFile>>20)
	}
	magic := []byte{0x28, 0xb5, 0x2f, 0xfd} // RFC 8878, 3.1.1
	if !bytes.HasPrefix(file, magic[:min(len(magic), max(1, len(file)))]) {
		return nil, fmt.Errorf("%w: it does not start as zstd does", ErrNotRecording)
	}
	z, err := zstd.NewReader(bytes.NewReader(file), zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderMaxMemory(maxRecording), zstd.WithDecoderMaxWindow(16<<20))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRecordingBroken, err)
	}
	defer z.Close()
	doc, err := io.ReadAll(io.LimitReader(z, maxRecording+1))
	switch {
	case errors.Is(err, zstd.ErrDecoderSizeExceeded), errors.Is(err, zstd.ErrWindowSizeExceeded), len(doc) > maxRecording:
		return nil, fmt.Errorf("%w: more than %d MiB unpacked", ErrRecordingTooBig, maxRecording>>20)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrRecordingBroken, err)
	}
	return doc, nil
}

func decodeRecording(b []byte, doc *recording) error {
	var head struct {
		Version *int `json:"gdrcheck_recording"`
	}
	if err := json.Unmarshal(b, &head); err != nil || head.Version == nil {
		return fmt.Errorf("%w: it holds no document of gdrcheck", ErrNotRecording)
	}
	if *head.Version != recordingVersion {
		other := "an older"
		if *head.Version > recordingVersion {
			other = "a newer"
		}
		return fmt.Errorf("%w: %d, made by %s gdrcheck; this one reads %d", ErrRecordingVersion, *head.Version, other, recordingVersion)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(doc); err != nil {
		return fmt.Errorf("%w: %w", ErrRecordingBroken, err)
	}
	if err := doc.valid(); err != nil {
		return fmt.Errorf("%w: %w", ErrRecordingBroken, err)
	}
	return nil
}

// valid demands of every entry one answer, and no more.
func (doc *recording) valid() error {
	// Waivers hold by this day, and JSON writes years of four digits.
	if y := doc.CollectedAt.UTC().Year(); doc.CollectedAt.IsZero() || y < 1 || y > 9999 {
		return errors.New("it does not say when the machine was read")
	}
	for name, f := range doc.Files {
		if err := entry(name, f.parts()); err != nil {
			return err
		}
	}
	for name, d := range doc.Dirs {
		if d.Error != nil && len(d.Entries) > 0 {
			return fmt.Errorf("%s: entries and an error", name)
		}
		if !slices.IsSortedFunc(d.Entries, func(a, b Entry) int { return cmp.Compare(a.Name, b.Name) }) {
			return fmt.Errorf("%s: entries out of order", name)
		}
		for _, e := range d.Entries {
			if e.Name == "" || e.Name == "." || e.Name == ".." || strings.ContainsAny(e.Name, "/\x00") {
				return fmt.Errorf("%s: %q is no name in a directory", name, e.Name)
			}
		}
		if err := entry(name, 1); err != nil {
			return err
		}
		for _, e := range d.Entries {
			if e.Name == "" || e.Name == "." || e.Name == ".." || strings.Contains(e.Name, "/") {
				return fmt.Errorf("%s: %q is no name", name, e.Name)
			}
		}
	}
	for name, l := range doc.Links {
		if err := entry(name, count(l.Target != "", l.Error != nil)); err != nil {
			return err
		}
	}
	for name, s := range doc.Stats {
		if err := entry(name, count(s.Info != nil, s.Error != nil)); err != nil {
			return err
		}
	}
	for name, s := range doc.Served {
		known := count(s.State == Known)
		if err := entry(name, 1+s.parts()-known); err != nil || s.Error != nil {
			return errors.Join(err, fmt.Errorf("%s: bad answer", name))
		}
	}
	return nil
}

// parts counts the answers given. An empty file is an empty text.
func (f recordedFile) parts() int { return count(f.Text != nil, len(f.Base64) > 0, f.Error != nil) }

func count(conditions ...bool) int {
	n := 0
	for _, c := range conditions {
		if c {
			n++
		}
	}
	return n
}

func entry(name string, answers int) error {
	if !strings.HasPrefix(name, "/") {
		return fmt.Errorf("%q is no absolute path", name)
	}
	if slices.Contains(strings.Split(name, "/"), "..") || strings.Contains(name, "\x00") {
		return fmt.Errorf("%q leads out of its folder", name)
	}
	if answers != 1 {
		return fmt.Errorf("%s: %d answers in place of one", name, answers)
	}
	return nil
}

// CollectedAt is when the machine was read.
func (r *Recording) CollectedAt() time.Time { return r.doc.CollectedAt }

// Lost holds the parts that SetLost named, with the reason.
func (r *Recording) Lost() map[string]string { return r.doc.Lost }

// Origin is what was recorded, as SetOrigin said it; empty: nobody did.
func (r *Recording) Origin() (origin string, simulated bool) { return r.doc.Origin, r.doc.Simulated }

// Tool names the program that recorded.
func (r *Recording) Tool() string { return r.doc.Tool }

// Asked says whether the recording holds an answer to a question other than AskFiles.
func (r *Recording) Asked(name string) bool {
	return slices.ContainsFunc(r.doc.Asks, func(a recordedAsk) bool { return a.Name == name })
}

var errNotRecorded = fmt.Errorf("the recording does not hold it: %w", ErrNotCollected)

// ReadFile implements Source.
func (r *Recording) ReadFile(name string) ([]byte, error) {
	f, ok := r.doc.Files[name]
	switch {
	case !ok:
		return nil, errNotRecorded
	case f.Error != nil:
		return nil, f.Error
	}
	return f.content(), nil
}

func (f recordedFile) content() []byte {
	if f.Text != nil {
		return []byte(*f.Text)
	}
	return slices.Clone(f.Base64)
}

// ReadDir implements Source.
func (r *Recording) ReadDir(name string) ([]Entry, error) {
	d, ok := r.doc.Dirs[name]
	switch {
	case !ok:
		return nil, errNotRecorded
	case d.Error != nil:
		return nil, d.Error
	}
	return slices.Clone(d.Entries), nil
}

// Readlink implements Source.
func (r *Recording) Readlink(name string) (string, error) {
	l, ok := r.doc.Links[name]
	switch {
	case !ok:
		return "", errNotRecorded
	case l.Error != nil:
		return "", l.Error
	}
	return l.Target, nil
}

// Stat implements Source.
func (r *Recording) Stat(name string) (Info, error) {
	s, ok := r.doc.Stats[name]
	switch {
	case !ok:
		return Info{}, errNotRecorded
	case s.Error != nil:
		return Info{}, s.Error
	}
	return *s.Info, nil
}

// Ask implements Source.
func (r *Recording) Ask(_ context.Context, name string, args ...string) ([]Record, error) {
	if name == AskFiles {
		out := make([]Record, len(args))
		for i, a := range args {
			out[i] = r.file(a)
		}
		return out, nil
	}
	a, ok := r.asks[askKey(name, args)]
	if !ok {
		return nil, errNotRecorded
	}
	return a.answer()
}

func (r *Recording) file(name string) Record {
	s, ok := r.doc.Served[name]
	if !ok {
		return Record{Subject: name, State: NotCollected, Reason: errNotRecorded.Error()}
	}
	rec := Record{Subject: name, State: s.State, Source: s.Source, Errno: s.Errno, Reason: s.Reason}
	if s.State == Known {
		rec.Data, _ = json.Marshal(s.content()) // a byte slice always marshals
	}
	return rec
}

// byName is a JSON object whose every name stands in it once: of two answers
// encoding/json would take the last, and who looks through the file the first.
type byName[T any] map[string]T

// UnmarshalJSON implements json.Unmarshaler.
func (m *byName[T]) UnmarshalJSON(b []byte) error {
	if *m != nil {
		return errors.New("one kind of answers stands there twice")
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return errors.Join(err, errors.New("no answers by name"))
	}
	*m = byName[T]{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return err
		}
		name, _ := t.(string) // all that a name can be
		if _, twice := (*m)[name]; twice {
			return fmt.Errorf("%q stands there twice", name)
		}
		var v T
		if err := d.Decode(&v); err != nil {
			return err
		}
		(*m)[name] = v
	}
	return nil
}
