package executor

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"rcclx.io/commgroup-operator/agent/commtask"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/testenv"
)

// server is a real API server, with the agent's role of the repository bound to the run pods' account.
type server struct {
	admin  client.WithWatch
	config *rest.Config
	scheme *k8sruntime.Scheme
}

const agentUser, readerUser = "system:serviceaccount:default:commgroup-run", "system:serviceaccount:default:old"

func startServer(t *testing.T) server {
	t.Helper()
	_, config := testenv.Start(t)
	s := server{config: config, scheme: k8sruntime.NewScheme()}
	if err := errors.Join(api.AddToScheme(s.scheme), rbacv1.AddToScheme(s.scheme)); err != nil {
		t.Fatal(err)
	}
	s.admin = s.client(t, "")
	roles, err := os.ReadFile(filepath.Join(testenv.Root(), "config", "rbac", "agent_roles.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for doc := range bytes.SplitSeq(roles, []byte("\n---\n")) {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal(doc, &role); err != nil {
			t.Fatal(err)
		}
		if role.Kind == "ClusterRole" && role.Name == "commgroup-agent-run" {
			s.bind(t, role, agentUser)
			// The role as it was before there were sessions.
			role.ObjectMeta = metav1.ObjectMeta{Name: "old"}
			role.Rules[0].Verbs = []string{"get"}
			s.bind(t, role, readerUser)
		}
	}
	return s
}

func (s server) bind(t *testing.T, role rbacv1.ClusterRole, user string) {
	t.Helper()
	binding := rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: role.Name},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}}}
	if err := errors.Join(s.admin.Create(t.Context(), role.DeepCopy()),
		s.admin.Create(t.Context(), &binding)); err != nil {
		t.Fatal(err)
	}
}

func (s server) client(t *testing.T, user string) client.WithWatch {
	t.Helper()
	config := rest.CopyConfig(s.config)
	if user != "" {
		config.Impersonate = rest.ImpersonationConfig{UserName: user,
			Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: s.scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (s server) create(t *testing.T, name string) *api.CommTask {
	t.Helper()
	a := testAssignment()
	ct := &api.CommTask{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: api.CommTaskSpec{NodeName: strings.TrimPrefix(name, "group."),
			Group: api.GroupReference{Name: "group"}, Ranks: api.RankRange{Count: 4, WorldSize: 16}, Session: &a}}
	if err := s.admin.Create(t.Context(), ct); err != nil {
		t.Fatal(err)
	}
	return ct
}

// follow follows a CommTask until the test is over.
func follow(t *testing.T, k KubeTask) <-chan Seen {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	seen, done := make(chan Seen, 64), make(chan struct{})
	go func() {
		defer close(done)
		k.Follow(ctx, func(s Seen) { seen <- s })
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return seen
}

// await returns the first thing seen that is as asked for.
func await(t *testing.T, seen <-chan Seen, what string, is func(Seen) bool) Seen {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case s := <-seen:
			if s.Err != nil {
				t.Logf("seen: %v", s.Err)
			}
			if is(s) {
				return s
			}
		case <-timer.C:
			t.Fatalf("%s was not seen", what)
		}
	}
}

// TestSessionAgainstAPIServer follows and reports with the rights that a group pod has.
func TestSessionAgainstAPIServer(t *testing.T) {
	s := startServer(t)
	ctx, name := t.Context(), types.NamespacedName{Namespace: "default", Name: "group.node-a"}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	ct, other := s.create(t, name.Name), s.create(t, "group.node-b")
	run := testRun()
	runStatus := run.Status
	if err := s.admin.Create(ctx, &run); err != nil {
		t.Fatal(err)
	}
	run.Status = runStatus
	if err := s.admin.Status().Update(ctx, &run); err != nil {
		t.Fatal(err)
	}
	k := KubeTask{Client: s.client(t, agentUser), Name: name, RunID: "run-1", Clock: clock.RealClock{}, Log: log}
	seen := follow(t, k)
	first := await(t, seen, "the session", func(x Seen) bool { return x.Session != nil })
	if first.Session.RunID != "run-1" || first.Plan.StepDeadlineSeconds != 10 || first.Reported != nil ||
		first.BudgetBytes < mostBytes || first.BudgetBytes > taskBytes+mostBytes {
		t.Errorf("first seen: %+v %+v", first, first.Session)
	}
	// A change of another CommTask is not told.
	other.Spec.Session.RunID = "run-9"
	task := within("mesh-tp-1")[0]
	task.Communicators[0].UniqueID = []byte{1, 2, 255}
	ct.Spec.Session.Task = &task
	if err := errors.Join(s.admin.Update(ctx, other), s.admin.Update(ctx, ct)); err != nil {
		t.Fatal(err)
	}
	got := await(t, seen, "the task", func(x Seen) bool { return x.Session != nil && x.Session.Task != nil })
	if !sameTask(*got.Session.Task, task) || string(got.Session.Task.Communicators[0].UniqueID) != "\x01\x02\xff" {
		t.Errorf("the task arrived as %+v", got.Session.Task)
	}

	now := metav1.NowMicro()
	f := int64(5)
	status := api.SessionStatus{RunID: "run-1", State: api.SessionWorking,
		Network: &api.NetworkStatus{Interface: "eth0", Addresses: []string{"10.0.0.1"}, Clock: &now},
		Library: &api.LibraryFacts{Flavor: "rccl", Version: "2.27.3"}, Task: &api.NodeTaskStatus{ID: "mesh-tp-1",
			Phase: api.TaskFinished, Communicators: []api.TaskCommunicatorStatus{{
				Name: "tp/0", UniqueID: []byte{1, 2, 255},
				Verdict: api.VerdictPass, Transport: "RDMA", InitNanoseconds: &f,
				Guilty: &api.Culprit{Node: "node-a", Kind: "GPU", Name: "x", Reason: "R", Message: "m"},
				Results: []api.ResultSeries{{Variant: api.VariantBaseline, Collective: api.AllReduce,
					Datatype: api.Float32, SizeBytes: []int64{8}, LatencyNanoseconds: []int64{9},
					BusBandwidthMBps: []int64{10}}}}}}}
	if err := k.ReportSession(ctx, status); err != nil {
		t.Fatal(err)
	}
	back := await(t, seen, "the report", func(x Seen) bool { return x.Reported != nil })
	if string(back.Reported.Task.Communicators[0].UniqueID) != "\x01\x02\xff" ||
		back.BudgetBytes < first.BudgetBytes-1024 {
		t.Errorf("the report came back as %+v, budget %d", back.Reported, back.BudgetBytes)
	}
	status.State = "Sleeping"
	if err := k.ReportSession(ctx, status); !errors.Is(err, commtask.ErrRejected) {
		t.Errorf("a state that is not known: %v", err)
	}
	stale := k
	stale.RunID = "run-0"
	if err := stale.ReportSession(ctx, status); !errors.Is(err, commtask.ErrSuperseded) {
		t.Errorf("another run: %v", err)
	}
	if err := s.admin.Get(ctx, name, ct); err != nil {
		t.Fatal(err)
	}
	owned := false
	for _, m := range ct.ManagedFields {
		if m.Manager == api.FieldManagerSession {
			fields := m.FieldsV1.GetRawString()
			owned = m.Subresource == "status" && fields == `{"f:status":{"f:session":{}}}`
		}
	}
	if !owned {
		t.Errorf("%s does not own status.session alone: %+v", api.FieldManagerSession, ct.ManagedFields)
	}
	if err := k.Client.Update(ctx, ct); !apierrors.IsForbidden(err) {
		t.Errorf("an agent may change a spec: %v", err)
	}
	if err := s.admin.Delete(ctx, ct); err != nil {
		t.Fatal(err)
	}
	await(t, seen, "the end", func(x Seen) bool { return x.Gone })
	if err := k.ReportSession(ctx, status); !errors.Is(err, commtask.ErrSuperseded) {
		t.Errorf("no CommTask: %v", err)
	}

	t.Run("may not watch", func(t *testing.T) {
		ct := s.create(t, "group.node-c")
		c := noticedClock{clocktesting.NewFakeClock(time.Now()), make(chan *noticedTimer, 1024)}
		k := KubeTask{Client: s.client(t, readerUser), Name: types.NamespacedName{Namespace: "default", Name: ct.Name},
			RunID: "run-1", Clock: c, Log: log}
		seen := follow(t, k)
		await(t, seen, "the session", func(x Seen) bool { return x.Session != nil })
		ct.Spec.Session.Task = &task
		if err := s.admin.Update(ctx, ct); err != nil {
			t.Fatal(err)
		}
		d := (<-c.made).d
		if d < pollEvery || d > pollEvery*3/2 {
			t.Errorf("the next look comes after %s", d)
		}
		c.Step(d)
		await(t, seen, "the task", func(x Seen) bool { return x.Session != nil && x.Session.Task != nil })
	})
}
