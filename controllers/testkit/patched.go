package testkit

import (
	"encoding/json"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// mergePatch applies a JSON merge patch (RFC 7386), as the API server does.
func mergePatch(target any, patch any) any {
	fields, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	into, ok := target.(map[string]any)
	if !ok {
		into = map[string]any{}
	}
	for key, value := range fields {
		if value == nil {
			delete(into, key)
		} else {
			into[key] = mergePatch(into[key], value)
		}
	}
	return into
}

// Patched is the Node as the API server would have it after both patches.
func Patched(t testing.TB, node *corev1.Node, object, status []byte) *corev1.Node {
	t.Helper()
	data, err := json.Marshal(node)
	if err != nil {
		t.Fatal(err)
	}
	if object != nil {
		var target, patch any
		if err := errors.Join(json.Unmarshal(data, &target), json.Unmarshal(object, &patch)); err != nil {
			t.Fatal(err)
		}
		if data, err = json.Marshal(mergePatch(target, patch)); err != nil {
			t.Fatal(err)
		}
	}
	if status != nil {
		if data, err = strategicpatch.StrategicMergePatch(data, status, corev1.Node{}); err != nil {
			t.Fatal(err)
		}
	}
	out := &corev1.Node{}
	if err := json.Unmarshal(data, out); err != nil {
		t.Fatal(err)
	}
	return out
}
