package promql

import (
	"testing"

	"rcclx.io/commgroup-operator/internal/metrics"
)

func TestOf(t *testing.T) {
	for want, got := range map[string]string{
		"commgroup_run_active":                          Of(metrics.RunActive),
		`commgroup_members{state="stale",group="a\"b"}`: Of(metrics.Members, Is("state", "stale"), Is("group", `a"b`)),
		`commgroup_setting_info{effective=~"InEffect|Partial",requested!="set"}`: Of(metrics.Setting,
			In("effective", "InEffect", "Partial"), Not("requested", "set")),
		"max by (group_namespace, group, node) (x)": Max("x", "node"),
		"max by (node, gpu) (x)":                    NodeMax("x", "gpu"),
		"min by (node) (x)":                         NodeMin("x"),
		`commgroup_agent_gpus and on (node) commgroup_node_last_report_timestamp_seconds{group="a"}`: OfMembers(
			Of(metrics.AgentGPUs), Is("group", "a")),
	} {
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestOfRefusesLabelsThatTheMetricLacks(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a selector with a label that the metric does not have was made")
		}
	}()
	Of(metrics.RunActive, Is("node", "x"))
}
