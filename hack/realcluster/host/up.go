package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"rcclx.io/commgroup-operator/hack/realcluster/realnode"
	"rcclx.io/commgroup-operator/hack/simcluster/cluster"
	"rcclx.io/commgroup-operator/hack/simcluster/procs"
	"rcclx.io/commgroup-operator/hack/simrocm/nodetree"
)

const (
	readyDeadline = 180 * time.Second
	pollInterval  = 100 * time.Millisecond
	// SimulatedKey marks the nodes, as label and as annotation.
	SimulatedKey = "rcclx.io/simulated-hardware"
	gpuLabel     = "feature.node.kubernetes.io/amd-gpu"
	gpuResource  = "amd.com/gpu"
)

// Options of a cluster.
type Options struct {
	State cluster.State
	// Executable is this program; Binaries holds the control plane's, kubelet's and kube-proxy's; CNI the network
	// plugins.
	Executable, Binaries, CNI string
	Nodes, GPUs               int
	// Model of the simulated GPUs.
	Model string
	// Images are archives that every node is given.
	Images []string
	// PauseImage is one of those, by name.
	PauseImage string
	Log        func(format string, args ...any)
}

// Up starts the control plane and the nodes, gives them their images, and waits until every node is ready with its
// GPUs.
func Up(ctx context.Context, o Options) error {
	plan, err := NewPlan(o.Nodes)
	if err != nil {
		return err
	}
	for _, name := range []string{"kubelet", "kube-proxy"} {
		if _, err := os.Stat(filepath.Join(o.Binaries, name)); err != nil {
			return fmt.Errorf("%w: run hack/kube/build.sh %s first", err, name)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return err
	}
	if plan.SwitchedOn, err = notGiven(hierarchies(string(mounts))); err != nil {
		return err
	}
	if err := Claim(o.State, plan); err != nil {
		return err
	}
	if err := makeBridge(ctx, o.State, plan); err != nil {
		return err
	}
	gateway := net.IP(plan.Gateway.AsSlice())
	cp, err := cluster.UpWith(ctx, o.State, o.Binaries, cluster.Options{Address: gateway, Claimed: true}, o.Log)
	if err != nil {
		return err
	}
	proxy := o.State.Path("pki", "kube-proxy.kubeconfig")
	if err := cp.PKI.Issue("kube-proxy", cluster.Identity{CN: "system:kube-proxy"}); err != nil {
		return err
	}
	if err := cluster.WriteInlineKubeconfig(proxy, cp.Server, cp.PKI, "kube-proxy"); err != nil {
		return err
	}
	if err := makeFabric(plan); err != nil {
		return err
	}
	began := time.Now()
	for i := range plan.Nodes {
		if err := startNode(ctx, o, cp, plan, i); err != nil {
			return fmt.Errorf("node %s: %w", plan.Nodes[i].Name, err)
		}
	}
	if err := waitForContainerd(ctx, o.State, plan); err != nil {
		return err
	}
	o.Log("%d nodes run containerd after %.1f s", len(plan.Nodes), time.Since(began).Seconds())
	began = time.Now()
	if err := Load(ctx, o.State, o.Images); err != nil {
		return err
	}
	o.Log("%d images loaded after %.1f s", len(o.Images), time.Since(began).Seconds())
	began = time.Now()
	if err := markNodes(ctx, o, plan); err != nil {
		return err
	}
	o.Log("%d nodes ready with %d %s each after %.1f s",
		len(plan.Nodes), o.GPUs, gpuResource, time.Since(began).Seconds())
	return nil
}

// Claim makes the state directory and writes down what is going to be made.
func Claim(state cluster.State, plan Plan) error {
	if err := state.Claim(); err != nil {
		return err
	}
	// The control plane's part of down removes the folder that this file names.
	return errors.Join(os.WriteFile(state.Path("shm-dir"), []byte(plan.Fabric), 0o644), plan.Save(state))
}

// makeFabric makes the folder that every node's containers may write to.
func makeFabric(plan Plan) error {
	if err := os.Mkdir(plan.Fabric, 0o700); err != nil {
		return err
	}
	return os.Chmod(plan.Fabric, 0o777|os.ModeSticky)
}

// startNode starts a node's first process in namespaces of its own, plugs in its cable and lets it go on.
func startNode(ctx context.Context, o Options, cp *cluster.ControlPlane, plan Plan, index int) error {
	n := plan.Nodes[index]
	dir := o.State.Path("nodes", n.Name)
	c := realnode.Config{
		Name: n.Name, IP: n.IP.String(), Gateway: plan.Gateway.String(), PrefixBits: plan.Bits,
		PodSubnet: n.PodSubnet.String(), ClusterSubnet: podNetwork, ClusterDNS: dnsAddress, Routes: map[string]string{},
		CgroupRoot: n.Cgroup, GPUs: o.GPUs, PauseImage: o.PauseImage,
		Root: filepath.Join(dir, "mount"), Tree: o.State.NodeRoot(n.Name), Var: filepath.Join(dir, "var"),
		Settings: filepath.Join(dir, "settings"),
		Logs:     filepath.Join(o.State.LogDir(), n.Name), Binaries: o.Binaries, CNI: o.CNI, Fabric: plan.Fabric,
		Kubeconfig: filepath.Join(dir, "kubeconfig"), Proxy: o.State.Path("pki", "kube-proxy.kubeconfig"),
		CertFile: cp.PKI.CertFile("node-" + n.Name), KeyFile: cp.PKI.KeyFile("node-" + n.Name),
		CAFile: cp.PKI.CertFile("ca"),
	}
	for i, other := range plan.Nodes {
		if i != index {
			c.Routes[other.PodSubnet.String()] = other.IP.String()
		}
	}
	for _, d := range []string{c.Root, c.Var, c.Settings, c.Logs, filepath.Join(c.Var, "log"),
		filepath.Join(c.Var, "lib")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	node, err := nodetree.Defaults(o.Model)
	if err != nil {
		return err
	}
	node.Name = n.Name
	tree, err := nodetree.Generate(node)
	if err != nil {
		return err
	}
	tree.Remove("sys/devices/system") // CPUs and memory are the machine's: the kubelet counts them
	if err := tree.Write(c.Tree); err != nil {
		return err
	}
	if err := cp.AddNodeIdentity(n.Name, net.IP(n.IP.AsSlice()), c.Kubeconfig); err != nil {
		return err
	}
	if err := cluster.WriteInlineKubeconfig(c.Kubeconfig, cp.Server, cp.PKI, "node-"+n.Name); err != nil {
		return err
	}
	if err := realnode.WriteSettings(c); err != nil {
		return err
	}
	config := filepath.Join(dir, "node.json")
	if err := cluster.WriteJSON(config, c); err != nil {
		return err
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return err
	}
	if err := makeGroup(hierarchies(string(mounts)), n.Cgroup); err != nil {
		return err
	}
	return o.launch(ctx, plan, n, config)
}

// launch starts the first process. All of the node is below it, so that its end is the node's.
func (o Options) launch(ctx context.Context, plan Plan, n NodePlan, config string) error {
	logFile, err := os.OpenFile(filepath.Join(o.State.LogDir(), nodeRecord(n)+".log"),
		os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = logFile.Close() }()
	in, out, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }()
	cmd := exec.Command(o.Executable, "node", "--config", config)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Dir = in, logFile, logFile, "/"
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/"}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid: true, Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID |
			syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
	}
	err = cmd.Start()
	_ = in.Close()
	if err != nil {
		return fmt.Errorf("start the node's first process: %w", err)
	}
	go func() { _ = cmd.Wait() }()
	record, err := procs.New(nodeRecord(n), cmd.Process.Pid, o.Executable)
	if err == nil {
		err = record.Save(o.State.RunDir())
	}
	if err != nil {
		return errors.Join(err, cmd.Process.Kill())
	}
	if err := plugIn(ctx, plan, n, record.PID); err != nil {
		return err
	}
	_, err = out.WriteString(realnode.GoLine)
	return err
}

// nodeRecord is the name of the record and of the log of a node's first process.
func nodeRecord(n NodePlan) string { return "node-" + n.Name }

func nodeAlive(state cluster.State, n NodePlan) (procs.Record, error) {
	records, err := procs.Load(state.RunDir())
	if err != nil {
		return procs.Record{}, err
	}
	for _, r := range records {
		if r.Name == nodeRecord(n) {
			if !r.Alive() {
				return r, fmt.Errorf("%s ended; the end of its log:\n%s", n.Name, state.LogTail(nodeRecord(n), 25))
			}
			return r, nil
		}
	}
	return procs.Record{}, fmt.Errorf("%s was not started: start the cluster with `realcluster up`", n.Name)
}

// await asks until the answer is nil, or the deadline passes; the error tells the last answer.
func await(ctx context.Context, what string, ask func() error) error {
	ctx, cancel := context.WithTimeout(ctx, readyDeadline)
	defer cancel()
	for {
		err := ask()
		if err == nil {
			return nil
		}
		var gone endedError
		if errors.As(err, &gone) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited %s for %s: %w", readyDeadline, what, err)
		case <-time.After(pollInterval):
		}
	}
}

// endedError is an answer after which waiting is of no use.
type endedError struct{ error }

func waitForContainerd(ctx context.Context, state cluster.State, plan Plan) error {
	for _, n := range plan.Nodes {
		err := await(ctx, "containerd of "+n.Name, func() error {
			r, err := nodeAlive(state, n)
			if err != nil {
				return endedError{err}
			}
			conn, err := net.DialTimeout("unix", containerdOf(r), time.Second)
			if err != nil {
				return err
			}
			return conn.Close()
		})
		if err != nil {
			return fmt.Errorf("%w\n%s", err, state.LogTail(nodeRecord(n), 25))
		}
	}
	return nil
}

// containerdOf is the socket of a node's containerd as the machine sees it.
func containerdOf(r procs.Record) string {
	return fmt.Sprintf("/proc/%d/root%s", r.PID, realnode.ContainerdSocket)
}

// markNodes labels the nodes as their discovery would, says that their hardware is simulated, and waits until each is
// ready.
func markNodes(ctx context.Context, o Options, plan Plan) error {
	config, err := clientcmd.BuildConfigFromFlags("", o.State.Kubeconfig())
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	if err := allowKubelets(ctx, client); err != nil {
		return err
	}
	patch := fmt.Appendf(nil,
		`{"metadata":{"labels":{%q:"true","amd.com/gpu.product-name":"AMD_Instinct_%s",%q:"true"},"annotations":{%q:"GPUs, sysfs and ROCm of this node are simulated"}}}`,
		gpuLabel, strings.ReplaceAll(o.Model, " ", "_"), SimulatedKey, SimulatedKey)
	for _, n := range plan.Nodes {
		err := await(ctx, n.Name+" to be ready with its GPUs", func() error {
			if _, err := nodeAlive(o.State, n); err != nil {
				return endedError{err}
			}
			node, err := client.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if node.Labels[SimulatedKey] == "" {
				if _, err := client.CoreV1().Nodes().Patch(ctx, n.Name, types.StrategicMergePatchType, patch,
					metav1.PatchOptions{}); err != nil {
					return err
				}
			}
			return ready(node, int64(o.GPUs))
		})
		if err != nil {
			return fmt.Errorf("%w\nthe end of the kubelet's log:\n%s", err, o.State.LogTail(n.Name+"/kubelet", 25))
		}
	}
	return nil
}

// allowKubelets lets the API server ask kubelets for logs and statistics: they ask back whether it may.
func allowKubelets(ctx context.Context, client kubernetes.Interface) error {
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "realcluster:kube-apiserver-kubelet"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:kubelet-api-admin"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind,
			Name: cluster.KubeletClientName}},
	}
	_, err := client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{})
	return err
}

// ready says why a node cannot be used yet.
func ready(node *corev1.Node, gpus int64) error {
	state := "has no condition Ready"
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			if c.Status == corev1.ConditionTrue {
				quantity := node.Status.Allocatable[gpuResource]
				if got := quantity.Value(); got != gpus {
					return fmt.Errorf("%s offers %d %s, expected %d", node.Name, got, gpuResource, gpus)
				}
				return nil
			}
			state = fmt.Sprintf("is not ready: %s: %s", c.Reason, c.Message)
		}
	}
	return fmt.Errorf("%s %s", node.Name, state)
}

// Load gives images in archives to every node.
func Load(ctx context.Context, state cluster.State, archives []string) error {
	plan, err := LoadPlan(state)
	if err != nil {
		return err
	}
	results := make(chan error, len(plan.Nodes))
	for _, n := range plan.Nodes {
		go func() {
			r, err := nodeAlive(state, n)
			if err != nil {
				results <- err
				return
			}
			for _, archive := range archives {
				if err := commandWithin(ctx, loadDeadline, "ctr", "--address", containerdOf(r), "--namespace", "k8s.io",
					"images", "import", archive); err != nil {
					results <- fmt.Errorf("load %s into %s: %w", archive, n.Name, err)
					return
				}
			}
			results <- nil
		}()
	}
	var failed []error
	for range plan.Nodes {
		failed = append(failed, <-results)
	}
	return errors.Join(failed...)
}
