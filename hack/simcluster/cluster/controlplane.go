package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"rcclx.io/commgroup-operator/hack/simcluster/procs"
)

// Deadlines: on a busy two-core machine the API server needs a few seconds for its first start.
const (
	readyDeadline     = 120 * time.Second
	terminateDeadline = 20 * time.Second
)

// serviceRange is the cluster's range for Services; its first address is the API server's own.
const serviceRange = "10.96.0.0/16"

// KubeletClientName is the user that the API server is to the nodes' log endpoints.
const KubeletClientName = "kube-apiserver-kubelet-client"

// ControlPlane is what Up started.
type ControlPlane struct {
	State
	PKI    *PKI
	Server string
	// address is the API server's host:port; routed says that it is no loopback address.
	address string
	routed  bool
}

// apiServerPort is that of an API server with an address of its own.
const apiServerPort = 6443

// Options of a control plane.
type Options struct {
	// Address that the API server listens on, where real nodes and pods reach it. Unset means a loopback address, which
	// only processes of this machine's own network reach and which no Endpoints object may hold.
	Address net.IP
	// Claimed says that the caller made the state directory by State.Claim.
	Claimed bool
}

// Up starts etcd, the API server, the controller manager and the scheduler from the binaries in a folder, on loopback
// addresses, and waits until each is ready. log gets one line a step.
func Up(ctx context.Context, state State, binaries string,
	log func(format string, args ...any)) (*ControlPlane, error) {
	return UpWith(ctx, state, binaries, Options{}, log)
}

// UpWith is Up with options.
func UpWith(ctx context.Context, state State, binaries string, o Options,
	log func(format string, args ...any)) (*ControlPlane, error) {
	if !o.Claimed {
		if err := state.Claim(); err != nil {
			return nil, err
		}
	}
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		if _, err := os.Stat(filepath.Join(binaries, name)); err != nil {
			return nil, fmt.Errorf("%s is not in %s: run hack/kube/build.sh first: %w", name, binaries, err)
		}
	}
	pki, err := issueAll(state.Path("pki"), o)
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(5)
	if err != nil {
		return nil, err
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[2]))
	if o.Address != nil {
		address = net.JoinHostPort(o.Address.String(), strconv.Itoa(apiServerPort))
	}
	cp := &ControlPlane{State: state, PKI: pki, Server: "https://" + address, address: address,
		routed: o.Address != nil}
	for name, path := range map[string]string{
		"admin": state.Kubeconfig(), "kube-controller-manager": state.Path("pki", "kube-controller-manager.kubeconfig"),
		"kube-scheduler": state.Path("pki", "kube-scheduler.kubeconfig"),
	} {
		if err := WriteKubeconfig(path, cp.Server, pki, name); err != nil {
			return nil, err
		}
	}
	strict, err := probeClient(pki, true)
	if err != nil {
		return nil, err
	}
	lax, err := probeClient(pki, false)
	if err != nil {
		return nil, err
	}
	for _, p := range []process{etcd(cp, binaries, ports[0], ports[1]), apiServer(cp, binaries, ports[0])} {
		begin := time.Now()
		if err := state.startAndWait(ctx, strict, p); err != nil {
			return nil, err
		}
		log("%s ready after %.1f s", p.name, time.Since(begin).Seconds())
	}
	for _, p := range []process{controllerManager(cp, binaries, ports[3]), scheduler(cp, binaries, ports[4])} {
		begin := time.Now()
		if err := state.startAndWait(ctx, lax, p); err != nil {
			return nil, err
		}
		log("%s ready after %.1f s", p.name, time.Since(begin).Seconds())
	}
	return cp, cp.waitForServiceAccount(ctx)
}

// waitForServiceAccount waits until the controller manager has made the default service account: before that the API
// server refuses pods.
func (cp *ControlPlane) waitForServiceAccount(ctx context.Context) error {
	client, err := probeClient(cp.PKI, true)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readyDeadline)
	defer cancel()
	for {
		code, err := get(ctx, client, cp.Server+"/api/v1/namespaces/default/serviceaccounts/default")
		if err == nil && code == http.StatusOK {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the controller manager made no default service account "+
				"within %s (the API server answers HTTP %d, %w); the end of its log:\n%s",
				readyDeadline, code, errors.Join(err, ctx.Err()), cp.LogTail("kube-controller-manager", 25))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func issueAll(dir string, o Options) (*PKI, error) {
	pki, err := NewPKI(dir)
	if err != nil {
		return nil, err
	}
	loopback := []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 96, 0, 1)}
	apiServer := loopback
	if o.Address != nil {
		apiServer = append(slices.Clone(loopback), o.Address)
	}
	serverNames := []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc.cluster.local"}
	for name, id := range map[string]Identity{
		"etcd":                    {CN: "etcd", IPs: loopback, DNSNames: []string{"localhost"}},
		"kube-apiserver":          {CN: "kube-apiserver", IPs: apiServer, DNSNames: serverNames},
		"kube-apiserver-kubelet":  {CN: KubeletClientName},
		"admin":                   {CN: "simcluster-admin", Organizations: []string{"system:masters"}},
		"kube-controller-manager": {CN: "system:kube-controller-manager"},
		"kube-scheduler":          {CN: "system:kube-scheduler"},
	} {
		if err := pki.Issue(name, id); err != nil {
			return nil, err
		}
	}
	return pki, pki.SigningKey("service-account")
}

// AddNodeIdentity issues a node's own client certificate and kubeconfig: user system:node:NAME in group system:nodes,
// as the Node authorizer and NodeRestriction expect it. The certificate also serves the node's log endpoint.
func (cp *ControlPlane) AddNodeIdentity(node string, ip net.IP, kubeconfig string) error {
	name := "node-" + node
	id := Identity{CN: "system:node:" + node, Organizations: []string{"system:nodes"}, IPs: []net.IP{ip},
		DNSNames: []string{node}}
	if err := cp.PKI.Issue(name, id); err != nil {
		return err
	}
	return WriteKubeconfig(kubeconfig, cp.Server, cp.PKI, name)
}

func etcd(cp *ControlPlane, binaries string, clientPort, peerPort int) process {
	client := fmt.Sprintf("https://127.0.0.1:%d", clientPort)
	peer := fmt.Sprintf("https://127.0.0.1:%d", peerPort)
	cert, key, ca := cp.PKI.CertFile("etcd"), cp.PKI.KeyFile("etcd"), cp.PKI.CertFile("ca")
	return process{
		name: "etcd", readyURL: client + "/health", deadline: readyDeadline, env: []string{"GOMEMLIMIT=512MiB"},
		argv: []string{
			filepath.Join(binaries, "etcd"), "--name=simcluster", "--data-dir=" + cp.Path("etcd"),
			"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
			"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
			"--initial-cluster=simcluster=" + peer,
			"--cert-file=" + cert, "--key-file=" + key, "--trusted-ca-file=" + ca, "--client-cert-auth",
			"--peer-cert-file=" + cert, "--peer-key-file=" + key, "--peer-trusted-ca-file=" + ca,
			"--peer-client-cert-auth",
			// The state is thrown away with the cluster, so it need not survive a power cut.
			"--unsafe-no-fsync", "--log-level=warn",
		},
	}
}

func apiServer(cp *ControlPlane, binaries string, etcdPort int) process {
	pki := cp.PKI
	host, port, _ := net.SplitHostPort(cp.address) // JoinHostPort made it
	p := process{
		name: "kube-apiserver", readyURL: cp.Server + "/readyz", deadline: readyDeadline,
		env: []string{"GOMEMLIMIT=1GiB"},
		argv: []string{
			filepath.Join(binaries, "kube-apiserver"),
			"--bind-address=" + host, "--advertise-address=" + host, "--secure-port=" + port,
			"--tls-cert-file=" + pki.CertFile("kube-apiserver"),
			"--tls-private-key-file=" + pki.KeyFile("kube-apiserver"),
			"--client-ca-file=" + pki.CertFile("ca"),
			fmt.Sprintf("--etcd-servers=https://127.0.0.1:%d", etcdPort), "--etcd-cafile=" + pki.CertFile("ca"),
			"--etcd-certfile=" + pki.CertFile("etcd"), "--etcd-keyfile=" + pki.KeyFile("etcd"),
			"--authorization-mode=Node,RBAC",
			"--enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement",
			"--allow-privileged=true",
			"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
			"--service-account-key-file=" + filepath.Join(pki.dir, "service-account.pub"),
			"--service-account-signing-key-file=" + pki.KeyFile("service-account"),
			"--service-cluster-ip-range=" + serviceRange,
			"--kubelet-client-certificate=" + pki.CertFile("kube-apiserver-kubelet"),
			"--kubelet-client-key=" + pki.KeyFile("kube-apiserver-kubelet"),
			"--kubelet-certificate-authority=" + pki.CertFile("ca"),
			"--kubelet-preferred-address-types=InternalIP",
			"--profiling=false",
		},
	}
	if !cp.routed {
		// A loopback address is not allowed in an Endpoints object.
		p.argv = append(p.argv, "--endpoint-reconciler-type=none")
	}
	return p
}

func controllerManager(cp *ControlPlane, binaries string, port int) process {
	config := cp.Path("pki", "kube-controller-manager.kubeconfig")
	return process{
		name: "kube-controller-manager", readyURL: fmt.Sprintf("https://127.0.0.1:%d/healthz", port),
		deadline: readyDeadline,
		env:      []string{"GOMEMLIMIT=512MiB"},
		argv: []string{
			filepath.Join(binaries, "kube-controller-manager"),
			"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
			"--cert-dir=" + cp.Path("pki", "kube-controller-manager"),
			"--kubeconfig=" + config, "--authentication-kubeconfig=" + config, "--authorization-kubeconfig=" + config,
			"--root-ca-file=" + cp.PKI.CertFile("ca"),
			"--service-account-private-key-file=" + cp.PKI.KeyFile("service-account"),
			"--use-service-account-credentials", "--leader-elect=false", "--profiling=false",
		},
	}
}

func scheduler(cp *ControlPlane, binaries string, port int) process {
	config := cp.Path("pki", "kube-scheduler.kubeconfig")
	return process{
		name: "kube-scheduler", readyURL: fmt.Sprintf("https://127.0.0.1:%d/healthz", port), deadline: readyDeadline,
		env: []string{"GOMEMLIMIT=256MiB"},
		argv: []string{
			filepath.Join(binaries, "kube-scheduler"),
			"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
			"--cert-dir=" + cp.Path("pki", "kube-scheduler"),
			"--kubeconfig=" + config, "--authentication-kubeconfig=" + config, "--authorization-kubeconfig=" + config,
			"--leader-elect=false", "--profiling=false",
		},
	}
}

// StartNodes starts the process that stands for all simulated nodes and waits until it says that it is ready.
func (cp *ControlPlane) StartNodes(ctx context.Context, executable string) error {
	ports, err := freePorts(1)
	if err != nil {
		return err
	}
	client, err := probeClient(cp.PKI, false)
	if err != nil {
		return err
	}
	return cp.startAndWait(ctx, client, process{
		name: "nodes", deadline: readyDeadline, readyURL: fmt.Sprintf("http://127.0.0.1:%d/healthz", ports[0]),
		argv: []string{executable, "node", "--state-dir=" + cp.Dir,
			fmt.Sprintf("--health-address=127.0.0.1:%d", ports[0])},
	})
}

// Down ends exactly what was started from the state directory and removes it. A directory that is not there is no
// error.
func Down(state State, log func(format string, args ...any)) error {
	if _, err := os.Stat(state.Dir); os.IsNotExist(err) {
		return nil
	}
	if !state.Exists() {
		return fmt.Errorf("%s was not made by simcluster (it has no %s): nothing was ended or removed",
			state.Dir, markFile)
	}
	records, err := procs.Load(state.RunDir())
	if err != nil {
		return err
	}
	byName := map[string]procs.Record{}
	for _, r := range records {
		byName[r.Name] = r
	}
	var failed []error
	// The nodes first: they end their pods' processes. Then the control plane, etcd last.
	for _, name := range []string{"nodes", "kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd"} {
		r, ok := byName[name]
		if !ok {
			continue
		}
		was := r.Alive()
		if err := procs.Terminate(r, terminateDeadline); err != nil {
			failed = append(failed, err)
		} else if was {
			log("%s ended (process %d)", name, r.PID)
		}
	}
	failed = append(failed, endContainers(state)...)
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("not everything ended, so %s is kept: %w", state.Dir, err)
	}
	RemoveSharedMemory(state)
	return os.RemoveAll(state.Dir)
}

// endContainers ends processes of pods that outlived a nodes process which was killed.
func endContainers(state State) []error {
	dirs, err := filepath.Glob(state.Path("nodes", "*", "pods", "*", "run"))
	if err != nil {
		return []error{err}
	}
	var failed []error
	for _, dir := range dirs {
		records, err := procs.Load(dir)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		for _, r := range records {
			if err := procs.KillMembers(r, 10*time.Second); err != nil {
				failed = append(failed, err)
			}
		}
	}
	return failed
}

// SharedMemoryPrefix begins the name of the directory that holds one cluster's memory-backed volumes.
const SharedMemoryPrefix = "/dev/shm/simcluster-"

// RemoveSharedMemory removes the memory-backed volumes that the state directory links to.
func RemoveSharedMemory(state State) {
	data, err := os.ReadFile(state.Path("shm-dir"))
	if err != nil {
		return
	}
	dir := string(data)
	if strings.HasPrefix(dir, SharedMemoryPrefix) && filepath.Clean(dir) == dir {
		_ = os.RemoveAll(dir)
	}
}

// Status says of each recorded process whether it runs.
func Status(state State) ([]string, bool, error) {
	records, err := procs.Load(state.RunDir())
	if err != nil {
		return nil, false, err
	}
	healthy := len(records) > 0
	var lines []string
	for _, r := range records {
		word := "running"
		if !r.Alive() {
			word, healthy = "NOT running", false
		}
		lines = append(lines, fmt.Sprintf("%-24s %s (process %d)", r.Name, word, r.PID))
	}
	return lines, healthy, nil
}
