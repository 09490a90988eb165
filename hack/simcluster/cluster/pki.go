package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

const certificateLifetime = 365 * 24 * time.Hour

// PKI is the cluster's own certificate authority in a folder.
type PKI struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Identity is a certificate to be issued. CN is the user's name and Organizations are its groups for the API server.
type Identity struct {
	CN            string
	Organizations []string
	IPs           []net.IP
	DNSNames      []string
}

// NewPKI makes a new authority and stores it in the folder.
func NewPKI(dir string) (*PKI, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "simcluster-ca"},
		NotBefore:    time.Now().Add(-time.Minute),
		NotAfter:     time.Now().Add(certificateLifetime),
		IsCA:         true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	p := &PKI{dir: dir, cert: cert, key: key}
	return p, p.write("ca", der, key)
}

// CertFile and KeyFile are the paths of an issued pair.
func (p *PKI) CertFile(name string) string { return filepath.Join(p.dir, name+".crt") }

// KeyFile is the path of a pair's private key.
func (p *PKI) KeyFile(name string) string { return filepath.Join(p.dir, name+".key") }

// Issue makes a certificate that serves both as a client's and as a server's and stores it under the name.
func (p *PKI) Issue(name string, id Identity) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: id.CN, Organization: id.Organizations},
		NotBefore:    time.Now().Add(-time.Minute),
		NotAfter:     time.Now().Add(certificateLifetime),
		KeyUsage:     x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		IPAddresses:  id.IPs, DNSNames: id.DNSNames,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, p.cert, &key.PublicKey, p.key)
	if err != nil {
		return fmt.Errorf("certificate %s: %w", name, err)
	}
	return p.write(name, der, key)
}

// SigningKey makes a key pair for service-account tokens: NAME.key and NAME.pub.
func (p *PKI) SigningKey(name string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return err
	}
	if err := writePEM(filepath.Join(p.dir, name+".pub"), "PUBLIC KEY", public, 0o644); err != nil {
		return err
	}
	return p.writeKey(name, key)
}

func (p *PKI) write(name string, der []byte, key *ecdsa.PrivateKey) error {
	if err := writePEM(p.CertFile(name), "CERTIFICATE", der, 0o644); err != nil {
		return err
	}
	return p.writeKey(name, key)
}

func (p *PKI) writeKey(name string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return writePEM(p.KeyFile(name), "EC PRIVATE KEY", der, 0o600)
}

func writePEM(path, kind string, der []byte, mode os.FileMode) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), mode)
}
