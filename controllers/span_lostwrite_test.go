package controllers

import (
	"testing"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/state"
	"rcclx.io/commgroup-operator/internal/testenv"
)

// TestNoLostStatusWriteChangesAVerdict loses each single status write of whole runs in turn, each seventeenth without
// TEST_LONG: the run ends as it does without.
func TestNoLostStatusWriteChangesAVerdict(t *testing.T) {
	every := testenv.Draws(17, 1)
	for _, tc := range []struct {
		name   string
		faults faults
		change func(*state.Group)
	}{
		{"good", faults{}, nil},
		{"good against a threshold", faults{}, groupThreshold(30_000)},
		{"one hangs", faults{hangNodes: []int{5}}, nil},
		{"two hang", faults{hangNodes: []int{1, 5}}, nil},
		{"one is slow", faults{slowNodes: []int{5}}, nil},
		{"a rank dies", faults{dieNodes: []int{5}}, nil},
		{"a pair hangs", faults{hangPairs: [][2]int{{2, 5}}}, nil},
		{"a rail is slow", faults{slowRails: [][2]int{{2, 5}}}, nil},
		{"an agent is silent", faults{silentNodes: []int{3}}, nil},
		{"an agent is never heard of", faults{muteNodes: []int{3}}, nil},
		{"TCP", faults{tcpNodes: []int{3}},
			func(g *state.Group) { g.Spec.Network.RequireTransport = v1alpha1.TransportRDMA }},
		{"mixed settings", faults{quirk: func(n int, s *v1alpha1.SessionStatus) {
			if n == 3 {
				s.SettingsHash = "other"
			}
		}}, nil},
		{"one cannot take part", faults{quirk: func(n int, s *v1alpha1.SessionStatus) {
			if n == 3 {
				s.State, s.Reason, s.Message = v1alpha1.SessionFailed, v1alpha1.ReasonPreconditionFailed,
					"MemlockLimit: too low"
			}
		}}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			want, writes := playLosing(t, -1, tc.faults, tc.change)
			t.Logf("%d writes: %s", writes, want)
			for lost := len(tc.name) % every; lost < writes; lost += every {
				if got, _ := playLosing(t, lost, tc.faults, tc.change); got != want {
					t.Errorf("write %d of %d lost: %s, want %s", lost+1, writes, got, want)
				}
			}
		})
	}
}
