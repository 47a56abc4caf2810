package perftest

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// tokenPrefix tells a token from other text, and its form from later ones.
const tokenPrefix = "gdrcheck1."

// Token is what a server gives its clients: a 128-bit secret, by which a client
// proves itself, and the SHA-256 of the server's certificate, by which the
// client knows the server. It is printed only by Encode.
type Token struct {
	secret [16]byte
	cert   [sha256.Size]byte
}

// newToken makes a secret for the server with this certificate (DER).
func newToken(cert []byte) Token {
	t := Token{cert: sha256.Sum256(cert)}
	_, _ = rand.Read(t.secret[:]) // never fails (crypto/rand)
	return t
}

// Encode returns the token as one word of letters, digits, '.', '-' and '_'.
func (t Token) Encode() string {
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(append(t.secret[:], t.cert[:]...))
}

// String keeps a token out of messages and logs.
func (t Token) String() string { return "(token)" }

// GoString is String for %#v.
func (t Token) GoString() string { return t.String() }

// ParseToken reads what Encode wrote; white space around it does not matter.
// The error never holds the text.
func ParseToken(text string) (Token, error) {
	var t Token
	text = strings.TrimSpace(text)
	if text == "" {
		return t, errors.New("the token is empty")
	}
	body, ok := strings.CutPrefix(text, tokenPrefix)
	if !ok {
		return t, fmt.Errorf("this is no token: one begins with %s", tokenPrefix)
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(body)
	// The decoder passes over line ends, even a strict one.
	if err != nil || len(b) != len(t.secret)+len(t.cert) || strings.ContainsAny(body, "\r\n") {
		return t, errors.New("the token is damaged: copy it as a whole")
	}
	copy(t.secret[:], b)
	copy(t.cert[:], b[len(t.secret):])
	return t, nil
}

// exporterLabel names our use of the TLS exporter (RFC 8446, section 7.5; the
// prefix is what RFC 5705, section 4, sets aside for private use).
const exporterLabel = "EXPERIMENTAL-gdrcheck-perf-client"

// proof is what a client that holds the token sends: the secret's HMAC over a
// value that only the two ends of this very connection have. Whoever relays
// the connection has another one, so that the proof is worth nothing to him.
func (t Token) proof(state *tls.ConnectionState) ([]byte, error) {
	binding, err := state.ExportKeyingMaterial(exporterLabel, nil, sha256.Size)
	if err != nil {
		return nil, err
	}
	mac := hmac.New(sha256.New, t.secret[:])
	mac.Write(binding)
	return mac.Sum(nil), nil
}
