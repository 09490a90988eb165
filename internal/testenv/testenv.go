// Package testenv gives tests a real API server with this repository's CRDs.
package testenv

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// Root is the repository's root, whatever package a test runs in.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..")
}

// CRDs is the folder of this repository's CRDs.
func CRDs() string { return filepath.Join(Root(), "config", "crd", "bases") }

// Binaries is the folder that holds all of the named binaries: KUBEBUILDER_ASSETS, else the newest that make kube
// built. The error says how to get them.
func Binaries(names ...string) (string, error) {
	const next = "run make kube, or set KUBEBUILDER_ASSETS to a folder that has them"
	folder := os.Getenv("KUBEBUILDER_ASSETS")
	if folder == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("these tests need %v: %w; %s", names, err, next)
		}
		pattern := filepath.Join(cache, "commgroup-operator", "kube", "*", "kube-apiserver")
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			return "", fmt.Errorf("these tests need %v, and nothing is at %s; %s", names, pattern, next)
		}
		folder = filepath.Dir(slices.Max(found))
	}
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(folder, name)); err != nil {
			return "", fmt.Errorf("these tests need %v: %w; %s", names, err, next)
		}
	}
	return folder, nil
}

// Environment is a real etcd and kube-apiserver with the CRDs, not yet started.
func Environment() (*envtest.Environment, error) {
	folder, err := Binaries("etcd", "kube-apiserver")
	if err != nil {
		return nil, err
	}
	env := &envtest.Environment{
		BinaryAssetsDirectory: folder,
		CRDDirectoryPaths:     []string{CRDs()},
		ErrorIfCRDPathMissing: true,
	}
	// As OpenShift has it: an owner that blocks its deletion takes the right to its finalizers.
	env.ControlPlane.GetAPIServer().Configure().Append("enable-admission-plugins",
		"OwnerReferencesPermissionEnforcement")
	return env, nil
}

// WithoutCRDs is an API server to which nobody has brought the CRDs yet.
func WithoutCRDs(env *envtest.Environment) {
	env.CRDDirectoryPaths, env.ErrorIfCRDPathMissing = nil, false
}

// Start starts an Environment for one test, which ends with it.
func Start(t *testing.T, change ...func(*envtest.Environment)) (*envtest.Environment, *rest.Config) {
	t.Helper()
	env, err := Environment()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range change {
		c(env)
	}
	config, err := env.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Error(err)
		}
	})
	return env, config
}

// Admin is a client for config that knows Kubernetes' and this repository's types.
func Admin(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	scheme := k8sruntime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Client starts an Environment for one test and gives an administrator's client.
func Client(t *testing.T) client.Client {
	t.Helper()
	_, config := Start(t)
	return Admin(t, config)
}

// Kubeconfig makes a user, and gives the path of a kubeconfig with its certificate.
func Kubeconfig(t *testing.T, env *envtest.Environment, name string, groups ...string) string {
	t.Helper()
	user, err := env.AddUser(envtest.User{Name: name, Groups: groups}, nil)
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := user.KubeConfig()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, kubeconfig, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
