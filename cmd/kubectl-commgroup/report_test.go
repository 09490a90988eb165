package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

func fakeGroup(t *testing.T, nodes int) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	b := fake.NewClientBuilder().WithScheme(scheme).
		WithObjects(&v1alpha1.CommGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "pool"}})
	for i := range nodes {
		name := fmt.Sprintf("node-%d", i)
		b = b.WithObjects(&v1alpha1.CommTask{ObjectMeta: metav1.ObjectMeta{Namespace: "ml",
			Name: v1alpha1.CommTaskName("pool", name), Labels: map[string]string{v1alpha1.LabelGroup: "pool"}},
			Spec: v1alpha1.CommTaskSpec{NodeName: name}})
	}
	return b.Build()
}

func TestReportFile(t *testing.T) {
	c, dir := fakeGroup(t, 3), t.TempDir()
	var out bytes.Buffer
	file := filepath.Join(dir, "pool.html")
	if err := reportTo(t.Context(), c, &out, "ml", "pool", file, time.Unix(0, 0)); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(file)
	if err != nil || !bytes.HasPrefix(bytes.TrimSpace(page), []byte("<!DOCTYPE html>")) ||
		!bytes.Contains(page, []byte("node-2")) {
		t.Errorf("the file has %.200q, %v", page, err)
	}
	if !strings.Contains(out.String(), "pool.html") {
		t.Errorf("printed %q", out.String())
	}
	out.Reset()
	if err := reportTo(t.Context(), c, &out, "ml", "pool", "-", time.Unix(0, 0)); err != nil ||
		out.String() != string(page) {
		t.Errorf("on standard output: %v, %d bytes, in the file %d", err, out.Len(), len(page))
	}
	t.Chdir(dir)
	if err := reportTo(t.Context(), c, io.Discard, "ml", "pool", "", time.Unix(0, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("commgroup-ml-pool.html"); err != nil {
		t.Errorf("the default file: %v", err)
	}
}

func TestReportErrors(t *testing.T) {
	c := fakeGroup(t, 0)
	if err := reportTo(t.Context(), c, io.Discard, "ml", "nobody", "-", time.Now()); err == nil ||
		!strings.Contains(err.Error(), "no CommGroup nobody in namespace ml; it has pool") {
		t.Errorf("a group that is not there: %v", err)
	}
	if err := reportTo(t.Context(), c, io.Discard, "ml", "pool",
		filepath.Join(t.TempDir(), "no", "such", "folder.html"), time.Now()); err == nil ||
		!strings.Contains(err.Error(), "--html") {
		t.Errorf("a folder that is not there: %v", err)
	}
}

// TestWriteWhole: a writer that fails leaves neither a half file nor a temporary one, and what was there stays.
func TestWriteWhole(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.html")
	if err := os.WriteFile(file, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	failed := errors.New("full")
	err := writeWhole(file, func(w io.Writer) error {
		_, _ = io.WriteString(w, "half")
		return failed
	})
	if !errors.Is(err, failed) {
		t.Errorf("got %v", err)
	}
	entries, _ := os.ReadDir(dir)
	if got, _ := os.ReadFile(file); string(got) != "before" || len(entries) != 1 {
		t.Errorf("the file has %q, the folder %d entries", got, len(entries))
	}
}
