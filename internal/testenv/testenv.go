// Package testenv gives tests a real API server with this repository's CRDs.
package testenv

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// Root is the repository's root, whatever package a test runs in.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..")
}

// Environment is a real etcd and kube-apiserver, not yet started. The binaries are those of KUBEBUILDER_ASSETS, else the
// newest that make kube built. The error says how to get them.
func Environment() (*envtest.Environment, error) {
	folder := os.Getenv("KUBEBUILDER_ASSETS")
	if folder == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("these tests need a real API server; set KUBEBUILDER_ASSETS to a folder with etcd and kube-apiserver: %w", err)
		}
		pattern := filepath.Join(cache, "commgroup-operator", "kube", "*", "kube-apiserver")
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			return nil, fmt.Errorf("these tests need a real API server and there is none at %s: run make kube, or set KUBEBUILDER_ASSETS to a folder with etcd and kube-apiserver", pattern)
		}
		folder = filepath.Dir(slices.Max(found))
	}
	for _, name := range []string{"etcd", "kube-apiserver"} {
		if _, err := os.Stat(filepath.Join(folder, name)); err != nil {
			return nil, fmt.Errorf("these tests need a real API server: %w; run make kube, or set KUBEBUILDER_ASSETS to a folder with etcd and kube-apiserver", err)
		}
	}
	return &envtest.Environment{
		BinaryAssetsDirectory: folder,
		CRDDirectoryPaths:     []string{filepath.Join(Root(), "config", "crd", "bases")},
		ErrorIfCRDPathMissing: true,
	}, nil
}
