// Package metrics shows CommGroups and their members as Prometheus metrics: the manager's part of the contract in
// internal/metrics. They are made from the status at each scrape, so that a deleted object leaves nothing behind.
package metrics

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	contract "rcclx.io/commgroup-operator/internal/metrics"
	"rcclx.io/commgroup-operator/internal/state"
)

const (
	bytesPerMB          = 1e6
	nanosecondsPerS     = 1e9
	partsPerMillion     = 1e6
	percentOfOne        = 100
	secondsPerGPUMinute = 60
	unknown             = "unknown"
)

// Words of the API that have no constant there.
const (
	inventoryGPUModel = "GPUModel"
	inventoryLibrary  = "Library"
	breakerOpen       = "Open"
	pairSeparator     = "<->"
	// envPrefix begins the names of settings that are variables of the spec.
	envPrefix = "env."
)

// sampler gathers samples of one group.
type sampler struct {
	namespace, name string
	out             []contract.Sample
}

func (s *sampler) add(m *contract.Metric, value float64, labels ...string) {
	all := make([]string, 0, 2+len(labels))
	all = append(append(all, s.namespace, s.name), labels...)
	s.out = append(s.out, contract.Sample{Metric: m, Value: value, Labels: all})
}

// addTime adds a time; one that is not known is absent.
func (s *sampler) addTime(m *contract.Metric, t time.Time, labels ...string) {
	if !t.IsZero() {
		s.add(m, float64(t.Unix()), labels...)
	}
}

func truth(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// Samples are the metrics of one group. What the status does not say is absent.
func Samples(group *state.Group, tasks []*v1alpha1.CommTask, nodes map[string]*v1alpha1.CommNode,
	perNode bool) []contract.Sample {
	s := &sampler{namespace: group.Namespace, name: group.Name}
	s.spec(group)
	s.conditions(group.Status.Conditions)
	if len(group.Status.Conditions) > 0 { // before the controller's first look a count of 0 means nothing
		s.members(&group.Status.Members)
		s.add(&contract.RunActive, truth(group.Status.Run != nil && group.Status.Run.Phase == v1alpha1.RunPhaseRunning))
	}
	s.run(&group.Status)
	s.results(&group.Status)
	s.settings(group.Status.Settings)
	s.judgement(&group.Status)
	s.actions(&group.Status)
	s.reports(&group.Status.Members, tasks, nodes)
	if perNode {
		for _, t := range tasks {
			s.member(t, nodeOf(t, nodes), group.Status.Headline)
		}
	}
	return s.out
}

func (s *sampler) spec(group *state.Group) {
	s.add(&contract.Info, 1, string(cmp.Or(group.Spec.Span, v1alpha1.SpanNode)),
		string(cmp.Or(group.Status.Origin, v1alpha1.OriginUnknown)),
		commonest(group.Status.Inventory, inventoryGPUModel), commonest(group.Status.Inventory, inventoryLibrary),
		string(cmp.Or(group.Spec.Run.State, v1alpha1.RunActive)))
}

// commonest is the value of a property that most members have; of two that as many have, the first by name.
func commonest(inventory []v1alpha1.InventoryItem, property string) string {
	var found *v1alpha1.InventoryItem
	for i := range inventory {
		item := &inventory[i]
		if item.Property == property &&
			(found == nil || item.Nodes > found.Nodes || item.Nodes == found.Nodes && item.Value < found.Value) {
			found = item
		}
	}
	if found == nil {
		return unknown
	}
	return found.Value
}

func (s *sampler) conditions(conditions []metav1.Condition) {
	for i := range conditions {
		c := &conditions[i]
		for _, status := range []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse,
			metav1.ConditionUnknown} {
			s.add(&contract.Condition, truth(c.Status == status), c.Type, string(status))
		}
		s.add(&contract.ConditionReason, 1, c.Type, c.Reason)
		s.addTime(&contract.ConditionTransition, c.LastTransitionTime.Time, c.Type)
	}
}

func (s *sampler) members(m *v1alpha1.MemberCounts) {
	for _, count := range []struct {
		state string
		nodes int32
	}{
		{contract.MembersSelected, m.Selected}, {contract.MembersReporting, m.Reporting},
		{contract.MembersRunning, m.Running},
		{contract.MembersPending, m.Pending}, {contract.MembersStale, m.Stale}, {contract.MembersPassed, m.Passed},
		{contract.MembersFailed, m.Failed},
		{contract.MembersInconclusive, m.Inconclusive}, {contract.MembersErrored, m.Errored},
		{contract.MembersSkipped, m.Skipped},
	} {
		s.add(&contract.Members, float64(count.nodes), count.state)
	}
}

// run tells when runs were. The last one that ended is in the history while the next one goes on.
func (s *sampler) run(status *state.Status) {
	var verdict v1alpha1.Verdict
	var start, finish time.Time
	if r := status.Run; r != nil {
		s.add(&contract.Runs, float64(r.Number))
		s.addTime(&contract.RunStart, r.StartTime.Time)
		verdict = r.Verdict
		if r.FinishTime != nil {
			start, finish = r.StartTime.Time, r.FinishTime.Time
			s.addTime(&contract.RunFinish, finish)
		}
	}
	for i := range status.History {
		past := &status.History[i]
		verdict = cmp.Or(verdict, past.Verdict)
		if finish.IsZero() && past.FinishTime != nil {
			start, finish = past.StartTime.Time, past.FinishTime.Time
		}
	}
	if verdict != "" {
		for _, v := range []v1alpha1.Verdict{v1alpha1.VerdictPass, v1alpha1.VerdictFail, v1alpha1.VerdictInconclusive,
			v1alpha1.VerdictError, v1alpha1.VerdictSkipped} {
			s.add(&contract.Verdict, truth(v == verdict), string(v))
		}
	}
	if !finish.IsZero() && !start.IsZero() && !finish.Before(start) {
		s.add(&contract.RunDuration, finish.Sub(start).Seconds())
	}
	if status.NextRunTime != nil {
		s.addTime(&contract.NextRun, status.NextRunTime.Time)
	}
}

func (s *sampler) results(status *state.Status) {
	if h := status.Headline; h != nil {
		s.add(&contract.Headline, float64(h.BusBandwidthMBps)*bytesPerMB)
	}
	for i := range status.Results {
		r := &status.Results[i]
		series := []string{string(r.Variant), string(r.Collective), string(r.Datatype), placement(r.Placement)}
		s.figures(append([]string{string(v1alpha1.SpanNode), ""}, series...), r.SizeBytes, r.LatencyNanoseconds,
			r.BusBandwidthMBps, r.MinBusBandwidthMBps)
		s.add(&contract.WrongElements, float64(r.WrongElements), series...)
		if r.MaxRelativeErrorPPM != nil {
			s.add(&contract.RelativeError, float64(*r.MaxRelativeErrorPPM)/partsPerMillion, series...)
		}
	}
	if span := status.Span; span != nil {
		for i := range span.Results {
			r := &span.Results[i]
			s.figures([]string{string(v1alpha1.SpanGroup), r.Dimension, string(v1alpha1.VariantBaseline),
				string(r.Collective), string(r.Datatype), placement(r.Placement)},
				r.SizeBytes, r.LatencyNanoseconds, r.BusBandwidthMBps, r.MinBusBandwidthMBps)
		}
	}
}

func placement(p v1alpha1.Placement) string { return string(cmp.Or(p, v1alpha1.OutOfPlace)) }

// figures adds lists that run parallel to the sizes; where one is shorter, its last figures are not known.
func (s *sampler) figures(series []string, sizes, latencyNanoseconds, medianMBps, minMBps []int64) {
	for i, size := range sizes {
		labels := make([]string, 0, len(series)+2)
		labels = append(append(labels, series...), strconv.FormatInt(size, 10))
		if i < len(medianMBps) {
			s.add(&contract.BusBandwidth, float64(medianMBps[i])*bytesPerMB,
				append(labels, string(v1alpha1.StatisticMedian))...)
		}
		if i < len(minMBps) {
			s.add(&contract.BusBandwidth, float64(minMBps[i])*bytesPerMB,
				append(labels, string(v1alpha1.StatisticMin))...)
		}
		if i < len(latencyNanoseconds) && latencyNanoseconds[i] > 0 {
			seconds := float64(latencyNanoseconds[i]) / nanosecondsPerS
			s.add(&contract.Latency, seconds, labels...)
			s.add(&contract.AlgBandwidth, float64(size)/seconds, labels...)
		}
	}
}

func (s *sampler) settings(settings []v1alpha1.SettingStatus) {
	for i := range settings {
		one := &settings[i]
		requested := one.Requested
		if strings.HasPrefix(one.Name, envPrefix) {
			requested = contract.RequestedSet // who may scrape need not be allowed to read the group
		}
		s.add(&contract.Setting, 1, one.Name, requested, string(one.Effective), string(one.Verified),
			string(one.Usable), one.Reason)
	}
}

// judgement adds what the last run was held against, and whom it blames.
func (s *sampler) judgement(status *state.Status) {
	for i := range status.Checks {
		c := &status.Checks[i]
		if ratio, known := checkRatio(c); known {
			s.add(&contract.CheckRatio, ratio, c.Source, c.Measurement, c.Node, string(c.Mode), string(c.State))
		}
	}
	for i := range status.Culprits {
		c := &status.Culprits[i]
		s.add(&contract.Culprit, 1, c.Kind, c.Name, c.Node, c.Reason)
	}
}

func checkRatio(c *v1alpha1.PerformanceCheck) (float64, bool) {
	switch {
	case c.State == v1alpha1.CheckNotMeasured:
		return 0, false
	case c.MeasuredMBps != nil && c.ExpectedMBps != nil && *c.ExpectedMBps > 0:
		return float64(*c.MeasuredMBps) / float64(*c.ExpectedMBps), true
	case c.Percent != nil:
		return float64(*c.Percent) / percentOfOne, true
	}
	return 0, false
}

// actions adds what gating did and what of the budget is used.
func (s *sampler) actions(status *state.Status) {
	if g := status.Gating; g != nil {
		s.add(&contract.GatedNodes, float64(g.Gated))
		if g.Breaker != "" {
			s.add(&contract.BreakerOpen, truth(g.Breaker == breakerOpen))
		}
	}
	if b := status.Budget; b != nil {
		s.add(&contract.BudgetUsed, float64(b.UsedGPUMinutes)*secondsPerGPUMinute)
		if b.LimitGPUMinutes > 0 {
			s.add(&contract.BudgetLimit, float64(b.LimitGPUMinutes)*secondsPerGPUMinute)
		}
	}
}
