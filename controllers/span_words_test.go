package controllers

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/testkit"
	"rcclx.io/commgroup-operator/internal/state"
)

var nodeName = regexp.MustCompile(`n\d{5}`)

// TestTheEndSpeaksOfTheCulprit: once it is proven, nothing that was only suspected, nothing that a healthy node saw,
// and no general advice stands beside it, and each sentence says what it is about.
func TestTheEndSpeaksOfTheCulprit(t *testing.T) {
	for _, tc := range []struct {
		name   string
		faults faults
		change func(*state.Group)
		// named nodes are the culprits; say is in the message.
		named []int
		say   []string
	}{
		{"slow", faults{slowNodes: []int{5}}, nil, []int{5},
			[]string{"The pairs of these 15 are held against each other only",
				"With all 16 members the slowest of 24 pairs reaches "}},
		{"two are slow", faults{slowNodes: []int{5, 6}}, nil, []int{5, 6}, []string{"The pairs of these 14"}},
		{"a slow rail", faults{slowRails: [][2]int{{5, 2}}}, nil, []int{5}, []string{"The pairs of these 15"}},
		{"a slow pair", faults{slowPairs: [][2]int{{5, 6}}}, nil, []int{5, 6}, []string{"The pairs of these 15"}},
		{"slow against a mark", faults{slowNodes: []int{5}}, groupThreshold(30_000), []int{5},
			[]string{"The communicator over 16 nodes is too slow: group: Baseline AllReduce", "33 %"}},
		{"hangs", faults{hangNodes: []int{5}}, nil, []int{5},
			[]string{"The communicator over 16 nodes failed (HangAcrossNodes).", "The pairs of these 15"}},
		{"hangs over TCP", faults{hangNodes: []int{5}, tcpNodes: []int{5}}, func(g *state.Group) {
			g.Spec.Network.RequireTransport = v1alpha1.TransportRDMA
		}, []int{5}, []string{"The communicator over 16 nodes failed (HangAcrossNodes).", "went over TCP"}},
		{"wrong data", faults{wrongNodes: []int{5}}, nil, []int{5},
			[]string{"The communicator over 16 nodes failed (WrongData)."}},
		{"hangs in the mesh", faults{hangNodes: []int{5}, sideBySide: true}, testkit.Mesh("dp", 16, "tp", 8), []int{5},
			[]string{"Communicators of dimension dp of the mesh failed (HangAcrossNodes)."}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newGroupWorld(t, 16, tc.faults, tc.change)
			w.play()
			s := w.span()
			if s.Verdict != v1alpha1.VerdictFail || len(s.Culprits) == 0 {
				t.Fatalf("%s (%s), culprits %+v: %s", s.Verdict, s.Reason, s.Culprits, s.Message)
			}
			for _, name := range nodeName.FindAllString(s.Message, -1) {
				if !slices.Contains(tc.named, w.index[name]) {
					t.Errorf("healthy %s is named: %s", name, s.Message)
				}
			}
			for _, never := range []string{"Look at", "look at", "No threshold or reference applies", "its speed",
				" saw ", "... "} {
				if strings.Contains(s.Message, never) {
					t.Errorf("%q stands beside the culprit: %s", never, s.Message)
				}
			}
			for _, want := range tc.say {
				if !strings.Contains(s.Message, want) {
					t.Errorf("lacks %q: %s", want, s.Message)
				}
			}
		})
	}
}

// TestWithoutACulpritTheNextStepIsTold: where the group is slow or failed and nobody is named, the message says where
// to look, and calls what a node saw what it saw.
func TestWithoutACulpritTheNextStepIsTold(t *testing.T) {
	off := func(g *state.Group) { g.Spec.Localization.Mode = v1alpha1.LocalizationOff }
	for name, tc := range map[string]struct {
		faults faults
		change func(*state.Group)
		say    []string
	}{
		"a slow pair, no round is left": {faults{slowPairs: [][2]int{{5, 6}}}, func(g *state.Group) {
			g.Spec.Localization.MaxRounds = 1
		}, []string{"n00005<->n00006", "NICs, cables and switch ports of those nodes"}},
		"slow against a mark, Off": {faults{slowNodes: []int{5}}, func(g *state.Group) {
			groupThreshold(30_000)(g)
			off(g)
		}, []string{"Look at: ", "no culprit was searched for"}},
		"all are slow against a mark": {faults{slowAll: true}, groupThreshold(30_000),
			[]string{"No pair stands out", "Look at what all share"}},
		"hangs, Off": {faults{hangNodes: []int{5}}, off,
			[]string{"RankHung, as node n00000 saw it: no rank came back"}},
	} {
		w := newGroupWorld(t, 16, tc.faults, tc.change)
		w.play()
		s := w.span()
		if s.Verdict != v1alpha1.VerdictFail || len(s.Culprits) > 0 {
			t.Errorf("%s: %s (%s), culprits %+v", name, s.Verdict, s.Reason, s.Culprits)
		}
		for _, want := range tc.say {
			if !strings.Contains(s.Message, want) {
				t.Errorf("%s lacks %q: %s", name, want, s.Message)
			}
		}
		if strings.Count(s.Message, "look at")+strings.Count(s.Message, "Look at") > 1 ||
			strings.Contains(s.Message, "localization names") && name != "slow against a mark, Off" {
			t.Errorf("%s says twice where to look, or what the search found otherwise: %s", name, s.Message)
		}
	}
}
