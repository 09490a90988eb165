package publish

import (
	"maps"
	"slices"
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
		usable := v1alpha1.ResultsUsable
		if len(warnings) > 0 {
			usable = v1alpha1.ResultsNotUsable
		}
		return v1alpha1.SettingStatus{Name: "lowPrecision." + c, Requested: "Preferred",
			Effective: v1alpha1.EffectivePartial, Verified: verified, Usable: usable, Warnings: warnings}
	}
	const yes, tail, over, under = v1alpha1.VerifiedConfirmed, v1alpha1.WarningTailHazard, v1alpha1.WarningOverflow,
		v1alpha1.WarningUnderflow
	proven := []v1alpha1.SettingStatus{setting("AllReduce", yes), setting("AllGather", yes),
		setting("ReduceScatter", yes), setting("AllToAll", yes)}
	lossy := append(slices.Clone(proven[:2]), setting("ReduceScatter", yes, under),
		setting("AllToAll", yes, over, under))
	all := []v1alpha1.SettingStatus{setting("AllReduce", yes, tail, over, under),
		setting("AllGather", yes, over, under), setting("ReduceScatter", yes, tail, over, under),
		setting("AllToAll", yes, over, under)}
	silent := slices.Clone(proven)
	silent[3].Usable = "" // an agent of an earlier release
	unknown := slices.Clone(proven)
	unknown[3].Usable = v1alpha1.ResultsUnknown
	contradicts := slices.Clone(proven)
	contradicts[3].Warnings = []string{over}
	nameless := slices.Clone(proven)
	nameless[3].Usable = v1alpha1.ResultsNotUsable
	wrong := slices.Clone(proven)
	wrong[3] = setting("AllToAll", yes, v1alpha1.WarningWrongData)
	tailed := []v1alpha1.SettingStatus{setting("AllReduce", yes, tail), setting("AllGather", yes),
		setting("ReduceScatter", yes, tail), setting("AllToAll", yes)}
	global := map[string]string{"RCCL_LOW_PRECISION_ENABLE": "1"}
	off := map[string]string{"RCCL_LOW_PRECISION_ENABLE": "0",
		"RCCL_LOW_PRECISION_ENABLE_ALLREDUCE": "0", "RCCL_LOW_PRECISION_ENABLE_ALLGATHER": "0",
		"RCCL_LOW_PRECISION_ENABLE_REDUCESCATTER": "0", "RCCL_LOW_PRECISION_ENABLE_ALLTOALL": "0"}
	some := func(on ...string) map[string]string {
		m := maps.Clone(off)
		for _, name := range on {
			m["RCCL_LOW_PRECISION_ENABLE_"+name] = "1"
		}
		return m
	}
	required := func(s *v1alpha1.CommGroupSpec) { s.LowPrecision.Mode = v1alpha1.FeatureRequired }
	accept := func(l ...v1alpha1.AcceptedLoss) func(*v1alpha1.CommGroupSpec) {
		return func(s *v1alpha1.CommGroupSpec) { s.Publish.AcceptedLosses = l }
	}
	both := accept(v1alpha1.AcceptOverflow, v1alpha1.AcceptUnderflow)
	padded := func(s *v1alpha1.CommGroupSpec) { s.Publish.JobCounts = v1alpha1.JobCountsPadded }
	for name, tc := range map[string]struct {
		flavor   string
		change   func(*v1alpha1.CommGroupSpec)
		settings []v1alpha1.SettingStatus
		want     map[string]string
		reason   string
		words    string // of the note, or of why nothing is published
	}{
		"not asked for": {"rcclx-dev",
			func(s *v1alpha1.CommGroupSpec) { s.LowPrecision.Mode = v1alpha1.FeatureDisabled }, nil, nil, "", ""},
		"all proven": {"rcclx-dev", nil, proven, global, "", ""},
		"tail": {"rcclx-dev", nil, tailed, some("ALLGATHER", "ALLTOALL"), v1alpha1.ReasonTailHazard,
			"AllReduce, ReduceScatter at counts"},
		"tail, jobs pad": {"rcclx-dev", padded, tailed, global, v1alpha1.ReasonTailHazard,
			"published for them all the same, since publish.jobCounts is Padded"},
		"losses": {"rcclx-dev", nil, lossy, some("ALLREDUCE", "ALLGATHER"), v1alpha1.ReasonResultsNotUsable,
			"NaN, infinite or clipped values with AllToAll (Overflow), a mean error over 6.25 % with ReduceScatter, " +
				"AllToAll (Underflow): it is off for them; if your models bear the loss, set publish.acceptedLosses " +
				"to [Overflow, Underflow]"},
		"losses, as requested": {"rcclx-dev", func(s *v1alpha1.CommGroupSpec) {
			s.Publish.Choice = v1alpha1.PublishAsRequested
		}, lossy, some("ALLREDUCE", "ALLGATHER"), v1alpha1.ReasonResultsNotUsable, "it is off for them"},
		"losses, padded is not it": {"rcclx-dev", padded, lossy, some("ALLREDUCE", "ALLGATHER"),
			v1alpha1.ReasonResultsNotUsable, "it is off for them"},
		"losses, required": {"rcclx-dev", required, lossy, nil, v1alpha1.ReasonResultsNotUsable,
			"set publish.acceptedLosses to"},
		"one loss accepted": {"rcclx-dev", accept(v1alpha1.AcceptUnderflow), lossy,
			some("ALLREDUCE", "ALLGATHER", "REDUCESCATTER"), v1alpha1.ReasonResultsNotUsable,
			"since publish.acceptedLosses has Underflow. FP8 gave NaN"},
		"both losses accepted": {"rcclx-dev", both, lossy, global, v1alpha1.ReasonResultsNotUsable,
			"published for them all the same, since publish.acceptedLosses has Overflow, Underflow"},
		"all, as RCCLX has them": {"rcclx-dev", nil, all, off, v1alpha1.ReasonResultsNotUsable,
			"set publish.jobCounts to Padded; if your models bear"},
		"all, losses accepted": {"rcclx-dev", both, all, some("ALLGATHER", "ALLTOALL"), v1alpha1.ReasonTailHazard,
			"if every job pads its counts"},
		"all, all accepted": {"rcclx-dev", func(s *v1alpha1.CommGroupSpec) { both(s); padded(s) },
			all, global, v1alpha1.ReasonResultsNotUsable,
			"jobCounts is Padded: every job must pad its counts, and publish.acceptedLosses has"},
		"required and accepted": {"rcclx-dev", func(s *v1alpha1.CommGroupSpec) { both(s); required(s) }, lossy, global,
			v1alpha1.ReasonResultsNotUsable, "all the same"},
		"nobody said usable": {"rcclx-dev", both, silent, some("ALLREDUCE", "ALLGATHER", "REDUCESCATTER"), "", ""},
		"not known": {"rcclx-dev", both, unknown,
			some("ALLREDUCE", "ALLGATHER", "REDUCESCATTER"), "", ""},
		"not known, required": {"rcclx-dev", required, unknown, nil, v1alpha1.ReasonNotProven,
			"was not checked in full"},
		"usable with a warning": {"rcclx-dev", nil, contradicts, some("ALLREDUCE", "ALLGATHER", "REDUCESCATTER"),
			v1alpha1.ReasonResultsNotUsable, "AllToAll (Overflow)"},
		"a loss without a name": {"rcclx-dev", both, nameless, some("ALLREDUCE", "ALLGATHER", "REDUCESCATTER"),
			v1alpha1.ReasonResultsNotUsable, "not usable with AllToAll: it is off"},
		"wrong data": {"rcclx-dev", both, wrong, some("ALLREDUCE", "ALLGATHER", "REDUCESCATTER"),
			v1alpha1.ReasonResultsNotUsable, "wrong elements with AllToAll: it is off"},
		"tail, required": {"rcclx-dev", required, tailed, nil, v1alpha1.ReasonTailHazard,
			"set publish.jobCounts to Padded"},
		"tail, required, jobs pad": {"rcclx-dev", func(s *v1alpha1.CommGroupSpec) { required(s); padded(s) }, tailed,
			global, v1alpha1.ReasonTailHazard, "jobCounts is Padded"},
		"tail, one switch": {"rcclx-stable", nil, tailed, map[string]string{"RCCL_LOW_PRECISION_ENABLE": "0"},
			v1alpha1.ReasonTailHazard, "it is off"},
		"not measured": {"rcclx-dev", nil, proven[1:2], some("ALLGATHER"), "",
			"AllReduce, ReduceScatter, AllToAll"},
		"not confirmed": {"rcclx-dev", nil,
			append([]v1alpha1.SettingStatus{setting("AllReduce", v1alpha1.VerifiedUnknown)}, proven[1:]...),
			some("ALLGATHER", "REDUCESCATTER", "ALLTOALL"), "", "did not confirm it: AllReduce"},
		"one switch, required": {"rcclx-stable", required, proven[:1], nil, v1alpha1.ReasonNotProven,
			"measure these, too"},
		"only asked for": {"rcclx-dev", func(s *v1alpha1.CommGroupSpec) {
			s.LowPrecision.Collectives = []string{"AllGather"}
		}, tailed, some("ALLGATHER"), "", ""},
		"no FP8 in the library": {"rccl", nil, nil, map[string]string{}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			spec := testkit.Group().Spec.DeepCopy()
			spec.LowPrecision.Mode = v1alpha1.FeaturePreferred
			if tc.change != nil {
				tc.change(spec)
			}
			got := provenFP8(spec, tc.settings,
				&v1alpha1.LibraryFacts{Flavor: "simulated", Imitates: tc.flavor}, "", nil)
			if (got.withheld != "") != (tc.want == nil && tc.words != "") || got.reason != tc.reason ||
				!strings.Contains(got.withheld+got.note, tc.words) {
				t.Errorf("withheld %q, reason %q, note %q", got.withheld, got.reason, got.note)
			}
			if got.withheld != "" {
				return
			}
			reported := []v1alpha1.EnvVar{{Name: "RCCL_DDA_NRANKS", Value: "8"},
				{Name: "RCCL_LOW_PRECISION_ENABLE", Value: "reported"}}
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
