package fact

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
)

var when = time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC)

// fake answers as its maps say, and counts how often it was asked.
type fake struct {
	*OS
	mu    sync.Mutex
	asked int
	err   error
}

func (f *fake) Ask(ctx context.Context, name string, args ...string) ([]Record, error) {
	f.mu.Lock()
	f.asked++
	f.mu.Unlock()
	switch {
	case f.err != nil:
		return nil, f.err
	case name == AskFiles:
		return f.OS.Ask(ctx, name, args...)
	case name == "libraries":
		return []Record{
			{Subject: "system", State: Known, Source: "lib", Data: json.RawMessage(`{"a":[1,2.50,"<x>"]}`)},
			{Subject: "gpu0", State: Failed, Errno: 5, Reason: "lost", Data: json.RawMessage(`"part"`)},
		}, nil
	}
	return nil, ErrNotCollected
}

func tree(t *testing.T) *fake {
	t.Helper()
	root := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(root+"/d/sub", 0o755))
	must(os.WriteFile(root+"/d/text", []byte("hello <&>\u2028 ü\n\x00"), 0o600))
	must(os.WriteFile(root+"/d/binary", []byte{0xff, 0, 0xfe, '\n'}, 0o600))
	must(os.WriteFile(root+"/d/empty", nil, 0o600))
	must(os.Symlink("../elsewhere", root+"/d/link"))
	src, err := NewOS(root, nil)
	must(err)
	return &fake{OS: src}
}

// tour asks everything once and shows all that a collector can tell apart.
func tour(t *testing.T, src Source) []string {
	t.Helper()
	var out []string
	note := func(what string, v any, err error) {
		b, jerr := json.Marshal(v)
		if jerr != nil {
			t.Fatal(jerr)
		}
		line := what + " " + string(b)
		if err != nil {
			x := FromError[int](err, "s")
			b, _ = json.Marshal(x)
			line = what + " " + string(b)
		}
		out = append(out, line)
	}
	for _, name := range []string{"/d/text", "/d/binary", "/d/empty", "/d/none", "/d/text/below", "/d/sub"} {
		b, err := src.ReadFile(name)
		note("file "+name, b, err)
	}
	for _, name := range []string{"/d", "/d/sub", "/none"} {
		l, err := src.ReadDir(name)
		note("dir "+name, append([]Entry{}, l...), err)
	}
	for _, name := range []string{"/d/link", "/d/text", "/none"} {
		l, err := src.Readlink(name)
		note("link "+name, l, err)
	}
	for _, name := range []string{"/d", "/d/text", "/d/link"} {
		l, err := src.Stat(name)
		note("stat "+name, l, err)
	}
	recs, err := src.Ask(t.Context(), AskFiles, "/d/binary", "/d/empty", "/d/none", "/d/text", "/d/text")
	note("files", recs, err)
	recs, err = src.Ask(t.Context(), "libraries", "x")
	note("libraries", recs, err)
	recs, err = src.Ask(t.Context(), "other")
	note("other", recs, err)
	return out
}

func save(t *testing.T, r *Recorder) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := r.Save(&b, when); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestReplay(t *testing.T) {
	src := tree(t)
	plain := tour(t, src)
	rec := NewRecorder(src)
	recorded := tour(t, rec)
	if d := cmp.Diff(plain, recorded); d != "" {
		t.Errorf("recording changes the answers (-plain +recorded):\n%s", d)
	}
	file := save(t, rec)
	replay, err := OpenRecording(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(plain, tour(t, replay)); d != "" {
		t.Errorf("replay answers otherwise (-plain +replayed):\n%s", d)
	}
	if !replay.CollectedAt().Equal(when) {
		t.Errorf("collected at %s, want %s", replay.CollectedAt(), when)
	}
	again := NewRecorder(replay)
	tour(t, again)
	if !bytes.Equal(file, save(t, again)) {
		t.Error("the recording of a replay has other bytes")
	}
}

func TestReplayStates(t *testing.T) {
	rec := NewRecorder(tree(t))
	tour(t, rec)
	replay, err := OpenRecording(bytes.NewReader(save(t, rec)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err = replay.ReadFile("/d/none"); !errors.Is(err, fs.ErrNotExist) || !errors.Is(err, syscall.ENOENT) {
		t.Errorf("%v is no ENOENT", err)
	}
	if _, err = replay.ReadFile("/never/asked"); StateOf(err) != NotCollected {
		t.Errorf("%v: state %s, want not_collected", err, StateOf(err))
	}
	if _, err = replay.Ask(t.Context(), "libraries", "y"); StateOf(err) != NotCollected {
		t.Errorf("other arguments got an answer: %v", err)
	}
	recs, err := replay.Ask(t.Context(), AskFiles, "/never/asked")
	if err != nil || len(recs) != 1 || recs[0].State != NotCollected {
		t.Errorf("%v %v, want a record that is not collected", recs, err)
	}
}

// TestFirstAnswerStands: what was judged is what is saved.
func TestFirstAnswerStands(t *testing.T) {
	src := tree(t)
	rec := NewRecorder(src)
	first, _ := rec.ReadFile("/d/text")
	if err := os.WriteFile(filepath.Join(src.root, "d/text"), []byte("changed"), 0o600); err != nil {
		t.Fatal(err)
	}
	first[0] = 'X' // a caller's own copy
	second, _ := rec.ReadFile("/d/text")
	if !strings.HasPrefix(string(second), "hello") {
		t.Errorf("second answer %q", second)
	}
	for range 2 {
		_, _ = rec.Ask(t.Context(), "libraries")
		_, _ = rec.Ask(t.Context(), AskFiles, "/d/binary")
	}
	if src.asked != 2 {
		t.Errorf("asked %d times, want 2", src.asked)
	}
}

// TestFailedQuestion: a question that failed as a whole replays file by file
// with the same cause.
func TestFailedQuestion(t *testing.T) {
	src := tree(t)
	src.err = errors.New("no worker")
	rec := NewRecorder(src)
	recs, err := rec.Ask(t.Context(), AskFiles, "/a", "/b")
	if err != nil || len(recs) != 2 || recs[1].State != Failed || recs[1].Reason != "no worker" {
		t.Fatalf("%+v %v", recs, err)
	}
	_, liveErr := rec.Ask(t.Context(), "libraries")
	replay, err := OpenRecording(bytes.NewReader(save(t, rec)))
	if err != nil {
		t.Fatal(err)
	}
	got, err := replay.Ask(t.Context(), AskFiles, "/a", "/b")
	if d := cmp.Diff(recs, got); d != "" || err != nil {
		t.Error(d, err)
	}
	_, err = replay.Ask(t.Context(), "libraries")
	if err == nil || Cause(err) != Cause(liveErr) || StateOf(err) != Failed {
		t.Errorf("%v, want %v", err, liveErr)
	}
}

func TestRecorderConcurrent(t *testing.T) {
	rec := NewRecorder(tree(t))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { tour(t, rec) })
	}
	wg.Wait()
	one := NewRecorder(tree(t))
	tour(t, one)
	replay := func(r *Recorder) []string {
		s, err := OpenRecording(bytes.NewReader(save(t, r)))
		if err != nil {
			t.Fatal(err)
		}
		return tour(t, s)
	}
	if d := cmp.Diff(replay(one), replay(rec)); d != "" {
		t.Error(d)
	}
}

func packed(t testing.TB, doc string) []byte {
	t.Helper()
	var b bytes.Buffer
	z, err := zstd.NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(z, doc); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestBadRecordings(t *testing.T) {
	const head = `{"gdrcheck_recording":1,"tool":"gdrcheck","collected_at":"2026-01-02T03:04:05Z"`
	rec := NewRecorder(tree(t))
	tour(t, rec)
	good := save(t, rec)
	tampered := bytes.Clone(good)
	tampered[len(tampered)/2] ^= 0x10

	var bomb bytes.Buffer
	z, err := zstd.NewWriter(&bomb)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(z, head+`,"files":{"/a":{"text":"`)
	zeros := bytes.Repeat([]byte("0"), 1<<20)
	for range maxRecording>>20 + 1 {
		_, _ = z.Write(zeros)
	}
	_, _ = io.WriteString(z, `"}}}`)
	_ = z.Close()

	tests := []struct {
		name string
		file []byte
		want error
		part string
	}{
		{"empty", nil, ErrNotRecording, "zstd"},
		{"plain text", []byte("hello"), ErrNotRecording, "zstd"},
		{"truncated", good[:len(good)-10], ErrRecordingBroken, ""},
		{"tampered", tampered, ErrRecordingBroken, ""},
		{"something behind it", append(bytes.Clone(good), "tail"...), ErrRecordingBroken, ""},
		{"bomb", bomb.Bytes(), ErrRecordingTooBig, "128 MiB"},
		{"no JSON", packed(t, "hello"), ErrNotRecording, ""},
		{"other JSON", packed(t, `{"a":1}`), ErrNotRecording, ""},
		{"newer", packed(t, `{"gdrcheck_recording":2,"later":true}`), ErrRecordingVersion, "2, made by a newer gdrcheck; this one reads 1"},
		{"older", packed(t, `{"gdrcheck_recording":0}`), ErrRecordingVersion, "0, made by an older gdrcheck"},
		{"no time", packed(t, `{"gdrcheck_recording":1,"tool":"gdrcheck"}`), ErrRecordingBroken, "when"},
		{"a time that JSON cannot write", packed(t, `{"gdrcheck_recording":1,"tool":"gdrcheck","collected_at":"9999-12-31T23:59:59-14:00"}`), ErrRecordingBroken, "when"},
		{"two documents", packed(t, head+"}"+head+"}"), ErrNotRecording, ""},
		{"unknown field", packed(t, head+`,"later":1}`), ErrRecordingBroken, "later"},
		{"wrong type", packed(t, head+`,"files":[]}`), ErrRecordingBroken, ""},
		{"relative path", packed(t, head+`,"files":{"a":{"text":""}}}`), ErrRecordingBroken, "no absolute path"},
		{"path that escapes", packed(t, head+`,"files":{"/sys/../../etc/shadow":{"text":""}}}`), ErrRecordingBroken, "leads out"},
		{"NUL in a path", packed(t, head+`,"links":{"/a\u0000b":{"target":"x"}}}`), ErrRecordingBroken, "leads out"},
		{"name that escapes", packed(t, head+`,"dirs":{"/a":{"entries":[{"name":"../b","type":0}]}}}`), ErrRecordingBroken, "no name"},
		{"no answer", packed(t, head+`,"files":{"/a":{}}}`), ErrRecordingBroken, "0 answers"},
		{"two answers", packed(t, head+`,"files":{"/a":{"text":"x","error":{"cause":"y"}}}}`), ErrRecordingBroken, "2 answers"},
		{"link without target", packed(t, head+`,"links":{"/a":{}}}`), ErrRecordingBroken, "0 answers"},
		{"stat without info", packed(t, head+`,"stats":{"/a":{}}}`), ErrRecordingBroken, "0 answers"},
		{"directory with both", packed(t, head+`,"dirs":{"/a":{"entries":[{"name":"x","type":0}],"error":{"cause":"y"}}}}`), ErrRecordingBroken, "entries and an error"},
		{"known without content", packed(t, head+`,"served":{"/a":{"state":"known"}}}`), ErrRecordingBroken, "/a"},
		{"unknown state", packed(t, head+`,"served":{"/a":{"state":"splendid"}}}`), ErrRecordingBroken, "splendid"},
		{"file twice", packed(t, head+`,"files":{"/a":{"text":""},"/a":{"text":"x"}}}`), ErrRecordingBroken, `"/a" stands there twice`},
		{"served twice", packed(t, head+`,"served":{"/a":{"state":"denied"},"/\u0061":{"state":"absent"}}}`), ErrRecordingBroken, `"/a" stands there twice`},
		{"files twice", packed(t, head+`,"files":{},"files":{}}`), ErrRecordingBroken, "twice"},
		{"files in two cases", packed(t, head+`,"files":{},"FILES":{}}`), ErrRecordingBroken, "twice"},
		{"unknown field below", packed(t, head+`,"files":{"/a":{"text":"","mode":7}}}`), ErrRecordingBroken, "mode"},
		{"asked twice", packed(t, head+`,"asks":[{"name":"a"},{"name":"a"}]}`), ErrRecordingBroken, "twice"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := OpenRecording(bytes.NewReader(tt.file))
			if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.part) {
				t.Errorf("%v, want %v with %q", err, tt.want, tt.part)
			}
		})
	}
}

// FuzzOpenRecording: no document makes the reader panic, and one that it takes
// answers every question that stands in it.
func FuzzOpenRecording(f *testing.F) {
	f.Add([]byte(`{"gdrcheck_recording":1,"tool":"t","collected_at":"2026-01-02T03:04:05Z","files":{"/a":{"text":"x"}},` +
		`"dirs":{"/":{"entries":[{"name":"a","type":0}]}},"links":{"/l":{"target":"a"}},"stats":{"/a":{"info":{"mode":0,"uid":0,"gid":0,"size":0}}},` +
		`"served":{"/s":{"state":"known","base64":"/w=="},"/t":{"state":"denied","errno":13}},"asks":[{"name":"n","args":["a"],"records":[{"subject":"s","state":"known","data":1}]}]}`))
	f.Add([]byte(`{"gdrcheck_recording":1,"files":{"/a":{"error":{"errno":2,"cause":"no"}}}}`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		r, err := newRecording(doc)
		if err != nil {
			return
		}
		again := NewRecorder(r)
		for name := range r.doc.Files {
			_, _ = again.ReadFile(name)
		}
		for name := range r.doc.Dirs {
			_, _ = again.ReadDir(name)
		}
		for name := range r.doc.Links {
			_, _ = again.Readlink(name)
		}
		for name := range r.doc.Stats {
			_, _ = again.Stat(name)
		}
		for name := range r.doc.Served {
			_, _ = again.Ask(t.Context(), AskFiles, name)
		}
		for _, a := range r.doc.Asks {
			_, _ = again.Ask(t.Context(), a.Name, a.Args...)
		}
		saved, err := again.document(r.CollectedAt())
		if err != nil {
			t.Fatalf("what was read cannot be saved: %v", err)
		}
		b, err := json.Marshal(saved)
		if err != nil {
			t.Fatalf("what was read cannot be saved: %v", err)
		}
		r2, err := newRecording(b)
		if err != nil {
			t.Fatalf("what was saved cannot be read: %v", err)
		}
		third := NewRecorder(r2)
		for name := range r2.doc.Files {
			_, _ = third.ReadFile(name)
		}
		if len(third.files) != len(r.doc.Files) {
			t.Errorf("%d files of %d", len(third.files), len(r.doc.Files))
		}
	})
}

// FuzzOpenRecordingRaw feeds the reader bytes that are no zstd at all.
func FuzzOpenRecordingRaw(f *testing.F) {
	f.Add([]byte("\x28\xb5\x2f\xfd"))
	f.Fuzz(func(_ *testing.T, b []byte) { _, _ = OpenRecording(bytes.NewReader(b)) })
}

func TestRecordingOrigin(t *testing.T) {
	for _, simulated := range []bool{false, true} {
		r := NewRecorder(tree(t))
		r.SetOrigin("tree", simulated)
		var b bytes.Buffer
		if err := r.Save(&b, when); err != nil {
			t.Fatal(err)
		}
		rec, err := OpenRecording(&b)
		if err != nil {
			t.Fatal(err)
		}
		if o, s := rec.Origin(); o != "tree" || s != simulated {
			t.Errorf("origin %q, simulated %v; want tree, %v", o, s, simulated)
		}
	}
}

// FuzzDecodeBytes: the short way through base64 gives what encoding/json gives.
func FuzzDecodeBytes(f *testing.F) {
	for _, s := range []string{`"AAH/"`, `""`, `"AA=="`, `"A\u0041=="`, `null`, `"`, `"AA==`, `[1,2]`, "\"AA\n==\"", `"AB=="`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got := Decode[[]byte](Record{State: Known, Data: data})
		var want []byte
		err := json.Unmarshal(data, &want)
		if got.State == Known && err != nil && !bytes.ContainsAny(data, "\r\n") { // base64 skips line ends
			t.Errorf("%q decodes, though json says %v", data, err)
		}
		if err == nil && (got.State != Known || !bytes.Equal(got.V, want)) {
			t.Errorf("%q: %+v, want %q", data, got, want)
		}
	})
}
