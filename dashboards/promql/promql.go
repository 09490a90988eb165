// Package promql writes selectors of the metrics' contract, so that no dashboard or rule can name a metric or label
// that nobody exposes.
package promql

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"rcclx.io/commgroup-operator/internal/metrics"
)

// Group are the labels that name a CommGroup.
var Group = []string{metrics.LabelGroupNamespace, metrics.LabelGroup}

// Metrics of controller-runtime that rules and dashboards use; the manager exposes them beside its own.
var (
	// Leader is 1 on the replica that leads. Each replica has the series.
	Leader = metrics.Metric{Name: "leader_election_master_status", Source: metrics.Manager, Labels: []string{"name"}}
	// ReconcileErrors counts reconciles that ended with an error.
	ReconcileErrors = metrics.Metric{Name: "controller_runtime_reconcile_errors_total", Source: metrics.Manager,
		Labels: []string{"controller"}}
	// Reconciles counts reconciles by result.
	Reconciles = metrics.Metric{Name: "controller_runtime_reconcile_total", Source: metrics.Manager,
		Labels: []string{"controller", "result"}}
	// QueueDepth is how many objects wait to be reconciled.
	QueueDepth = metrics.Metric{Name: "workqueue_depth", Source: metrics.Manager, Labels: []string{"controller"}}
)

// Values of the labels of controller-runtime's metrics.
const (
	// Lease is the name of the managers' leader lease.
	Lease = "commgroup-manager.rcclx.io"
	// Controller is the name of the reconciler.
	Controller = "commgroup"
)

// Match is one matcher of a selector.
type Match struct{ Label, Op, Value string }

// Is matches one value.
func Is(label, value string) Match { return Match{label, "=", value} }

// Not matches every other value.
func Not(label, value string) Match { return Match{label, "!=", value} }

// In matches any of the values, which must be plain words.
func In(label string, values ...string) Match { return Match{label, "=~", strings.Join(values, "|")} }

// NotIn matches every value but these, which must be plain words.
func NotIn(label string, values ...string) Match {
	return Match{label, "!~", strings.Join(values, "|")}
}

// Like matches a regular expression.
func Like(label, expression string) Match { return Match{label, "=~", expression} }

// Of selects series of a metric. A label that the metric does not have is a mistake of the programmer.
func Of(m metrics.Metric, matches ...Match) string {
	if len(matches) == 0 {
		return m.Name
	}
	parts := make([]string, 0, len(matches))
	for _, match := range matches {
		if !slices.Contains(m.Labels, match.Label) {
			panic(fmt.Sprintf("metric %s has no label %q, only %v", m.Name, match.Label, m.Labels))
		}
		parts = append(parts, match.Label+match.Op+strconv.Quote(match.Value))
	}
	return m.Name + "{" + strings.Join(parts, ",") + "}"
}

// Max is the largest value for each group and the further labels. It drops the target's labels, so that a change of the
// leader is no change of the series.
func Max(expression string, by ...string) string { return aggregate("max", expression, by) }

// Min is the smallest value for each group and the further labels.
func Min(expression string, by ...string) string { return aggregate("min", expression, by) }

// NodeMax is the largest value for each node and the further labels, whatever groups the node is in.
func NodeMax(expression string, by ...string) string { return nodeAggregate("max", expression, by) }

// NodeMin is the smallest value for each node and the further labels.
func NodeMin(expression string, by ...string) string { return nodeAggregate("min", expression, by) }

func aggregate(op, expression string, by []string) string {
	return fmt.Sprintf("%s by (%s) (%s)", op, Labels(by...), expression)
}

func nodeAggregate(op, expression string, by []string) string {
	return fmt.Sprintf("%s by (%s) (%s)",
		op, strings.Join(append([]string{metrics.LabelNode}, by...), ", "), expression)
}

// OfMembers restricts an expression of the monitors' metrics, which know no group, to members of groups: those whose
// reports the manager has.
func OfMembers(expression string, groups ...Match) string {
	return fmt.Sprintf("%s and %s %s", expression, OnNode, Of(metrics.NodeLastReport, groups...))
}

// OnNode is the vector matching on the node alone.
const OnNode = "on (" + metrics.LabelNode + ")"

// Labels is the list of the group's labels and the further ones.
func Labels(more ...string) string { return strings.Join(append(slices.Clone(Group), more...), ", ") }

// OnGroup is the vector matching on the group and the further labels.
func OnGroup(more ...string) string { return "on (" + Labels(more...) + ")" }

// Gain is Baseline's latency over the latency of each other variant, for each measured size: above 1 the variant is
// faster.
func Gain(matches ...Match) string {
	by := []string{metrics.LabelSpan, metrics.LabelDimension, metrics.LabelCollective, metrics.LabelDatatype,
		metrics.LabelPlacement, metrics.LabelSize}
	baseline := Max(Of(metrics.Latency, append(slices.Clone(matches), Is(metrics.LabelVariant, Baseline))...), by...)
	other := Max(Of(metrics.Latency, append(slices.Clone(matches), Not(metrics.LabelVariant, Baseline))...),
		append(slices.Clone(by), metrics.LabelVariant)...)
	return fmt.Sprintf("%s / %s group_right () %s", baseline, OnGroup(by...), other)
}

// Baseline is the variant that the others are held against.
const Baseline = "Baseline"

// OutOfWork are the groups that a user suspended: what is due there is not late.
func OutOfWork() string {
	return Max(Of(metrics.ConditionReason, Is(metrics.LabelType, "Running"), Is(metrics.LabelReason, "Suspended")))
}

// RunGoesOn are the groups with a run at work.
func RunGoesOn() string { return Max(Of(metrics.RunActive)) + " == 1" }
