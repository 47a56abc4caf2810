package main

import (
	"testing"

	"github.com/gdrcheck/gdrcheck/report"
)

func TestStyle(t *testing.T) {
	type env = map[string]string
	for _, tt := range []struct {
		name   string
		term   int
		color  string
		env    env
		toFile bool
		want   report.Style
	}{
		{"pipe", 0, "auto", env{"LANG": "C.UTF-8"}, false, report.Style{Width: 100}},
		{"pipe with COLUMNS", 0, "auto", env{"LANG": "C.UTF-8", "COLUMNS": "72"}, false, report.Style{Width: 72}},
		{"terminal", 132, "auto", env{"LANG": "en_US.utf8"}, false, report.Style{Width: 132, Color: true}},
		{"terminal with COLUMNS", 132, "auto", env{"LANG": "en_US.UTF-8", "COLUMNS": "80"}, false, report.Style{Width: 80, Color: true}},
		{"bad COLUMNS", 132, "auto", env{"LANG": "en_US.UTF-8", "COLUMNS": "-3"}, false, report.Style{Width: 132, Color: true}},
		{"no locale", 0, "auto", nil, false, report.Style{Width: 100, ASCII: true}},
		{"LC_ALL comes first", 0, "auto", env{"LC_ALL": "C", "LANG": "C.UTF-8"}, false, report.Style{Width: 100, ASCII: true}},
		{"NO_COLOR", 80, "auto", env{"LANG": "C.UTF-8", "NO_COLOR": "1"}, false, report.Style{Width: 80}},
		{"an empty NO_COLOR counts as none", 80, "auto", env{"LANG": "C.UTF-8", "NO_COLOR": ""}, false, report.Style{Width: 80, Color: true}},
		{"TERM=dumb", 80, "auto", env{"LANG": "C.UTF-8", "TERM": "dumb"}, false, report.Style{Width: 80}},
		{"always", 0, "always", env{"LANG": "C.UTF-8", "NO_COLOR": "1"}, false, report.Style{Width: 100, Color: true}},
		{"never", 80, "never", env{"LANG": "C.UTF-8"}, false, report.Style{Width: 80}},
		{"a file from a terminal", 80, "always", env{"LANG": "C.UTF-8", "COLUMNS": "60"}, true, report.Style{Width: 100}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &streams{TermWidth: tt.term, color: tt.color, Getenv: func(n string) string { return tt.env[n] }}
			if got := s.style(tt.toFile); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}
