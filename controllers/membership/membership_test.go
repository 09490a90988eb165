package membership

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/testkit"
)

func TestSelect(t *testing.T) {
	zone := func(z string) map[string]string { return map[string]string{corev1.LabelTopologyZone: z} }
	nodes := []corev1.Node{testkit.Node("c", zone("a")), testkit.Node("a", zone("b")), testkit.Node("b", zone("a")),
		testkit.Node("d", zone("b"))}
	nodes[3].Labels["gpu"] = "no"
	leaving := testkit.Node("e", zone("a"))
	leaving.DeletionTimestamp = decision.Stamp(testkit.Now)
	nodes = append(nodes, leaving)
	for name, tc := range map[string]struct {
		members v1alpha1.MembersSpec
		want    string
	}{
		"by label, zone before name": {v1alpha1.MembersSpec{
			NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"gpu": "yes"}}}, "b c a"},
		"empty selector is all": {v1alpha1.MembersSpec{NodeSelector: &metav1.LabelSelector{}}, "b c a d"},
		"by name":               {v1alpha1.MembersSpec{NodeNames: []string{"d", "missing"}}, "d"},
		"both": {v1alpha1.MembersSpec{NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"gpu": "yes"}},
			NodeNames: []string{"d", "a"}}, "b c a d"},
		"less exclude": {v1alpha1.MembersSpec{NodeSelector: &metav1.LabelSelector{},
			NodeNames: []string{"c"}, Exclude: []string{"c", "d"}}, "b a"},
		"at most": {v1alpha1.MembersSpec{NodeSelector: &metav1.LabelSelector{},
			MaxMembers: ptr.To(int32(2))}, "b c"},
	} {
		t.Run(name, func(t *testing.T) {
			g := testkit.Group()
			g.Spec.Members = tc.members
			members, err := Select(&g.Spec, nodes)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for i, m := range members {
				names = append(names, m.Name)
				if m.Ranks.First != int32(i)*8 || m.Ranks.Count != 8 || m.Ranks.WorldSize != int32(len(members))*8 ||
					m.AllocatableGPUs != 8 {
					t.Errorf("member %d: %+v", i, m)
				}
			}
			if got := strings.Join(names, " "); got != tc.want {
				t.Errorf("members %q, expected %q", got, tc.want)
			}
		})
	}
}

func TestHashSeesARecreatedNode(t *testing.T) {
	a := []decision.Member{{Name: "a", UID: "1"}, {Name: "b", UID: "2"}}
	b := []decision.Member{{Name: "a", UID: "1"}, {Name: "b", UID: "3"}}
	if Hash(a) == Hash(b) || Hash(a) != Hash(slices.Clone(a)) {
		t.Error("the hash does not tell one Node object from another")
	}
}
