package testenv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Namespace and ManagerUser are those of an install from config/; AgentImage is the one that its policies allow.
const (
	Namespace   = "commgroup-system"
	ManagerUser = "system:serviceaccount:commgroup-system:commgroup-manager"
	AgentImage  = "commgroup-agent:dev"
)

// ManagerGroups are those of each service account.
var ManagerGroups = []string{"system:serviceaccounts", "system:authenticated"}

// Install brings what config/ has beside the CRDs and the manager itself: the namespace, roles, gating's objects, and
// admission policies.
func Install(ctx context.Context, admin client.Client) error {
	files := []string{"default/namespace.yaml"}
	for _, folder := range []string{"rbac", "gating", "policy"} {
		found, err := filepath.Glob(filepath.Join(Root(), "config", folder, "*.yaml"))
		if err != nil {
			return err
		}
		for _, f := range found {
			files = append(files, filepath.Join(folder, filepath.Base(f)))
		}
	}
	for _, f := range files {
		if filepath.Base(f) == "kustomization.yaml" {
			continue
		}
		objects, err := Objects(filepath.Join(Root(), "config", f))
		if err != nil {
			return fmt.Errorf("%s: %w", f, err)
		}
		for _, u := range objects {
			if err := admin.Create(ctx, u); err != nil {
				return fmt.Errorf("%s: %w", f, err)
			}
		}
	}
	return nil
}

// Objects reads a file of YAML documents.
func Objects(path string) ([]*unstructured.Unstructured, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	var out []*unstructured.Unstructured
	for {
		u := &unstructured.Unstructured{}
		err := decoder.Decode(&u.Object)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		if len(u.Object) > 0 {
			out = append(out, u)
		}
	}
}
