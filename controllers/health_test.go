package controllers

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/testkit"
)

// TestHealthInEffectIsReported: the monitors get the intervals that the write budget allows, and AgentsReporting says so where these are
// not the requested ones.
func TestHealthInEffectIsReported(t *testing.T) {
	for _, tc := range []struct {
		members         int
		interval, valid string
		remark          bool
	}{{100, "5", "30", false}, {2000, "5", "64", true}} {
		group := testkit.Group()
		group.Spec.Health = v1alpha1.HealthSpec{IntervalSeconds: 5, ReportValidSeconds: 30}
		d := Decide(newWorld(group, testkit.Nodes(tc.members)).snapshot(), testConfig)
		command := d.Monitor.Spec.Template.Spec.Containers[0].Command
		after := func(flag string) string { return command[slices.Index(command, flag)+1] }
		if after("--interval") != tc.interval || after("--valid") != tc.valid {
			t.Errorf("%d members: monitors run %v", tc.members, command)
		}
		message := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionAgentsReporting).Message
		if strings.Contains(message, "health.reportValidSeconds "+tc.valid+" (requested 30)") != tc.remark {
			t.Errorf("%d members: AgentsReporting says %q", tc.members, message)
		}
	}
}
