package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers"
)

// answers is an API server that gives one answer of the list at each read, and the last from then on.
type answers struct {
	client.Reader
	errs  []error
	reads int
}

func (a *answers) Get(_ context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	err := a.errs[min(a.reads, len(a.errs)-1)]
	a.reads++
	if err == nil {
		object.SetAnnotations(map[string]string{v1alpha1.AnnotationSchemaRevision: "5"})
	}
	return err
}

// TestStartWaitsForTheAPIServer: an API server that is away is waited for; an answer that stands ends the manager at
// once.
func TestStartWaitsForTheAPIServer(t *testing.T) {
	resource := schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}
	away := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	for name, c := range map[string]struct {
		errs   []error
		pauses int
		err    string // a part of the error; empty for none
	}{
		"there":            {errs: []error{nil}},
		"away, then there": {errs: []error{away, away, away, nil}, pauses: 3},
		"starting":         {errs: []error{apierrors.NewServiceUnavailable("starting"), nil}, pauses: 1},
		"not known yet":    {errs: []error{apierrors.NewUnauthorized("no token yet"), nil}, pauses: 1},
		"away between two": {errs: []error{nil, away, nil}, pauses: 1},
		"not installed":    {errs: []error{apierrors.NewNotFound(resource, "x")}, err: "is not installed"},
		"away, then no right": {errs: []error{away, apierrors.NewForbidden(resource, "x", errors.New("no role"))},
			pauses: 1, err: "let the manager's account get it"},
		"away for good": {errs: []error{away}, pauses: 100, err: "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			api, pauses := &answers{errs: c.errs}, 0
			err := untilAnswered(ctx, "read the installed CRDs", func(context.Context) {
				if pauses++; pauses == 100 {
					cancel()
				}
			}, func(ctx context.Context) error { return checkSchemas(ctx, api, 5) })
			if pauses != c.pauses || (err != nil) != (c.err != "") ||
				err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%d pauses, error %v; expected %d and %q", pauses, err, c.pauses, c.err)
			}
		})
	}
}

// TestProbesWhileWaiting: a manager that waits is alive and not ready, and gives its port back.
func TestProbesWhileWaiting(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	end, err := probesWhileWaiting(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{"/healthz": http.StatusOK, "/readyz": http.StatusServiceUnavailable} {
		response, err := http.Get("http://" + address + path)
		if err != nil {
			t.Fatal(err)
		}
		if _ = response.Body.Close(); response.StatusCode != want {
			t.Errorf("%s is %d, expected %d", path, response.StatusCode, want)
		}
	}
	end()
	again, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatalf("the port is not free: %v", err)
	}
	_ = again.Close()
}

// TestNotReadyBeforeTheCacheIsFilled: a cache that nothing has been read from yet holds nothing, and is not ready for
// that. Its API server is away.
func TestNotReadyBeforeTheCacheIsFilled(t *testing.T) {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	mapper := meta.NewDefaultRESTMapper(scheme.PrioritizedVersionsAllGroups())
	for kind := range scheme.AllKnownTypes() {
		scope := meta.RESTScopeNamespace
		if kind == corev1.SchemeGroupVersion.WithKind("Node") || kind == v1alpha1.GroupVersion.WithKind("CommNode") {
			scope = meta.RESTScopeRoot
		}
		mapper.Add(kind, scope)
	}
	options := controllers.CacheOptions("commgroup-system")
	options.Scheme, options.Mapper = scheme, mapper
	c, err := cache.New(&rest.Config{Host: "http://127.0.0.1:1"}, options)
	if err != nil {
		t.Fatal(err)
	}
	if err := prepareCache(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Start(ctx) }()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := cacheSynced(c)(request); err == nil {
		t.Error("ready with a cache that holds nothing")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
