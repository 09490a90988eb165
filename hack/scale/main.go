// scale measures what one CommGroup over many nodes costs: a real etcd and kube-apiserver, the real manager as a
// process with its own account, roles and admission policies. SIMULATED are the kubelets and the agents: they write
// what those of the demo write, report and facts of the same size, as often, by the agents' own code, and measure
// nothing.
package main

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"rcclx.io/commgroup-operator/agent/monitor"
	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/testenv"
)

func main() {
	var o options
	flag.IntVar(&o.nodes, "nodes", 100, "members of the CommGroup")
	flag.IntVar(&o.parallel, "parallel", 20000, "run.maxParallelNodes of the CommGroup")
	flag.IntVar(&o.workers, "workers", 16, "requests that simulated kubelets and agents make at once")
	flag.StringVar(&o.bin, "bin", "bin", "folder with the manager")
	flag.DurationVar(&o.deadline, "deadline", 3*time.Hour, "the whole ends with an error after this long")
	flag.StringVar(&o.log, "log", "", "file for the manager's log; empty drops it")
	flag.Parse()
	if o.nodes < 1 || o.workers < 1 {
		fmt.Fprintf(os.Stderr, "scale: --nodes is %d and --workers %d: each must be at least 1\n", o.nodes, o.workers)
		os.Exit(2)
	}
	if err := run(&o); err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

func run(o *options) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	fmt.Printf(
		"SIMULATED kubelets and agents; etcd, kube-apiserver and manager are real. %d nodes, %d requests of "+
			"nodes at once.\n\n",
		o.nodes,
		o.workers,
	)
	r, err := measure(ctx, o)
	if err != nil {
		return err
	}
	r.print()
	return nil
}

type options struct {
	nodes, parallel, workers int
	bin, log                 string
	deadline                 time.Duration
}

// namespace is that of the CommGroup, floorNamespace that of the floor's objects.
const (
	namespace      = "default"
	floorNamespace = "kube-public"
	groupName      = "pool"
)

//go:embed testdata/node.json
var recorded []byte

// record is what a node of the demo reported: the final report of a run, and the facts.
type record struct {
	Report v1alpha1.NodeRunStatus `json:"report"`
	Facts  v1alpha1.NodeFacts     `json:"facts"`
}

// bench is one measurement.
type bench struct {
	*options
	record
	config *rest.Config
	admin  client.WithWatch
	stats  *serverStats
}

// measure starts a control plane and a manager, and carries one run to Ready.
func measure(ctx context.Context, o *options) (*result, error) {
	ctx, cancel := context.WithTimeout(ctx, o.deadline)
	defer cancel()
	b := &bench{options: o}
	if err := json.Unmarshal(recorded, &b.record); err != nil {
		return nil, fmt.Errorf("testdata/node.json: %w", err)
	}
	env, err := testenv.Environment()
	if err != nil {
		return nil, err
	}
	if b.config, err = env.Start(); err != nil {
		return nil, fmt.Errorf("start etcd and kube-apiserver of %s: %w", env.BinaryAssetsDirectory, err)
	}
	defer func() { _ = env.Stop() }()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	b.config.QPS = -1
	if b.admin, err = client.NewWithWatch(b.config, client.Options{Scheme: scheme}); err != nil {
		return nil, err
	}
	b.stats = &serverStats{config: b.config}
	if err := errors.Join(testenv.Install(ctx, b.admin), b.createNodes(ctx)); err != nil {
		return nil, err
	}
	manager, err := b.startManager(ctx, env)
	if err != nil {
		return nil, err
	}
	defer manager.stop()

	r := &result{nodes: o.nodes}
	start := time.Now()
	if err := b.eachNode(ctx, "report facts", b.reportFacts); err != nil {
		return nil, err
	}
	r.commNodes = time.Since(start)
	floor, err := b.floor(ctx)
	if err != nil {
		return nil, err
	}
	before, err := b.stats.read(ctx)
	if err != nil {
		return nil, err
	}
	cluster := newNodes(b)
	ran, err := b.runGroup(ctx, cluster, manager)
	if err != nil {
		return nil, err
	}
	after, err := b.stats.read(ctx)
	if err != nil {
		return nil, err
	}
	// Once more: the machine may have become faster or slower meanwhile.
	again, err := b.floor(ctx)
	if err != nil {
		return nil, err
	}
	r.floor, r.ran, r.requests = (floor+again)/2, *ran, after.since(before)
	r.kubelet, r.agents = cluster.kubelet.Load(), cluster.agent.Load()
	r.sizes, err = b.sizes(ctx)
	return r, err
}

func nodeName(i int) string { return fmt.Sprintf("sim-node-%05d", i) }

// eachNode calls do for each node, some at once, until one fails.
func (b *bench) eachNode(ctx context.Context, what string, do func(context.Context, string) error) error {
	next := make(chan int)
	var workers sync.WaitGroup
	var lock sync.Mutex
	var first error
	for range b.workers {
		workers.Go(func() {
			for i := range next {
				if err := do(ctx, nodeName(i)); err != nil {
					lock.Lock()
					first = cmp.Or(first, fmt.Errorf("%s of node %s: %w", what, nodeName(i), err))
					lock.Unlock()
				}
			}
		})
	}
	failed := func() bool {
		lock.Lock()
		defer lock.Unlock()
		return first != nil
	}
	for i := 0; i < b.nodes && !failed(); i++ {
		next <- i
	}
	close(next)
	workers.Wait()
	return first
}

func (b *bench) createNodes(ctx context.Context) error {
	return b.eachNode(ctx, "create", func(ctx context.Context, name string) error {
		node := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name,
				Labels: map[string]string{"pool": groupName, corev1.LabelHostname: name}},
		}
		if err := b.admin.Create(ctx, node); err != nil {
			return err
		}
		gpus := corev1.ResourceList{v1alpha1.ResourceGPU: *resource.NewQuantity(8, resource.DecimalSI)}
		node.Status.Allocatable, node.Status.Capacity = gpus, gpus
		node.Status.NodeInfo.BootID = b.Facts.BootID
		return b.admin.Status().Update(ctx, node)
	})
}

// reportFacts writes what the node's monitor writes when it starts.
func (b *bench) reportFacts(ctx context.Context, name string) error {
	facts := b.Facts.DeepCopy()
	facts.ObservedTime, facts.ValidForSeconds = metav1.Now(), 3600
	reporter := &monitor.KubeReporter{Client: b.admin, Node: name}
	return reporter.Report(ctx, facts)
}

// process is the manager's.
type process struct {
	cmd    *exec.Cmd
	folder string
	log    *os.File
	// ended is closed once it has ended; how is in err then.
	ended chan struct{}
	err   error
}

func (b *bench) startManager(ctx context.Context, env *envtest.Environment) (*process, error) {
	user, err := env.AddUser(envtest.User{Name: testenv.ManagerUser, Groups: testenv.ManagerGroups}, nil)
	if err != nil {
		return nil, err
	}
	kubeconfig, err := user.KubeConfig()
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "commgroup-scale-")
	if err != nil {
		return nil, err
	}
	path := filepath.Join(folder, "kubeconfig")
	if err := os.WriteFile(path, kubeconfig, 0o600); err != nil {
		return nil, err
	}
	p := &process{folder: folder, ended: make(chan struct{})}
	p.cmd = exec.CommandContext(
		ctx,
		filepath.Join(b.bin, "manager"),
		"--operator-namespace="+testenv.Namespace,
		"--agent-image="+testenv.AgentImage,
		"--default-runtime-image=rocm:test",
		"--leader-elect=false",
		"--metrics-port=0",
		"--health-port=0",
	)
	p.cmd.Env = append(os.Environ(), "KUBECONFIG="+path)
	if b.log != "" {
		if p.log, err = os.Create(b.log); err != nil {
			return nil, errors.Join(err, os.RemoveAll(folder))
		}
		p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	}
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// stop ends the process, by SIGKILL where it does not end by itself, and removes what it was given.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(20 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
	if p.log != nil {
		_ = p.log.Close()
	}
	_ = os.RemoveAll(p.folder)
}

// usage is the process's processor time until now, and the most memory that it ever held.
func (p *process) usage() (cpu time.Duration, peakBytes int64, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, 0, fmt.Errorf("the manager has ended: %w", err)
	}
	return procUsage(stat, p.cmd.Process.Pid)
}

// ran is how a run went, from when the CommGroup was applied.
type ran struct {
	started, reported, ready time.Duration
	cpu                      time.Duration
	peakBytes                int64
}

// runGroup applies the CommGroup and waits until it is Ready.
func (b *bench) runGroup(ctx context.Context, cluster *nodes, manager *process) (*ran, error) {
	cpuBefore, _, err := manager.usage()
	if err != nil {
		return nil, err
	}
	nodesCtx, stop := context.WithCancel(ctx)
	defer stop()
	ended, err := cluster.start(nodesCtx)
	if err != nil {
		return nil, err
	}
	group := &v1alpha1.CommGroup{ObjectMeta: metav1.ObjectMeta{Name: groupName, Namespace: namespace}}
	group.Spec.Members.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"pool": groupName}}
	group.Spec.RanksPerNode = 8
	group.Spec.DDA.Mode, group.Spec.LowPrecision.Mode = v1alpha1.FeaturePreferred, v1alpha1.FeaturePreferred
	group.Spec.LowPrecision.MaxRelativeErrorPPM = 130000
	group.Spec.Benchmark.Collectives = []v1alpha1.Collective{
		v1alpha1.AllReduce,
		v1alpha1.AllGather,
		v1alpha1.ReduceScatter,
		v1alpha1.AllToAll,
	}
	group.Spec.Benchmark.MinSizeBytes, group.Spec.Benchmark.MaxSizeBytes = 1024, 64<<20
	group.Spec.Run.MaxParallelNodes = int32(b.parallel)
	group.Spec.Run.StartDeadlineSeconds, group.Spec.Run.NodeDeadlineSeconds = 86400, 86400
	if err := b.admin.Create(ctx, group); err != nil {
		return nil, fmt.Errorf("apply the CommGroup: %w", err)
	}
	out, applied := &ran{}, time.Now()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for out.ready == 0 {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w before the CommGroup was Ready: %s", ctx.Err(), conditionsOf(group))
		case err := <-ended:
			return nil, fmt.Errorf("simulated nodes ended: %w", err)
		case <-manager.ended:
			return nil, errors.Join(errors.New("the manager ended, and --log keeps what it wrote"), manager.err)
		case <-tick.C:
		}
		if err := b.admin.Get(ctx, client.ObjectKeyFromObject(group), group); err != nil {
			return nil, err
		}
		if out.started == 0 && group.Status.Run != nil {
			out.started = time.Since(applied)
		}
		if out.reported == 0 && cluster.reported() >= b.nodes {
			out.reported = time.Since(applied)
		}
		switch run := group.Status.Run; {
		case run == nil || run.Phase == v1alpha1.RunPhaseRunning:
		case run.Phase == v1alpha1.RunPhaseFinished &&
			meta.IsStatusConditionTrue(group.Status.Conditions, v1alpha1.ConditionReady):
			out.ready = time.Since(applied)
		case run.Verdict != v1alpha1.VerdictPass:
			return nil, fmt.Errorf("the run is %s, verdict %s: %s", run.Phase, run.Verdict, conditionsOf(group))
		}
	}
	cpu, peak, err := manager.usage()
	if err != nil {
		return nil, err
	}
	out.cpu, out.peakBytes = cpu-cpuBefore, peak
	return out, nil
}

func conditionsOf(group *v1alpha1.CommGroup) string {
	text := ""
	for i := range group.Status.Conditions {
		c := &group.Status.Conditions[i]
		text += fmt.Sprintf("\n  %s=%s (%s): %s", c.Type, c.Status, c.Reason, c.Message)
	}
	return text
}

// floor is the time, without that to clean up, of the least writes that a run over these nodes takes: create a
// CommTask, and write its status twice, as large as the recorded report.
func (b *bench) floor(ctx context.Context) (time.Duration, error) {
	start := time.Now()
	err := b.eachNode(ctx, "floor", func(ctx context.Context, name string) error {
		ct := &v1alpha1.CommTask{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: floorNamespace}}
		ct.Spec.NodeName, ct.Spec.NodeUID = name, "uid"
		ct.Spec.Group = v1alpha1.GroupReference{Name: "floor", UID: "uid"}
		ct.Spec.Ranks = v1alpha1.RankRange{Summary: "0-7/8", Count: 8, WorldSize: 8}
		if err := b.admin.Create(ctx, ct); err != nil {
			return err
		}
		for range 2 {
			next := ct.DeepCopy()
			next.Status.Run = b.Report.DeepCopy()
			next.Status.Run.InitNanoseconds = ptr.To(time.Now().UnixNano())
			if err := b.admin.Status().Patch(ctx, next, client.MergeFrom(ct)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	took := time.Since(start)
	// One by one: the API server gives up on a collection of thousands.
	return took, b.eachNode(ctx, "clean up the floor", func(ctx context.Context, name string) error {
		return b.admin.Delete(ctx,
			&v1alpha1.CommTask{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: floorNamespace}})
	})
}

// result is what was measured.
type result struct {
	nodes            int
	commNodes, floor time.Duration
	ran              ran
	// requests to the API server from apply to Ready; of the writes those of kubelets and scheduler, and of agents.
	requests        requests
	kubelet, agents int64
	sizes           []size
}

// size of an object as JSON.
type size struct {
	kind, name string
	bytes      int
}

// manager is how often the manager wrote.
func (r *result) manager() int64 { return r.requests.writes() - r.kubelet - r.agents }

func (r *result) print() {
	row := func(what, value string) { fmt.Printf("%-64s %s\n", what, value) }
	row("CommNodes of all nodes written", seconds(r.commNodes))
	row("run started after apply", seconds(r.ran.started))
	row("all nodes reported after apply", seconds(r.ran.reported))
	row("Ready after apply", seconds(r.ran.ready))
	row("floor: create a CommTask and write its status twice, each node", seconds(r.floor))
	row("Ready / floor", strconv.FormatFloat(r.ran.ready.Seconds()/r.floor.Seconds(), 'f', 1, 64))
	row("manager: processor time; most memory", fmt.Sprintf("%s; %d MiB", seconds(r.ran.cpu), r.ran.peakBytes>>20))
	row(
		"writes a node: all; of kubelet and scheduler; agents; manager",
		fmt.Sprintf("%.1f; %.1f; %.1f; %.1f", perNode(r.requests.writes(), r.nodes),
			perNode(r.kubelet, r.nodes), perNode(r.agents, r.nodes), perNode(r.manager(), r.nodes)),
	)
	row(
		"refused as conflicts (409); throttled (429)",
		fmt.Sprintf("%d; %d", r.requests.code("409"), r.requests.code("429")),
	)
	fmt.Println("\nRequests to the API server, a node:")
	for _, line := range r.requests.lines() {
		if line.count*20 >= int64(r.nodes) || line.verb == "LIST" || line.code != "200" && line.code != "201" {
			fmt.Printf("  %8.2f  %-7s %-28s %s\n", perNode(line.count, r.nodes), line.verb, line.resource, line.code)
		}
	}
	fmt.Println("\nSizes, with managed fields:")
	for _, s := range r.sizes {
		fmt.Printf("  %6.1f KB  %s %s\n", float64(s.bytes)/1000, s.kind, s.name)
	}
}

// sizes of one object of each kind, with managed fields.
func (b *bench) sizes(ctx context.Context) ([]size, error) {
	var out []size
	for _, list := range []client.ObjectList{&v1alpha1.CommGroupList{}, &v1alpha1.CommRunList{},
		&v1alpha1.CommTaskList{}, &v1alpha1.CommNodeList{}} {
		if err := b.admin.List(ctx, list, client.Limit(1)); err != nil {
			return nil, err
		}
		err := meta.EachListItem(list, func(o runtime.Object) error {
			data, err := json.Marshal(o)
			if object, ok := o.(client.Object); ok && err == nil {
				out = append(
					out,
					size{kind: strings.TrimPrefix(fmt.Sprintf("%T", o), "*v1alpha1."), name: object.GetName(),
						bytes: len(data)},
				)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

func perNode(count int64, nodes int) float64 { return float64(count) / float64(nodes) }

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + " s" }
