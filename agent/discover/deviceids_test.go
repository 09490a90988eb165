package discover

import (
	"fmt"
	"testing"

	"rcclx.io/commgroup-operator/rcclx/compat"
)

// TestDeviceIDsAlike: labels are held against the same names that the facts carry.
func TestDeviceIDsAlike(t *testing.T) {
	known := 0
	for id := range uint64(1 << 16) {
		got := compat.ModelOfDeviceID(fmt.Sprintf("%04x", id))
		if model, ok := LookupModel(id); ok != (got != "") || ok && model.Name != got {
			t.Errorf("0x%04x is %q here and %q in rcclx/compat", id, model.Name, got)
		} else if ok {
			known++
		}
	}
	if known < 20 {
		t.Errorf("only %d ids are known", known)
	}
}
