package metrics

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	contract "rcclx.io/commgroup-operator/internal/metrics"
	"rcclx.io/commgroup-operator/internal/state"
)

// listDeadline bounds the look into the cache, which answers at once where it is filled.
const listDeadline = 10 * time.Second

// Collector shows all CommGroups of the manager's cache. It holds no state of its own.
type Collector struct {
	// Reader is the manager's cache. The objects that it gives are only read.
	Reader client.Reader
	// Elected is closed once this manager leads: of several, one speaks for the groups.
	Elected <-chan struct{}
	// PerNode adds the series of each member.
	PerNode bool
	// Version of the manager.
	Version string
}

var _ prometheus.Collector = &Collector{}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(out chan<- *prometheus.Desc) { contract.Describe(contract.Manager, out) }

// Collect implements prometheus.Collector. Where the cache does not answer the scrape fails: no series at all would
// read as no group.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	select {
	case <-c.Elected:
	default:
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), listDeadline)
	defer cancel()
	var groups v1alpha1.CommGroupList
	var runs v1alpha1.CommRunList
	var tasks v1alpha1.CommTaskList
	var nodes v1alpha1.CommNodeList
	// The cache's own objects, not copies: at 12,500 members copies are 100 MB a scrape.
	for _, list := range []client.ObjectList{&groups, &runs, &tasks, &nodes} {
		if err := c.Reader.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			out <- prometheus.NewInvalidMetric(prometheus.NewInvalidDesc(err),
				fmt.Errorf("list %T from the manager's cache within %s: %w; look at the manager's log and its rights",
					list, listDeadline, err))
			return
		}
	}
	byGroup, byName := members(tasks.Items), named(nodes.Items)
	emitter := contract.NewEmitter(out, 5*len(tasks.Items)+500*len(groups.Items))
	emitter.Emit([]contract.Sample{{Metric: &contract.ManagerInfo, Value: 1, Labels: []string{c.Version}}})
	joined := state.JoinAll(groups.Items, runs.Items)
	for i := range joined {
		group := &joined[i]
		emitter.Emit(Samples(group, byGroup[keyOf(group.Namespace, group.UID)], byName, c.PerNode))
	}
}

// named are the CommNodes by their node.
func named(nodes []v1alpha1.CommNode) map[string]*v1alpha1.CommNode {
	out := make(map[string]*v1alpha1.CommNode, len(nodes))
	for i := range nodes {
		out[nodes[i].Name] = &nodes[i]
	}
	return out
}

// groupKey is one group: a CommTask belongs to a group of its own namespace alone, whatever UID it names.
type groupKey struct {
	namespace string
	uid       types.UID
}

func keyOf(namespace string, uid types.UID) groupKey { return groupKey{namespace: namespace, uid: uid} }

// members are the CommTasks by their group. Those of an older group of the same name are not its members.
func members(tasks []v1alpha1.CommTask) map[groupKey][]*v1alpha1.CommTask {
	out := map[groupKey][]*v1alpha1.CommTask{}
	for i := range tasks {
		key := keyOf(tasks[i].Namespace, types.UID(tasks[i].Spec.Group.UID))
		out[key] = append(out[key], &tasks[i])
	}
	return out
}
