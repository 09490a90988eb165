package controllers

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/testkit"
)

// TestReportsThatCount: the controller sleeps through reports that confirm what it knows, and through no other.
func TestReportsThatCount(t *testing.T) {
	const valid = 600
	report := func(age time.Duration, model string) *v1alpha1.CommNode {
		return &v1alpha1.CommNode{Status: v1alpha1.CommNodeStatus{Facts: &v1alpha1.NodeFacts{
			ObservedTime: metav1.NewTime(testkit.Now.Add(-age)), ValidForSeconds: valid, GPUModel: model}}}
	}
	counted := func(age time.Duration, errors int64) *v1alpha1.CommNode {
		cn := report(age, "MI300X")
		cn.Status.Facts.RAS = &v1alpha1.RASFacts{Correctable: &errors}
		cn.Status.Facts.XGMI.CorrectableErrors = &errors
		return cn
	}
	end := valid * time.Second
	for _, c := range []struct {
		name          string
		before, after *v1alpha1.CommNode
		want          bool
	}{
		{"first report", &v1alpha1.CommNode{}, report(0, "MI300X"), true},
		{"same facts, in time", report(end/2, "MI300X"), report(0, "MI300X"), false},
		{"same facts, at the last moment", report(end-time.Millisecond, "MI300X"), report(0, "MI300X"), false},
		{"same facts, just too late", report(end, "MI300X"), report(0, "MI300X"), true},
		{"same facts, after a long silence", report(10*end, "MI300X"), report(0, "MI300X"), true},
		// The clock of such a node is behind: each of its reports is old when it comes, and holds for a short time
		// only.
		{"same facts, in time by the node's own clock", report(end+time.Second, "MI300X"),
			report(end/2, "MI300X"), true},
		{"other facts, in time", report(end/2, "MI300X"), report(0, "MI325X"), true},
		{"only more errors that hardware corrected", counted(end/2, 7), counted(0, 8), false},
		{"more errors and other facts", counted(end/2, 7), report(0, "MI325X"), true},
		{"facts taken away", report(0, "MI300X"), &v1alpha1.CommNode{}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := New(Dependencies{Clock: clocktesting.NewFakePassiveClock(testkit.Now)})
			if got := r.commNodeChanged(c.before, c.after); got != c.want {
				t.Errorf("commNodeChanged = %v, want %v", got, c.want)
			}
		})
	}
}

type failingClient struct {
	client.Client
	err error
}

func (c failingClient) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return c.err
}

func TestConflictsAreNoErrors(t *testing.T) {
	groups := schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "commgroups"}
	conflict := apierrors.NewConflict(groups, "g", errors.New("the object has been modified"))
	scheme := testkit.Scheme(t)
	for _, c := range []struct {
		name      string
		err       error
		retry     bool
		wantError bool
	}{
		{"conflict", conflict, true, false},
		{"wrapped conflict", fmt.Errorf("status of commgroup team/g: %w", conflict), true, false},
		{"conflict on one of many objects",
			errors.Join(errors.New("away"), fmt.Errorf("write commtask n: %w", conflict)), true, false},
		{"API server away", errors.New("connection refused"), false, true},
		{"forbidden", apierrors.NewForbidden(groups, "g", errors.New("no")), false, true},
		{"gone", apierrors.NewNotFound(groups, "g"), false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			// Where the group is gone its remains are looked for, among none here.
			empty := fake.NewClientBuilder().WithScheme(scheme).Build()
			r := New(Dependencies{Client: failingClient{Client: empty, err: c.err}, APIReader: empty,
				Clock: clock.RealClock{}})
			result, err := r.paced(t.Context(), ctrl.Request{})
			if (err != nil) != c.wantError || (result.RequeueAfter > 0) != c.retry {
				t.Errorf("result %+v, error %v", result, err)
			}
		})
	}
}
