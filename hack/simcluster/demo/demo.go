package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/hack/simcluster/cluster"
	"rcclx.io/commgroup-operator/hack/simcluster/simnode"
	"rcclx.io/commgroup-operator/hack/simrocm/nodetree"
)

const (
	operatorNamespace = "commgroup-system"
	gpusPerNode       = 8
	healthyROCm       = "7.0.2"
)

// Options of a demo.
type Options struct {
	State cluster.State
	// Repo is the repository's root; Binaries holds the control plane's, Bin the operator's and Simrocm the simulated
	// ROCm libraries.
	Repo, Binaries, Bin, Simrocm string
	Fault                        *Fault
	// Span: the group's stage over several nodes. Nodes with GPUs, MinNodes to MaxNodes.
	Span  bool
	Nodes int
	// Changes come one after the other once the group is Ready.
	Changes []*Fault
	// Began is when the whole command began, builds included.
	Began time.Time
	// Deadlines for the manager to be available and for the group to come to its outcome.
	ManagerDeadline, GroupDeadline time.Duration
	Out                            io.Writer
}

// The bounds of Options.Nodes: FaultyNode is the third, and the simulator adds up on the CPU.
const (
	MinNodes = 3
	MaxNodes = 16
)

// demo is one demo under way.
type demo struct {
	Options
	client client.WithWatch
	// node is what FaultyNode's tree was made from last.
	node nodetree.Node
	transcript
}

// Run carries the demo out. The error is non-nil when the expected outcome was not reached.
func Run(ctx context.Context, o Options) error {
	d := &demo{Options: o, transcript: transcript{out: o.Out, began: o.Began, mark: o.Began}}
	d.done("builds and cleaning up")
	d.say("SIMULATED: no GPU is used. Nodes, GPUs, ROCm libraries and times come from a simulator; the operator, " +
		"its agents and the Kubernetes control plane are real.")
	if o.Fault != nil {
		d.say("FAULT=%s: on %s, %s.", o.Fault.Name, FaultyNode, o.Fault.Description)
	}
	for _, change := range d.Changes {
		d.say("FAULT=%s: on %s, %s.", change.Name, FaultyNode, change.Description)
	}
	pci, err := d.startCluster(ctx)
	if err != nil {
		return err
	}
	if err := d.install(ctx); err != nil {
		return err
	}
	outcome, group, err := d.applyAndWait(ctx, pci)
	if err != nil {
		return err
	}
	if outcome.Reached && d.Span {
		if err := d.awaitFreeGPUs(ctx); err != nil {
			return err
		}
	}
	if err := d.print(ctx, group); err != nil {
		return err
	}
	if !outcome.Reached {
		return fmt.Errorf("the expected outcome was not reached: expected %s, but %s", d.expectation(), outcome.Seen)
	}
	d.step("As expected: %s", outcome.Seen)
	for _, change := range d.Changes {
		if err := d.change(ctx, change, pci); err != nil {
			return err
		}
	}
	d.printTimes()
	d.printNext(group)
	return nil
}

func (d *demo) expectation() string {
	if d.Fault == nil {
		return "the CommGroup to become Ready"
	}
	return fmt.Sprintf("the operator to name %s with reason %s", FaultyNode, strings.Join(d.Fault.Reasons, " or "))
}

func (d *demo) startCluster(ctx context.Context) (pci []string, err error) {
	d.step("Starting the control plane in %s", d.State.Dir)
	log := func(format string, args ...any) { d.say("    "+format, args...) }
	cp, err := cluster.Up(ctx, d.State, d.Binaries, log)
	if err != nil {
		return nil, err
	}
	d.done("control plane")
	d.step("Starting %d simulated MI300X nodes with %d GPUs each, and one node without GPUs for the manager",
		d.Nodes, gpusPerNode)
	images, err := d.writeImages()
	if err != nil {
		return nil, err
	}
	specs := []cluster.NodeSpec{{Name: "sim-control", CPU: "8", Memory: "32Gi", Root: d.State.NodeRoot("sim-control")}}
	for i := range d.Nodes {
		spec := cluster.NodeSpec{
			Name: fmt.Sprintf("sim-node-%d", i), GPUs: gpusPerNode, CPU: "96", Memory: "1536Gi",
			Labels: map[string]string{"feature.node.kubernetes.io/amd-gpu": "true",
				"amd.com/gpu.product-name": "AMD_Instinct_MI300X"},
		}
		spec.Root = d.State.NodeRoot(spec.Name)
		if err := d.writeTree(spec); err != nil {
			return nil, err
		}
		specs = append(specs, spec)
	}
	if err := cp.WriteNodes(specs, images); err != nil {
		return nil, err
	}
	executable, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if err := cp.StartNodes(ctx, executable); err != nil {
		return nil, err
	}
	d.done("simulated nodes")
	if pci, err = readPCIAddresses(filepath.Join(d.State.NodeRoot(FaultyNode), "simrocm.conf")); err != nil {
		return nil, err
	}
	return pci, d.connect()
}

func (d *demo) connect() error {
	config, err := clientcmd.BuildConfigFromFlags("", d.State.Kubeconfig())
	if err != nil {
		return err
	}
	s := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(s), v1alpha1.AddToScheme(s)); err != nil {
		return err
	}
	d.client, err = client.NewWithWatch(config, client.Options{Scheme: s})
	return err
}

// writeImages lays out what stands for the images of the Dockerfile and for the runtime image. Copies, not links: a
// later build must not change what runs.
func (d *demo) writeImages() (simnode.Images, error) {
	manager, agent, rocm := d.State.Path("images", "commgroup-manager"), d.State.Path("images", "commgroup-agent"),
		d.State.Path("images", "rocm-sim")
	for name, dir := range map[string]string{"manager": manager, "agent": agent, "rank": agent} {
		if err := copyFile(filepath.Join(d.Bin, name), filepath.Join(dir, name)); err != nil {
			return nil, err
		}
	}
	libraries, err := filepath.Glob(filepath.Join(d.Simrocm, "*.so*"))
	if err != nil {
		return nil, err
	}
	if len(libraries) == 0 {
		return nil, fmt.Errorf("no library in %s: run `make simrocm` first", d.Simrocm)
	}
	for _, path := range libraries {
		// Following the links keeps the copies whole, whatever they point to.
		if err := copyFile(path, filepath.Join(rocm, "opt/rocm/lib", filepath.Base(path))); err != nil {
			return nil, err
		}
	}
	return simnode.Images{
		"commgroup-manager:dev": {Dir: manager, Entrypoint: []string{"/manager"}},
		"commgroup-agent:dev":   {Dir: agent, Entrypoint: []string{"/agent"}},
		"rocm-sim:dev":          {Dir: rocm},
	}, nil
}

// writeTree writes what the node's own file system would show: sysfs, procfs and the host's ROCm.
func (d *demo) writeTree(spec cluster.NodeSpec) error {
	node, err := nodetree.Defaults("MI300X")
	if err != nil {
		return err
	}
	node.Name, node.ROCm = spec.Name, healthyROCm
	if d.Fault != nil && spec.Name == FaultyNode {
		node.Fault = d.Fault.Setting
		if d.Fault.ROCm != "" {
			node.ROCm = d.Fault.ROCm
		}
	}
	if spec.Name == FaultyNode {
		d.node = node
	}
	return nodetree.Write(spec.Root, node)
}

func copyFile(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("%w: run `make build simrocm` first", err)
	}
	defer func() { _ = source.Close() }()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	target, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Close())
}

// readPCIAddresses reads the lines gpu.N = ADDRESS of a simrocm.conf.
func readPCIAddresses(path string) ([]string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	byOrdinal := map[int]string{}
	for line := range strings.Lines(string(data)) {
		key, value, ok := strings.Cut(line, "=")
		var ordinal int
		if _, err := fmt.Sscanf(strings.TrimSpace(key), "gpu.%d", &ordinal); ok && err == nil {
			byOrdinal[ordinal] = strings.TrimSpace(value)
		}
	}
	pci := make([]string, len(byOrdinal))
	for ordinal, address := range byOrdinal {
		if ordinal >= len(pci) {
			return nil, fmt.Errorf("%s names gpu.%d but only %d GPUs", path, ordinal, len(pci))
		}
		pci[ordinal] = address
	}
	return pci, nil
}

// install applies the operator's own manifests and waits for the manager.
func (d *demo) install(ctx context.Context) error {
	d.step("Installing CRDs, RBAC and the manager: kubectl apply --server-side -k hack/demo/operator")
	if err := d.kubectlRetry(ctx, "apply", "--server-side",
		"-k", filepath.Join(d.Repo, "hack/demo/operator")); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, d.ManagerDeadline)
	defer cancel()
	last := "no Deployment yet"
	for {
		var deployment appsv1.Deployment
		err := d.client.Get(ctx, client.ObjectKey{Namespace: operatorNamespace, Name: "commgroup-manager"}, &deployment)
		switch {
		case err == nil && deployment.Status.AvailableReplicas > 0:
			d.say("    manager available: %d of %d replicas, as service account commgroup-manager",
				deployment.Status.AvailableReplicas, deployment.Status.Replicas)
			d.done("operator installed, manager available")
			return nil
		case err == nil:
			last = fmt.Sprintf("%d of %d replicas are available",
				deployment.Status.AvailableReplicas, deployment.Status.Replicas)
		case ctx.Err() == nil:
			last = err.Error()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the manager was not available after %s: %s; the end of its logs:\n%s",
				d.ManagerDeadline, last, d.podLogs("sim-control", 20))
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// podLogs gives the end of each container's log on a node.
func (d *demo) podLogs(node string, lines int) string {
	paths, _ := filepath.Glob(d.State.Path("nodes", node, "logs", "*.log"))
	var out strings.Builder
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		all := strings.Split(strings.TrimSpace(string(data)), "\n")
		fmt.Fprintf(&out, "  %s:\n    %s\n", path, strings.Join(all[max(0, len(all)-lines):], "\n    "))
	}
	if out.Len() == 0 {
		return "  no log on " + node + " yet; nodes' own log: " + filepath.Join(d.State.LogDir(), "nodes.log")
	}
	return out.String()
}

func (d *demo) kubectl(ctx context.Context, args ...string) (string, error) {
	return d.tool(ctx, filepath.Join(d.Binaries, "kubectl"), args...)
}

// tool runs a command against the cluster.
func (d *demo) tool(ctx context.Context, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, append([]string{"--kubeconfig", d.State.Kubeconfig()}, args...)...).
		CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s",
			filepath.Base(program), strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}

// kubectlRetry tries again for a while: right after a CRD was made the API server may not serve its kind yet.
func (d *demo) kubectlRetry(ctx context.Context, args ...string) error {
	var err error
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end) &&
		ctx.Err() == nil; time.Sleep(300 * time.Millisecond) {
		if _, err = d.kubectl(ctx, args...); err == nil {
			return nil
		}
	}
	return errors.Join(err, ctx.Err())
}
