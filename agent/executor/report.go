package executor

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/agent/discover"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/clip"
	"rcclx.io/commgroup-operator/rcclx"
)

const (
	logTailBytes       = 1024
	maxEnvironment     = 80
	hardwareLabelBytes = 64
)

// Finished gives the report of a run that is over.
func Finished(base api.NodeRunStatus, e Evidence, j Judgement, finish metav1.Time) api.NodeRunStatus {
	s := base
	s.Phase, s.FinishTime = api.NodeRunFinished, &finish
	s.Verdict, s.Reason, s.Message = j.Verdict, j.Reason, j.Message
	s.Results, s.Settings, s.Links, s.Culprits = j.Table.Results(e.Plan.SizesBytes, 1), j.Settings, j.Links, j.Culprits
	for i := range s.Results {
		s.Results[i].SpreadPercent = nil // the checks have the spread of a single node's repeats
	}
	s.Checks = j.Checks
	s.DataErrors, s.Preconditions = j.Table.DataErrors(), notMet(e.Preconditions)
	s.Library, s.ROCm = libraryFacts(e.Library), rocmFacts(e)
	s.Step = ""
	if e.Failure != nil {
		s.Step, s.RASVerdict = clip.Head(failedStep(e), 128), clip.Head(e.Failure.RAS, 512)
	}
	for _, v := range e.Variants {
		if v.Variant != rcclx.Baseline {
			continue
		}
		if longest := longestInit(v.Outcome.Ranks); longest != nil &&
			(s.InitNanoseconds == nil || *s.InitNanoseconds < *longest) {
			s.InitNanoseconds = longest
		}
	}
	if e.Library != nil {
		for _, v := range rcclx.JobEnvironment(e.Library.Gates(), SettingsOf(e.Plan)) {
			if len(s.Environment) < maxEnvironment {
				s.Environment = append(s.Environment, api.EnvVar{Name: v.Name, Value: v.Value})
			}
		}
	}
	if n := len(e.Variants); n > 0 && e.Failure != nil {
		s.LogTail = e.Variants[n-1].Outcome.LogTail(logTailBytes)
	}
	return s
}

func failedStep(e Evidence) string {
	if n := len(e.Variants); n > 0 && e.Variants[n-1].Outcome.Failure == e.Failure {
		return fmt.Sprintf("%s %s", e.Variants[n-1].Variant, e.Failure.Step)
	}
	return e.Failure.Step
}

// libraryFacts are what the API says of a library; nil where none was loaded.
func libraryFacts(lib *rcclx.LibraryInfo) *api.LibraryFacts {
	if lib == nil {
		return nil
	}
	f := &api.LibraryFacts{
		Flavor: clip.Head(string(lib.Flavor), 32), Imitates: clip.Head(string(lib.Imitates), 32),
		Version: lib.VersionString(),
		Path:    clip.Head(lib.Path, 512), BuildHash: clip.Head(lib.BuildHash, hardwareLabelBytes),
	}
	if lib.RuntimeVersionCode > 0 {
		f.RuntimeVersion = runtimeVersion(lib)
	}
	return f
}

// rocmFacts are the container's ROCm; nil where it could not be looked at, and where there is none beside NVIDIA's
// library, which needs none.
func rocmFacts(e Evidence) *api.ROCmFacts {
	if e.Discovered == nil {
		return nil
	}
	r := e.Discovered.ROCm
	if r.State == discover.ROCmNotFound && e.Library != nil && e.Library.Flavor == rcclx.FlavorNCCL {
		return nil
	}
	return &api.ROCmFacts{
		State: r.State, Version: clip.Head(r.Version, 64), Source: clip.Head(r.Source, 256),
		HIPVersion: clip.Head(r.HIPVersion, 64), RCCLVersion: clip.Head(r.RCCLVersion, 64),
	}
}

// runtimeVersion renders HIP's code, major*10^7 + minor*10^5 + patch (hip_version.h), or CUDA's, major*1000 + minor*10.
func runtimeVersion(lib *rcclx.LibraryInfo) string {
	v := lib.RuntimeVersionCode
	if lib.Flavor == rcclx.FlavorNCCL {
		return fmt.Sprintf("%d.%d", v/1000, v%1000/10)
	}
	return fmt.Sprintf("%d.%d.%d", v/10_000_000, v/100_000%100, v%100_000)
}

// thresholdSizes are the sizes that FitRun keeps for a plan.
func thresholdSizes(p api.RunPlan) []int64 {
	var out []int64
	for _, t := range p.Thresholds {
		out = append(out, t.SizeBytes)
	}
	return out
}
