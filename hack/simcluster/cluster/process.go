package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"rcclx.io/commgroup-operator/hack/simcluster/procs"
)

// process is one background process of the cluster.
type process struct {
	name string
	argv []string
	env  []string
	// readyURL answers 200 once the process does its work.
	readyURL string
	deadline time.Duration
}

// start runs the process in a session of its own, so that a Ctrl-C at the terminal does not reach it, and records it.
func (s State) start(p process) (procs.Record, <-chan error, error) {
	logFile, err := os.OpenFile(filepath.Join(s.LogDir(), p.name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return procs.Record{}, nil, err
	}
	defer func() { _ = logFile.Close() }()
	cmd := exec.Command(p.argv[0], p.argv[1:]...)
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.Dir = s.Dir
	cmd.Env = append(os.Environ(), p.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return procs.Record{}, nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	record, err := procs.New(p.name, cmd.Process.Pid, p.argv[0])
	if err == nil {
		err = record.Save(s.RunDir())
	}
	if err != nil {
		return procs.Record{}, nil, errors.Join(err, cmd.Process.Kill())
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	return record, ended, nil
}

// startAndWait starts the process and waits until it is ready; the error ends with the end of its log.
func (s State) startAndWait(ctx context.Context, client *http.Client, p process) error {
	_, ended, err := s.start(p)
	if err != nil {
		return err
	}
	begin := time.Now()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-ended:
			return fmt.Errorf("%s ended before it was ready (%w); the end of its log:\n%s",
				p.name, err, s.LogTail(p.name, 25))
		case <-tick.C:
		}
		if p.readyURL == "" {
			return nil
		}
		code, err := get(ctx, client, p.readyURL)
		if err == nil && code == http.StatusOK {
			return nil
		}
		last := fmt.Sprintf("HTTP %d", code)
		if err != nil {
			last = err.Error()
		}
		if time.Since(begin) > p.deadline {
			return fmt.Errorf("%s was not ready after %s: %s said %s; the end of its log:\n%s",
				p.name, p.deadline, p.readyURL, last, s.LogTail(p.name, 25))
		}
	}
}

func get(ctx context.Context, client *http.Client, url string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, nil
}

// probeClient speaks HTTPS as the administrator. Only the API server's and etcd's certificates are the cluster's own;
// the other two components make theirs, and only their health is asked, on a loopback address.
func probeClient(pki *PKI, verify bool) (*http.Client, error) {
	pair, err := tls.LoadX509KeyPair(pki.CertFile("admin"), pki.KeyFile("admin"))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AddCert(pki.cert)
	config := &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool, InsecureSkipVerify: !verify,
		MinVersion: tls.VersionTLS12}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config}}, nil
}

// LogTail is the last lines of a process's log.
func (s State) LogTail(name string, lines int) string {
	data, err := os.ReadFile(filepath.Join(s.LogDir(), name+".log"))
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	if len(all) > lines {
		all = all[len(all)-lines:]
	}
	return "  " + strings.Join(all, "\n  ")
}

// freePorts finds ports that nobody listens on. All are held open until every one is found, so that they differ.
func freePorts(n int) ([]int, error) {
	ports := make([]int, 0, n)
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { _ = l.Close() }()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
