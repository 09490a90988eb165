// Package cluster starts and ends a Kubernetes control plane as background processes of one user, on loopback
// addresses only, with everything that it writes in one state directory.
package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"k8s.io/client-go/tools/clientcmd"
)

// markFile marks a directory as a state directory, so that Down never removes anything else.
const markFile = ".simcluster-state"

// State names the files in a state directory.
type State struct{ Dir string }

// NewState makes the path absolute.
func NewState(dir string) (State, error) {
	abs, err := filepath.Abs(dir)
	return State{Dir: abs}, err
}

// Path joins names below the state directory.
func (s State) Path(names ...string) string {
	return filepath.Join(append([]string{s.Dir}, names...)...)
}

// Kubeconfig is the administrator's.
func (s State) Kubeconfig() string { return s.Path("kubeconfig") }

// LogDir holds the control plane's logs.
func (s State) LogDir() string { return s.Path("logs") }

// RunDir holds the records of the processes that were started.
func (s State) RunDir() string { return s.Path("run") }

// NodesFile describes the simulated nodes.
func (s State) NodesFile() string { return s.Path("nodes.json") }

// ImagesFile maps image names to directories.
func (s State) ImagesFile() string { return s.Path("images.json") }

// Exists says whether there is a state directory that this package made.
func (s State) Exists() bool {
	_, err := os.Stat(s.Path(markFile))
	return err == nil
}

// Claim makes the directory, empty and marked.
func (s State) Claim() error {
	entries, err := os.ReadDir(s.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(entries) > 0 {
		return fmt.Errorf("%s is not empty: if it holds a cluster, end it (`simcluster down`, or `realcluster down` "+
			"where it has real nodes), else choose another --state-dir", s.Dir)
	}
	for _, dir := range []string{s.Dir, s.LogDir(), s.RunDir()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return os.WriteFile(s.Path(markFile),
		[]byte("made by simcluster; `simcluster down` removes this directory\n"), 0o644)
}

// LockFile is beside the state directory, which comes and goes.
func (s State) LockFile() string { return s.Dir + ".lock" }

// Lock keeps two commands from changing one state directory at once. The lock ends with the process or with unlock.
func (s State) Lock() (unlock func(), err error) {
	path := s.LockFile()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("another simcluster command works on %s (lock %s): wait until it is done", s.Dir, path)
	}
	return func() { _ = f.Close() }, nil
}

// WriteJSON writes a value as indented JSON below the state directory, atomically.
func WriteJSON(path string, value any) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".part", append(data, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".part", path)
}

// WriteKubeconfig writes a kubeconfig for a client certificate. Paths in it are absolute.
func WriteKubeconfig(path, server string, pki *PKI, certName string) error {
	return writeKubeconfig(path, certName,
		&clientcmdapi.Cluster{Server: server, CertificateAuthority: pki.CertFile("ca")},
		&clientcmdapi.AuthInfo{ClientCertificate: pki.CertFile(certName), ClientKey: pki.KeyFile(certName)})
}

// WriteInlineKubeconfig writes one that holds certificate and key, for a place that does not see the files.
func WriteInlineKubeconfig(path, server string, pki *PKI, certName string) error {
	ca, err1 := os.ReadFile(pki.CertFile("ca"))
	cert, err2 := os.ReadFile(pki.CertFile(certName))
	key, err3 := os.ReadFile(pki.KeyFile(certName))
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	return writeKubeconfig(path, certName, &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca},
		&clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key})
}

func writeKubeconfig(path, certName string, cluster *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["simcluster"] = cluster
	config.AuthInfos[certName] = user
	config.Contexts["simcluster"] = &clientcmdapi.Context{Cluster: "simcluster", AuthInfo: certName,
		Namespace: "default"}
	config.CurrentContext = "simcluster"
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return clientcmd.WriteToFile(*config, path)
}
