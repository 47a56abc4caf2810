package main

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/invopop/jsonschema"
	validate "github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/gdrcheck/gdrcheck/checks"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/perftest"
	"github.com/gdrcheck/gdrcheck/rdma/qos"
	"github.com/gdrcheck/gdrcheck/report"
)

const schemaDir = "../../docs/schema/"

// perfEnums are the strings that a document of perf takes from a list.
var perfEnums = map[reflect.Type][]any{
	reflect.TypeFor[perftest.Operation](): {perftest.Write, perftest.WriteImm, perftest.Read, perftest.Send},
	reflect.TypeFor[perftest.Measure]():   {perftest.Bandwidth, perftest.Latency},
	reflect.TypeFor[perftest.Transport](): {perftest.RC, perftest.UD},
	reflect.TypeFor[perftest.Route]():     {perftest.RouteDirect, perftest.RouteStaged, perftest.RouteTCP, perftest.RouteCopy},
	reflect.TypeFor[perftest.Side]():      {perftest.Initiator, perftest.Responder},
	reflect.TypeFor[perftest.Stage]():     {perftest.StageOpened, perftest.StageConnected, perftest.StagePrepared, perftest.StageRan, perftest.StageVerified},
	reflect.TypeFor[perftest.Match]():     {perftest.MatchName, perftest.MatchSubnet, perftest.MatchOrder},
	reflect.TypeFor[perftest.Why](): {perftest.WhyDown, perftest.WhyNoPeer, perftest.WhyUnsupported, perftest.WhyLost,
		perftest.WhyBusy, perftest.WhyTime, perftest.WhyNone, perftest.WhyUnseen},
	reflect.TypeFor[report.Kind](): {report.KindPerf},
	reflect.TypeFor[qos.Sign]():    signs(),
}

func signs() []any {
	var out []any
	for _, s := range qos.Signs {
		out = append(out, s)
	}
	return out
}

// docs/schema/perf.schema.json is made of the types that a document consists of
// and of their comments. What a finding is it has from the schema of check.
func TestPerfSchema(t *testing.T) {
	r := jsonschema.Reflector{Anonymous: true, ExpandedStruct: true}
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir("../..")
	for _, dir := range []string{"perftest", "report"} {
		if err := r.AddGoComments("github.com/gdrcheck/gdrcheck", "./"+dir); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(wd)
	r.Mapper = func(typ reflect.Type) *jsonschema.Schema {
		switch typ {
		case reflect.TypeFor[checks.Finding]():
			return &jsonschema.Schema{Ref: "#/$defs/finding"}
		case reflect.TypeFor[pci.Address](): // it goes as text
			return &jsonschema.Schema{Type: "string", Pattern: "^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\\.[0-7]$"}
		case reflect.TypeFor[checks.Rules]():
			return &jsonschema.Schema{Ref: "#/$defs/rules"}
		case reflect.TypeFor[checks.Verdict]():
			return &jsonschema.Schema{Ref: "#/$defs/verdict"}
		}
		if values, ok := perfEnums[typ]; ok {
			return &jsonschema.Schema{Type: "string", Enum: values}
		}
		return nil
	}
	text, err := json.Marshal(r.Reflect(&report.Perf{}))
	if err != nil {
		t.Fatal(err)
	}
	schema := decodeObject(t, text)
	check, err := os.ReadFile(schemaDir + "check.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	defs := decodeObject(t, check)["$defs"].(map[string]any)
	for _, name := range []string{"finding", "verdict", "check_id", "waiver", "rules"} {
		schema["$defs"].(map[string]any)[name] = defs[name]
	}
	schema["$id"] = "https://github.com/gdrcheck/gdrcheck/docs/schema/perf.schema.json"
	schema["title"] = "gdrcheck perf -o json"
	schema["properties"].(map[string]any)["schema_version"] = map[string]any{"const": report.SchemaVersion}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(schema); err != nil {
		t.Fatal(err)
	}
	compareFile(t, schemaDir+"perf.schema.json", strings.ReplaceAll(out.String(), `\n`, " ")) // comments of several lines
}

func decodeObject(t *testing.T, text []byte) map[string]any {
	t.Helper()
	var out map[string]any
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// What perf writes is what the schema promises, for what is measured over a
// double and for what fails.
func TestPerfDocuments(t *testing.T) {
	schema := compileSchema(t, "perf")
	old := perf
	t.Cleanup(func() { perf = old })
	perf = doubleBackend(t.TempDir())
	for name, args := range map[string][]string{
		"good":    {"--measure", "bandwidth,latency", "--op", "write,read", "--count", "30"},
		"by time": {"--measure", "bandwidth", "--duration", "100ms", "--bidirectional"},
		"fails":   {"--count", "30"},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "fails" {
				t.Setenv(faultEnv, "open")
			}
			out, _ := mustRun(t, append([]string{"perf", "loopback", "--dev", "double0", "-o", "json"}, args...)...)
			doc, err := validate.UnmarshalJSON(bytes.NewReader(out))
			if err != nil {
				t.Fatal(err)
			}
			if err := schema.Validate(doc); err != nil {
				t.Error(err)
			}
			for _, change := range [][2]string{
				{`"operation": "write"`, `"operation": "scribble"`},
				{`"results": [`, `"result": [`},
				{`"kind": "perf"`, `"kind": "check"`},
				{`"qps": 1`, `"qps": "one"`},
				{`"schema_version": 1`, `"schema_version": 2`},
				{`"verdict":`, `"judgement":`},
			} {
				bad := strings.Replace(string(out), change[0], change[1], 1)
				doc, err := validate.UnmarshalJSON(strings.NewReader(bad))
				if err != nil || bad == string(out) {
					t.Fatalf("%q: nothing changed, or no JSON: %v", change, err)
				}
				if schema.Validate(doc) == nil {
					t.Errorf("with %s instead of %s the schema does not mind", change[1], change[0])
				}
			}
		})
	}
}
