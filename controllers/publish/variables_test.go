package publish

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/objects"
	"rcclx.io/commgroup-operator/controllers/testkit"
)

// passed is a run that proved these variables on one node.
func passed(env ...v1alpha1.EnvVar) Input {
	group := testkit.Group()
	group.Spec.DDA.Mode, group.Spec.LowPrecision.Mode = v1alpha1.FeatureDisabled, v1alpha1.FeatureDisabled
	return Input{
		Now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), Group: group, Origin: v1alpha1.OriginHardware, Certain: true,
		Run: &v1alpha1.GroupRunStatus{ID: "1-1", Phase: v1alpha1.RunPhaseFinished, Generation: group.Generation,
			Verdict: v1alpha1.VerdictPass},
		Outcomes: []judge.Outcome{{Node: "n1",
			Report: &v1alpha1.NodeRunStatus{Environment: env, Library: &v1alpha1.LibraryFacts{Flavor: "rccl"}}}},
	}
}

// publishedAs is the group's ConfigMap as a release before the rule wrote it.
func publishedAs(in *Input, env ...v1alpha1.EnvVar) {
	in.Existing = configMapWith(*in, ConfigMapName(in.Group), env, nil)
	in.Owned = []string{in.Existing.Name}
	in.Group.Status.Published = &v1alpha1.PublishedStatus{ConfigMapName: in.Existing.Name, RunID: in.Run.ID,
		Hash: in.Existing.Annotations[v1alpha1.AnnotationSettingsHash]}
}

// TestInjectedLinesAreNotPublished: a CommGroup from before the rule on values must not bring lines into rccl.conf.
func TestInjectedLinesAreNotPublished(t *testing.T) {
	good := v1alpha1.EnvVar{Name: "NCCL_DEBUG", Value: "INFO"}
	bad := v1alpha1.EnvVar{Name: "NCCL_ALGO", Value: "Ring\nRCCL_LOW_PRECISION_ENABLE=1"}
	refused := func(t *testing.T, got Publication) {
		t.Helper()
		c := got.Condition
		if got.ConfigMap != nil || c.Status != metav1.ConditionFalse ||
			c.Reason != v1alpha1.ReasonVariableNotPublishable ||
			!strings.Contains(c.Message, "variable NCCL_ALGO has a line break") {
			t.Errorf("%+v, ConfigMap %v", c, got.ConfigMap)
		}
	}
	t.Run("new", func(t *testing.T) { refused(t, Decide(passed(good, bad))) })
	t.Run("good settings of an earlier run stay", func(t *testing.T) {
		in := passed(good, bad)
		publishedAs(&in, good)
		got := Decide(in)
		refused(t, got)
		if got.Published == nil || len(got.Remove) > 0 {
			t.Errorf("published %v, removed %v", got.Published, got.Remove)
		}
	})
	gone := func(t *testing.T, in Input) {
		got := Decide(in)
		refused(t, got)
		if len(got.Remove) != 1 || got.Remove[0] != in.Existing.Name {
			t.Errorf("published %v, removed %v", got.Published, got.Remove)
		}
	}
	t.Run("bad settings of an earlier run go", func(t *testing.T) {
		in := passed(good, bad)
		publishedAs(&in, good, bad)
		gone(t, in)
	})
	t.Run("bad settings go while no run proves others", func(t *testing.T) {
		in := passed(good)
		publishedAs(&in, good, bad)
		in.Run.Phase = v1alpha1.RunPhaseRunning
		gone(t, in)
	})
	t.Run("good settings take their place", func(t *testing.T) {
		in := passed(good)
		publishedAs(&in, good, bad)
		if got := Decide(in); got.ConfigMap == nil || got.Condition.Status != metav1.ConditionTrue ||
			strings.Contains(got.ConfigMap.Data[confKey], "LOW_PRECISION") {
			t.Errorf("%+v", got)
		}
	})
	t.Run("another's name is no matter of ours", func(t *testing.T) {
		in := passed(good, bad)
		in.Existing = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: ConfigMapName(in.Group)},
			Data: map[string]string{"A": "a\nb"}}
		if got := Decide(in); len(got.Remove) > 0 || got.Condition.Reason != v1alpha1.ReasonConfigMapNotOwned {
			t.Errorf("%+v", got)
		}
	})
}

// TestComputedVariablesAreNotPublished: what agents compute for each node is no setting for a job.
func TestComputedVariablesAreNotPublished(t *testing.T) {
	index := int32(3)
	for name, tc := range map[string]struct {
		network v1alpha1.NetworkSpec
		left    []string
	}{
		"always": {v1alpha1.NetworkSpec{AddressFamily: v1alpha1.AddressFamilyAuto},
			[]string{"NCCL_COMM_ID", "NCCL_DEBUG_FILE", "NCCL_HOSTID", "NCCL_RAS_ADDR"}},
		"by spec.network": {v1alpha1.NetworkSpec{Interface: &v1alpha1.InterfaceSelector{Name: "eth1"},
			AddressFamily: v1alpha1.AddressFamilyIPv4, HCAs: []string{"mlx5_0"}, GIDIndex: &index},
			[]string{"NCCL_COMM_ID", "NCCL_DEBUG_FILE", "NCCL_HOSTID", "NCCL_IB_GID_INDEX", "NCCL_IB_HCA",
				"NCCL_RAS_ADDR", "NCCL_SOCKET_FAMILY", "NCCL_SOCKET_IFNAME"}},
	} {
		t.Run(name, func(t *testing.T) {
			var env []v1alpha1.EnvVar
			all := append(v1alpha1.ComputedVariables(), "NCCL_ALGO", "NCCL_SOCKET_IFNAME", "NCCL_SOCKET_FAMILY",
				"NCCL_IB_HCA", "NCCL_IB_GID_INDEX")
			for _, name := range all {
				env = append(env, v1alpha1.EnvVar{Name: name, Value: "x"})
			}
			in := passed(env...)
			in.Group.Spec.Network, in.Group.Spec.Runtime.Env = tc.network, env
			got := Decide(in)
			if got.ConfigMap == nil || got.ConfigMap.Data["NCCL_ALGO"] != "x" ||
				len(got.ConfigMap.Data) != len(all)-len(tc.left)+1 {
				t.Fatalf("%+v, %v", got.Condition, got.ConfigMap)
			}
			if want := "Not in it: " + strings.Join(tc.left, ", ") +
				", which agents compute"; !strings.Contains(got.Condition.Message, want) {
				t.Errorf("%q lacks %q", got.Condition.Message, want)
			}
			if own := in.Group.Spec.OwnVariables(); len(own) != len(all)-len(tc.left) ||
				len(in.Group.Spec.Runtime.Env) != len(all) {
				t.Errorf("own variables %v", own)
			}
		})
	}
}

// TestCommentsStayComments: words that come from nodes cannot end a comment's line.
func TestCommentsStayComments(t *testing.T) {
	cm := configMapWith(passed(), "x", []v1alpha1.EnvVar{{Name: "NCCL_DEBUG", Value: "INFO"}},
		[]string{"a\nNCCL_ALGO=Ring", "b\rNCCL_PROTO=LL\u2028x"})
	if want := "# a NCCL_ALGO=Ring\n# b NCCL_PROTO=LL x\nNCCL_DEBUG=INFO\n"; cm.Data[confKey] != want {
		t.Errorf("%q, expected %q", cm.Data[confKey], want)
	}
	if hash := objects.Hash("NCCL_DEBUG=INFO\n"); cm.Annotations[v1alpha1.AnnotationSettingsHash] != hash {
		t.Error("the hash is not over the variables")
	}
}
