package monitor

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"rcclx.io/commgroup-operator/agent/discover"
	"rcclx.io/commgroup-operator/api/v1alpha1"
)

func codes(problems []v1alpha1.Problem) []string {
	lines := []string{}
	for _, p := range problems {
		lines = append(lines, strings.TrimSpace(p.Severity+" "+p.Code+" "+p.Subject))
	}
	return lines
}

// TestHistory walks through looks; each case changes the second and later ones.
func TestHistory(t *testing.T) {
	type look struct {
		after    time.Duration
		change   func(*discover.Facts)
		problems []string
		changes  []string
	}
	counter := func(correctable, uncorrectable uint64) func(*discover.Facts) {
		return func(f *discover.Facts) {
			f.GPUs[1].XGMICorrectableErrors, f.GPUs[1].XGMIUncorrectableErrors = &correctable, &uncorrectable
		}
	}
	lose := func(f *discover.Facts) {
		f.GPUs = f.GPUs[:1]
		f.Mesh.Pairs = [][]*discover.Link{{nil}}
	}
	noLink := func(f *discover.Facts) { f.Mesh.Pairs[0][1] = nil }
	const risen = "Warning XGMICorrectableErrors 0000:2b:00.0"
	for name, looks := range map[string][]look{
		"nothing": {{after: time.Minute}, {after: time.Minute}},
		"GPU lost and back": {
			{time.Minute, lose, []string{"Error GPULost 0000:2b:00.0"}, []string{"Error GPULost 0000:2b:00.0"}},
			{time.Minute, lose, []string{"Error GPULost 0000:2b:00.0"}, nil},
			{time.Minute, nil, nil, []string{"Warning GPULost 0000:2b:00.0"}},
		},
		"GPU lost that discovery names already": {{time.Minute, func(f *discover.Facts) {
			lose(f)
			f.Problems = []v1alpha1.Problem{{Code: v1alpha1.ProblemGPUNotInKFD, Subject: "0000:2b:00.0"}}
		}, nil, []string{"Error GPULost 0000:2b:00.0"}}},
		"GPU hidden is not lost": {{time.Minute, func(f *discover.Facts) { lose(f); f.HiddenNodes = []int{3} }, nil, nil}},
		"link lost and back": {
			{time.Minute, noLink, []string{"Error LinkLost 0000:05:00.0<->0000:2b:00.0"}, []string{"Error LinkLost 0000:05:00.0->0000:2b:00.0"}},
			{time.Minute, noLink, []string{"Error LinkLost 0000:05:00.0<->0000:2b:00.0"}, nil},
			{time.Minute, nil, nil, []string{"Warning LinkLost 0000:05:00.0->0000:2b:00.0"}},
		},
		"counters rise, hold, and calm down": {
			{time.Minute, counter(3, 0), []string{risen}, []string{risen}},
			{time.Minute, counter(3, 0), []string{risen}, nil},
			{holdTime, counter(3, 0), nil, nil},
			{time.Minute, counter(4, 0), []string{risen}, []string{risen}},
			{time.Minute, counter(0, 0), []string{risen}, nil}, // reset with the driver: no rise
		},
		"uncorrectable": {{time.Minute, counter(0, 2), nil, []string{"Error XGMIUncorrectableErrors 0000:2b:00.0"}}},
		"counter unread, then the same": {
			{time.Minute, func(f *discover.Facts) { f.GPUs[1].XGMICorrectableErrors = nil }, nil, nil}, {time.Minute, nil, nil, nil}},
		"reboot forgets": {{time.Minute, func(f *discover.Facts) { lose(f); f.BootID = "boot-2" }, nil, []string{"Warning NodeRebooted boot"}},
			{time.Minute, func(f *discover.Facts) { lose(f); f.BootID = "boot-2" }, nil, nil}},
		"driver changed": {
			{time.Minute, func(f *discover.Facts) { f.Driver.Version = "6.16.6" }, []string{"Warning DriverChanged amdgpu"}, []string{"Warning DriverChanged amdgpu"}},
			{holdTime, func(f *discover.Facts) { f.Driver.Version = "6.16.6" }, nil, nil}},
		"driver unreadable is no change": {{time.Minute, func(f *discover.Facts) { f.Driver = discover.DriverFacts{Kind: discover.DriverUnknown} }, nil, nil}},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Unix(1e9, 0)
			h := history{}
			if problems, changes := h.look(twoGPUs(now), now); len(problems)+len(changes) > 0 {
				t.Fatalf("first look: %v, %v", problems, changes)
			}
			for i, l := range looks {
				now = now.Add(l.after)
				f := twoGPUs(now)
				if l.change != nil {
					l.change(f)
				}
				problems, changes := h.look(f, now)
				if diff := cmp.Diff(append([]string{}, l.problems...), codes(problems)); diff != "" {
					t.Errorf("look %d: problems (-want +got):\n%s", i, diff)
				}
				if diff := cmp.Diff(append([]string{}, l.changes...), codes(changes)); diff != "" {
					t.Errorf("look %d: changes (-want +got):\n%s", i, diff)
				}
			}
		})
	}
}
