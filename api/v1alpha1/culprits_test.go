package v1alpha1

import (
	"slices"
	"testing"
)

// TestNodesOfACulprit: both nodes of a pair, also where its name was cut, as that of two nodes with long names is.
func TestNodesOfACulprit(t *testing.T) {
	for name, tc := range map[string]struct {
		culprit Culprit
		want    []string
	}{
		"node":          {Culprit{Kind: "Node", Node: "a", Name: "a"}, []string{"a"}},
		"pair":          {Culprit{Kind: "Pair", Pair: []string{"a", "b"}, Name: "a<->..."}, []string{"a", "b"}},
		"communicators": {Culprit{Kind: "Rank", Name: "dp 3"}, nil},
	} {
		if got := tc.culprit.Nodes(); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}
