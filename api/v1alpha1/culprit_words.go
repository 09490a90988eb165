package v1alpha1

import "strings"

// Nodes are the nodes that the culprit is on or between: both ends of a Pair, and none where it is of the whole group.
func (c *Culprit) Nodes() []string {
	switch {
	case len(c.Pair) > 0:
		return c.Pair
	case c.Node != "":
		return []string{c.Node}
	}
	return nil
}

// EarlierCulpritsRun is the run that named the culprits, where that is not the present one: a run that repeats another one
// leaves its culprits until it ends. Empty where they are the present run's, or there are none.
func (s *CommGroupStatus) EarlierCulpritsRun() string {
	if len(s.Culprits) == 0 || s.Run == nil || s.CulpritsRunID == s.Run.ID {
		return ""
	}
	return s.CulpritsRunID
}

// Words name the culprit for people; the node is told where it is not in the name, and where there is one.
func (c *Culprit) Words() string {
	text := strings.TrimSpace(c.Kind + " " + c.Name)
	if c.Node == "" || c.Kind == "Pair" || c.Kind == "Node" && c.Name == c.Node {
		return text
	}
	return text + " on node " + c.Node
}
