package perftest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"
)

// newCertificate makes a server's certificate. Nobody but holders of the token
// ever trusts it, by its hash, so that name and dates say nothing.
func newCertificate() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	const years = 10 // pinned by hash: a node with a wrong clock is to work, too
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      pkix.Name{CommonName: "gdrcheck perf server"},
		NotBefore:    now.AddDate(-years, 0, 0),
		NotAfter:     now.AddDate(years, 0, 0),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// baseTLS is what both ends have in common.
func baseTLS() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true}
}

func serverTLS(cert tls.Certificate) *tls.Config {
	c := baseTLS()
	c.Certificates = []tls.Certificate{cert}
	return c
}

var errOtherServer = errors.New("this is not the server that the token is from: its certificate is another one (an older server's token, or somebody in between); " + takeToken)

// takeToken is where the right token is.
const takeToken = "take the line that the server printed when it was started last, or the file that it wrote (--token-file)"

// clientTLS trusts the one certificate that the token names, and no authority.
func clientTLS(t Token) *tls.Config {
	c := baseTLS()
	c.InsecureSkipVerify = true // VerifyConnection does it, by the hash
	c.VerifyConnection = func(state tls.ConnectionState) error {
		if len(state.PeerCertificates) == 0 {
			return errOtherServer
		}
		got := sha256.Sum256(state.PeerCertificates[0].Raw)
		if subtle.ConstantTimeCompare(got[:], t.cert[:]) != 1 {
			return errOtherServer
		}
		return nil
	}
	return c
}

// handshake completes TLS within the time, and says in words what the other
// side seems to be where it speaks something else.
func handshake(ctx context.Context, c *tls.Conn, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := c.HandshakeContext(ctx)
	if err == nil {
		return nil
	}
	if record, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return fmt.Errorf("the other side does not speak TLS: it is no gdrcheck (it began with %q); compare the port with the one in the server's line", record.RecordHeader[:])
	}
	if errors.Is(err, context.DeadlineExceeded) || isTimeout(err) {
		return fmt.Errorf("no TLS handshake within %s", limit)
	}
	return fmt.Errorf("TLS handshake: %w", err)
}

func isTimeout(err error) bool {
	ne, ok := errors.AsType[net.Error](err)
	return ok && ne.Timeout()
}
