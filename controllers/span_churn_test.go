package controllers

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/stage"
	"rcclx.io/commgroup-operator/controllers/testkit"
	"rcclx.io/commgroup-operator/internal/state"
	"rcclx.io/commgroup-operator/internal/testenv"
)

// churn changes the nodes of a groupWorld while its runs go on.
type churn struct {
	*groupWorld
	t *testing.T
	r *rand.Rand
	// bad is the name of the node that hangs, empty where none does; it keeps its fault under another name.
	bad string
	// events are still to come, the next after so many steps; later is put off until dueAt.
	events, steps, next int
	later               []func()
	dueAt               time.Time
	// hurt are nodes that each run's stage lost, by run; away those that may come back.
	hurt map[string][]string
	away []corev1.Node
	log  []string
}

// TestRandomChurn: nodes are deleted, re-created under their names, renamed, come back, join, and lose their labels
// while runs go on. Each run ends and holds no GPU past its end, a stage that lost a node never passes, and no innocent
// node is named.
func TestRandomChurn(t *testing.T) {
	for seed := range testenv.Draws[uint64](12, 60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 7))
			nodes := 4 + r.IntN(8)
			var change func(*state.Group)
			if r.IntN(2) == 0 {
				change = testkit.Mesh("dp", nodes, "tp", 8)
			}
			c := &churn{groupWorld: newGroupWorld(t, nodes, faults{}, change), t: t, r: r, events: 1 + r.IntN(4),
				next: r.IntN(12), hurt: map[string][]string{}}
			if r.IntN(2) == 0 {
				c.bad = c.nodes[r.IntN(nodes)].Name
			}
			c.settleFaults()
			c.meddle = c.meddleOnce
			c.play()
			if n := c.alive(); n != 0 {
				t.Errorf("%d pods hold GPUs: %v", n, c.log)
			}
			for _, ct := range c.commTasks {
				if s := ct.Spec.Session; s != nil && s.State != v1alpha1.SessionClosed {
					t.Errorf("the session of %s is %s: %v", ct.Spec.NodeName, s.State, c.log)
				}
			}
		})
	}
}

// settleFaults moves the fault to where its node now is.
func (c *churn) settleFaults() {
	clear(c.index)
	c.faults.hangNodes = nil
	for i := range c.nodes {
		if c.index[c.nodes[i].Name] = i; c.nodes[i].Name == c.bad {
			c.faults.hangNodes = []int{i}
		}
	}
}

func (c *churn) meddleOnce() {
	c.steps++
	if s := c.span(); s != nil && s.Stage == v1alpha1.StageEnded {
		if lost := c.hurt[s.RunID]; s.Verdict == v1alpha1.VerdictPass && len(lost) > 0 {
			c.t.Errorf("run %s passed and lost %v: %v: %s", s.RunID, lost, c.log, s.Message)
		}
		for _, culprit := range s.Culprits {
			if stage.VerdictOf(culprit.Reason) == v1alpha1.VerdictFail && culprit.Node != c.bad {
				c.t.Errorf("innocent %+v, the bad one is %q: %v", culprit, c.bad, c.log)
			}
		}
	}
	if len(c.later) > 0 && c.now.After(c.dueAt) {
		for _, do := range c.later {
			do()
		}
		c.later = nil
	}
	if c.events > 0 && c.steps >= c.next {
		c.events--
		c.next = c.steps + 1 + c.r.IntN(12)
		c.event()
	}
}

func (c *churn) after(most time.Duration, do func()) {
	c.later, c.dueAt = append(c.later, do), c.now.Add(time.Duration(c.r.Int64N(int64(most))))
}

func (c *churn) dropPods(node string) {
	for _, pod := range c.pods {
		if pod.Labels[v1alpha1.LabelNode] == node {
			delete(c.pods, pod.Name)
		}
	}
}

func (c *churn) event() {
	c.nodes = slices.Clone(c.nodes)
	i := c.r.IntN(len(c.nodes))
	node := c.nodes[i]
	what := []string{"made anew", "made anew, its pods stay a while", "deleted", "joins", "loses its label for a while",
		"renamed"}[c.r.IntN(6)]
	c.log = append(c.log, node.Name+" "+what)
	if s, ct := c.span(), c.commTask(node.Name); what != "joins" && s != nil && s.Stage != v1alpha1.StageEnded &&
		ct != nil && ct.Spec.Session != nil && ct.Spec.Session.RunID == s.RunID {
		c.hurt[s.RunID] = append(c.hurt[s.RunID], node.Name)
	}
	switch what {
	case "made anew":
		c.nodes[i].UID = types.UID(fmt.Sprint(node.UID, "-", c.steps))
		c.dropPods(node.Name)
	case "made anew, its pods stay a while":
		c.nodes[i].UID = types.UID(fmt.Sprint(node.UID, "-", c.steps))
		c.after(5*time.Minute, func() { c.dropPods(node.Name) })
	case "deleted":
		c.nodes = slices.Delete(c.nodes, i, i+1)
		c.away = append(c.away, node)
		c.dropPods(node.Name)
	case "joins":
		fresh := testkit.Node(fmt.Sprintf("n%05d", 100+c.steps), nil)
		if n := len(c.away); n > 0 {
			fresh, c.away = c.away[n-1], c.away[:n-1]
			fresh.UID = types.UID(fmt.Sprint(fresh.UID, "-", c.steps))
		}
		c.nodes = append(c.nodes, fresh)
	case "loses its label for a while":
		c.relabel(node.Name, func(n *corev1.Node) { delete(n.Labels, "gpu") })
		c.after(time.Minute, func() { c.relabel(node.Name, func(n *corev1.Node) { n.Labels["gpu"] = "yes" }) })
	case "renamed":
		fresh := testkit.Node(fmt.Sprintf("n%05d", 200+c.steps), nil)
		if node.Name == c.bad {
			c.bad = fresh.Name
		}
		c.nodes = append(slices.Delete(c.nodes, i, i+1), fresh)
		c.dropPods(node.Name)
	}
	slices.SortFunc(c.nodes, func(a, b corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	c.settleFaults()
}

func (c *churn) relabel(name string, change func(*corev1.Node)) {
	c.nodes = slices.Clone(c.nodes)
	for i := range c.nodes {
		if c.nodes[i].Name == name {
			c.nodes[i] = *c.nodes[i].DeepCopy()
			change(&c.nodes[i])
		}
	}
}
