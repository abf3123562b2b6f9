package sim

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"time"
)

// TB is the part of testing.TB that Start needs.
type TB interface {
	Helper()
	Cleanup(func())
	Fatal(args ...any)
}

// Start serves a provider on 127.0.0.1 until the test has ended.
func Start(tb TB, o Options) *Server {
	tb.Helper()
	return start(tb, o, "http://", nil)
}

// StartTLS is Start over TLS. It also returns, as PEM, the new certificate
// authority that has signed the server's certificate for 127.0.0.1 and localhost.
func StartTLS(tb TB, o Options) (*Server, []byte) {
	tb.Helper()
	cert, ca, err := newCertificate()
	if err != nil {
		tb.Fatal(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"http/1.1"}}
	return start(tb, o, "https://", config), ca
}

func start(tb TB, o Options, scheme string, config *tls.Config) *Server {
	tb.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	s := New(o)
	s.URL = scheme + ln.Addr().String()
	if config != nil {
		ln = tls.NewListener(ln, config)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	tb.Cleanup(func() {
		s.Close()
		<-served
	})
	return s
}

// newCertificate makes an authority and a certificate that it has signed.
func newCertificate() (leaf tls.Certificate, ca []byte, err error) {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return leaf, nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return leaf, nil, err
	}
	caCert := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "simulated authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caDER, err := x509.CreateCertificate(rand.Reader, caCert, caCert, &caKey.PublicKey, caKey)
	if err != nil {
		return leaf, nil, err
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "127.0.0.1"},
		NotBefore: caCert.NotBefore, NotAfter: caCert.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, caCert, &key.PublicKey, caKey)
	if err != nil {
		return leaf, nil, err
	}
	ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER})
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, ca, nil
}
