package host

import (
	"crypto/rand"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"rcclx.io/commgroup-operator/hack/simcluster/cluster"
	"rcclx.io/commgroup-operator/hack/simcluster/procs"
)

// testPlan uses other names and addresses than a cluster, which may run at the same time.
func testPlan() Plan {
	return Plan{Fabric: cluster.SharedMemoryPrefix + rand.Text(), Bridge: "cg-test",
		Gateway: netip.MustParseAddr("10.79.0.1"), Bits: 24, Nodes: []NodePlan{
			{Name: "test-node-0", IP: netip.MustParseAddr("10.79.0.11"), Veth: "cg-test-0",
				PodSubnet: netip.MustParsePrefix("10.80.1.0/24"), Cgroup: "/commgroup-e2e-test-0"},
			{Name: "test-node-1", IP: netip.MustParseAddr("10.79.0.12"), Veth: "cg-test-1",
				PodSubnet: netip.MustParsePrefix("10.80.2.0/24"), Cgroup: "/commgroup-e2e-test-1"},
		}}
}

// TestDownRemovesWhatWasMade makes what a cluster makes on the machine, stopping at various points as a crash would,
// and ends it.
func TestDownRemovesWhatWasMade(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("making bridges, namespaces and control groups needs root")
	}
	for _, tool := range []string{"ip", "unshare", "sh"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%v", err)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("unshare", "--mount", "--net", "--pid", "--fork", "ip", "link", "add", "x", "type",
		"bridge").CombinedOutput(); err != nil {
		t.Skipf("namespaces or bridges are not allowed here: %v: %s", err, out)
	}
	if err := checkGroups(hierarchies(string(mounts))); err != nil {
		t.Skip(err)
	}
	found, err := machineRoutes()
	if err != nil {
		t.Fatal(err)
	}
	if c := conflict(found, "10.79.0.0/24", "10.80.0.0/16"); c != "" {
		t.Skip(c)
	}
	plan := testPlan()
	for name, nodes := range map[string]int{"before the bridge": -1, "after the bridge": 0,
		"after one node": 1, "after all": 2} {
		t.Run(name, func(t *testing.T) {
			state := cluster.State{Dir: filepath.Join(t.TempDir(), "state")}
			t.Cleanup(func() {
				if err := Down(t.Context(), state, t.Logf); err != nil {
					t.Error(err)
				}
			})
			if err := Claim(state, plan); err != nil {
				t.Fatal(err)
			}
			if nodes >= 0 {
				if err := makeBridge(t.Context(), state, plan); err != nil {
					t.Fatal(err)
				}
			}
			if nodes > 0 {
				if err := makeFabric(plan); err != nil {
					t.Fatal(err)
				}
			}
			for i := range nodes {
				startSleeper(t, state, plan, plan.Nodes[i], hierarchies(string(mounts)))
			}
			if left, err := leftovers(state, plan); err != nil || nodes > 0 && len(left) < 8 {
				t.Errorf("what is there before the end: %q, %v", left, err)
			}
			for range 2 { // once more is no error
				if err := Down(t.Context(), state, t.Logf); err != nil {
					t.Fatal(err)
				}
			}
			if left, err := leftovers(state, plan); err != nil || len(left) > 0 {
				t.Errorf("left: %q, %v", left, err)
			}
		})
	}
}

// startSleeper is a node whose first process has a child, in a group of the node, and a mount.
func startSleeper(t *testing.T, state cluster.State, plan Plan, n NodePlan, groups []Hierarchy) {
	t.Helper()
	if err := makeGroup(groups, n.Cgroup); err != nil {
		t.Fatal(err)
	}
	for _, h := range groups {
		if err := os.MkdirAll(filepath.Join(h.Mount, n.Cgroup, "kubepods/pod"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	dir := state.Path("mounted-" + n.Name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	script := "mount --make-rprivate / && mount -t tmpfs none " + dir + " && sleep 600 & echo 0 > " +
		filepath.Join(groups[0].Mount, n.Cgroup, "cgroup.procs") + "; exec sleep 600"
	cmd := exec.Command("sh", "-c", script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true,
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = cmd.Wait() }()
	record, err := procs.New(nodeRecord(n), cmd.Process.Pid, "") // the shell becomes sleep
	if err == nil {
		err = record.Save(state.RunDir())
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := plugIn(t.Context(), plan, n, record.PID); err != nil {
		t.Fatal(err)
	}
}

// A bridge of that name that somebody else made is neither taken nor removed.
func TestForeignBridgeStays(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("making bridges needs root")
	}
	plan := testPlan()
	plan.Bridge, plan.Nodes = "cg-foreign", nil
	if out, err := exec.Command("ip", "link", "add", "name", plan.Bridge, "type", "bridge").
		CombinedOutput(); err != nil {
		t.Skipf("bridges are not allowed here: %v: %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("ip", "link", "delete", plan.Bridge).Run() })
	state := cluster.State{Dir: filepath.Join(t.TempDir(), "state")}
	if err := Claim(state, plan); err != nil {
		t.Fatal(err)
	}
	if err := makeBridge(t.Context(), state, plan); err == nil || !strings.Contains(err.Error(), "there already") {
		t.Errorf("somebody's bridge was taken: %v", err)
	}
	if err := removeNetwork(t.Context(), state, plan); err != nil {
		t.Error(err)
	}
	if !exists("/sys/class/net/" + plan.Bridge) {
		t.Error("somebody's bridge was removed")
	}
}
