package report

import (
	"encoding/json"
	"io"
)

// JSON writes a document as indented JSON with a newline at its end. The same
// document gives the same bytes: slices are sorted before, and maps are sorted here.
func JSON(w io.Writer, doc any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(doc)
}
