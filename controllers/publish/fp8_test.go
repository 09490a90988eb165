package publish

import (
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/objects"
	"rcclx.io/commgroup-operator/controllers/testkit"
)

// TestFP8IsPublishedWhereProven: FP8 changes a job's data, so that only what the run proved goes out.
func TestFP8IsPublishedWhereProven(t *testing.T) {
	setting := func(c string, verified v1alpha1.VerifiedState, warnings ...string) v1alpha1.SettingStatus {
		return v1alpha1.SettingStatus{Name: "lowPrecision." + c, Requested: "Preferred", Effective: v1alpha1.EffectivePartial, Verified: verified, Warnings: warnings}
	}
	const yes, tail = v1alpha1.VerifiedConfirmed, v1alpha1.WarningTailHazard
	proven := []v1alpha1.SettingStatus{setting("AllReduce", yes), setting("AllGather", yes), setting("ReduceScatter", yes), setting("AllToAll", yes, v1alpha1.WarningOverflow)}
	tailed := []v1alpha1.SettingStatus{setting("AllReduce", yes, tail), setting("AllGather", yes), setting("ReduceScatter", yes, tail), setting("AllToAll", yes)}
	global := map[string]string{"RCCL_LOW_PRECISION_ENABLE": "1"}
	off := map[string]string{"RCCL_LOW_PRECISION_ENABLE": "0", "RCCL_LOW_PRECISION_ENABLE_ALLREDUCE": "0", "RCCL_LOW_PRECISION_ENABLE_ALLGATHER": "0",
		"RCCL_LOW_PRECISION_ENABLE_REDUCESCATTER": "0", "RCCL_LOW_PRECISION_ENABLE_ALLTOALL": "0"}
	some := func(on ...string) map[string]string {
		m := maps.Clone(off)
		for _, name := range on {
			m["RCCL_LOW_PRECISION_ENABLE_"+name] = "1"
		}
		return m
	}
	required := func(s *v1alpha1.CommGroupSpec) { s.LowPrecision.Mode = v1alpha1.FeatureRequired }
	padded := func(s *v1alpha1.CommGroupSpec) { s.Publish.JobCounts = v1alpha1.JobCountsPadded }
	for name, tc := range map[string]struct {
		flavor   string
		change   func(*v1alpha1.CommGroupSpec)
		settings []v1alpha1.SettingStatus
		want     map[string]string
		reason   string
		words    string // of the note, or of why nothing is published
	}{
		"not asked for":            {"rcclx-dev", func(s *v1alpha1.CommGroupSpec) { s.LowPrecision.Mode = v1alpha1.FeatureDisabled }, nil, nil, "", ""},
		"all proven":               {"rcclx-dev", nil, proven, global, "", ""},
		"tail":                     {"rcclx-dev", nil, tailed, some("ALLGATHER", "ALLTOALL"), v1alpha1.ReasonTailHazard, "AllReduce and ReduceScatter"},
		"tail, jobs pad":           {"rcclx-dev", padded, tailed, global, v1alpha1.ReasonTailHazard, "published for them all the same"},
		"tail, required":           {"rcclx-dev", required, tailed, nil, v1alpha1.ReasonTailHazard, "set publish.jobCounts to Padded"},
		"tail, required, jobs pad": {"rcclx-dev", func(s *v1alpha1.CommGroupSpec) { required(s); padded(s) }, tailed, global, v1alpha1.ReasonTailHazard, "jobCounts is Padded"},
		"tail, one switch":         {"rcclx-stable", nil, tailed, map[string]string{"RCCL_LOW_PRECISION_ENABLE": "0"}, v1alpha1.ReasonTailHazard, "it is off"},
		"not measured":             {"rcclx-dev", nil, proven[1:2], some("ALLGATHER"), "", "AllReduce, ReduceScatter, AllToAll"},
		"not confirmed":            {"rcclx-dev", nil, append([]v1alpha1.SettingStatus{setting("AllReduce", v1alpha1.VerifiedUnknown)}, proven[1:]...), some("ALLGATHER", "REDUCESCATTER", "ALLTOALL"), "", "did not confirm it: AllReduce"},
		"one switch, required":     {"rcclx-stable", required, proven[:1], nil, v1alpha1.ReasonNotProven, "measure these, too"},
		"only asked for":           {"rcclx-dev", func(s *v1alpha1.CommGroupSpec) { s.LowPrecision.Collectives = []string{"AllGather"} }, tailed, some("ALLGATHER"), "", ""},
		"no FP8 in the library":    {"rccl", nil, nil, map[string]string{}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			spec := testkit.Group().Spec.DeepCopy()
			spec.LowPrecision.Mode = v1alpha1.FeaturePreferred
			if tc.change != nil {
				tc.change(spec)
			}
			got := provenFP8(spec, tc.settings, &v1alpha1.LibraryFacts{Flavor: "simulated", Imitates: tc.flavor}, "", nil)
			if (got.withheld != "") != (tc.want == nil && tc.words != "") || got.reason != tc.reason || !strings.Contains(got.withheld+got.note, tc.words) {
				t.Errorf("withheld %q, reason %q, note %q", got.withheld, got.reason, got.note)
			}
			if got.withheld != "" {
				return
			}
			reported := []v1alpha1.EnvVar{{Name: "RCCL_DDA_NRANKS", Value: "8"}, {Name: "RCCL_LOW_PRECISION_ENABLE", Value: "reported"}}
			values := map[string]string{}
			for _, e := range got.apply(reported) {
				values[e.Name] = e.Value
			}
			if tc.want == nil {
				tc.want = map[string]string{"RCCL_LOW_PRECISION_ENABLE": "reported"}
			} else if len(tc.want) == 0 {
				tc.want["RCCL_LOW_PRECISION_ENABLE"] = "reported"
			}
			tc.want["RCCL_DDA_NRANKS"] = "8"
			if !maps.Equal(values, tc.want) {
				t.Errorf("published %v, expected %v", values, tc.want)
			}
		})
	}
	spec := testkit.Group().Spec.DeepCopy()
	spec.LowPrecision.Mode = v1alpha1.FeaturePreferred
	if got := provenFP8(spec, proven, nil, "", nil); got.withheld == "" {
		t.Error("published although the library is not known")
	}
}

// TestFormerHash: what a release with another hash published is no change by hand.
func TestFormerHash(t *testing.T) {
	conf := "# FP8 is off: why\nA=1\nB=2\n"
	cm := &corev1.ConfigMap{Data: map[string]string{"A": "1", "B": "2", confKey: conf}}
	if !intact(cm, objects.Hash(conf)) || !intact(cm, objects.Hash("A=1\nB=2\n")) || intact(cm, objects.Hash("A=1\n")) {
		t.Error("the hash over the file with its comment, or over the lines, is not known")
	}
	cm.Data["B"] = "3"
	if intact(cm, objects.Hash(conf)) {
		t.Error("a variable that differs from the file")
	}
}
