// Package runrecord reads CommRuns that were saved to files.
package runrecord

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// Kind of the object.
const Kind = "CommRun"

// maxJSONBytes bounds what a reader takes.
const maxJSONBytes = 8 << 20

// Read takes a CommRun as JSON, as kubectl commgroup results -o json and kubectl get commrun -o json write it.
func Read(r io.Reader) (*v1alpha1.CommRun, error) {
	plain, err := io.ReadAll(io.LimitReader(r, maxJSONBytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading a CommRun: %w", err)
	}
	if len(plain) > maxJSONBytes {
		return nil, fmt.Errorf("more than %d bytes: no CommRun is so large", maxJSONBytes)
	}
	const next = "kubectl commgroup results NAME -o json writes one"
	var out v1alpha1.CommRun
	if err := json.Unmarshal(plain, &out); err != nil {
		return nil, fmt.Errorf("not a CommRun: %w; %s", err, next)
	}
	switch {
	case out.Kind != Kind:
		return nil, fmt.Errorf("expected kind %s, got %q; %s", Kind, out.Kind, next)
	case out.APIVersion != v1alpha1.GroupVersion.String():
		return nil,
			fmt.Errorf("expected a CommRun of %s, got one of %q; %s", v1alpha1.GroupVersion, out.APIVersion, next)
	case out.Status.ID == "":
		return nil, errors.New("the CommRun has no status.id: it has not started; " + next)
	}
	for i := range out.Status.Results {
		s := &out.Status.Results[i]
		if len(s.LatencyNanoseconds) > len(s.SizeBytes) || len(s.BusBandwidthMBps) > len(s.SizeBytes) ||
			len(s.NoisePercent) > len(s.SizeBytes) {
			return nil,
				fmt.Errorf("the CommRun of run %s is damaged: series %d has more figures than sizes", out.Status.ID, i)
		}
	}
	return &out, nil
}
