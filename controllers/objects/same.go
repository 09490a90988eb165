package objects

import (
	"reflect"

	"k8s.io/apimachinery/pkg/api/equality"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// Same says whether the API server would see no difference, as it sees none between an empty list and none. What is the
// same to Go is the same to it, too, and is found so in a fraction of the time.
func Same[T any](a, b *T) bool {
	return a == b || reflect.DeepEqual(a, b) || equality.Semantic.DeepEqual(a, b)
}

// SameSpec compares run and session by their pointers first: of 12,500 members nearly all keep theirs, and to compare
// what they point at by reflection was a fourth of a decision.
func SameSpec(a, b *v1alpha1.CommTaskSpec) bool {
	x, y := *a, *b
	x.Run, x.Session, y.Run, y.Session = nil, nil, nil, nil
	return x == y && Same(a.Run, b.Run) && Same(a.Session, b.Session)
}
