package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/testenv"
)

const managerUser = "system:serviceaccount:commgroup-system:commgroup-manager"

// asProcess in the environment makes the test's program a manager: one process can be one manager only.
const asProcess = "COMMGROUP_TEST_IS_MANAGER"

// always is everything that a user may not leave out.
var always = []string{"--agent-image=commgroup-agent:dev", "--metrics-port=0", "--leader-elect=false"}

func TestMain(m *testing.M) {
	if os.Getenv(asProcess) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestStart goes through what a manager finds at its start on a real API server, as its own account: it starts where
// the CRDs are of its own revision, and else ends at once and says why.
func TestStart(t *testing.T) {
	env, config := testenv.Start(t, testenv.WithoutCRDs)
	admin := testenv.Admin(t, config)
	asManager(t, env)

	refused(t, "may not read CRDs", "let the manager's account get it")
	grant(t, admin)
	refused(t, "no CRDs", "CRD commgroups.rcclx.io is not installed", "CRD commtasks.rcclx.io is not installed",
		"CRD commnodes.rcclx.io is not installed", "kubectl apply --server-side")
	if _, err := envtest.InstallCRDs(config,
		envtest.CRDInstallOptions{Paths: []string{testenv.CRDs()}, ErrorIfPathMissing: true}); err != nil {
		t.Fatal(err)
	}
	annotate(t, admin, "commtasks.rcclx.io", "")
	refused(t, "a CRD from before the revisions", "CRD commtasks.rcclx.io has no annotation")
	annotate(t, admin, "commtasks.rcclx.io", fmt.Sprint(v1alpha1.SchemaRevision+1))
	started(t, "one equal, one newer")
	// The manager of the next schema on these CRDs.
	if err := checkSchemas(t.Context(), admin, v1alpha1.SchemaRevision+1); err == nil ||
		!strings.Contains(err.Error(),
			fmt.Sprintf("CRD commgroups.rcclx.io has schema revision %d, this manager needs %d",
				v1alpha1.SchemaRevision, v1alpha1.SchemaRevision+1)) || strings.Contains(err.Error(), "commtasks") {
		t.Errorf("an older CRD: error %v, expected one that names it and both revisions", err)
	}
}

// asManager lets the manager find a kubeconfig of its account.
func asManager(t *testing.T, env *envtest.Environment) {
	t.Helper()
	t.Setenv("KUBECONFIG", testenv.Kubeconfig(t, env, managerUser, "system:serviceaccounts"))
	t.Setenv("POD_NAMESPACE", "commgroup-system")
	t.Setenv("POD_IP", "127.0.0.1")
}

// grant makes what config/rbac gives the manager.
func grant(t *testing.T, admin client.Client) {
	t.Helper()
	createNamespace(t, admin, "commgroup-system")
	if createAll(t, admin, filepath.Join("config", "rbac", "manager_role.yaml"), func(client.Object) bool {
		return true
	}) == 0 {
		t.Fatal("config/rbac/manager_role.yaml holds no object")
	}
}

func createNamespace(t *testing.T, admin client.Client, name string) {
	t.Helper()
	if err := admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		t.Fatal(err)
	}
}

// createAll makes those objects of a file of the repository that are wanted, and says how many.
func createAll(t *testing.T, admin client.Client, path string, wanted func(client.Object) bool) (made int) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(testenv.Root(), path))
	if err != nil {
		t.Fatal(err)
	}
	for decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096); ; {
		var raw k8sruntime.RawExtension
		if err := decoder.Decode(&raw); errors.Is(err, io.EOF) {
			return made
		} else if err != nil {
			t.Fatal(err)
		}
		decoded, _, err := clientgoscheme.Codecs.UniversalDeserializer().Decode(raw.Raw, nil, nil)
		if k8sruntime.IsNotRegisteredError(err) || len(raw.Raw) == 0 || string(raw.Raw) == "null" {
			continue // another project's kind, or a comment
		}
		if err != nil {
			t.Fatal(err)
		}
		if object := decoded.(client.Object); wanted(object) {
			if err := admin.Create(t.Context(), object); err != nil {
				t.Fatal(err)
			}
			made++
		}
	}
}

// annotate sets a CRD's revision, or takes it away.
func annotate(t *testing.T, admin client.Client, name, revision string) {
	t.Helper()
	var crd metav1.PartialObjectMetadata
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1",
		Kind: "CustomResourceDefinition"})
	if err := admin.Get(t.Context(), client.ObjectKey{Name: name}, &crd); err != nil {
		t.Fatal(err)
	}
	base := crd.DeepCopy()
	delete(crd.Annotations, v1alpha1.AnnotationSchemaRevision)
	if revision != "" {
		crd.Annotations[v1alpha1.AnnotationSchemaRevision] = revision
	}
	if err := admin.Patch(t.Context(), &crd, client.MergeFrom(base)); err != nil {
		t.Fatal(err)
	}
}

// manager runs the command.
func manager(ctx context.Context, arguments ...string) error {
	cmd := newCommand()
	cmd.SetArgs(slices.Concat(always, arguments))
	return cmd.ExecuteContext(ctx)
}

// refused expects the manager to end by itself, with all of the given texts. Roles may take a moment to be known.
func refused(t *testing.T, what string, texts ...string) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		ctx, cancel := context.WithDeadline(t.Context(), deadline)
		err := manager(ctx, "--health-port=0")
		cancel()
		missing := ""
		for _, text := range texts {
			if err == nil || !strings.Contains(err.Error(), text) {
				missing = text
			}
		}
		if missing == "" {
			return
		}
		if err == nil || !strings.Contains(err.Error(), "forbidden") || time.Now().After(deadline) {
			t.Fatalf("%s: the manager ended with %v, expected %q", what, err, missing)
		}
	}
}

// started expects the manager to become ready, and to end without an error when asked to.
func started(t *testing.T, what string, arguments ...string) {
	t.Helper()
	end, ended := ready(t, what, arguments...)
	end()
	if err := <-ended; err != nil {
		t.Errorf("%s: the manager ended with %v after it was asked to, expected no error", what, err)
	}
}

// ready waits until a manager, which is a process of its own, is ready, and gives what ends it and where its end is
// told.
func ready(t *testing.T, what string, arguments ...string) (end context.CancelFunc, ended <-chan error) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	told := make(chan error, 1)
	cmd := exec.CommandContext(ctx, os.Args[0],
		slices.Concat(always, arguments, []string{fmt.Sprintf("--health-port=%d", port)})...)
	cmd.Env = append(os.Environ(), asProcess+"=yes")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	go func() { // which stays until the end, as Pdeathsig goes by the thread that started the process
		runtime.LockOSThread()
		if err := cmd.Run(); err != nil && cmd.ProcessState != nil && !cmd.ProcessState.Success() {
			told <- fmt.Errorf("%w: %s", err, &said)
			return
		}
		told <- nil
	}()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for ready := false; !ready; {
		select {
		case err := <-told:
			cancel()
			t.Fatalf("%s: the manager ended with %v, expected it to become ready", what, err)
		case <-deadline:
			cancel()
			err := <-told
			t.Fatalf("%s: the manager was not ready within a minute: %v: %s", what, err, &said)
		case <-tick.C:
			response, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/readyz", port))
			ready = err == nil && response.StatusCode == http.StatusOK
			if err == nil {
				_ = response.Body.Close()
			}
		}
	}
	return cancel, told
}
