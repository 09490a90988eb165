package realnode

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"rcclx.io/commgroup-operator/hack/realcluster/deviceplugin"
)

const (
	containerdDeadline = 60 * time.Second
	commandDeadline    = 60 * time.Second
	pollInterval       = 50 * time.Millisecond
)

// Run is a node's first process. It ends when one of its services ends, or at SIGTERM; the kernel then ends everything
// that it started, and its mounts and network go, too.
func Run(ctx context.Context, c Config, log *slog.Logger) error {
	if os.Getpid() != 1 {
		return errors.New("this is started by `realcluster up` as the first process of a node, not by hand")
	}
	line, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil {
		return fmt.Errorf("the node was to wait for its network, but standard input ended after %q: %w", line, err)
	}
	if line != GoLine {
		return fmt.Errorf("the node was to wait for its network, but standard input said %q, expected %q", line, GoLine)
	}
	if err := unix.Sethostname([]byte(c.Name)); err != nil {
		return fmt.Errorf("set the node's host name: %w", err)
	}
	if err := MakeRoot(c); err != nil {
		return err
	}
	s := newSupervisor(log)
	if err := s.network(ctx, c); err != nil {
		return err
	}
	if err := s.containerd(ctx); err != nil {
		return err
	}
	plugin := deviceplugin.New(deviceplugin.Config{
		Dir: filepath.Join(kubeletDir, "device-plugins"), Resource: "amd.com/gpu", Devices: deviceIDs(c.GPUs),
		Allocate: func(ids []string) deviceplugin.Allocation { return allocation(ids, c.GPUs) },
		Log:      log,
	})
	pluginEnded := make(chan error, 1)
	go func() { pluginEnded <- plugin.Run(ctx) }()
	if err := s.start("kubelet", InnerBinaries+"/kubelet", "--config="+inner(kubeletFile),
		"--kubeconfig="+inner(nodeKubeconfig), "--hostname-override="+c.Name, "--node-ip="+c.IP,
		"--root-dir="+kubeletDir, "--cert-dir="+kubeletDir+"/pki"); err != nil {
		return err
	}
	if err := s.start("kube-proxy", InnerBinaries+"/kube-proxy", "--config="+inner(proxyFile)); err != nil {
		return err
	}
	log.Info("the node's services run")
	select {
	case <-ctx.Done():
		return nil
	case err := <-s.ended:
		return err
	case err := <-pluginEnded:
		return fmt.Errorf("the device plugin ended: %w", err)
	}
}

func deviceIDs(gpus int) []string {
	ids := make([]string, gpus)
	for i := range ids {
		ids[i] = fmt.Sprintf("gpu-%d", i)
	}
	return ids
}

// allocation is what a container with GPUs gets beyond what every container of the node has. A container with all GPUs
// has no variable that masks some: the library's DDA does not take one.
func allocation(ids []string, gpus int) deviceplugin.Allocation {
	a := deviceplugin.Allocation{
		Env:    map[string]string{fabricVariable: containerFabric},
		Mounts: []deviceplugin.Mount{{Host: InnerFabric, Container: containerFabric}},
	}
	if len(ids) < gpus {
		var ordinals []string
		for _, id := range deviceIDs(gpus) { // in order
			for _, given := range ids {
				if given == id {
					ordinals = append(ordinals, strings.TrimPrefix(id, "gpu-"))
				}
			}
		}
		a.Env[visibleVariable] = strings.Join(ordinals, ",")
	}
	return a
}

// supervisor starts processes and collects all that end, as a first process must.
type supervisor struct {
	log *slog.Logger
	// mu is held while a process is started, so that none ends before it is known.
	mu      sync.Mutex
	waiting map[int]chan syscall.WaitStatus
	// ended gets an error when a service ends.
	ended chan error
}

func newSupervisor(log *slog.Logger) *supervisor {
	s := &supervisor{log: log, waiting: map[int]chan syscall.WaitStatus{}, ended: make(chan error, 8)}
	signals := make(chan os.Signal, 64)
	signal.Notify(signals, syscall.SIGCHLD)
	go func() {
		for range signals {
			s.collect()
		}
	}()
	return s
}

func (s *supervisor) collect() {
	for {
		var status syscall.WaitStatus
		s.mu.Lock()
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		waiter := s.waiting[pid]
		delete(s.waiting, pid)
		s.mu.Unlock()
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		if waiter != nil {
			waiter <- status
		}
	}
}

// launch starts a process; its end is sent.
func (s *supervisor) launch(output io.Writer, program string, args ...string) (int, <-chan syscall.WaitStatus, error) {
	file, ok := output.(*os.File)
	if !ok {
		return 0, nil, errors.New("a process of the node writes to a file")
	}
	path, err := exec.LookPath(program)
	if err != nil {
		return 0, nil, err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = null.Close() }()
	s.mu.Lock()
	defer s.mu.Unlock()
	p, err := os.StartProcess(path, append([]string{program}, args...), &os.ProcAttr{
		Files: []*os.File{null, file, file}, Dir: "/", Env: os.Environ(), Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return 0, nil, fmt.Errorf("start %s: %w", program, err)
	}
	done := make(chan syscall.WaitStatus, 1)
	s.waiting[p.Pid] = done
	return p.Pid, done, nil
}

// start starts a service, which is not to end.
func (s *supervisor) start(name, program string, args ...string) error {
	out, err := os.OpenFile(filepath.Join(InnerLogs, name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }()
	pid, done, err := s.launch(out, program, args...)
	if err != nil {
		return err
	}
	s.log.Info("started", "service", name, "pid", pid)
	go func() {
		status := <-done
		s.ended <- fmt.Errorf("%s ended (exit status %d, signal %d): see %s.log beside this log",
			name, status.ExitStatus(), status.Signal(), name)
	}()
	return nil
}

// run runs a command to its end and gives what it printed.
func (s *supervisor) run(ctx context.Context, program string, args ...string) (string, error) {
	out, err := os.CreateTemp("/tmp", "output-*")
	if err != nil {
		return "", err
	}
	defer func() { _, _ = out.Close(), os.Remove(out.Name()) }()
	pid, done, err := s.launch(out, program, args...)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, commandDeadline)
	defer cancel()
	var status syscall.WaitStatus
	select {
	case status = <-done:
	case <-ctx.Done():
		_ = syscall.Kill(pid, syscall.SIGKILL)
		return "",
			fmt.Errorf("%s %s did not end in %s: %w", program, strings.Join(args, " "), commandDeadline, ctx.Err())
	}
	text, err := os.ReadFile(out.Name())
	if err == nil && status.ExitStatus() != 0 {
		err = fmt.Errorf("%s %s: exit status %d: %s",
			program, strings.Join(args, " "), status.ExitStatus(), strings.TrimSpace(string(text)))
	}
	return string(text), err
}

// network sets up the node's side: the machine has put eth0 into its namespace.
func (s *supervisor) network(ctx context.Context, c Config) error {
	commands := [][]string{
		{"link", "set", "lo", "up"},
		{"address", "add", fmt.Sprintf("%s/%d", c.IP, c.PrefixBits), "dev", "eth0"},
		{"link", "set", "eth0", "up"},
		// Addresses of Services need a route before they are translated.
		{"route", "add", "default", "via", c.Gateway},
	}
	for subnet, via := range c.Routes {
		commands = append(commands, []string{"route", "add", subnet, "via", via})
	}
	for _, args := range commands {
		if _, err := s.run(ctx, "ip", args...); err != nil {
			return err
		}
	}
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0)
}

// containerd starts it and waits until it answers. Its own default of a container is asked of its client first.
func (s *supervisor) containerd(ctx context.Context) error {
	defaults, err := s.run(ctx, "ctr", "oci", "spec")
	if err != nil {
		return err
	}
	spec, err := containerSpec([]byte(defaults))
	if err != nil {
		return err
	}
	// The settings are read-only in the node, so this one goes where containerd writes.
	if err := os.MkdirAll(filepath.Dir(innerSpec), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(innerSpec, spec, 0o644); err != nil {
		return err
	}
	if err := s.start("containerd", "containerd", "--config", inner(containerdFile)); err != nil {
		return err
	}
	deadline := time.Now().Add(containerdDeadline)
	for {
		_, err := s.run(ctx, "ctr", "--address", ContainerdSocket, "version")
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("containerd did not answer within %s: %w: see containerd.log beside this log",
				containerdDeadline, err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-s.ended:
			return err
		case <-time.After(pollInterval):
		}
	}
}
