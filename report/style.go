package report

// Style says how text is drawn; it never changes what is said.
type Style struct {
	Width   int  // columns of text and tables; 0: DefaultWidth
	Color   bool // SGR sequences
	ASCII   bool // marks and lines for a locale that is not UTF-8
	Verbose bool // list what is folded otherwise
}

// DefaultWidth is the width in columns where no terminal tells another.
const DefaultWidth = 100

// MinWidth is the narrowest layout; below it lines run over.
const MinWidth = 60

func (s Style) width() int {
	if s.Width == 0 {
		return DefaultWidth
	}
	return max(s.Width, MinWidth)
}

type ink string

// SGR codes, ECMA-48 8.3.117.
const (
	plain  ink = ""
	bold   ink = "1"
	dim    ink = "2"
	red    ink = "31"
	green  ink = "32"
	yellow ink = "33"
	cyan   ink = "36"
)

func (s Style) paint(i ink, text string) string {
	if !s.Color || i == plain || text == "" {
		return text
	}
	return "\x1b[" + string(i) + "m" + text + "\x1b[0m"
}
