package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/units"
)

// Topology draws a node: how many GPUs each source counts, where each GPU is, KFD's weight from each to each other (15
// for one xGMI hop), its NICs, error counters and problems.
func Topology(w io.Writer, n *Member) error {
	f := n.Facts()
	if f == nil {
		return lastSeen(w, n)
	}
	if f.Origin == v1alpha1.OriginSimulated {
		if _, err := fmt.Fprintln(w, SimulatedNotice); err != nil {
			return err
		}
	}
	legend := "15 = one xGMI hop, ? = no link known"
	if slices.ContainsFunc(f.LinkClasses, func(c v1alpha1.LinkClass) bool { return c.Type != "XGMI" }) {
		legend = "15 = one xGMI hop, p = over PCIe, ? = no link known"
	}
	if _, err := fmt.Fprintf(w, "%s: %d x %s (%s, %s), xGMI mesh %s, %s; weights by KFD: %s\n",
		n.Spec.NodeName, f.GPUCount, f.GPUModel, f.GFXTarget, f.Partition, MeshWords(f.XGMI),
		units.Counted(int64(f.XGMI.Hives), "hive"), legend); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(w, wrap(w, countedGPUs(f))); err != nil {
		return err
	}
	marks := linkMarks(n)
	if err := tonedTable(w, gpuRows(f, marks), meshTone); err != nil {
		return err
	}
	if len(marks) > 0 {
		if _, err := fmt.Fprintln(w, wrap(w, "! = a check names this link: "+markWords(marks))); err != nil {
			return err
		}
	}
	if err := linkClasses(w, f.LinkClasses); err != nil {
		return err
	}
	if err := nics(w, f.NICs); err != nil {
		return err
	}
	for _, line := range []string{rasCounters(f.RAS), measuredLinks(n)} {
		if line == "" {
			continue
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	if err := Problems(w, f.Problems); err != nil {
		return err
	}
	return nodePreconditions(w, n)
}

// lastSeen says of a node whose CommNode is not there what its last run saw of it.
func lastSeen(w io.Writer, n *Member) error {
	h := n.Hardware()
	if h == (Hardware{}) {
		_, err := fmt.Fprintf(w, "nothing is known of node %s yet\n", n.Spec.NodeName)
		return err
	}
	_, err := fmt.Fprintf(w, "%s, as run %s saw it: %s x %s (%s), xGMI mesh %s; amdgpu %s; ROCm %s\n",
		n.Spec.NodeName, n.Spec.Run.ID, orUnknown(h.GPUs), orUnknown(h.Model), orUnknown(h.Mode), orUnknown(h.Mesh),
		orUnknown(h.Driver), orUnknown(h.ROCm))
	if line := measuredLinks(n); err == nil && line != "" {
		_, err = fmt.Fprintln(w, line)
	}
	if err != nil {
		return err
	}
	return nodePreconditions(w, n)
}

// countedGPUs says how many GPUs each source shows, what they are, and the versions below them.
func countedGPUs(f *v1alpha1.NodeFacts) string {
	var parts []string
	counts := fmt.Sprintf("GPUs: KFD %d (%d devices)", f.GPUCount, f.DeviceCount)
	counts += ", PCI " + number(f.PCIGPUCount) + ", render nodes " + number(f.RenderNodeCount) + ", modules " +
		number(f.ModuleCount)
	parts = append(parts, counts)
	if f.Function != "" {
		parts = append(parts, "function "+f.Function)
	}
	if fw := f.Firmware; fw != nil {
		parts = append(parts, "firmware MEC "+orUnknown(fw.MEC)+", SDMA "+orUnknown(fw.SDMA))
	}
	rocm := "ROCm " + f.ROCm.State
	if f.ROCm.Version != "" {
		rocm = "ROCm " + f.ROCm.Version
	}
	if f.ROCm.HIPVersion != "" {
		rocm += ", HIP " + f.ROCm.HIPVersion
	}
	if f.ROCm.RCCLVersion != "" {
		rocm += ", RCCL " + f.ROCm.RCCLVersion
	}
	return strings.Join(append(parts, "amdgpu "+Driver(f.Driver), rocm), "; ")
}

func number(n *int32) string {
	if n == nil {
		return unknown
	}
	return fmt.Sprint(*n)
}

// gpuRows has a row for each GPU. What all GPUs share with the node has no column.
func gpuRows(f *v1alpha1.NodeFacts, marks map[link]string) [][]string {
	type column struct {
		name   string
		always bool
		of     func(*v1alpha1.GPUFacts) string
	}
	columns := []column{
		{"PCI ADDRESS", true, func(g *v1alpha1.GPUFacts) string { return g.PCIAddress }},
		{"NUMA", true, func(g *v1alpha1.GPUFacts) string { return number(g.NUMANode) }},
		{"HIVE", false, func(g *v1alpha1.GPUFacts) string { return number(g.Hive) }},
		{"MODULE", false, func(g *v1alpha1.GPUFacts) string { return number(g.Module) }},
		{"MODEL", false, func(g *v1alpha1.GPUFacts) string { return orUnknown(g.Model) }},
		{"MODE", false, func(g *v1alpha1.GPUFacts) string { return orUnknown(g.Partition) }},
		{"NIC", false, nearest},
	}
	columns = slices.DeleteFunc(columns, func(c column) bool {
		return !c.always && !slices.ContainsFunc(f.GPUs, func(g v1alpha1.GPUFacts) bool { return c.of(&g) != unknown })
	})
	head := []string{""}
	for _, c := range columns {
		head = append(head, c.name)
	}
	if len(f.LinkClasses) > 0 {
		for i := range f.GPUs {
			head = append(head, fmt.Sprintf("GPU%d", i))
		}
	}
	rows := [][]string{head}
	for i := range f.GPUs {
		row := []string{fmt.Sprintf("GPU%d", i)}
		for _, c := range columns {
			row = append(row, c.of(&f.GPUs[i]))
		}
		cells := weights(f, f.GPUs[i].Links)
		for j := range cells {
			if j < len(f.GPUs) && marks[linkOf(f.GPUs[i].PCIAddress, f.GPUs[j].PCIAddress)] != "" {
				cells[j] += "!"
			}
		}
		rows = append(rows, append(row, cells...))
	}
	return rows
}

// nearest is a GPU's RDMA device and how near it is, for example mlx5_0 (Switch).
func nearest(g *v1alpha1.GPUFacts) string {
	if g.NIC == "" || g.NICPath == "" {
		return orUnknown(g.NIC)
	}
	return g.NIC + " (" + g.NICPath + ")"
}

// weights are KFD's costs of a GPU's links; those over PCIe are marked, since two of the numbers mean either.
func weights(f *v1alpha1.NodeFacts, links string) []string {
	row := make([]string, 0, len(links))
	for _, letter := range links {
		cell := string(letter)
		for i := range f.LinkClasses {
			if c := &f.LinkClasses[i]; c.Letter == cell {
				cell = fmt.Sprint(c.Weight)
				if c.Type != "XGMI" {
					cell += "p"
				}
				break
			}
		}
		row = append(row, cell)
	}
	return row
}

func nics(w io.Writer, list []v1alpha1.NICFacts) error {
	if len(list) == 0 {
		return nil
	}
	rows := [][]string{{"RDMA DEVICE", "INTERFACE", "LINK", "STATE", "Gbit/s", "NUMA"}}
	for i := range list {
		n := &list[i]
		rate := unknown
		if n.RateMbps != nil {
			rate = fmt.Sprint(*n.RateMbps / 1000)
			if part := *n.RateMbps % 1000; part != 0 {
				rate += strings.TrimRight(fmt.Sprintf(".%03d", part), "0")
			}
		}
		rows = append(rows, []string{n.Name, orUnknown(n.Interface), n.LinkLayer, n.State, rate, number(n.NUMANode)})
	}
	return table(w, rows)
}

// rasCounters is one line of what the GPUs' blocks counted; "" where nothing was counted or unreadable.
func rasCounters(r *v1alpha1.RASFacts) string {
	if r == nil {
		return ""
	}
	of := func(n *int64) string {
		if n == nil {
			return unknown
		}
		return fmt.Sprint(*n)
	}
	line := fmt.Sprintf("errors since the driver was loaded: %s uncorrectable, %s correctable, %s deferred; "+
		"%s retired pages", of(r.Uncorrectable), of(r.Correctable), of(r.Deferred), of(r.RetiredPages))
	if r.Unreadable > 0 {
		line += fmt.Sprintf("; counters of %d GPUs could not be read and are not in it", r.Unreadable)
	}
	return line
}

func measuredLinks(n *Member) string {
	if n.Status.Run == nil || n.Status.Run.Links == nil {
		return ""
	}
	l := n.Status.Run.Links
	return fmt.Sprintf("measured between pairs at %s: median %s GB/s, slowest %s GB/s (%s)",
		units.Bytes(l.SizeBytes), units.GBps(l.MedianMBps), units.GBps(l.MinMBps), orUnknown(l.Slowest))
}
