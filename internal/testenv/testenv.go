// Package testenv gives tests a real API server with this repository's CRDs.
package testenv

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// Root is the repository's root, whatever package a test runs in.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..")
}

// Binaries is the folder that holds all of the named binaries: KUBEBUILDER_ASSETS, else the newest that make kube built.
// The error says how to get them.
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
		CRDDirectoryPaths:     []string{filepath.Join(Root(), "config", "crd", "bases")},
		ErrorIfCRDPathMissing: true,
	}
	// As OpenShift has it: an owner that blocks its deletion takes the right to its finalizers.
	env.ControlPlane.GetAPIServer().Configure().Append("enable-admission-plugins", "OwnerReferencesPermissionEnforcement")
	return env, nil
}

// Client starts an Environment for one test and gives an administrator's client that knows this repository's types.
func Client(t *testing.T) client.Client {
	t.Helper()
	env, err := Environment()
	if err != nil {
		t.Fatal(err)
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
	scheme := k8sruntime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
