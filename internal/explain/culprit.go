package explain

import (
	"strings"

	api "rcclx.io/commgroup-operator/api/v1alpha1"
)

// Culprit names the culprit; the node follows where the name does not say it, and where there is one.
func Culprit(c *api.Culprit) string {
	text := strings.TrimSpace(c.Kind + " " + c.Name)
	if c.Node == "" || c.Kind == "Pair" || c.Kind == "Node" && c.Name == c.Node {
		return text
	}
	return text + " on node " + c.Node
}
