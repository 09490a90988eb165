package simnode

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
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// startLogServer serves what `kubectl logs` asks a kubelet for, on the node's own address. Only the API server's client
// certificate is let in.
func (n *Node) startLogServer() error {
	pair, err := tls.LoadX509KeyPair(n.config.CertFile, n.config.KeyFile)
	if err != nil {
		return err
	}
	ca, err := os.ReadFile(n.config.CAFile)
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return fmt.Errorf("%s holds no certificate", n.config.CAFile)
	}
	listener, err := tls.Listen("tcp", net.JoinHostPort(n.config.IP, "0"), &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
		MinVersion: tls.VersionTLS12,
	})
	if err != nil {
		return fmt.Errorf("log endpoint: %w", err)
	}
	n.logPort = int32(listener.Addr().(*net.TCPAddr).Port)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", n.serveLogs)
	server := &http.Server{Handler: n.onlyAPIServer(mux), ReadHeaderTimeout: 10 * time.Second}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			n.log.Error("the log endpoint ended", "error", err)
		}
	}()
	context.AfterFunc(n.ctx, func() { _ = server.Close() })
	return nil
}

func (n *Node) onlyAPIServer(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.PeerCertificates) == 0 || r.TLS.PeerCertificates[0].Subject.CommonName != kubeletClientName {
			http.Error(w, "only the API server may ask", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// kubeletClientName is the API server's user name towards nodes.
const kubeletClientName = "kube-apiserver-kubelet-client"

func (n *Node) serveLogs(w http.ResponseWriter, r *http.Request) {
	name := fmt.Sprintf("%s_%s_%s.log", r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container"))
	if name != filepath.Base(name) {
		http.Error(w, "bad name", http.StatusBadRequest)
		return
	}
	path := filepath.Join(n.dir, "logs", name)
	data, err := os.ReadFile(path)
	if err != nil {
		http.Error(w, "no log yet: "+name, http.StatusNotFound)
		return
	}
	query := r.URL.Query()
	start, previous := readLogStarts(path)
	size := int64(len(data))
	if query.Get("previous") == "true" {
		data = data[min(previous, size):min(start, size)]
	} else {
		data = data[min(start, size):]
	}
	if lines, err := strconv.Atoi(query.Get("tailLines")); err == nil {
		data = tail(data, lines)
	}
	if limit, err := strconv.Atoi(query.Get("limitBytes")); err == nil && limit < len(data) {
		data = data[:limit]
	}
	w.Header().Set("Content-Type", "text/plain")
	if _, err := w.Write(data); err != nil || query.Get("follow") != "true" {
		return
	}
	n.follow(w, r, path, size)
}

func (n *Node) follow(w http.ResponseWriter, r *http.Request, path string, offset int64) {
	f, err := os.Open(path)
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return
	}
	control := http.NewResponseController(w)
	for r.Context().Err() == nil && n.ctx.Err() == nil {
		if _, err := io.Copy(w, f); err != nil {
			return
		}
		_ = control.Flush()
		select {
		case <-r.Context().Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// tail gives the last lines.
func tail(data []byte, lines int) []byte {
	text := string(data)
	end := strings.TrimSuffix(text, "\n")
	at := len(end)
	for range lines {
		at = strings.LastIndexByte(end[:at], '\n')
		if at < 0 {
			return data
		}
	}
	if lines <= 0 {
		return nil
	}
	return []byte(text[at+1:])
}

// markLogStart remembers where a container's newest run begins in its log, and where the one before began.
func (n *Node) markLogStart(path string) {
	start := int64(0)
	if info, err := os.Stat(path); err == nil {
		start = info.Size()
	}
	old, _ := readLogStarts(path)
	_ = os.WriteFile(path+".starts", []byte(fmt.Sprintf("%d %d", start, old)), 0o644)
}

func readLogStarts(path string) (start, previous int64) {
	data, err := os.ReadFile(path + ".starts")
	if err != nil {
		return 0, 0
	}
	if _, err := fmt.Sscanf(string(data), "%d %d", &start, &previous); err != nil {
		return 0, 0
	}
	return start, previous
}
