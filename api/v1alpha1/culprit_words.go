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

// Words name the culprit for people; the node is told where it is not in the name, and where there is one.
func (c *Culprit) Words() string {
	text := strings.TrimSpace(c.Kind + " " + c.Name)
	if c.Node == "" || c.Kind == "Pair" || c.Kind == "Node" && c.Name == c.Node {
		return text
	}
	return text + " on node " + c.Node
}
