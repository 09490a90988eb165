package discover

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"rcclx.io/commgroup-operator/hack/simrocm/nodetree"
)

// benchmarkTrees are the trees of BenchmarkScan, written below $TMPDIR: set it to choose the file system.
var benchmarkTrees = []struct {
	partition nodetree.PartitionMode
	devices   int
}{{nodetree.SPX, 8}, {nodetree.CPX, 64}}

// BenchmarkScan is one scan of a whole node, as the monitor does it again and again: nine of ten times without the
// links.
func BenchmarkScan(b *testing.B) {
	for _, c := range benchmarkTrees {
		b.Run(fmt.Sprintf("MI300X-%s-%d", c.partition, c.devices), func(b *testing.B) {
			root := openRoot(b, generate(b, "MI300X", func(n *nodetree.Node) { n.Partition = c.partition }))
			s := NewScanner(root, Options{})
			b.ReportAllocs()
			before := processorTime(b)
			for b.Loop() {
				f, err := s.Scan(b.Context())
				if err != nil || len(f.Devices) != c.devices || len(f.Problems) > 0 {
					b.Fatalf("%v: %d devices, %v", err, len(f.Devices), f.Problems)
				}
			}
			b.ReportMetric((processorTime(b)-before).Seconds()*1000/float64(b.N), "cpu-ms/op")
		})
	}
}

// BenchmarkFirstScan is the first scan of a process, which reads every link.
func BenchmarkFirstScan(b *testing.B) {
	for _, c := range benchmarkTrees {
		b.Run(fmt.Sprintf("MI300X-%s-%d", c.partition, c.devices), func(b *testing.B) {
			root := openRoot(b, generate(b, "MI300X", func(n *nodetree.Node) { n.Partition = c.partition }))
			b.ReportAllocs()
			before := processorTime(b)
			for b.Loop() {
				f, err := Scan(b.Context(), root, Options{})
				if err != nil || len(f.Devices) != c.devices || len(f.Problems) > 0 {
					b.Fatalf("%v: %d devices, %v", err, len(f.Devices), f.Problems)
				}
			}
			b.ReportMetric((processorTime(b)-before).Seconds()*1000/float64(b.N), "cpu-ms/op")
		})
	}
}

// processorTime is what this process has used of all processors, which other work on the machine changes less than the
// time on the wall.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkNodeFacts is what the monitor adds to a scan: the facts as its CommTask has them.
func BenchmarkNodeFacts(b *testing.B) {
	for _, c := range benchmarkTrees {
		b.Run(fmt.Sprintf("MI300X-%s-%d", c.partition, c.devices), func(b *testing.B) {
			f := scan(b, openRoot(b, generate(b, "MI300X", func(n *nodetree.Node) {
				n.Partition = c.partition
			})), Options{})
			b.ReportAllocs()
			for b.Loop() {
				if nf := f.NodeFacts(600e9); nf.GPUModel != "MI300X" {
					b.Fatal(nf.GPUModel)
				}
			}
		})
	}
}
