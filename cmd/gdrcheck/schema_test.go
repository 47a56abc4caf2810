package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/gdrcheck/gdrcheck/internal/render"
)

// What the commands write is what docs/schema promises, whatever they read.
func TestSchema(t *testing.T) {
	faulty := machineDir(t, "example", exampleTree)
	healthy := machineDir(t, "eight-gpu", render.EightGPU)
	without := machineDir(t, "without", func() render.Tree { return render.Tree{} })
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(policy, []byte("expect: {gpus: {count: 9}, path: PXB}\noff: [memlock]\nseverity: {rdma-port-rate: error}\nwaivers:\n"+
		"- {check: policy-gpus, subject: node, reason: x, expires: 2099-01-01}\n- {check: gdrdrv, subject: node, reason: x, expires: 2001-01-01}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"check", "topo", "rdma qos", "rdma counters"} {
		words := strings.Fields(command)
		schema := compileSchema(t, words[len(words)-1])
		sources := [][]string{nil, {"--example"}, {"--root", faulty}, {"--root", healthy}, {"--root", without}}
		if command == "check" {
			sources = append(sources, []string{"--example", "--policy", policy}, []string{"--example", "--preset", "none"})
		}
		for _, source := range sources {
			args := slices.Concat(words, []string{"-o", "json"}, source)
			t.Run(strings.Join(args[:min(len(args), 6)], " "), func(t *testing.T) {
				out, _ := mustRun(t, args...)
				doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(out))
				if err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				if err := schema.Validate(doc); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// A schema that lets anything pass would prove nothing.
func TestSchemaRefuses(t *testing.T) {
	out, _ := mustRun(t, "check", "--example", "-o", "json")
	schema := compileSchema(t, "check")
	for _, change := range [][2]string{
		{`"verdict":"fail"`, `"verdict":"broken"`},
		{`"kind":"check"`, `"kind":"topo"`},
		{`"exit_code":1`, `"exit_code": 2`},
		{`"subject":`, `"object":`},
		{`"preset":"hgx-h100"`, `"platform":"hgx-h100"`},
		{`"got":`, `"found":`},
		{`"collected_at":"2`, `"collected_at":"x2`},
		{`"origin":"example"`, `"origin":"dream"`},
		{`"gpu":"GPU0"`, `"gpus":"GPU0"`},
	} {
		bad := strings.Replace(string(out), change[0], change[1], 1)
		doc, err := jsonschema.UnmarshalJSON(strings.NewReader(bad))
		if err != nil || bad == string(out) {
			t.Fatalf("%q: nothing changed, or no JSON: %v", change, err)
		}
		if schema.Validate(doc) == nil {
			t.Errorf("with %s instead of %s the schema does not mind", change[1], change[0])
		}
	}
}

func compileSchema(t *testing.T, kind string) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	schema, err := c.Compile("../../docs/schema/" + kind + ".schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}
