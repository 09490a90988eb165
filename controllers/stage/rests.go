package stage

import (
	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/words"
	"rcclx.io/commgroup-operator/internal/localize"
)

// restsOn names the nodes by whose objects, as they were read, members are let go, and with them their pods, while the stage goes on. A
// manager that takes over may have the group as it is and those as they were: it would end healthy members, and name them.
func (g *machine) restsOn() []string {
	if g.saved == nil || g.savedOver() || g.in.Run.Phase != v1alpha1.RunPhaseRunning {
		return nil
	}
	nodes := map[string]bool{}
	before, err := localize.ParseSet(g.saved.LeftSet)
	gap := false
	for i, s := range g.seats {
		switch {
		case s == nil:
			gap = gap || err == nil && g.left[i] && !before.Has(i)
		case s.held && !s.present:
			nodes[s.name] = true
		}
	}
	for i := range g.in.Members {
		// Of a seat that nobody has it is not known whose it was.
		ct := g.in.CommTasks[g.in.Members[i].Name]
		if gap && (ct == nil || ct.Spec.Session == nil || ct.Spec.Session.RunID != g.in.Run.ID) {
			nodes[g.in.Members[i].Name] = true
		}
	}
	return words.SortedKeys(nodes)
}
