package settings

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/testkit"
)

// TestWhoAsksForNothingHasIt: a spec without settings waits for no result of them; one variable is a setting.
func TestWhoAsksForNothingHasIt(t *testing.T) {
	spec := testkit.Group().Spec
	spec.DDA.Mode, spec.LowPrecision.Mode = v1alpha1.FeatureDisabled, v1alpha1.FeatureDisabled
	if f := InEffect(nil, &spec); f.Status != metav1.ConditionTrue || f.Reason != v1alpha1.ReasonNotRequested {
		t.Errorf("nothing asked for: %+v", f)
	}
	spec.Runtime.Env = []v1alpha1.EnvVar{{Name: "NCCL_DEBUG", Value: "INFO"}}
	if f := InEffect(nil, &spec); f.Status != metav1.ConditionUnknown || f.Reason != v1alpha1.ReasonNotVerified {
		t.Errorf("a variable: %+v", f)
	}
}
