package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"rcclx.io/commgroup-operator/controllers"
	"rcclx.io/commgroup-operator/controllers/metrics"
)

// syncWait is how long a probe waits for the cache; probes have a second by default.
const syncWait = 500 * time.Millisecond

type observeOptions struct {
	metricsPerNode bool
	pprofPort      int
}

func (o *observeOptions) addFlags(f *pflag.FlagSet) {
	f.BoolVar(&o.metricsPerNode, "metrics-per-node", true,
		"also metrics of each member (commgroup_node_*): 5 series a member")
	f.IntVar(&o.pprofPort, "pprof-port", 0,
		"port of Go's profiles (/debug/pprof) on the loopback address, for kubectl port-forward; 0 turns them off")
}

// pprofAddress is on the loopback address: profiles ask for no right.
func (o *observeOptions) pprofAddress() string {
	if o.pprofPort == 0 {
		return ""
	}
	return net.JoinHostPort("localhost", strconv.Itoa(o.pprofPort))
}

// withoutHTTP2 keeps clients from the resets of streams that exhaust a server (CVE-2023-44487); scrapes gain nothing by
// it.
func withoutHTTP2(c *tls.Config) {
	c.NextProtos = []string{"http/1.1"}
	c.MinVersion = tls.VersionTLS12
}

// observe shows the CommGroups as metrics, and the manager's state to its probes.
func (o *observeOptions) observe(mgr ctrl.Manager, registry prometheus.Registerer) error {
	return errors.Join(
		registry.Register(&metrics.Collector{Reader: mgr.GetClient(), Elected: mgr.Elected(), PerNode: o.metricsPerNode,
			Version: version}),
		mgr.AddHealthzCheck("ping", healthz.Ping),
		mgr.AddReadyzCheck("cache", cacheSynced(mgr.GetCache())),
	)
}

// prepareCache has the cache hold, from its start on, every kind that the manager reads: also in a manager that does
// not lead yet. Else the cache would hold nothing until the first read, and be filled for that reason.
func prepareCache(ctx context.Context, c cache.Informers) error {
	for _, object := range controllers.CachedObjects() {
		if _, err := c.GetInformer(ctx, object, cache.BlockUntilSynced(false)); err != nil {
			err = fmt.Errorf("prepare the cache of %T: %w", object, err)
			if unanswered(err) && !meta.IsNoMatchError(err) {
				return fmt.Errorf("%w: %w", errUnanswered, err)
			}
			return err
		}
	}
	return nil
}

// cacheSynced is ready once the cache holds what the manager decides on.
func cacheSynced(c cache.Informers) healthz.Checker {
	return func(r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), syncWait)
		defer cancel()
		if !c.WaitForCacheSync(ctx) {
			return errors.New("the cache is not filled yet: expected all lists of the API server; " +
				"look at the manager's log for a list that is refused")
		}
		return nil
	}
}
