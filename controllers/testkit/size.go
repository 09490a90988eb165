package testkit

import (
	"encoding/json"
	"testing"
)

// SizeOf is the size of a value as JSON, in bytes.
func SizeOf(t *testing.T, v any) int {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return len(data)
}
