package v1alpha1

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
