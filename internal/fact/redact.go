package fact

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// SaveRedacted is Save without what identifies the machine: host and user
// names, serial numbers, UUIDs, GUIDs, MAC and IP addresses. The same thing has
// the same pseudonym throughout one recording; another recording has others,
// so that nobody finds the original by trying. What checks judge stays: an
// address keeps its kind and its relation to others, a file its form. An error
// says that an identifier was left somewhere: then nothing is written.
func (r *Recorder) SaveRedacted(w io.Writer, collectedAt time.Time) error {
	doc, err := r.document(collectedAt)
	if err != nil {
		return err
	}
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	if doc, err = redact(doc, key); err != nil {
		return err
	}
	return encode(w, doc)
}

func redact(doc *recording, key []byte) (*recording, error) {
	r := newRedactor(key)
	if f := doc.Files["/proc/sys/kernel/osrelease"]; f.Text != nil {
		r.release(strings.TrimSpace(*f.Text))
	}
	r.learnNames(doc)
	out := *doc
	if doc.Lost != nil {
		out.Lost = make(map[string]string, len(doc.Lost))
		for part, why := range doc.Lost {
			out.Lost[part] = r.prose(why)
		}
	}
	out.Files, out.Dirs, out.Links = map[string]recordedFile{}, map[string]recordedDir{}, map[string]recordedLink{}
	out.Stats, out.Served, out.Asks = map[string]recordedStat{}, map[string]recordedServed{}, nil
	// In order, since a pseudonym may depend on those that were given before.
	for _, name := range slices.Sorted(maps.Keys(doc.Files)) {
		out.Files[r.text(name)] = r.recordedFile(name, doc.Files[name])
	}
	for _, name := range slices.Sorted(maps.Keys(doc.Served)) {
		s := doc.Served[name]
		s.recordedFile = r.recordedFile(name, s.recordedFile)
		s.Source, s.Reason = r.text(s.Source), r.prose(s.Reason)
		out.Served[r.text(name)] = s
	}
	for _, name := range slices.Sorted(maps.Keys(doc.Dirs)) {
		d := recordedDir{Error: r.err(doc.Dirs[name].Error)}
		for _, e := range doc.Dirs[name].Entries {
			d.Entries = append(d.Entries, Entry{Name: r.text(e.Name), Type: e.Type})
		}
		slices.SortFunc(d.Entries, func(a, b Entry) int { return cmp.Compare(a.Name, b.Name) })
		out.Dirs[r.text(name)] = d
	}
	for _, name := range slices.Sorted(maps.Keys(doc.Links)) {
		out.Links[r.text(name)] = recordedLink{r.text(doc.Links[name].Target), r.err(doc.Links[name].Error)}
	}
	for _, name := range slices.Sorted(maps.Keys(doc.Stats)) {
		out.Stats[r.text(name)] = recordedStat{doc.Stats[name].Info, r.err(doc.Stats[name].Error)}
	}
	for _, a := range doc.Asks {
		redacted, err := r.ask(a)
		if err != nil {
			return nil, err
		}
		out.Asks = append(out.Asks, redacted)
	}
	slices.SortFunc(out.Asks, func(a, b recordedAsk) int { return cmp.Compare(askKey(a.Name, a.Args), askKey(b.Name, b.Args)) })
	if err := r.leaks(&out); err != nil {
		return nil, err
	}
	return &out, nil
}

func (r *redactor) err(e *recordedError) *recordedError {
	if e == nil {
		return nil
	}
	return &recordedError{Errno: e.Errno, NotCollected: e.NotCollected, Cause: r.prose(e.Cause)}
}

func (r *redactor) recordedFile(name string, f recordedFile) recordedFile {
	if f.Error != nil {
		return recordedFile{Error: r.err(f.Error)}
	}
	if f.Text == nil && f.Base64 == nil {
		return f // a served file that gave no content
	}
	return fileOf(r.file(name, f.content()), nil)
}

func (r *redactor) ask(a recordedAsk) (recordedAsk, error) {
	out := recordedAsk{Name: a.Name, Error: r.err(a.Error)}
	for _, arg := range a.Args {
		out.Args = append(out.Args, r.text(arg))
	}
	for _, rec := range a.Records {
		rec.Subject, rec.Source, rec.Reason = r.text(rec.Subject), r.text(rec.Source), r.prose(rec.Reason)
		if len(rec.Data) > 0 {
			redact := r.json
			if a.Name == AskMeasured {
				redact = r.measured
			}
			data, err := redact(a.Name, rec.Data)
			if err != nil {
				return out, fmt.Errorf("redact the answer to %s: %w", a.Name, err)
			}
			rec.Data = data
		}
		out.Records = append(out.Records, rec)
	}
	return out, nil
}

// json redacts the strings of the JSON document that answers a question; an
// escaped one would hide from a search through the text.
func (r *redactor) json(question string, data json.RawMessage) (json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	switch question {
	case AskEnviron:
		v = jobValue("", v)
	case AskLLDP, AskSMP:
		v = r.names(v)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(r.value(v)); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

func (r *redactor) value(v any) any {
	switch x := v.(type) {
	case string:
		return r.text(x)
	case []any:
		for i := range x {
			x[i] = r.value(x[i])
		}
	case map[string]any:
		out := make(map[string]any, len(x))
		for _, k := range slices.Sorted(maps.Keys(x)) {
			if s, ok := x[k].(string); ok && (k == "text" || k == "reason") {
				out[k] = r.prose(s)
				continue
			}
			out[r.text(k)] = r.value(x[k])
		}
		return out
	}
	return v
}

// leaks looks for each identifier that has a pseudonym in all that is left.
func (r *redactor) leaks(doc *recording) error {
	var all bytes.Buffer
	add := func(f recordedFile) {
		if f.Text != nil || f.Base64 != nil {
			all.Write(bytes.ToLower(f.content()))
			all.WriteByte('\n')
		}
	}
	for _, f := range doc.Files {
		add(f)
	}
	for _, s := range doc.Served {
		add(s.recordedFile)
	}
	rest := *doc
	rest.Files, rest.Served = nil, nil
	b, err := json.Marshal(rest)
	if err != nil {
		return err
	}
	all.Write(bytes.ToLower(b))
	for name := range doc.Files {
		all.WriteString(strings.ToLower(name) + "\n")
	}
	for id := range r.originals {
		if bytes.Contains(all.Bytes(), []byte(strings.ToLower(id))) {
			return fmt.Errorf("an identifier of %d characters is left in the redacted recording: please report this", utf8.RuneCountInString(id))
		}
	}
	return nil
}
