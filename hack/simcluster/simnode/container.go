package simnode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"rcclx.io/commgroup-operator/hack/simcluster/procs"
)

const (
	defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	// messageLimit is the kubelet's limit for a termination message, and for the log that stands in for one.
	messageLimit    = 4096
	messageLogLimit = 2048
	messageLogLines = 80
	killWait        = 10 * time.Second
	terminationLog  = "/dev/termination-log"
	// containerIDVariable marks every process of a container, so that all of them are found when it ends.
	containerIDVariable = "SIMCLUSTER_CONTAINER_ID"
)

// commandLine is what a container starts: argv and environment with the container's paths replaced.
type commandLine struct {
	argv, env []string
	dir       string
	// mark is an entry of env that no other container has.
	mark string
}

// containerInput is all that a command line is computed from.
type containerInput struct {
	container *corev1.Container
	image     Image
	mounts    []Mount
	// env is what BuildEnv gave.
	env Env
	// root is the node's tree, kubeconfig the pod's own, scratch a directory to work in.
	root, kubeconfig, scratch string
	// fabric is where simulated ranks meet; empty where the pod has no GPU.
	fabric              string
	hostname, podIP, id string
}

// buildCommand computes the command line. It reads the image's directory to see which paths it has, and nothing else.
func buildCommand(in containerInput) (commandLine, error) {
	c := in.container
	r := NewRewriter(in.mounts, in.image.Dir)
	argv := append([]string{}, c.Command...)
	switch {
	case len(c.Command) > 0:
		argv = append(argv, c.Args...)
	case len(c.Args) > 0 || len(in.image.Entrypoint) > 0:
		argv = append(append(argv, in.image.Entrypoint...), c.Args...)
	}
	if len(argv) == 0 {
		return commandLine{}, fmt.Errorf("no command specified: neither container %s nor its image names one", c.Name)
	}
	for i := range argv {
		argv[i] = r.String(BindAddress(Expand(argv[i], in.env.Lookup), in.podIP))
	}
	env := Env{{Name: "PATH", Value: defaultPath}, {Name: "HOME", Value: in.scratch},
		{Name: "HOSTNAME", Value: in.hostname}}
	for _, v := range in.image.Env {
		name, value, _ := strings.Cut(v, "=")
		env = append(env, corev1.EnvVar{Name: name, Value: r.String(value)})
	}
	for _, v := range in.env {
		v.Value = r.String(v.Value)
		env = append(env, v)
	}
	libraries := filepath.Join(in.image.Dir, "opt/rocm/lib")
	if old, ok := env.Lookup("LD_LIBRARY_PATH"); ok && old != "" {
		libraries = old + ":" + libraries
	}
	env = append(env, corev1.EnvVar{Name: "LD_LIBRARY_PATH", Value: libraries},
		corev1.EnvVar{Name: "SIMROCM_ROOT", Value: in.root}, corev1.EnvVar{Name: containerIDVariable, Value: in.id},
		corev1.EnvVar{Name: "TERMINATION_MESSAGE_PATH", Value: r.Path(messagePath(c))})
	if in.kubeconfig != "" {
		env = append(env, corev1.EnvVar{Name: "KUBECONFIG", Value: in.kubeconfig})
	}
	if in.fabric != "" {
		env = append(env, corev1.EnvVar{Name: "SIMROCM_SHM_DIR", Value: in.fabric})
	}
	dir := in.scratch
	if c.WorkingDir != "" {
		dir = r.Path(c.WorkingDir)
	}
	return commandLine{argv: argv, env: env.Strings(), dir: dir, mark: containerIDVariable + "=" + in.id}, nil
}

func messagePath(c *corev1.Container) string {
	if c.TerminationMessagePath != "" {
		return c.TerminationMessagePath
	}
	return terminationLog
}

// running is one run of a container.
type running struct {
	record procs.Record
	// done is closed once exit is set.
	done chan struct{}
	exit Exit
}

// startProcess starts the container's process in a session of its own, with its output going to the log file.
func startProcess(line commandLine, logPath string, recordName, runDir string) (*running, error) {
	logFile, err := os.OpenFile(logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer func() { _ = logFile.Close() }()
	path, err := lookPath(line)
	if err != nil {
		return nil, err
	}
	cmd := &exec.Cmd{
		Path: path, Args: line.argv, Env: line.env, Dir: line.dir, Stdout: logFile, Stderr: logFile,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	record, err := procs.New(recordName, cmd.Process.Pid, "")
	if err == nil {
		record.Mark = line.mark
		err = record.Save(runDir)
	}
	if err != nil {
		return nil, errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	r := &running{record: record, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		_ = cmd.Wait()
		r.exit = exitOf(cmd.ProcessState)
		// With the main process the whole container ends, as it does with a process namespace.
		_ = procs.KillMembers(record, killWait)
	}()
	return r, nil
}

func lookPath(line commandLine) (string, error) {
	name := line.argv[0]
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join(line.dir, name)
		}
		if _, err := os.Stat(name); err != nil {
			return "", fmt.Errorf("exec: %q: %w", line.argv[0], err)
		}
		return name, nil
	}
	for _, v := range line.env {
		list, ok := strings.CutPrefix(v, "PATH=")
		if !ok {
			continue
		}
		for _, dir := range filepath.SplitList(list) {
			candidate := filepath.Join(dir, name)
			if info, err := os.Stat(candidate); err == nil && !info.IsDir() && info.Mode()&0o111 != 0 {
				return candidate, nil
			}
		}
	}
	return "", fmt.Errorf("exec: %q: executable file not found in $PATH", name)
}

func exitOf(state *os.ProcessState) Exit {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return Exit{Code: 128 + int32(status.Signal()), Signal: int32(status.Signal())}
	}
	return Exit{Code: int32(state.ExitCode())}
}

// stop sends SIGTERM to the main process, waits for the grace period, and then kills all that is left.
func (r *running) stop(grace time.Duration) {
	if grace > 0 && r.record.Alive() {
		_ = syscall.Kill(r.record.PID, syscall.SIGTERM)
		select {
		case <-r.done:
			return
		case <-time.After(grace):
		}
	}
	_ = procs.KillMembers(r.record, killWait)
	<-r.done
}

// terminationMessage reads what the container left, or the end of its log where the policy says so.
func terminationMessage(c *corev1.Container, file, logPath string, exitCode int32) string {
	data, err := os.ReadFile(file)
	if err == nil && len(data) > 0 {
		return string(data[:min(len(data), messageLimit)])
	}
	if c.TerminationMessagePolicy != corev1.TerminationMessageFallbackToLogsOnError || exitCode == 0 {
		return ""
	}
	f, err := os.Open(logPath)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err == nil && info.Size() > messageLogLimit {
		if _, err := f.Seek(-messageLogLimit, io.SeekEnd); err != nil {
			return ""
		}
	}
	tail, _ := io.ReadAll(io.LimitReader(f, messageLogLimit))
	lines := strings.Split(string(tail), "\n")
	return strings.Join(lines[max(0, len(lines)-messageLogLines):], "\n")
}

// writePodKubeconfig stands in for client-go's in-cluster configuration, whose path is fixed: same server, same
// authority, and the pod's own token, read again as it changes.
func writePodKubeconfig(path, server, tokenDir, namespace string) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["in-cluster"] = &clientcmdapi.Cluster{Server: server,
		CertificateAuthority: filepath.Join(tokenDir, "ca.crt")}
	config.AuthInfos["service-account"] = &clientcmdapi.AuthInfo{TokenFile: filepath.Join(tokenDir, "token")}
	config.Contexts["in-cluster"] = &clientcmdapi.Context{Cluster: "in-cluster", AuthInfo: "service-account",
		Namespace: namespace}
	config.CurrentContext = "in-cluster"
	return clientcmd.WriteToFile(*config, path)
}

// runInContainer runs an exec probe's command in the container's environment.
func runInContainer(ctx context.Context, line commandLine, command []string, r *Rewriter) error {
	line.argv = r.Strings(command)
	path, err := lookPath(line)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path, line.argv[1:]...)
	cmd.Env, cmd.Dir = line.env, line.dir
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out[:min(len(out), 256)])))
	}
	return nil
}
