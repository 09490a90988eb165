package main

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

func TestObserveFlags(t *testing.T) {
	for _, tc := range []struct {
		args    []string
		perNode bool
		address string
	}{{nil, true, ""}, {[]string{"--metrics-per-node=false", "--pprof-port=6060"}, false, "localhost:6060"}} {
		var o observeOptions
		f := pflag.NewFlagSet("manager", pflag.ContinueOnError)
		o.addFlags(f)
		if err := f.Parse(tc.args); err != nil {
			t.Fatal(err)
		}
		if o.metricsPerNode != tc.perNode || o.pprofAddress() != tc.address {
			t.Errorf("%v: %+v, profiles at %q", tc.args, o, o.pprofAddress())
		}
	}
}

// filling is a cache that is filled, or that is not before its probe gives up.
type filling struct {
	cache.Informers
	filled bool
}

func (f filling) WaitForCacheSync(ctx context.Context) bool {
	if !f.filled {
		<-ctx.Done()
	}
	return f.filled
}

// TestReadyWithTheCache: a manager whose cache is not filled is not ready, and the probe has its answer in time.
func TestReadyWithTheCache(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/readyz", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := cacheSynced(filling{filled: true})(r); err != nil {
		t.Errorf("a filled cache: %v", err)
	}
	if err := cacheSynced(filling{})(r); err == nil || ctx.Err() != nil {
		t.Errorf("an empty cache: %v", err)
	}
}
