// Command monitor measures what agent monitor costs a node at rest: processor time and memory of the real process,
// against a real etcd and kube-apiserver, on simulated nodes of 8 and of 64 devices. `make bench-monitor` runs it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/hack/simrocm/nodetree"
	"rcclx.io/commgroup-operator/internal/testenv"
)

const (
	factsWithin = 2 * time.Minute
	// ticksPerSecond of utime and stime in /proc/PID/stat: USER_HZ, which is 100 on every architecture that Go runs on.
	ticksPerSecond = 100
	// defaultInterval of agent monitor in seconds; figures at another interval are scaled to it.
	defaultInterval = 30
)

type watched struct {
	node    string
	devices int
	mode    nodetree.PartitionMode
	cmd     *exec.Cmd
	begin   usage
}

type usage struct {
	processor       time.Duration
	rssKiB, peakKiB int64
	at              time.Time
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench-monitor:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	flags := flag.NewFlagSet("bench-monitor", flag.ContinueOnError)
	agent := flags.String("agent", "bin/agent", "the agent to measure (make build)")
	interval := flags.Int("interval", defaultInterval, "seconds between two looks")
	warmUp := flags.Duration("warm-up", time.Minute, "time between the first report and the measurement")
	duration := flags.Duration("duration", 10*time.Minute, "time that is measured")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *interval < 1 || *duration < time.Second || flags.NArg() > 0 {
		return errors.New("--interval and --duration must be at least 1 s, and there are no other arguments")
	}
	dir, err := os.MkdirTemp("", "bench-monitor")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	environment, err := testenv.Environment()
	if err != nil {
		return err
	}
	config, err := environment.Start()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, environment.Stop()) }()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(kubeconfig, environment.KubeConfig, 0o600); err != nil {
		return err
	}
	c, err := newClient(config)
	if err != nil {
		return err
	}
	all := []*watched{{node: "node-spx", devices: 8, mode: nodetree.SPX},
		{node: "node-cpx", devices: 64, mode: nodetree.CPX}}
	defer func() {
		for _, w := range all {
			if w.cmd != nil {
				_ = w.cmd.Process.Signal(syscall.SIGTERM)
				_ = w.cmd.Wait()
			}
		}
	}()
	for _, w := range all {
		if err := w.start(ctx, c, *agent, kubeconfig, filepath.Join(dir, w.node), *interval); err != nil {
			return fmt.Errorf("%s: %w", w.node, err)
		}
	}
	for _, w := range all {
		if err := w.reported(ctx, c); err != nil {
			return fmt.Errorf("%s: %w", w.node, err)
		}
	}
	fmt.Printf("both monitors have reported; warming up for %s, then measuring for %s\n", *warmUp, *duration)
	if err := wait(ctx, *warmUp); err != nil {
		return err
	}
	for _, w := range all {
		if w.begin, err = usageOf(w.cmd.Process.Pid); err != nil {
			return err
		}
	}
	if err := wait(ctx, *duration); err != nil {
		return err
	}
	load, _ := os.ReadFile("/proc/loadavg")
	fmt.Printf("interval %d s, on %s, load of the machine at the end %s\n",
		*interval, fileSystem(dir), strings.Join(strings.Fields(string(load))[:3], " "))
	fmt.Printf("%-20s %10s %12s %14s %20s %10s %10s\n",
		"", "cpu s", "% of a core", "cpu ms a look", "% at 30 s by scaling", "RSS MiB", "peak MiB")
	for _, w := range all {
		end, err := usageOf(w.cmd.Process.Pid)
		if err != nil {
			return err
		}
		used, took := end.processor-w.begin.processor, end.at.Sub(w.begin.at)
		share := 100 * used.Seconds() / took.Seconds()
		fmt.Printf("%-20s %10.2f %12.4f %14.1f %20.4f %10.1f %10.1f\n", fmt.Sprintf("MI300X %s, %d", w.mode, w.devices),
			used.Seconds(), share, used.Seconds()*1000*float64(*interval)/took.Seconds(),
			share*float64(*interval)/defaultInterval, float64(end.rssKiB)/1024, float64(end.peakKiB)/1024)
	}
	return nil
}

func newClient(config *rest.Config) (client.Client, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	return client.New(config, client.Options{Scheme: scheme})
}

// start makes the node's tree and Node, and starts its monitor.
func (w *watched) start(ctx context.Context, c client.Client, agent, kubeconfig, dir string, interval int) error {
	n, err := nodetree.Defaults("MI300X")
	if err != nil {
		return err
	}
	n.Name, n.Partition = w.node, w.mode
	if err := nodetree.Write(dir, n); err != nil {
		return err
	}
	if err := c.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.node}}); err != nil {
		return err
	}
	w.cmd = exec.Command(agent, "monitor", "--node", w.node, "--host-root", dir, "--interval", strconv.Itoa(interval))
	w.cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	log, err := os.Create(dir + ".log")
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	w.cmd.Stdout, w.cmd.Stderr = log, log
	return w.cmd.Start()
}

// reported waits for the node's facts, and checks that they are of the node that was made.
func (w *watched) reported(ctx context.Context, c client.Client) error {
	ctx, cancel := context.WithTimeout(ctx, factsWithin)
	defer cancel()
	for {
		var cn v1alpha1.CommNode
		if err := c.Get(ctx, client.ObjectKey{Name: w.node}, &cn); client.IgnoreNotFound(err) != nil {
			return err
		}
		if f := cn.Status.Facts; f != nil {
			if f.GPUModel != "MI300X" || f.GPUCount == 0 {
				return fmt.Errorf("the monitor reported %d x %s", f.GPUCount, f.GPUModel)
			}
			return nil
		}
		if err := wait(ctx, 200*time.Millisecond); err != nil {
			return fmt.Errorf("no facts within %s: %w", factsWithin, err)
		}
	}
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// usageOf reads what a process has used (proc_pid_stat(5), proc_pid_status(5)).
func usageOf(pid int) (usage, error) {
	dir := fmt.Sprintf("/proc/%d/", pid)
	stat, err := os.ReadFile(dir + "stat")
	if err != nil {
		return usage{}, fmt.Errorf("the monitor is gone: %w", err)
	}
	at := time.Now()
	ticks, err := processorTicks(string(stat))
	if err != nil {
		return usage{}, err
	}
	status, err := os.ReadFile(dir + "status")
	if err != nil {
		return usage{}, err
	}
	u := usage{processor: time.Duration(ticks) * time.Second / ticksPerSecond, at: at}
	for key, target := range map[string]*int64{"VmRSS:": &u.rssKiB, "VmHWM:": &u.peakKiB} {
		_, rest, found := strings.Cut(string(status), key)
		fields := strings.Fields(rest)
		if !found || len(fields) < 2 || fields[1] != "kB" {
			return usage{}, fmt.Errorf("%sstatus has no %s in kB", dir, key)
		}
		if *target, err = strconv.ParseInt(fields[0], 10, 64); err != nil {
			return usage{}, err
		}
	}
	return u, nil
}

// processorTicks is utime and stime of a line of /proc/PID/stat. The name before them may have blanks and brackets.
func processorTicks(stat string) (int64, error) {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("%.60q is no line of /proc/PID/stat", stat)
	}
	var sum int64
	for _, field := range fields[11:13] { // 14 and 15, where the state is 3
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// fileSystem names the kind that the trees lie on.
func fileSystem(dir string) string {
	var s syscall.Statfs_t
	const tmpfsMagic = 0x01021994 // linux/magic.h
	if err := syscall.Statfs(dir, &s); err == nil && s.Type == tmpfsMagic {
		return "tmpfs"
	}
	return "disk"
}
