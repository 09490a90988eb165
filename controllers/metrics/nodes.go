package metrics

import (
	"strings"
	"time"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/nodefacts"
	contract "rcclx.io/commgroup-operator/internal/metrics"
)

// reports tell how old the members' reports are, and how long they hold. The oldest is absent until every member has
// reported: of one that never did, no time is known.
func (s *sampler) reports(members *v1alpha1.MemberCounts, tasks []*v1alpha1.CommTask,
	nodes map[string]*v1alpha1.CommNode) {
	allDid := len(tasks) > 0 && len(tasks) >= int(members.Selected)
	var oldest time.Time
	var valid int32
	for _, t := range tasks {
		n := nodeOf(t, nodes)
		at := reportedAt(n)
		if at.IsZero() {
			allDid = false
			continue
		}
		if oldest.IsZero() || at.Before(oldest) {
			oldest = at
		}
		valid = max(valid, n.Status.Facts.ValidForSeconds)
	}
	if allDid {
		s.addTime(&contract.OldestReport, oldest)
	}
	if valid > 0 {
		s.add(&contract.ReportValid, float64(valid))
	}
}

// nodeOf is the CommNode of the member's node; nil where that is of another Node object of the name.
func nodeOf(t *v1alpha1.CommTask, nodes map[string]*v1alpha1.CommNode) *v1alpha1.CommNode {
	if n := nodes[t.Spec.NodeName]; n != nil && n.Spec.NodeUID == t.Spec.NodeUID {
		return n
	}
	return nil
}

// reportedAt is when the API server took the monitor's last report, by its own clock; zero where it never did.
func reportedAt(n *v1alpha1.CommNode) time.Time {
	if n == nil || n.Status.Facts == nil {
		return time.Time{}
	}
	if w := nodefacts.MonitorWrite(n.ManagedFields); w != nil {
		return w.Time.Time
	}
	return time.Time{}
}

func (s *sampler) member(t *v1alpha1.CommTask, n *v1alpha1.CommNode, headline *v1alpha1.Headline) {
	name := t.Spec.NodeName
	s.addTime(&contract.NodeLastReport, reportedAt(n), name)
	verdict, reason, report := outcome(t)
	if verdict != "" {
		s.add(&contract.NodeVerdict, 1, name, verdict, reason)
	}
	if report == nil {
		return
	}
	if mbps, measured := busBandwidth(report, headline); measured {
		s.add(&contract.NodeBusBW, float64(mbps)*bytesPerMB, name)
	}
	if links := report.Links; links != nil {
		if gpu, peer, named := strings.Cut(links.Slowest, pairSeparator); named && links.MinMBps > 0 {
			s.add(&contract.NodeSlowestPair, float64(links.MinMBps)*bytesPerMB, name, gpu, peer)
		}
		if links.MedianMBps > 0 {
			s.add(&contract.NodeMedianPair, float64(links.MedianMBps)*bytesPerMB, name)
		}
	}
}

// outcome is the node's own verdict in the run that it is assigned, and its report where that counts: of the run's id
// and generation, finished, and the node still what was measured.
func outcome(t *v1alpha1.CommTask) (verdict, reason string, report *v1alpha1.NodeRunStatus) {
	run, r := t.Spec.Run, t.Status.Run
	switch {
	case run == nil:
		return "", "", nil
	case run.Stale != nil:
		return contract.VerdictStale, run.Stale.Reason, nil
	case run.Closed != nil:
		return string(run.Closed.Verdict), run.Closed.Reason, nil
	case r != nil && r.ID == run.ID && r.Generation == run.Generation &&
		r.Phase == v1alpha1.NodeRunFinished && r.Verdict != "":
		return string(r.Verdict), r.Reason, r
	}
	return "", "", nil
}

// busBandwidth is the node's own figure of the headline's measurement.
func busBandwidth(report *v1alpha1.NodeRunStatus, headline *v1alpha1.Headline) (mbps int64, measured bool) {
	if headline == nil {
		return 0, false
	}
	for i := range report.Results {
		r := &report.Results[i]
		if r.Variant != headline.Variant || r.Collective != headline.Collective || r.Datatype != headline.Datatype ||
			placement(r.Placement) != placement(headline.Placement) {
			continue
		}
		for j, size := range r.SizeBytes {
			if size == headline.SizeBytes && j < len(r.BusBandwidthMBps) {
				return r.BusBandwidthMBps[j], true
			}
		}
	}
	return 0, false
}
