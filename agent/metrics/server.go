package metrics

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Path of the metrics.
const Path = "/metrics"

const (
	readDeadline  = 5 * time.Second
	writeDeadline = 20 * time.Second // a review and a scrape
	idleDeadline  = 2 * time.Minute  // of those that were let in: others' connections are closed with the answer
	maxHeader     = 32 << 10         // a token is some KiB
	maxScrapes    = 4
)

// Server serves metrics over HTTPS.
type Server struct {
	handler http.Handler
	tls     *tls.Config
	watcher *certwatcher.CertWatcher // nil for a certificate of its own
}

// ReviewClient is a client that asks the API server about tokens and rights, with a budget of its own, so that scrapes
// never keep a report waiting.
func ReviewClient(cfg *rest.Config) (client.Client, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.Burst = 5, 10
	scheme := runtime.NewScheme()
	if err := errors.Join(authenticationv1.AddToScheme(scheme), authorizationv1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("make a client for reviews: %w", err)
	}
	return c, nil
}

// NewServer makes a Server of one collector's metrics. certDir has tls.crt and tls.key, which are read again when they
// change; where it is empty the server makes a certificate for host and signs it itself.
func NewServer(collector prometheus.Collector, api client.Client, host, certDir string) (*Server, error) {
	registry := prometheus.NewRegistry()
	if err := registry.Register(collector); err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	s := &Server{tls: &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}}
	if certDir != "" {
		watcher, err := certwatcher.New(filepath.Join(certDir, "tls.crt"), filepath.Join(certDir, "tls.key"))
		if err != nil {
			return nil, fmt.Errorf("metrics' certificate: %w: put tls.crt and tls.key into %s", err, certDir)
		}
		s.watcher, s.tls.GetCertificate = watcher, watcher.GetCertificate
	} else {
		chain, key, err := cert.GenerateSelfSignedCertKey(host, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("metrics' own certificate: %w", err)
		}
		pair, err := tls.X509KeyPair(chain, key)
		if err != nil {
			return nil, fmt.Errorf("metrics' own certificate: %w", err)
		}
		s.tls.Certificates = []tls.Certificate{pair}
	}
	mux := http.NewServeMux()
	metrics := promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes})
	mux.Handle("GET "+Path, newAccess(api, clock.RealClock{}).guard(metrics))
	s.handler = mux
	return s, nil
}

// Serve answers on the listener until ctx ends, which is no error.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watched := make(chan error, 1)
	if s.watcher == nil {
		watched <- nil
	} else {
		go func() {
			watched <- s.watcher.Start(ctx)
			cancel()
		}()
	}
	// An empty TLSNextProto keeps HTTP/2 off.
	server := &http.Server{Handler: s.handler, ReadHeaderTimeout: readDeadline, ReadTimeout: readDeadline,
		WriteTimeout: writeDeadline, IdleTimeout: idleDeadline, MaxHeaderBytes: maxHeader,
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){}}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	err := server.Serve(tls.NewListener(Bounded(listener), s.tls))
	cancel()
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	if err = errors.Join(err, <-watched); err != nil {
		return fmt.Errorf("metrics endpoint %s: %w", listener.Addr(), err)
	}
	return nil
}
