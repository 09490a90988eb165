package nodetree

// edge is a direct xGMI connection of a die.
type edge struct{ to, links int }

// dieGraphs are the direct connections between the dies of nodes that are no full mesh. Dies 0-1, 2-3 and so on share a
// package and have four links. Neighbours are those of RCCL's topology models.
var (
	// topo_8p_90a_1.xml, which states no more than one link for any pair.
	mi250xGraph = [][]edge{
		{{1, 4}, {2, 1}, {6, 1}}, {{0, 4}, {3, 1}, {5, 1}}, {{3, 4}, {0, 1}, {4, 1}}, {{2, 4}, {1, 1}, {7, 1}},
		{{5, 4}, {2, 1}, {6, 1}}, {{4, 4}, {1, 1}, {7, 1}}, {{7, 4}, {0, 1}, {4, 1}}, {{6, 4}, {3, 1}, {5, 1}},
	}
	// topo_16p1h.xml, with its counts.
	mi250Graph = [][]edge{
		{{1, 4}, {2, 1}, {4, 2}}, {{0, 4}, {2, 1}, {3, 1}, {5, 1}}, {{3, 4}, {0, 1}, {1, 1}, {6, 1}},
		{{2, 4}, {1, 1}, {7, 2}},
		{{5, 4}, {0, 2}, {12, 1}}, {{4, 4}, {1, 1}, {13, 1}, {14, 1}}, {{7, 4}, {2, 1}, {13, 1}, {14, 1}},
		{{6, 4}, {3, 2}, {15, 1}},
		{{9, 4}, {10, 1}, {12, 2}}, {{8, 4}, {10, 1}, {11, 1}, {13, 1}}, {{11, 4}, {8, 1}, {9, 1}, {14, 1}},
		{{10, 4}, {9, 1}, {15, 2}},
		{{13, 4}, {4, 1}, {8, 2}}, {{12, 4}, {5, 1}, {6, 1}, {9, 1}}, {{15, 4}, {5, 1}, {6, 1}, {10, 1}},
		{{14, 4}, {7, 1}, {11, 2}},
	}
)

// mi250xDetour: a node of eight dies shows weight 45 (three hops) between dies 1 and 7, though the shortest way has
// two: the firmware's routing decides (rocm-smi --showtopoweight in openmm/openmm#3940).
var mi250xDetour = [2]int{1, 7}

// hopTable is the distance of each two dies by breadth-first search.
func hopTable(graph [][]edge) [][]int {
	table := make([][]int, len(graph))
	for from := range graph {
		hops := make([]int, len(graph))
		for queue := []int{from}; len(queue) > 0; queue = queue[1:] {
			at := queue[0]
			for _, e := range graph[at] {
				if e.to != from && hops[e.to] == 0 {
					hops[e.to] = hops[at] + 1
					queue = append(queue, e.to)
				}
			}
		}
		table[from] = hops
	}
	return table
}

var (
	mi250Hops  = hopTable(mi250Graph)
	mi250xHops = func() [][]int {
		table := hopTable(mi250xGraph)
		a, b := mi250xDetour[0], mi250xDetour[1]
		table[a][b], table[b][a] = 3, 3
		return table
	}()
)

// connection is what joins a pair of GPUs, from the first to the second.
type connection struct {
	kind LinkKind
	// hops and links of the pair; links is 0 for one that is not direct.
	hops, links int
	// minMBps and maxMBps as KFD reports them, of one and of all links; 0 is not stated.
	minMBps, maxMBps int64
}

// healthy says what a healthy node of the model has between two GPUs of one hive.
func (p *product) healthy(a, b int) connection {
	hops, links := 1, p.linksPerPair
	if p.graph != nil {
		hops, links = p.hops[a%len(p.graph)][b%len(p.graph)], 0
		for _, e := range p.graph[a%len(p.graph)] {
			if e.to == b%len(p.graph) {
				links = e.links
			}
		}
	}
	c := connection{kind: LinkXGMI, hops: hops, links: links}
	if links > 0 {
		c.minMBps, c.maxMBps = p.kfdLinkMBps, p.kfdLinkMBps*int64(links)
	}
	return c
}

// connect says what the node has from one GPU to another, as the driver's own lists tell it.
func (n *Node) connect(p *product, a, b int) connection { return n.connectFor(p, a, b, false) }

// connectKFD says what KFD tells of it.
func (n *Node) connectKFD(p *product, a, b int) connection { return n.connectFor(p, a, b, true) }

func (n *Node) connectFor(p *product, a, b int, kfd bool) connection {
	c := connection{kind: LinkPCIe}
	if hive := n.hive(p, a); hive != noHive && hive == n.hive(p, b) {
		c = p.healthy(a, b)
	}
	for _, l := range n.Links {
		switch {
		case kfd && l.DriverOnly:
			continue
		case l.A == a && l.B == b:
		case l.A == b && l.B == a && !l.OneWay:
		default:
			continue
		}
		c.kind = l.Kind
		if l.Hops > 0 {
			c.hops = l.Hops
		}
		if l.BandwidthMBps > 0 {
			c.minMBps, c.maxMBps = l.BandwidthMBps/int64(max(c.links, 1)), l.BandwidthMBps
		}
	}
	if c.kind == LinkXGMI && c.hops == 0 {
		c.hops = 1
	}
	return c
}

// noHive is the hive of a GPU that is in none.
const noHive = -1

// hive numbers a GPU's hive from 0.
func (n *Node) hive(p *product, gpu int) int {
	switch g := n.GPUs[gpu]; {
	case g.Hive < 0 || p.noXGMI && g.Hive == 0:
		return noHive
	case g.Hive > 0:
		return g.Hive - 1
	}
	return gpu / p.hiveSize
}

// hiveID is what KFD and sysfs call the hive; 0 is none.
func (n *Node) hiveID(p *product, gpu int) uint64 {
	hive := n.hive(p, gpu)
	if hive == noHive {
		return 0
	}
	return n.number("hive " + itoa(hive))
}
