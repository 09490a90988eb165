package demo

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/state"
)

func group(run v1alpha1.RunPhase, conditions []metav1.Condition, culprits ...v1alpha1.Culprit) *state.Group {
	g := &state.Group{ObjectMeta: metav1.ObjectMeta{Generation: 2}}
	g.Status.Conditions, g.Status.Culprits = conditions, culprits
	if run != "" {
		g.Status.Run = &v1alpha1.GroupRunStatus{ID: "2-1", Generation: 2, Phase: run}
	}
	return g
}

func conditionOf(kind, status, reason, message string) []metav1.Condition {
	return []metav1.Condition{{Type: kind, Status: metav1.ConditionStatus(status), Reason: reason, Message: message,
		ObservedGeneration: 2}}
}

func TestJudge(t *testing.T) {
	pci := []string{"0000:05:00.0", "0000:2b:00.0", "0000:5b:00.0", "0000:65:00.0"}
	hang := Fault{Name: "hang", GPUs: []int{3}, Reasons: []string{v1alpha1.ReasonRankHung}}
	mismatch := Fault{Incompatible: true, Reasons: []string{v1alpha1.ReasonMixedROCmVersions}}
	culprit := v1alpha1.Culprit{Node: FaultyNode, Kind: "GPU", Name: "0000:65:00.0", Reason: v1alpha1.ReasonRankHung}
	other := culprit
	other.Name = "0000:05:00.0"
	elsewhere := culprit
	elsewhere.Node = "sim-node-0"
	ready := conditionOf(v1alpha1.ConditionReady, "True", "Ready", "")
	notReady := conditionOf(v1alpha1.ConditionReady, "False", v1alpha1.ReasonRankHung, "")
	stale := conditionOf(v1alpha1.ConditionReady, "True", "Ready", "")
	stale[0].ObservedGeneration = 1
	finished := v1alpha1.RunPhaseFinished
	tests := map[string]struct {
		group         *state.Group
		fault         *Fault
		done, reached bool
	}{
		"nothing yet":                 {group("", nil), nil, false, false},
		"ready":                       {group(finished, ready), nil, true, true},
		"ready of another generation": {group("", stale), nil, false, false},
		"failed without a fault":      {group(finished, notReady), nil, true, false},
		"runs":                        {group(v1alpha1.RunPhaseRunning, notReady), &hang, false, false},
		"culprit while it runs":       {group(v1alpha1.RunPhaseRunning, notReady, culprit), &hang, false, false},
		"culprit named":               {group(finished, notReady, other, culprit), &hang, true, true},
		"another GPU named":           {group(finished, notReady, other), &hang, true, false},
		"another node named":          {group(finished, notReady, elsewhere), &hang, true, false},
		"ready in spite of a fault":   {group(finished, ready), &hang, true, false},
		"mismatch named": {group("", conditionOf(v1alpha1.ConditionCompatible, "False",
			v1alpha1.ReasonMixedROCmVersions, "6.4.1 on sim-node-2")), &mismatch, true, true},
		"mismatch without the node": {group("",
			conditionOf(v1alpha1.ConditionCompatible, "False", v1alpha1.ReasonMixedROCmVersions, "mixed")),
			&mismatch, false, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := Judge(tc.group, tc.fault, pci)
			if got.Done != tc.done || got.Reached != tc.reached || got.Seen == "" {
				t.Errorf("%+v, want done %t and reached %t, with words", got, tc.done, tc.reached)
			}
		})
	}
}

func TestFindFaults(t *testing.T) {
	for _, f := range Faults {
		fault, changes, err := FindFaults(f.Name, f.Span)
		if f.Change == nil && (fault == nil || fault.Name != f.Name || len(changes) != 0) ||
			f.Change != nil && (fault != nil || len(changes) != 1 || changes[0].Name != f.Name) || err != nil {
			t.Errorf("FindFaults(%q) = %v, %v, %v", f.Name, fault, changes, err)
		}
	}
	if fault, changes, err := FindFaults("", false); fault != nil || changes != nil || err != nil {
		t.Errorf("no fault: %v, %v, %v", fault, changes, err)
	}
	fault, changes, err := FindFaults("reboot,link-down", false)
	if fault != nil || err != nil || len(changes) != 2 || changes[0].Name != "reboot" ||
		changes[1].Name != "link-down" {
		t.Errorf("two that come later: %v, %v, %v", fault, changes, err)
	}
	for _, names := range []string{"nonsense", "reboot,", "hang,reboot", "reboot,hang", "hang,hang"} {
		if _, _, err := FindFaults(names, false); err == nil {
			t.Errorf("FAULT=%s was taken", names)
		}
	}
}

func TestReadPCIAddresses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "simrocm.conf")
	if err := os.WriteFile(path, []byte("# x\nnode = a\ngpu.1 = 0000:2b:00.0\ngpu.0 = 0000:05:00.0\nfault = none\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	got, err := readPCIAddresses(path)
	if diff := cmp.Diff([]string{"0000:05:00.0", "0000:2b:00.0"}, got); diff != "" || err != nil {
		t.Error(err, diff)
	}
}
