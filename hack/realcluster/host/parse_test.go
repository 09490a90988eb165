package host

import (
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

const routeTable = `Iface	Destination	Gateway 	Flags	RefCnt	Use	Metric	Mask		MTU	Window	IRTT
eth0	00000000	0100000A	0003	0	0	0	00000000	0	0	0
eth0	0000000A	00000000	0001	0	0	0	00FFFFFF	0	0	0
cg-e2e	00004D0A	00000000	0001	0	0	0	00FFFFFF	0	0	0
`

func TestRoutes(t *testing.T) {
	got, err := routes(routeTable)
	want := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("10.77.0.0/24")}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("routes are %v, %v; expected %v", got, err, want)
	}
	if c := conflict(got, nodeNetwork); !strings.Contains(c, "10.77.0.0/24") {
		t.Errorf("the conflict is %q, expected one with the nodes' network", c)
	}
	if c := conflict(want[:1], nodeNetwork, podNetwork, serviceNetwork); c != "" {
		t.Errorf("10.0.0.0/24 conflicts: %s", c)
	}
	for _, bad := range []string{"h\neth0 00000000 0\n", "h\neth0 x 0 0 0 0 0 0 0\n",
		"h\neth0 00000000 0 0 0 0 0 FFFFFFFFFF 0\n"} {
		if got, err := routes(bad); err == nil {
			t.Errorf("%q was taken as %v", bad, got)
		}
	}
}

// TestForwardPolicyThatSeparatesNodesIsNamed: else the cluster comes up, and a run over its nodes waits until its
// deadline.
func TestForwardPolicyThatSeparatesNodesIsNamed(t *testing.T) {
	const docker = "-P FORWARD DROP\n-A FORWARD -j DOCKER-USER\n-A FORWARD -i docker0 -o docker0 -j ACCEPT\n"
	for _, c := range []struct{ name, filter, rules, want string }{
		{"Docker", "1\n", docker, "policy DROP"},
		{"Docker, and bridges are not filtered", "0\n", docker, ""},
		{"Docker without br_netfilter", "", docker, ""},
		{"Docker, and a person allowed the nodes", "1\n",
			strings.Replace(docker, "\n", "\n-A FORWARD -i cg-e2e -o cg-e2e -j ACCEPT\n", 1), ""},
		{"nothing", "1\n", "-P FORWARD ACCEPT\n", ""},
	} {
		if got := forwardRefuses(c.filter, c.rules); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, expected %q in it", c.name, got, c.want)
		}
	}
}

func FuzzRoutes(f *testing.F) {
	f.Add(routeTable)
	f.Fuzz(func(t *testing.T, table string) {
		got, err := routes(table)
		for _, p := range got {
			if err == nil && (!p.IsValid() || p.Bits() == 0) {
				t.Errorf("%q gives the network %v", table, p)
			}
		}
	})
}

func TestHierarchies(t *testing.T) {
	got := hierarchies(`sysfs /sys sysfs rw,relatime 0 0
cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0
cgroup /sys/fs/cgroup/systemd cgroup rw,relatime,name=systemd 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0
broken line
`)
	want := []Hierarchy{
		{Mount: "/sys/fs/cgroup/cpu,cpuacct", Controllers: []string{"cpu", "cpuacct"}},
		{Mount: "/sys/fs/cgroup/systemd"},
		{Mount: "/sys/fs/cgroup/unified", Unified: true},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("hierarchies are %+v, expected %+v", got, want)
	}
	if err := checkGroups(want[:2]); err == nil || !strings.Contains(err.Error(), "cpuset") {
		t.Errorf("groups without cpuset: %v", err)
	}
}

// TestControllersAreTakenBack: those that the cluster switched on in the machine's root group, and no others.
func TestControllersAreTakenBack(t *testing.T) {
	mount := t.TempDir()
	for name, text := range map[string]string{"cgroup.controllers": "cpuset cpu memory\n",
		"cgroup.subtree_control": "cpu memory\n"} {
		if err := os.WriteFile(filepath.Join(mount, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	before, err := notGiven([]Hierarchy{{Mount: "/nowhere", Controllers: []string{"cpu"}},
		{Mount: mount, Unified: true}})
	if err != nil || !reflect.DeepEqual(before, map[string][]string{mount: {"cpuset"}}) {
		t.Errorf("not given are %v, %v; expected cpuset", before, err)
	}
	if err := takeBack(before); err != nil {
		t.Error(err)
	}
	if asked, err := os.ReadFile(filepath.Join(mount, "cgroup.subtree_control")); err != nil ||
		string(asked) != "-cpuset" {
		t.Errorf("the kernel was asked %q, %v", asked, err)
	}
}

func FuzzHierarchies(f *testing.F) {
	f.Add("cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n")
	f.Fuzz(func(t *testing.T, mounts string) {
		for _, h := range hierarchies(mounts) {
			if h.Mount == "" || h.Unified && h.Controllers != nil {
				t.Errorf("%q gives %+v", mounts, h)
			}
		}
	})
}

func TestPlan(t *testing.T) {
	for _, n := range []int{0, MaxNodes + 1} {
		if _, err := NewPlan(n); err == nil {
			t.Errorf("a plan of %d nodes was made", n)
		}
	}
	p, err := NewPlan(MaxNodes)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	nodes, pods := netip.MustParsePrefix(nodeNetwork), netip.MustParsePrefix(podNetwork)
	for _, n := range p.Nodes {
		for _, unique := range []string{n.Name, n.IP.String(), n.Veth, n.PodSubnet.String(), n.Cgroup} {
			if seen[unique] {
				t.Errorf("%s comes twice", unique)
			}
			seen[unique] = true
		}
		if !nodes.Contains(n.IP) || n.IP == p.Gateway || !pods.Contains(n.PodSubnet.Addr()) {
			t.Errorf("%s has address %s and pods in %s", n.Name, n.IP, n.PodSubnet)
		}
		if len(n.Veth) > 15 {
			t.Errorf("%s is longer than the kernel allows for an interface", n.Veth)
		}
	}
}

func TestReady(t *testing.T) {
	node := &corev1.Node{}
	node.Name = "n"
	for _, c := range []struct {
		state corev1.ConditionStatus
		gpus  string
		want  string
	}{{"", "8", "no condition"}, {corev1.ConditionFalse, "8", "not ready"}, {corev1.ConditionTrue, "0", "offers 0"},
		{corev1.ConditionTrue, "8", ""}} {
		node.Status = corev1.NodeStatus{Allocatable: corev1.ResourceList{gpuResource: resource.MustParse(c.gpus)}}
		if c.state != "" {
			node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: c.state}}
		}
		err := ready(node, 8)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
