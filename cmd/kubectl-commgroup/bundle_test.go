package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"rcclx.io/commgroup-operator/internal/supportbundle"
)

// TestBundle: a bundle that lacks parts is written, says so, and ends with exit code 1; without a group there is none.
func TestBundle(t *testing.T) {
	kube := kubefake.NewClientset()
	kube.PrependReactor("list", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("no events for you")
	})
	clients := supportbundle.Clients{Kube: kube, Groups: fakeGroup(t, 2)}
	options := supportbundle.Options{Namespace: "ml", Name: "pool", Now: time.Date(2026, 11, 28, 15, 0, 0, 0, time.UTC),
		Version: "test"}
	dir := t.TempDir()
	t.Chdir(dir)
	var out bytes.Buffer
	err := writeBundle(t.Context(), clients, options, "", &out)
	if exitCode(err) != exitNotReady {
		t.Errorf("exit code %d (%v), expected %d", exitCode(err), err, exitNotReady)
	}
	if info, err := os.Stat("commgroup-ml-pool-20261128T150000Z.tar.gz"); err != nil || info.Size() < 1000 {
		t.Errorf("the archive: %v, %v", info, err)
	}
	for _, want := range []string{"begin with summary.md", "events.txt (events of the group): no events for you",
		"is the operator installed?"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("printed\n%s\nwhich lacks %q", out.String(), want)
		}
	}
	options.Name = "nobody"
	if err := writeBundle(t.Context(), clients, options, filepath.Join(dir, "x.tar.gz"),
		&out); exitCode(err) != exitFailed {
		t.Errorf("without a group: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "x.tar.gz")); err == nil {
		t.Error("without a group there is an archive")
	}
}
