package executor

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/agent/discover"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/clip"
	"rcclx.io/commgroup-operator/rcclx"
)

// TestReportedROCm: the container's ROCm is in the report, also where it could not be told; beside NVIDIA's library
// there is none to tell of.
func TestReportedROCm(t *testing.T) {
	amd, nvidia := &rcclx.LibraryInfo{Flavor: rcclx.FlavorRCCLXDev}, &rcclx.LibraryInfo{Flavor: rcclx.FlavorNCCL}
	prepared := func(r discover.ROCmFacts, lib *rcclx.LibraryInfo) Evidence {
		return Evidence{Prepared: Prepared{Discovered: &discover.Facts{ROCm: r}, Library: lib}}
	}
	found := discover.ROCmFacts{State: discover.ROCmFound, Version: "7.0.2", Source: "opt/rocm/.info/version",
		HIPVersion: "7.0.51831", RCCLVersion: "2.26.6"}
	for name, c := range map[string]struct {
		e    Evidence
		want *api.ROCmFacts
	}{
		"found": {prepared(found, amd),
			&api.ROCmFacts{State: "Found", Version: "7.0.2", Source: "opt/rocm/.info/version", HIPVersion: "7.0.51831",
				RCCLVersion: "2.26.6"}},
		"none": {prepared(discover.ROCmFacts{State: discover.ROCmNotFound}, amd), &api.ROCmFacts{State: "NotFound"}},
		"before the probe": {prepared(discover.ROCmFacts{State: discover.ROCmUnreadable}, nil),
			&api.ROCmFacts{State: "Unreadable"}},
		"NVIDIA":            {prepared(discover.ROCmFacts{State: discover.ROCmNotFound}, nvidia), nil},
		"could not be seen": {Evidence{Prepared: Prepared{Library: amd}}, nil},
		"long": {prepared(discover.ROCmFacts{State: discover.ROCmFound, Version: "7.0.2",
			Source: strings.Repeat("d/", 200) + "version"}, nil), &api.ROCmFacts{State: "Found", Version: "7.0.2",
			Source: clip.Head(strings.Repeat("d/", 200)+"version", 256)}},
	} {
		if diff := cmp.Diff(c.want, Finished(api.NodeRunStatus{}, c.e, Judgement{}, metav1.Time{}).ROCm); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
