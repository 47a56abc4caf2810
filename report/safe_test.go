package report

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gdrcheck/gdrcheck/checks"
	"github.com/gdrcheck/gdrcheck/topo"
)

// What a device or a recording calls itself, with what terminals obey: a colour,
// a title, C1 controls, a mark that turns the direction of text, bytes that are
// no UTF-8, a text without end.
var hostile = "A\x1b[31m\x1b]0;t\a\r\u009b2J\u0085\u202e\u2028\xff" + strings.Repeat("long", 1<<18)

// obeyed says whether a terminal might do more than draw the text.
func obeyed(text []byte) bool {
	return bytes.ContainsFunc(text, func(r rune) bool {
		return r < ' ' && r != '\n' || r >= 0x7f && r < 0xa0 || r == 0x202e || r == 0x2028 || r == '\ufffd'
	})
}

func TestHostileText(t *testing.T) {
	doc := Check{Machine: &topo.Machine{}}
	doc.Findings = []checks.Finding{{Check: hostile, Subject: hostile, Verdict: checks.Fail, Message: hostile, Fix: []string{hostile},
		Evidence: []checks.Evidence{{Name: hostile, Got: hostile, Want: hostile, Source: hostile}}}}
	for _, ascii := range []bool{false, true} {
		var out bytes.Buffer
		if err := CheckTable(&out, &doc, Style{Width: 100, ASCII: ascii, Verbose: true}); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), "A?[31m?]0;t") || obeyed(out.Bytes()) {
			t.Errorf("%q", out.String()[:min(out.Len(), 2000)])
		}
		if out.Len() > 1<<20 {
			t.Errorf("%d bytes", out.Len())
		}
	}
}

// JSON keeps what was read, and the terminal that shows it does not obey.
func TestJSONEscapes(t *testing.T) {
	want := []string{"\x1b[31m\u009b2J\x7f\u202e\u0085", "plain – ×", "\U000e0001 \U0001f4a9"}
	var out bytes.Buffer
	if err := JSON(&out, want); err != nil {
		t.Fatal(err)
	}
	var got []string
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if obeyed(out.Bytes()) || !strings.Contains(out.String(), "plain – ×") {
		t.Errorf("%q", out.String())
	}
}

// A locale that is not UTF-8 gets nothing else than ASCII, whatever a check says.
func TestASCIIOnly(t *testing.T) {
	p := &page{Style: Style{Width: 100, ASCII: true}}
	p.para("", "GPU–NIC → 2× é")
	if got, want := p.String(), "GPU-NIC > 2x ?\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
