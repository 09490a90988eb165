package nodefacts

import (
	"math/bits"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// Writes that the monitors of one group may cost the API server: what etcd on common disks takes beside everything else.
const (
	// steadyWritesPerSecond is for reports that confirm the last one. A monitor repeats its report at half of the time that it holds.
	steadyWritesPerSecond = 64
	// burstWritesPerSecond is for facts that change on every node at every poll, as by a driver that goes on and off everywhere.
	burstWritesPerSecond = 1024
)

// HealthInEffect is spec.health as it is in effect for a group of so many members: intervals below what the write budget allows are
// raised. The number of members counts as the next power of two, so that the monitors are not rolled out again for each node
// that joins. At 12,500 members reports hold for at least 512 s, and polls are at least 16 s apart.
func HealthInEffect(spec v1alpha1.HealthSpec, members int) v1alpha1.HealthSpec {
	if members <= 0 {
		return spec
	}
	counted := int32(1) << min(bits.Len(uint(members-1)), 30)
	spec.ReportValidSeconds = max(spec.ReportValidSeconds, counted/(steadyWritesPerSecond/2))
	spec.IntervalSeconds = max(spec.IntervalSeconds, counted/burstWritesPerSecond)
	return spec
}
