package cluster

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
)

func TestLoopbackNet(t *testing.T) {
	free := loopbackNet("/a", "")
	if free != loopbackNet("/a", "") {
		t.Error("the same directory got two networks")
	}
	listening := fmt.Sprintf("  sl  local_address rem_address   st\n   0: 0101%02X7F:1F91 00000000:0000 0A\n", free)
	if next := loopbackNet("/a", listening); next == free {
		t.Errorf("127.%d is in use and was taken all the same", free)
	}
	if got := loopbackNet("/a", "   0: 0100000A:1F91 00000000:0000 0A\n"); got != free {
		t.Errorf("a socket on 10.0.0.1 changed the choice to %d", got)
	}
}

func TestIssuedCertificates(t *testing.T) {
	pki, err := NewPKI(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := pki.Issue("node", Identity{CN: "system:node:a", Organizations: []string{"system:nodes"},
		IPs: []net.IP{net.IPv4(127, 77, 1, 1)}}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(pki.CertFile("node"))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(data)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(pki.cert)
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth} {
		if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
			t.Errorf("usage %d: %v", usage, err)
		}
	}
	if cert.Subject.CommonName != "system:node:a" || len(cert.Subject.Organization) != 1 ||
		cert.VerifyHostname("127.77.1.1") != nil {
		t.Errorf("subject %s, addresses %v", cert.Subject, cert.IPAddresses)
	}
	if info, err := os.Stat(pki.KeyFile("node")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key's mode is %v, %v; want 0600", info.Mode(), err)
	}
}

func TestDownLeavesOtherDirectoriesAlone(t *testing.T) {
	dir := t.TempDir()
	kept := filepath.Join(dir, "precious")
	if err := os.WriteFile(kept, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	state, err := NewState(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := Down(state, t.Logf); err == nil {
		t.Error("a directory that simcluster did not make was accepted")
	}
	if err := state.Claim(); err == nil {
		t.Error("a directory with files in it was taken as a state directory")
	}
	if _, err := os.Stat(kept); err != nil {
		t.Error(err)
	}
	if err := Down(State{Dir: filepath.Join(dir, "none")}, t.Logf); err != nil {
		t.Errorf("a directory that is not there: %v", err)
	}
}

func TestLockIsExclusive(t *testing.T) {
	state := State{Dir: filepath.Join(t.TempDir(), "s")}
	unlock, err := state.Lock()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := state.Lock(); err == nil {
		t.Error("two commands got the lock at once")
	}
	unlock()
	again, err := state.Lock()
	if err != nil {
		t.Fatal(err)
	}
	again()
}
