package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	"rcclx.io/commgroup-operator/agent/metrics"
	"rcclx.io/commgroup-operator/agent/monitor"
)

// metricsPortVariable is the default of --metrics-port. The chart sets it rather than the flag, which an older agent
// does not know.
const metricsPortVariable = "METRICS_PORT"

// metricsPortOf is the port of the flag, or of the variable where the flag is not given; 0 serves none.
func metricsPortOf(flag int, variable string) (int, error) {
	port := flag
	if flag < 0 && variable != "" {
		n, err := strconv.Atoi(variable)
		if err != nil {
			return 0, fmt.Errorf("$%s is %q: expected a port", metricsPortVariable, variable)
		}
		port = n
	}
	if port > 65535 {
		return 0, fmt.Errorf("the port of the metrics is %d: expected 0 to 65535", port)
	}
	return max(port, 0), nil
}

// serveMetrics puts a recorder between the monitor and what it works with, and serves what that saw. The channel brings
// the end of the server, at once where none is wanted.
func serveMetrics(ctx context.Context, f *monitorFlags, cfg *monitor.Config) (<-chan error, error) {
	ended := make(chan error, 1)
	port, err := metricsPortOf(f.metricsPort, os.Getenv(metricsPortVariable))
	if err != nil {
		return nil, err
	}
	if port == 0 {
		ended <- nil
		return ended, nil
	}
	kube, err := config.GetConfig()
	if err != nil {
		return nil, fmt.Errorf("metrics: no Kubernetes configuration: %w", err)
	}
	reviews, err := metrics.ReviewClient(kube)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	recorder := &metrics.Recorder{Node: f.node, Version: version,
		Scanner: cfg.Scanner, Reporter: cfg.Reporter, Clock: clock.RealClock{}}
	server, err := metrics.NewServer(recorder, reviews, f.node, f.metricsCertDir)
	if err != nil {
		return nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(os.Getenv("POD_IP"), strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("metrics endpoint: %w: choose another --metrics-port", err)
	}
	cfg.Scanner, cfg.Reporter = recorder, recorder
	log := cfg.Log
	go func() {
		err := server.Serve(ctx, listener)
		if err != nil { // the node's reports matter more, so that the monitor goes on
			log.Error(err, "metrics are served no more", "node", f.node)
		}
		ended <- err
	}()
	return ended, nil
}
