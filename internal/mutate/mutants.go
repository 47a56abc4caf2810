package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// mutant is one change of the source.
type mutant struct {
	file string // base name
	line int
	in   string // function or variable
	what string // "a < b negated"
	n    int    // of those that are alike in one function, from 1
	skip bool   // not to be tried
}

// key names a mutant whatever line it is on.
func (m mutant) key() string {
	key := m.file + " " + m.in + ": " + m.what
	if m.n > 1 {
		key += fmt.Sprintf(" (%d)", m.n)
	}
	return key
}

// swaps are the verdicts that each verdict is taken for, and calls that are left out.
var (
	swaps = map[string][]string{
		"Pass": {"Fail"}, "Fail": {"Pass", "Warn"}, "Warn": {"Pass", "Fail"},
		"Info": {"Pass", "Warn"}, "NotApplicable": {"Pass"}, "Unknown": {"Pass"},
	}
	leftOut = []string{"Lower"}
)

// pkg is a package with all its mutants written into it.
type pkg struct {
	dir     string
	mutants []mutant
	files   map[string][]byte // by path, mutated
}

func mutatePackage(dir string, only *regexp.Regexp) (*pkg, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	p := &pkg{dir: dir, files: map[string][]byte{}}
	name := ""
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, path, src, parser.SkipObjectResolution|parser.ParseComments)
		if err != nil {
			return nil, err
		}
		name = f.Name.Name
		if !only.MatchString(filepath.Base(path)) || ast.IsGenerated(f) {
			continue
		}
		m := &mutator{pkg: p, fset: fset, src: src, file: filepath.Base(path)}
		for _, d := range f.Decls {
			m.decl(d)
		}
		p.files[path] = m.rewrite()
	}
	if len(p.mutants) == 0 {
		return nil, fmt.Errorf("%s: nothing to mutate", dir)
	}
	p.number()
	p.files[filepath.Join(dir, "mutants_of_a_test_run.go")] = fmt.Appendf(nil, support, name, len(p.mutants)+1)
	return p, nil
}

// number tells mutants that are alike apart.
func (p *pkg) number() {
	count := map[string]int{}
	for i := range p.mutants {
		m := &p.mutants[i]
		key := m.key()
		count[key]++
		m.n = count[key]
	}
}

// keep skips the mutants whose key is no line of a text.
func (p *pkg) keep(text string) {
	keys := map[string]bool{}
	for line := range strings.Lines(text) {
		keys[strings.TrimSpace(line)] = true
	}
	for i := range p.mutants {
		p.mutants[i].skip = !keys[p.mutants[i].key()]
	}
}

// mutator walks one file and notes what to write where.
type mutator struct {
	pkg    *pkg
	fset   *token.FileSet
	src    []byte
	file   string
	in     string
	boolAt []int // which results of the function in hand are bool, innermost last
	edits  []edit
}

// edit is text to be written at an offset of the file.
type edit struct {
	at   int
	text string
	// Of what is written at one place, ends come before beginnings, inner ends
	// before outer ones, outer beginnings before inner ones.
	rank int
}

func (m *mutator) add(n ast.Node, what string) (id int) {
	m.pkg.mutants = append(m.pkg.mutants, mutant{file: m.file, line: m.fset.Position(n.Pos()).Line, in: m.in, what: what})
	return len(m.pkg.mutants) // 0 is none
}

func (m *mutator) offset(p token.Pos) int { return m.fset.Position(p).Offset }

func (m *mutator) text(n ast.Node) string {
	return string(m.src[m.offset(n.Pos()):m.offset(n.End())])
}

// short is a node's text in one line.
func (m *mutator) short(n ast.Node) string { return strings.Join(strings.Fields(m.text(n)), " ") }

// wrap writes text before and after a node. Nodes are visited from the outside
// inward.
func (m *mutator) wrap(n ast.Node, before, after string) {
	order := len(m.edits) + 1
	m.edits = append(m.edits, edit{m.offset(n.Pos()), before, order}, edit{m.offset(n.End()), after, -order})
}

func (m *mutator) rewrite() []byte {
	slices.SortStableFunc(m.edits, func(a, b edit) int { return cmp.Or(a.at-b.at, a.rank-b.rank) })
	var out bytes.Buffer
	last := 0
	for _, e := range m.edits {
		out.Write(m.src[last:e.at])
		out.WriteString(e.text)
		last = e.at
	}
	out.Write(m.src[last:])
	return out.Bytes()
}

func (m *mutator) decl(d ast.Decl) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Body != nil {
			m.in = d.Name.Name
			m.function(d.Type, d.Body)
		}
	case *ast.GenDecl:
		if d.Tok == token.VAR {
			for _, s := range d.Specs {
				m.in = s.(*ast.ValueSpec).Names[0].Name
				ast.Inspect(s, m.visit)
			}
		}
	}
}

func (m *mutator) function(t *ast.FuncType, body *ast.BlockStmt) {
	outer := m.boolAt
	m.boolAt = boolResults(t)
	ast.Inspect(body, m.visit)
	m.boolAt = outer
}

// boolResults are the places of the results that are plainly bool.
func boolResults(t *ast.FuncType) (at []int) {
	n := 0
	if t.Results == nil {
		return nil
	}
	for _, f := range t.Results.List {
		for range max(1, len(f.Names)) {
			if id, ok := f.Type.(*ast.Ident); ok && id.Name == "bool" {
				at = append(at, n)
			}
			n++
		}
	}
	return at
}

func (m *mutator) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.FuncLit:
		m.function(n.Type, n.Body)
		return false
	case *ast.GenDecl:
		return n.Tok == token.VAR
	case *ast.BinaryExpr:
		m.binary(n)
	case *ast.UnaryExpr:
		if n.Op == token.NOT {
			m.condition(n.X)
		}
	case *ast.IfStmt:
		m.condition(n.Cond)
	case *ast.ForStmt:
		if n.Cond != nil {
			m.condition(n.Cond)
		}
	case *ast.SwitchStmt:
		if n.Tag == nil {
			for _, c := range n.Body.List {
				for _, e := range c.(*ast.CaseClause).List {
					m.condition(e)
				}
			}
		}
	case *ast.ReturnStmt:
		for _, at := range m.boolAt {
			if at < len(n.Results) && (len(n.Results) > 1 || at == 0 && len(m.boolAt) == 1) {
				m.condition(n.Results[at])
			}
		}
	case *ast.SelectorExpr:
		m.verdict(n)
	case *ast.ExprStmt:
		m.statement(n)
	}
	return true
}

// negated are the comparisons, and what each is without its equal case, or with.
var boundary = map[token.Token]token.Token{token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR}

func (m *mutator) binary(n *ast.BinaryExpr) {
	switch n.Op {
	case token.EQL, token.NEQ:
		m.negate(n)
	case token.LSS, token.LEQ, token.GTR, token.GEQ:
		equal := fmt.Sprintf("mutantOn(%d) && %s == %s", m.add(n, m.short(n)+" as "+boundary[n.Op].String()), m.text(n.X), m.text(n.Y))
		m.negate(n)
		if n.Op == token.LSS || n.Op == token.GTR {
			m.wrap(n, "(", " || "+equal+")")
		} else {
			m.wrap(n, "(", " && !("+equal+"))")
		}
	case token.LAND, token.LOR:
		// Negated, with negated operands, "and" is "or" and the other way round.
		id := m.add(n, m.short(n)+" with the other operator")
		not := fmt.Sprintf(" != mutantOn(%d)", id)
		m.wrap(n, "((", ")"+not+")")
		m.wrap(n.X, "((", ")"+not+")")
		m.wrap(n.Y, "((", ")"+not+")")
		m.condition(n.X)
		m.condition(n.Y)
	default:
	}
}

func (m *mutator) negate(n ast.Expr) {
	m.wrap(n, "((", fmt.Sprintf(") != mutantOn(%d))", m.add(n, m.short(n)+" negated")))
}

// condition negates an expression that is true or false. What binary negates, or
// takes apart, is left to it, and so is what an exclamation mark stands before.
func (m *mutator) condition(e ast.Expr) {
	switch e := e.(type) {
	case *ast.BinaryExpr:
	case *ast.ParenExpr:
		m.condition(e.X)
	case *ast.UnaryExpr:
	default:
		m.negate(e)
	}
}

// verdict takes one verdict of a case for another.
func (m *mutator) verdict(n *ast.SelectorExpr) {
	c, ok := n.X.(*ast.Ident)
	if !ok || c.Name != "c" {
		return
	}
	for _, other := range swaps[n.Sel.Name] {
		id := m.add(n, fmt.Sprintf("%s taken for %s%s", n.Sel.Name, other, m.firstText(n)))
		m.wrap(n, fmt.Sprintf("mutantPick(%d, ", id), ", c."+other+")")
	}
}

// firstText is the text that follows a call's opening bracket, to tell calls apart.
func (m *mutator) firstText(n ast.Node) string {
	rest := string(m.src[m.offset(n.End()):])
	if !strings.HasPrefix(rest, `("`) {
		return ""
	}
	text, _, _ := strings.Cut(rest[2:], `"`)
	return " in " + strings.Join(strings.Fields(text), " ")
}

func (m *mutator) statement(n *ast.ExprStmt) {
	call, ok := n.X.(*ast.CallExpr)
	if !ok {
		return
	}
	if sel, ok := call.Fun.(*ast.SelectorExpr); ok && slices.Contains(leftOut, sel.Sel.Name) {
		m.wrap(n, fmt.Sprintf("if !mutantOn(%d) { ", m.add(n, m.short(n)+" left out")), " }")
	}
}

// support is what the mutated files call.
const support = `package %s

import (
	"os"
	"strconv"
	"sync/atomic"
)

var (
	mutantID, _ = strconv.Atoi(os.Getenv("MUTANT"))
	mutantLog   = os.Getenv("MUTANTS_SEEN")
	mutantSeen  [%d]atomic.Bool
)

// mutantOn says whether a mutant is the one of this run.
func mutantOn(id int) bool {
	if mutantLog != "" && mutantSeen[id].CompareAndSwap(false, true) {
		f, err := os.OpenFile(mutantLog, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			panic(err)
		}
		defer f.Close()
		if _, err := f.WriteString(strconv.Itoa(id) + "\n"); err != nil {
			panic(err)
		}
	}
	return id == mutantID
}

func mutantPick[F any](id int, real, other F) F {
	if mutantOn(id) {
		return other
	}
	return real
}
`
