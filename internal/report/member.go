package report

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// Member is a member of a group: its part in the group's runs, and what is known of its node.
type Member struct {
	v1alpha1.CommTask
	// Node is the node's CommNode; nil where there is none, or where it was not read.
	Node *v1alpha1.CommNode
}

// NoMember is a node that is a member of no group.
func NoMember(node string) Member {
	var m Member
	m.Spec.NodeName = node
	return m
}

// Facts of the node as its monitor reported them; nil where they are not known.
func (m *Member) Facts() *v1alpha1.NodeFacts {
	if m.Node == nil {
		return nil
	}
	return m.Node.Status.Facts
}

// Members are the members of a group, without what is known of their nodes.
func Members(tasks []v1alpha1.CommTask) []Member {
	out := make([]Member, len(tasks))
	for i := range tasks {
		out[i].CommTask = tasks[i]
	}
	return out
}

// Tasks are the members' parts in the runs alone.
func Tasks(members []Member) []v1alpha1.CommTask {
	out := make([]v1alpha1.CommTask, len(members))
	for i := range members {
		out[i] = members[i].CommTask
	}
	return out
}

// NodesRole is the ClusterRole for users who may read CommNodes, which are cluster-scoped.
const NodesRole = "commgroup-node-viewer"

const (
	// getAtMost so many CommNodes are read one by one; for more members all of the cluster's are listed.
	getAtMost = 32
	// nodesPage: 12,500 CommNodes in one answer would be 100 MB for the API server.
	nodesPage = 500
)

// ReadNodes joins each member with its node's CommNode. unread says where these credentials may not read CommNodes:
// then members keep what their last run saw of the nodes, and that is no error.
func ReadNodes(ctx context.Context, c client.Reader, members []Member) (unread string, err error) {
	if len(members) > getAtMost {
		err = listNodes(ctx, c, members)
	} else {
		err = getNodes(ctx, c, members)
	}
	if apierrors.IsForbidden(err) {
		return "nodes are shown as the last run saw them, without links, NICs and problems: CommNodes may not be " +
			"read with these credentials; ask for a ClusterRoleBinding to ClusterRole " + NodesRole, nil
	}
	return "", err
}

func getNodes(ctx context.Context, c client.Reader, members []Member) error {
	for i := range members {
		node := &v1alpha1.CommNode{}
		err := c.Get(ctx, client.ObjectKey{Name: members[i].Spec.NodeName}, node)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("reading CommNode %s: %w", members[i].Spec.NodeName, err)
		}
		members[i].join(node)
	}
	return nil
}

func listNodes(ctx context.Context, c client.Reader, members []Member) error {
	byName := make(map[string]*Member, len(members))
	for i := range members {
		byName[members[i].Spec.NodeName] = &members[i]
	}
	for token := ""; ; {
		var list v1alpha1.CommNodeList
		if err := c.List(ctx, &list, client.Limit(nodesPage), client.Continue(token)); err != nil {
			return fmt.Errorf("listing CommNodes: %w", err)
		}
		for i := range list.Items {
			if m := byName[list.Items[i].Name]; m != nil {
				m.join(list.Items[i].DeepCopy()) // the page goes
			}
		}
		if token = list.Continue; token == "" {
			return nil
		}
	}
}

// join takes a CommNode unless it is of another Node object, which had the name before or has it now.
func (m *Member) join(node *v1alpha1.CommNode) {
	if m.Spec.NodeUID == "" || node.Spec.NodeUID == m.Spec.NodeUID {
		node.ManagedFields = nil // half of the memory of a large group
		m.Node = node
	}
}

// Hardware is what a node is, in words; what is not known is empty.
type Hardware struct {
	GPUs, Model, GFX, Mode, ROCm, Driver, Mesh string
}

// Hardware of the member: by its CommNode, else as the last run saw it.
func (m *Member) Hardware() Hardware {
	if f := m.Facts(); f != nil {
		return Hardware{GPUs: fmt.Sprint(f.GPUCount), Model: f.GPUModel, GFX: f.GFXTarget, Mode: f.Partition,
			ROCm: f.ROCm.Version, Driver: Driver(f.Driver), Mesh: MeshWords(f.XGMI)}
	}
	if m.Spec.Run == nil || m.Spec.Run.Platform == nil {
		return Hardware{}
	}
	p := m.Spec.Run.Platform
	gpus, _, _ := strings.Cut(p.GPUs, "/") // the rest is a hash of their addresses
	return Hardware{GPUs: gpus, Model: p.Model, Mode: p.Partition, ROCm: p.ROCm, Driver: p.Driver, Mesh: p.Mesh}
}
