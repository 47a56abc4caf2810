package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// JSON writes a document as JSON with a newline at its end, indented but for
// a check's, which holds the whole machine: two megabytes of a large node, most
// of them white space. The same document gives the same bytes: slices are sorted
// before, and maps are sorted here.
func JSON(w io.Writer, doc any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if _, whole := doc.(*Check); !whole {
		e.SetIndent("", "  ")
	}
	if err := e.Encode(doc); err != nil {
		return err
	}
	_, err := w.Write(escaped(b.Bytes()))
	return err
}

// escaped writes as \u what encoding/json leaves alone and a terminal might obey:
// DEL, the C1 control characters, and the marks that turn the direction of text.
func escaped(text []byte) []byte {
	var out []byte
	for done := 0; ; {
		at := bytes.IndexFunc(text[done:], func(r rune) bool { return r != '\n' && !unicode.IsGraphic(r) })
		if at < 0 && out == nil {
			return text
		}
		if at < 0 {
			return append(out, text[done:]...)
		}
		at += done
		r, size := utf8.DecodeRune(text[at:])
		out = append(out, text[done:at]...)
		for _, u := range utf16.Encode([]rune{r}) {
			out = fmt.Appendf(out, "\\u%04x", u)
		}
		done = at + size
	}
}
