package discover

import (
	"slices"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/rcclx/compat"
)

// checkVersions holds the host's ROCm against the GPUs and the driver. It only warns: images bring a ROCm of their own,
// and a run looks at that one (precondition ROCmVersion).
func checkVersions(l *problemList, f *Facts) {
	const ofHost = " It is the host's ROCm; images bring their own, so jobs may use another."
	if f.ROCm.State != ROCmFound {
		return
	}
	for _, target := range f.GFXTargets() {
		if finding := compat.CheckROCm(target, f.ROCm.Version); finding != nil {
			l.warn(v1alpha1.ProblemROCmTooOld, subject{Path: f.ROCm.Source}, "%s%s", finding.Message, ofHost)
		}
	}
	if finding := compat.CheckDriver(f.Driver.Version, f.ROCm.Version); finding != nil {
		l.warn(v1alpha1.ProblemDriverMismatch, subject{}, "%s%s", finding.Message, ofHost)
	}
}

// GFXTargets are the targets of the GPUs, each once, in the order of the GPUs.
func (f *Facts) GFXTargets() []string {
	var targets []string
	for i := range f.GPUs {
		if g := f.GPUs[i].GFXTarget; g != "" && !slices.Contains(targets, g) {
			targets = append(targets, g)
		}
	}
	return targets
}
