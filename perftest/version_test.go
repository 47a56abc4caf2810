package perftest

import (
	"bufio"
	"crypto/tls"
	"flag"
	"fmt"
	"net"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite testdata/protocol")

// A client learns of a server's other version, whichever is the older one.
func TestServerOfAnotherVersion(t *testing.T) {
	for name, tt := range map[string]struct {
		answer string
		want   []string
	}{
		"an older one, which refuses": {
			`{"error":{"code":"version","text":"the server speaks version 2 of the protocol, the client version 3: use the same gdrcheck on both sides"}}`,
			[]string{"version 2", "version 3", "same gdrcheck on both sides"},
		},
		"a later one": {`{"welcome":{"version":9,"tool":"v9","more":{}}}`, []string{"version 9", fmt.Sprint("version ", protocolVersion), "same gdrcheck on both sides"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Server{}
			token, err := s.Init()
			if err != nil {
				t.Fatal(err)
			}
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go func() {
				c, err := l.Accept()
				if err != nil {
					return
				}
				defer c.Close()
				conn := tls.Server(c, serverTLS(s.cert))
				if _, err := bufio.NewReader(conn).ReadString('\n'); err == nil {
					fmt.Fprintln(conn, tt.answer)
				}
			}()
			_, err = Connect(t.Context(), l.Addr().String(), token, End{}, time.Second)
			for _, w := range tt.want {
				if err == nil || !strings.Contains(err.Error(), w) {
					t.Errorf("got %v, want %q in it", err, w)
				}
			}
		})
	}
}

// testdata/protocol lists every field that ends send each other. An end refuses
// fields that it does not know, so whoever changes them raises protocolVersion.
func TestProtocolVersion(t *testing.T) {
	const file = "testdata/protocol"
	got := fmt.Sprintf("version %d\n%s\n", protocolVersion, strings.Join(fieldsOf("", reflect.TypeFor[message](), nil), "\n"))
	b, err := os.ReadFile(file)
	want := string(b)
	version, _, _ := strings.Cut(want, "\n")
	if want != got && version == fmt.Sprint("version ", protocolVersion) {
		t.Fatalf("messages have changed, and protocolVersion has not: raise it, then -update (-%s +got)\n%s", file, cmp.Diff(want, got))
	}
	if *update {
		err = os.WriteFile(file, []byte(got), 0o600)
		want = got
	}
	if err != nil || want != got {
		t.Errorf("%v (-%s +got)\n%s", err, file, cmp.Diff(want, got))
	}
}

// fieldsOf lists the fields of a type as JSON has them.
func fieldsOf(at string, typ reflect.Type, above []reflect.Type) []string {
	for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice || typ.Kind() == reflect.Map {
		if typ.Kind() == reflect.Slice {
			at += "[]"
		}
		typ = typ.Elem()
	}
	if typ.Kind() != reflect.Struct || slices.Contains(above, typ) || typ.PkgPath() == "" {
		return []string{at + " " + typ.Kind().String()}
	}
	out := []string{}
	for f := range typ.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			out = append(out, fieldsOf(at, f.Type, append(above, typ))...)
		case f.IsExported() && name != "-":
			out = append(out, fieldsOf(at+"."+name, f.Type, append(above, typ))...)
		}
	}
	if len(out) == 0 {
		out = []string{at + " {}"}
	}
	return out
}
