package main

import (
	"bufio"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Matrix is one table of rocm-smi --showtopo, by the numbers that it gives its devices. A cell is the text as printed.
type Matrix [][]string

// Topology is what rocm-smi --showtopo prints.
type Topology struct {
	Weight, Hops, Type Matrix
	// NUMA node of each device, as printed.
	NUMA []string
}

// The titles of its tables; the lines of "=" around them differ in length between versions.
const (
	weightTitle = "Weight between two GPUs"
	hopsTitle   = "Hops between two GPUs"
	typeTitle   = "Link Type between two GPUs"
)

var numaLine = regexp.MustCompile(`^GPU\[(\d{1,3})\]\s*:\s*\(Topology\) Numa Node:\s*(-?\d+)`)

// maxDevices bounds what a printed number may make the parser allocate.
const maxDevices = 256

// parseTopology reads rocm-smi --showtopo. Its error names a table that is not square or not there, or the devices that
// it left out.
func parseTopology(text string) (*Topology, error) {
	t := &Topology{}
	var at *Matrix
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, "=") {
			at = nil
			switch strings.Trim(line, "= ") {
			case weightTitle:
				at = &t.Weight
			case hopsTitle:
				at = &t.Hops
			case typeTitle:
				at = &t.Type
			}
			continue
		}
		if m := numaLine.FindStringSubmatch(line); m != nil {
			i, _ := strconv.Atoi(m[1])
			if i != len(t.NUMA) || i >= maxDevices {
				return nil, fmt.Errorf("NUMA node of device %d where that of %d was expected", i, len(t.NUMA))
			}
			t.NUMA = append(t.NUMA, m[2])
			continue
		}
		fields := strings.Fields(line)
		// The head of a table names only devices; a row names one, and then has its cells.
		if at == nil || len(fields) < 2 || !strings.HasPrefix(fields[0], "GPU") || strings.HasPrefix(fields[1], "GPU") {
			continue
		}
		if fields[0] != fmt.Sprintf("GPU%d", len(*at)) || len(*at) >= maxDevices {
			return nil, fmt.Errorf("row %.16q where GPU%d was expected", fields[0], len(*at))
		}
		*at = append(*at, fields[1:])
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	for title, m := range map[string]Matrix{weightTitle: t.Weight, hopsTitle: t.Hops, typeTitle: t.Type} {
		if len(m) != len(t.Weight) || len(m) == 0 {
			return nil, fmt.Errorf("table %q has %d rows, %q has %d", title, len(m), weightTitle, len(t.Weight))
		}
		for i, row := range m {
			if len(row) != len(m) {
				return nil, fmt.Errorf("table %q: row %d has %d cells, expected %d", title, i, len(row), len(m))
			}
		}
	}
	if len(t.NUMA) != len(t.Weight) {
		return nil, fmt.Errorf("%d devices have a NUMA node, the tables have %d", len(t.NUMA), len(t.Weight))
	}
	return t, nil
}

// facts is the part of agent discover -o json that --showtopo has, too.
type facts struct {
	GPUs []struct {
		PCIAddress string `json:"pciAddress"`
		Nodes      []int  `json:"nodes"`
		NUMANode   *int   `json:"numaNode"`
	} `json:"gpus"`
	Links []struct {
		From, To int
		Type     string
		Weight   uint64
		Hops     *uint64
	} `json:"links"`
}

// notTold stands for what a side does not say, in its own words or by silence.
const notTold = "-"

// topology gives our facts the shape of rocm-smi's, with GPUs in the order given; whole says that each partition is a
// device, else only the first of each GPU.
func (f *facts) topology(order []string, whole bool) (*Topology, error) {
	index := map[int]int{} // KFD node to device
	t := &Topology{}
	for _, address := range order {
		for i := range f.GPUs {
			g := &f.GPUs[i]
			if g.PCIAddress != address {
				continue
			}
			for p, node := range g.Nodes {
				if p > 0 && !whole {
					break
				}
				index[node] = len(t.NUMA)
				numa := notTold
				if g.NUMANode != nil {
					numa = strconv.Itoa(*g.NUMANode)
				}
				t.NUMA = append(t.NUMA, numa)
			}
		}
	}
	if len(t.NUMA) == 0 {
		return nil, fmt.Errorf("none of the GPUs at %v is among the facts", order)
	}
	for _, m := range []*Matrix{&t.Weight, &t.Hops, &t.Type} {
		*m = make(Matrix, len(t.NUMA))
		for i := range *m {
			(*m)[i] = make([]string, len(t.NUMA))
			for j := range (*m)[i] {
				(*m)[i][j] = notTold
			}
			(*m)[i][i] = "0"
		}
	}
	for _, l := range f.Links {
		from, a := index[l.From]
		to, b := index[l.To]
		if !a || !b {
			continue
		}
		t.Weight[from][to] = strconv.FormatUint(l.Weight, 10)
		t.Type[from][to] = l.Type
		if l.Hops != nil {
			t.Hops[from][to] = strconv.FormatUint(*l.Hops, 10)
		}
	}
	return t, nil
}

// difference is where two matrices do not agree.
type difference struct {
	table            string
	cells, different int
	// example is the first pair that differs.
	example string
}

// compare holds ours against theirs, which have the same size.
func compare(ours, theirs *Topology) []difference {
	var list []difference
	for _, m := range []struct {
		name         string
		ours, theirs Matrix
	}{{"weight", ours.Weight, theirs.Weight}, {"hops", ours.Hops, theirs.Hops}, {"type", ours.Type, theirs.Type}} {
		d := difference{table: m.name}
		for i := range m.ours {
			for j := range m.ours[i] {
				if i == j {
					continue
				}
				d.cells++
				a, b := m.ours[i][j], m.theirs[i][j]
				if a != b && (a != notTold || !saysNothing(b)) {
					if d.different++; d.example == "" {
						d.example = fmt.Sprintf("GPU%d-GPU%d: ours %s, theirs %s", i, j, a, b)
					}
				}
			}
		}
		list = append(list, d)
	}
	numa := difference{table: "NUMA", cells: len(ours.NUMA)}
	for i, node := range ours.NUMA {
		if node != theirs.NUMA[i] {
			if numa.different++; numa.example == "" {
				numa.example = fmt.Sprintf("GPU%d: ours %s, theirs %s", i, node, theirs.NUMA[i])
			}
		}
	}
	return append(list, numa)
}

// saysNothing says that rocm-smi's cell stands for no answer.
func saysNothing(cell string) bool { return cell == "N/A" || cell == "None" || cell == "Unknown" }
