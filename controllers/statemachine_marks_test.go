package controllers

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/gating"
)

// writeMarks is applyNodeMarks: each write rests on the Node that was read, and the API server refuses it where that
// has changed.
func (m *machine) writeMarks(s *Snapshot, d *Decision) error {
	var errs []error
	for i := range d.NodeMarks {
		mark := &d.NodeMarks[i]
		at := slices.IndexFunc(m.nodes, func(n corev1.Node) bool {
			return n.Name == mark.Node.Name && !m.absent[n.Name]
		})
		if at < 0 {
			continue // it is gone
		}
		if err := m.refused(); err != nil {
			errs = append(errs, err)
			continue
		}
		if !equality.Semantic.DeepEqual(&m.nodes[at], mark.Node) {
			errs = append(errs, errConflict)
			continue
		}
		m.checkMark(mark)
		value := ""
		if mark.Statement != nil {
			value = mark.Statement.String()
		}
		after := withStatements(m.t, mark.Node, map[string]string{gating.Key(string(s.Group.UID)): value}, m.now)
		m.nodes = slices.Clone(m.nodes)
		m.nodes[at] = *after
		m.writes.marks++
		m.logf("marks of %s: %s %s", mark.Node.Name, value, mark.Why)
	}
	return errors.Join(errs...)
}

// checkMark: no innocent node is marked as failed, and none as passed whose agent has not reported a pass of what the
// run measured.
func (m *machine) checkMark(mark *gating.Mark) {
	m.t.Helper()
	name, s := mark.Node.Name, mark.Statement
	switch {
	case s == nil:
		m.known.seen["mark withdrawn"]++
	case s.Verdict == v1alpha1.VerdictFail:
		m.known.seen["mark Fail"]++
		if m.known.faulty[name] == "" {
			m.failf("innocent %s is marked: %s\nfaulty: %v", name, s, m.known.faulty)
		}
	default:
		m.known.seen["mark Pass"]++
		if hash := m.known.hashOf[s.Run]; !m.known.passed[s.NodeUID][hash] {
			m.failf("node %s (%s) says %q, and its agent never reported a pass of that run's spec", name, s.NodeUID, s)
		}
	}
	if s != nil && s.NodeUID != string(mark.Node.UID) {
		m.failf("node %s has the statement of another one: %s", name, fmt.Sprint(*s))
	}
}

// upToDate is nodeUpToDate.
func (m *machine) upToDate(s *Snapshot, node string) bool {
	live := m.views[len(m.views)-1]
	name := v1alpha1.CommTaskName(s.Group.Name, node)
	version := ""
	if ct := live.commTasks[name]; ct != nil {
		version = ct.ResourceVersion
	}
	nodeIn := func(nodes []corev1.Node) *corev1.Node {
		if at := slices.IndexFunc(nodes, func(n corev1.Node) bool { return n.Name == node }); at >= 0 {
			return &nodes[at]
		}
		return nil
	}
	facts := ""
	if cn := live.commNodes[node]; cn != nil {
		facts = cn.ResourceVersion
	}
	if version != versionIn(s.CommTasks, name) || facts != versionIn(s.CommNodes, node) ||
		!equality.Semantic.DeepEqual(nodeIn(s.Nodes), nodeIn(live.nodes)) {
		return false
	}
	return !slices.ContainsFunc(s.RunPods, func(p corev1.Pod) bool {
		is := live.pods[p.Name]
		return p.Labels[v1alpha1.LabelNode] == v1alpha1.LabelValue(node) &&
			(is == nil || is.ResourceVersion != p.ResourceVersion)
	})
}
