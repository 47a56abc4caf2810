package checks

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// source is the package's own source: what each check's code can say is read
// from it, and what the tables of the tests show.
type source struct {
	funcs map[string]*ast.BlockStmt // by name; methods too
	tests []*ast.File
	evals map[string]ast.Expr // by check ID
	ids   map[string]string   // by the check's variable
}

func readSource(t *testing.T) source {
	t.Helper()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	s := source{funcs: map[string]*ast.BlockStmt{}, evals: map[string]ast.Expr{}, ids: map[string]string{}}
	for _, name := range names {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "_test.go") {
			s.tests = append(s.tests, f)
			continue
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
				s.funcs[fn.Name.Name] = fn.Body
			}
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Values) == 1 {
				if lit, ok := spec.Values[0].(*ast.CompositeLit); ok && isIdent(lit.Type, "Check") {
					id := text(field(lit, "ID"))
					s.evals[id], s.ids[spec.Names[0].Name] = field(lit, "Eval"), id
				}
			}
			return true
		})
	}
	return s
}

func isIdent(e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == name
}

func field(lit *ast.CompositeLit, name string) ast.Expr {
	for _, e := range lit.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok && isIdent(kv.Key, name) {
			return kv.Value
		}
	}
	return nil
}

// text is a string literal's; empty: it is none.
func text(e ast.Expr) string {
	if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
		s, _ := strconv.Unquote(lit.Value)
		return s
	}
	return ""
}

var verdictWords = map[string]Verdict{"Pass": Pass, "Warn": Warn, "Fail": Fail, "Info": Info, "NotApplicable": NotApplicable, "Unknown": Unknown}

// said adds the verdicts that code can give, in the functions that it calls too.
func (s source) said(n ast.Node, out map[Verdict]bool, seen map[string]bool) {
	follow := func(name string) {
		// Need and See are told apart by the check, below.
		if body := s.funcs[name]; body != nil && !seen[name] && !slices.Contains([]string{"Need", "See", "decide", "judge"}, name) {
			seen[name] = true
			s.said(body, out, seen)
		}
	}
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			v, ok := verdictWords[n.Sel.Name]
			switch {
			case !isIdent(n.X, "c"):
			case ok:
				out[v] = true
			default:
				follow(n.Sel.Name)
			}
		case *ast.Ident:
			if n.Name == "Need" {
				out[Unknown] = true
			}
			follow(n.Name)
		case *ast.AssignStmt: // c.finding.Verdict = Warn
			if id, ok := n.Rhs[0].(*ast.Ident); ok && strings.HasSuffix(lastName(n.Lhs[0]), "Verdict") {
				out[verdictWords[id.Name]] = true
			}
		}
		return true
	})
}

func lastName(e ast.Expr) string {
	if sel, ok := e.(*ast.SelectorExpr); ok {
		return sel.Sel.Name
	}
	return ""
}

// only is the one check that a test names, by its variable or its ID; empty:
// none, or several.
func (s source) only(test ast.Node) string {
	named := map[string]bool{}
	ast.Inspect(test, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			named[s.ids[n.Name]] = true
		case *ast.BasicLit:
			if _, ok := Lookup(text(n)); ok {
				named[text(n)] = true
			}
		}
		return true
	})
	delete(named, "")
	if len(named) != 1 {
		return ""
	}
	return slices.Collect(maps.Keys(named))[0]
}

// shown adds the verdicts that rows of a test's tables want of each check: the
// check is named in the row, by runCases, or it is the only one of the test.
func (s source) shown(n ast.Node, table string, out map[string]map[Verdict]bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if id := s.only(n); id != "" && table == "" {
				s.shown(n.Body, id, out)
				return false
			}
		case *ast.CallExpr:
			if isIdent(n.Fun, "runCases") || isIdent(n.Fun, "runCasesOn") {
				s.shown(n.Args[len(n.Args)-1], text(n.Args[1]), out)
				return false
			}
		case *ast.CompositeLit:
			id, verdict := table, ""
			for _, e := range n.Elts {
				if _, ok := Lookup(text(e)); ok {
					id = text(e)
				}
				if v, ok := e.(*ast.Ident); ok {
					if _, is := verdictWords[v.Name]; is && verdict == "" {
						verdict = v.Name
					}
				}
			}
			if id != "" && verdict != "" {
				if out[id] == nil {
					out[id] = map[Verdict]bool{}
				}
				out[id][verdictWords[verdict]] = true
			}
		}
		return true
	})
}

// Each check has a case for each verdict that its code can give, and for no other
// but those that the runner gives where there is nothing to judge.
func TestEveryVerdictHasACase(t *testing.T) {
	s := readSource(t)
	cases := map[string]map[Verdict]bool{}
	for _, f := range s.tests {
		s.shown(f, "", cases)
	}
	for _, c := range all {
		can := map[Verdict]bool{}
		s.said(s.evals[c.ID], can, map[string]bool{})
		if len(can) < 2 {
			t.Errorf("%s: its code seems to give %v alone", c.ID, can)
		}
		if c.ID == "perf-setup" {
			delete(can, NotApplicable) // failed says that of the others alone
		}
		for v := range can {
			if !cases[c.ID][v] {
				t.Errorf("%s: no case in which it is %s", c.ID, v)
			}
		}
		for v := range cases[c.ID] {
			if byRunner := v == NotApplicable || v == Unknown; !can[v] && !byRunner {
				t.Errorf("%s: a case for %s, which its code does not say", c.ID, v)
			}
		}
		if c.UnsupportedIsNotApplicable && !cases[c.ID][NotApplicable] {
			t.Errorf("%s: no case in which it is not applicable", c.ID)
		}
	}
}
