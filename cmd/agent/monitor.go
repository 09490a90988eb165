package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/utils/clock"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"rcclx.io/commgroup-operator/agent/discover"
	"rcclx.io/commgroup-operator/agent/metrics"
	"rcclx.io/commgroup-operator/agent/monitor"
)

type monitorFlags struct {
	node, hostRoot                string
	intervalSeconds, validSeconds int
	healthPort, expectedGPUs      int
	readDeadline                  time.Duration
	logFormat                     string
	simulated                     bool
	metricsPort                   int
	metricsCertDir                string
}

func newMonitorCommand() *cobra.Command {
	var f monitorFlags
	cmd := &cobra.Command{
		Use:   "monitor",
		Short: "Report a node's GPU facts to its CommNode, when they change and before they grow old",
		Long: `Scan the host at each interval and write status.facts of the node's CommNode: when something changed, and again at
half of the time that a report holds. It opens no device, and writes nothing else. It creates the CommNode where there
is none, but for a node without AMD GPUs, and ends cleanly on SIGTERM.

The Kubernetes configuration comes from KUBECONFIG or the pod. With --health-port, /readyz and /healthz on $POD_IP (all
addresses where it is not set) answer 200 while a written report holds, and /livez while the loop runs. With
--metrics-port, /metrics answers over HTTPS those who may get that path by the API server's word.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.simulated = os.Getenv("SIMROCM_ROOT") != ""
			return runMonitor(cmd.Context(), f)
		},
	}
	cmd.Flags().StringVar(&f.node, "node", os.Getenv("NODE_NAME"), "name of this node")
	cmd.Flags().StringVar(&f.hostRoot, "host-root", "/", "directory that holds the host's sys, proc and opt")
	cmd.Flags().IntVar(&f.intervalSeconds, "interval", 30, "seconds between two looks at the node")
	cmd.Flags().IntVar(&f.validSeconds, "valid", 600, "seconds that a report holds")
	cmd.Flags().IntVar(&f.healthPort, "health-port", 0, "port of the health endpoint; 0 serves none")
	cmd.Flags().IntVar(&f.metricsPort, "metrics-port", -1, "port of the metrics (HTTPS, with authentication and "+
		"authorization); 0 serves none; default $METRICS_PORT, else none")
	cmd.Flags().StringVar(&f.metricsCertDir, "metrics-cert-dir", "",
		"folder of the metrics' certificate, with tls.crt and tls.key; empty makes one and signs it itself")
	cmd.Flags().IntVar(&f.expectedGPUs, "expected-gpus", 0,
		"physical GPUs that the node should have; 0 takes the usual number of its model")
	cmd.Flags().DurationVar(&f.readDeadline, "read-deadline", 2*time.Second, "longest time for one file of the host")
	cmd.Flags().StringVar(&f.logFormat, "log-format", "json", "json or text")
	return cmd
}

// check says what is wrong with the flags.
func (f *monitorFlags) check() error {
	switch {
	case f.node == "":
		return errors.New("--node is empty: give the node's name")
	case f.intervalSeconds < 1 || f.validSeconds < 2:
		return fmt.Errorf("--interval is %d and --valid is %d: expected at least 1 and 2 seconds",
			f.intervalSeconds, f.validSeconds)
	}
	return nil
}

func newLogger(format string) (logr.Logger, error) {
	switch format {
	case "json":
		return zap.New(zap.UseDevMode(false)), nil
	case "text":
		return zap.New(zap.UseDevMode(false), zap.ConsoleEncoder()), nil
	}
	return logr.Discard(), fmt.Errorf("--log-format is %q: use json or text", format)
}

func runMonitor(ctx context.Context, f monitorFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	log, err := newLogger(f.logFormat)
	if err != nil {
		return err
	}
	ctrllog.SetLogger(log)
	root, err := discover.OpenRoot(f.hostRoot)
	if err != nil {
		return fmt.Errorf("%w: mount the host's sys, proc and opt under --host-root", err)
	}
	defer func() { _ = root.Close() }()
	opts := discover.Options{ReadDeadline: f.readDeadline, ExpectedGPUs: f.expectedGPUs, Simulated: f.simulated}
	if !f.simulated {
		own, err := discover.OpenRoot("/")
		if err != nil {
			return err
		}
		defer func() { _ = own.Close() }()
		opts.Proc = own
	}
	c, err := newClient()
	if err != nil {
		return err
	}
	interval, valid := time.Duration(f.intervalSeconds)*time.Second, time.Duration(f.validSeconds)*time.Second
	health := monitor.NewHealth(clock.RealClock{}, interval, valid)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watched := monitor.Config{
		Node: f.node, Interval: interval, Valid: valid,
		Scanner:  discover.NewScanner(root, opts),
		Reporter: &monitor.KubeReporter{Client: c, Node: f.node},
		Clock:    clock.RealClock{}, Random: rand.Float64, Log: log, Health: health,
	}
	metricsServed, err := serveMetrics(ctx, &f, &watched)
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	if f.healthPort == 0 {
		served <- nil
	} else {
		address := net.JoinHostPort(os.Getenv("POD_IP"), strconv.Itoa(f.healthPort))
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		if err != nil {
			return fmt.Errorf("health endpoint: %w: choose another --health-port", err)
		}
		go func() {
			served <- health.Serve(ctx, metrics.Bounded(listener))
			cancel() // without its probe the pod would be restarted anyway, and nobody would know why
		}()
	}
	log.Info("monitor starts", "node", f.node, "interval", interval.String(), "valid", valid.String(),
		"simulated", f.simulated)
	err = monitor.New(watched).Run(ctx)
	cancel()
	return errors.Join(err, <-served, <-metricsServed)
}
