// Package baseline holds a run against what earlier runs of the group showed under the same key (ROCm, library, model,
// partition and ranks): which series lost bandwidth, whether a few nodes did or the group, and what the baseline is
// once the run is taken in.
package baseline
