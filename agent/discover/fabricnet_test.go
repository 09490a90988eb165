package discover

import (
	"encoding/xml"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"
)

// placed makes GPUs and NICs by "path" or "numa N" or both; an empty text is a place that is not known.
func placed(gpus, nics []string) *Facts {
	f := &Facts{}
	place := func(text string) (path string, numa *int32) {
		for _, word := range strings.Fields(text) {
			var n int32
			if _, err := fmt.Sscanf(word, "numa%d", &n); err == nil {
				numa = &n
			} else {
				path = word
			}
		}
		return path, numa
	}
	for i, text := range gpus {
		g := GPU{PCIAddress: fmt.Sprintf("0000:%02x:00.0", i+1)}
		g.PCIPath, g.NUMANode = place(text)
		f.GPUs = append(f.GPUs, g)
	}
	for i, text := range nics {
		n := NIC{Name: fmt.Sprintf("mlx5_%d", i), State: PortActive, LinkLayer: LinkEthernet,
			RateMbps: ptr.To(int64(400000))}
		if rest, ok := strings.CutPrefix(text, "slow "); ok {
			text, n.RateMbps = rest, ptr.To(int64(25000))
		}
		if rest, ok := strings.CutPrefix(text, "down "); ok {
			text, n.State, n.PhysState, n.RateMbps = rest, PortDown, "Polling", ptr.To(int64(10000))
		}
		if rest, ok := strings.CutPrefix(text, "vf "); ok {
			text, n.virtualFunction = rest, true
		}
		if text == "rxe" {
			text, n.virtual = "", true
		}
		n.PCIPath, n.NUMANode = place(text)
		f.NICs = append(f.NICs, n)
	}
	return f
}

func assigned(f *Facts) []string {
	list := make([]string, 0, len(f.GPUs))
	for i := range f.GPUs {
		list = append(list, strings.TrimSpace(strings.TrimPrefix(f.GPUs[i].NIC, "mlx5_")+" "+f.GPUs[i].NICPath))
	}
	return list
}

func TestAssignNICs(t *testing.T) {
	for name, c := range map[string]struct {
		gpus, nics, want []string
	}{
		"no NIC":         {[]string{"numa0"}, nil, []string{""}},
		"software alone": {[]string{"numa0"}, []string{"rxe"}, []string{""}},
		// The paths of a public lspci of an MI300X host: one upstream port leads to a GPU and a NIC.
		"a switch for each GPU": {
			[]string{"pci0000:00/0000:00:01.1/0000:01:00.0/0000:02:00.0/0000:03:00.0/0000:04:00.0/0000:05:00.0 numa0",
				"pci0000:80/0000:80:01.1/0000:81:00.0/0000:82:00.0/0000:85:00.0 numa1"},
			[]string{"pci0000:80/0000:80:01.1/0000:81:00.0/0000:82:01.0/0000:89:00.0 numa1",
				"pci0000:00/0000:00:01.1/0000:01:00.0/0000:02:01.0/0000:09:00.0 numa0"},
			[]string{"1 Switch", "0 Switch"}},
		"the nearer of two below one switch": {
			[]string{"pci0000:00/0000:00:01.1/0000:01:00.0/0000:02:00.0/0000:03:00.0/0000:04:00.0"},
			[]string{"pci0000:00/0000:00:01.1/0000:01:00.0/0000:02:01.0/0000:09:00.0",
				"pci0000:00/0000:00:01.1/0000:01:00.0/0000:02:00.0/0000:03:01.0/0000:0a:00.0"},
			[]string{"1 Switch"}},
		"one host bridge, two root ports": {
			[]string{"pci0000:00/0000:00:01.1/0000:05:00.0"},
			[]string{"pci0000:40/0000:40:01.1/0000:45:00.0", "pci0000:00/0000:00:03.1/0000:09:00.0"},
			[]string{"1 Host"}},
		"a guest with one host bridge and two NUMA nodes": {
			[]string{"pci0000:00/0000:00:05.0 numa0", "pci0000:00/0000:00:06.0 numa1"},
			[]string{"pci0000:00/0000:00:07.0 numa1", "pci0000:00/0000:00:08.0 numa0"}, []string{"1 Host", "0 Host"}},
		"a domain for each function": {
			[]string{"LNX/VMBUS:00/a/pci0001:00/0001:00:00.0 numa0", "LNX/VMBUS:00/b/pci0002:00/0002:00:00.0 numa1"},
			[]string{"LNX/VMBUS:00/c/pci0101:00/0101:00:00.0 numa1", "LNX/VMBUS:00/d/pci0102:00/0102:00:00.0 numa0"},
			[]string{"1 NUMA", "0 NUMA"}},
		"NUMA nodes alone, one to one": {
			[]string{"numa0", "numa0", "numa0", "numa0", "numa1", "numa1", "numa1", "numa1"},
			[]string{"numa0", "numa0", "numa0", "numa0", "numa1", "numa1", "numa1", "numa1"},
			[]string{"0 NUMA", "1 NUMA", "2 NUMA", "3 NUMA", "4 NUMA", "5 NUMA", "6 NUMA", "7 NUMA"}},
		"fewer NICs than GPUs": {[]string{"numa0", "numa0", "numa0", "numa0"}, []string{"numa0", "numa0"},
			[]string{"0 NUMA", "1 NUMA", "0 NUMA", "1 NUMA"}},
		"far": {[]string{"numa0", "numa1", "numa1"}, []string{"numa0"}, []string{"0 NUMA", "0 Far", "0 Far"}},
		// The NIC that no NUMA node is known of may be the near one.
		"far or not known":       {[]string{"numa0", "numa1"}, []string{"numa0", ""}, []string{"0 NUMA", ""}},
		"GPU's place not known":  {[]string{"", "numa0"}, []string{"numa0"}, []string{"", "0 NUMA"}},
		"path of one side alone": {[]string{"pci0000:00/0000:00:05.0 numa0"}, []string{"numa0"}, []string{"0 NUMA"}},
		// The first GPU could take either, the second only the first NIC: both get one.
		"one to one by giving way": {
			[]string{"pci0000:00/0000:00:05.0 numa0", "pci0000:00/0000:00:06.0 numa0"},
			[]string{"pci0000:00/0000:00:07.0 numa0", "pci0000:00/0000:00:08.0 numa0"}, []string{"0 Host", "1 Host"}},
		"front-end NIC": {[]string{"numa0", "numa0"}, []string{"slow numa0", "numa0", "numa0"},
			[]string{"1 NUMA", "2 NUMA"}},
		"front-end NIC alone on its side": {[]string{"numa0", "numa1"}, []string{"slow numa0", "numa1"},
			[]string{"0 NUMA", "1 NUMA"}},
		"a NIC that is down is the nearest": {[]string{"numa0", "numa0"}, []string{"down numa0", "numa0"},
			[]string{"0 NUMA", "1 NUMA"}},
		"virtual functions of the host": {[]string{"numa0", "numa0"}, []string{"numa0", "vf numa0", "vf numa0"},
			[]string{"0 NUMA", "0 NUMA"}},
		"virtual functions alone": {[]string{"numa0", "numa0"}, []string{"vf numa0", "vf numa0"},
			[]string{"0 NUMA", "1 NUMA"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := placed(c.gpus, c.nics)
			assignNICs(f)
			if diff := cmp.Diff(c.want, assigned(f)); diff != "" {
				t.Errorf("NICs (-want +got):\n%s", diff)
			}
		})
	}
}

// TestSpread compares with a search through all assignments: as many rows as possible have a choice of their own, and
// no choice has more rows than it must.
func TestSpread(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	for round := range 500 {
		rows, columns := 1+random.Intn(6), 1+random.Intn(5)
		choices := make([][]int, rows)
		for i := range choices {
			for c := range columns {
				if random.Intn(2) == 0 {
					choices[i] = append(choices[i], c)
				}
			}
		}
		got := spread(choices)
		used := map[int]int{}
		for i, c := range got {
			if (c < 0) != (len(choices[i]) == 0) || (c >= 0 && !slices.Contains(choices[i], c)) {
				t.Fatalf("round %d: row %d of %v got %d", round, i, choices, c)
			}
			if c >= 0 {
				used[c]++
			}
		}
		if best := bestSpread(choices, 0, map[int]int{}); len(used) != best {
			t.Fatalf("round %d: %v use %d choices, %d are possible: %v", round, choices, len(used), best, got)
		}
		if again := spread(choices); !slices.Equal(got, again) {
			t.Fatalf("round %d: %v, then %v", round, got, again)
		}
	}
}

// bestSpread is the most choices that can be in use.
func bestSpread(choices [][]int, row int, used map[int]int) int {
	if row == len(choices) {
		return len(used)
	}
	if len(choices[row]) == 0 {
		return bestSpread(choices, row+1, used)
	}
	best := 0
	for _, c := range choices[row] {
		used[c]++
		best = max(best, bestSpread(choices, row+1, used))
		if used[c]--; used[c] == 0 {
			delete(used, c)
		}
	}
	return best
}

func TestNICProblems(t *testing.T) {
	for name, c := range map[string]struct {
		gpus, nics []string
		change     func(*Facts)
		want       []string // code subject: part of the message
	}{
		"all active":     {[]string{"numa0"}, []string{"numa0"}, nil, nil},
		"no RDMA device": {[]string{"numa0"}, nil, nil, nil},
		"all down": {[]string{"numa0"}, []string{"down numa0", "down numa0"}, nil,
			[]string{"Warning NICDown: No RDMA device of this node (mlx5_0, mlx5_1) has an active port: " +
				"2 x Down (Polling); expected Active. Traffic to other nodes has no RDMA. Check its cable and switch " +
				"port (rdma link show mlx5_0)."}},
		"the only one down": {nil, []string{"down numa0"}, nil,
			[]string{"Warning NICDown mlx5_0: No RDMA device of this node (mlx5_0) has an active port: " +
				"1 x Down (Polling); expected Active. Traffic to other nodes has no RDMA. Check its cable and switch " +
				"port (rdma link show mlx5_0)."}},
		"all wait, one unknown": {nil, []string{"numa0", "numa0", "numa0", "numa0", "numa0", "numa0"}, func(f *Facts) {
			for i := range f.NICs {
				f.NICs[i].State = PortInit
			}
			f.NICs[0].State, f.NICs[5].State = PortUnknown, PortDown
		}, []string{"Warning NICDown: No RDMA device of this node (mlx5_1, mlx5_2, mlx5_3, " +
			"mlx5_4) has an active port: 4 x Init, 1 x Down, and of 1 more the state is not known; expected Active. " +
			"Traffic to other nodes has no RDMA. It has a link and waits for the subnet manager: check that one runs " +
			"on this fabric (sminfo)."}},
		"software alone": {nil, []string{"rxe"}, func(f *Facts) { f.NICs[0].State = PortDown }, nil},
		"all states unknown": {nil, []string{"numa0", "numa0"},
			func(f *Facts) { f.NICs[0].State, f.NICs[1].State = PortUnknown, PortUnknown }, nil},
		"software device": {[]string{"numa0"}, []string{"numa0", "rxe"},
			func(f *Facts) { f.NICs[1].State = PortDown }, nil},
		"unused function": {[]string{"numa0"}, []string{"numa0", "vf numa0"},
			func(f *Facts) { f.NICs[1].State = PortDown }, nil},
		"state unknown": {[]string{"numa0"}, []string{"numa0", "numa0"},
			func(f *Facts) { f.NICs[1].State = PortUnknown }, nil},
		"one down": {[]string{"numa0", "numa0"}, []string{"numa0", "down numa0"},
			func(f *Facts) { f.NICs[1].Interface = "enp9s0np0" }, []string{"Warning NICDown mlx5_1: Its port is Down " +
				"(Polling); expected Active, as 1 of 2 RDMA devices here are; it is nearest to GPU1 0000:02:00.0. " +
				"Check its cable and switch port, and that its interface is up (ip link show enp9s0np0)."}},
		"no interface": {[]string{"numa1"}, []string{"numa0", "down numa0"}, nil,
			[]string{"Warning NICDown mlx5_1: Its port is Down (Polling); expected Active, as 1 of 2 RDMA devices " +
				"here are. Check its cable and switch port (rdma link show mlx5_1)."}},
		"waiting for the subnet manager": {[]string{"numa0"}, []string{"numa0", "numa0"}, func(f *Facts) {
			f.NICs[1].State = PortInit
		}, []string{"Warning NICDown mlx5_1: Its port is Init; expected Active, as 1 of 2 RDMA devices here are. " +
			"It has a link and waits for the subnet manager: check that one runs on this fabric (sminfo)."}},
		"far": {[]string{"numa0", "numa1", "numa1"}, []string{"numa0"}, nil,
			[]string{"Warning NICFar 0000:02:00.0 0000:03:00.0: 2 of 3 GPUs have no RDMA device on their NUMA node, " +
				"where the other GPUs have one: their traffic crosses the sockets. Look for a NIC that is missing " +
				"(lspci, rdma link); if the server is built so, expect less bandwidth from these GPUs."}},
		"all far": {[]string{"numa1", "numa1"}, []string{"numa0"}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := placed(c.gpus, c.nics)
			if c.change != nil {
				c.change(f)
			}
			assignNICs(f)
			var l problemList
			checkNICs(&l, f)
			var got []string
			for _, p := range l {
				got = append(got, strings.TrimSpace(p.Severity+" "+p.Code+" "+p.Subject())+": "+p.Message)
				if len(p.Message) > 400 {
					t.Errorf("%s is longer than a CommTask takes", p.Code)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

// xmlDevice is a PCI device of RCCL's topology file.
type xmlDevice struct {
	BusID   string      `xml:"busid,attr"`
	GPU     *struct{}   `xml:"gpu"`
	Devices []xmlDevice `xml:"pci"`
	NICs    []struct {
		Nets []struct {
			Name string `xml:"name,attr"`
		} `xml:"net"`
	} `xml:"nic"`
}

// TestNICsOfRealTopologies: on hosts as RCCL saw them, each GPU gets a NIC below its own switch, one to one.
func TestNICsOfRealTopologies(t *testing.T) {
	for file, want := range map[string]struct {
		gpus, nics int
		most       int // GPUs that share a NIC
	}{"topo_8p_942.xml": {8, 8, 1}, "topo_8p_942vm.xml": {8, 8, 1}, "topo_16p1h.xml": {16, 8, 2}} {
		t.Run(file, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join(fixtures(t), "rccl-topo-xml", file))
			if err != nil {
				t.Fatal(err)
			}
			var system struct {
				CPUs []struct {
					NUMA    int32       `xml:"numaid,attr"`
					Devices []xmlDevice `xml:"pci"`
				} `xml:"cpu"`
			}
			if err := xml.Unmarshal(data, &system); err != nil {
				t.Fatal(err)
			}
			f := &Facts{}
			sibling := map[string]string{} // the uppermost switch of each
			for c, cpu := range system.CPUs {
				var walk func(d *xmlDevice, path, top string)
				walk = func(d *xmlDevice, path, top string) {
					path += "/" + d.BusID
					if d.GPU != nil {
						f.GPUs = append(f.GPUs, GPU{PCIAddress: d.BusID, PCIPath: path, NUMANode: ptr.To(cpu.NUMA)})
						sibling[d.BusID] = top
					}
					for _, nic := range d.NICs {
						for _, net := range nic.Nets {
							f.NICs = append(f.NICs, NIC{Name: net.Name, PCIAddress: d.BusID, PCIPath: path,
								NUMANode: ptr.To(cpu.NUMA), State: PortActive})
							sibling[net.Name] = top
						}
					}
					for i := range d.Devices {
						walk(&d.Devices[i], path, top)
					}
				}
				for i := range cpu.Devices {
					// The file leaves out the host bridge and the root port, one for each device here.
					walk(&cpu.Devices[i], fmt.Sprintf("pci0000:%02x/0000:%02x:%02x.0", c, c, i+1), cpu.Devices[i].BusID)
				}
			}
			if len(f.GPUs) != want.gpus || len(f.NICs) != want.nics {
				t.Fatalf("%d GPUs and %d NICs", len(f.GPUs), len(f.NICs))
			}
			assignNICs(f)
			shared := map[string]int{}
			for i := range f.GPUs {
				g := &f.GPUs[i]
				shared[g.NIC]++
				near := false // has it a NIC below its own uppermost switch?
				for j := range f.NICs {
					near = near || sibling[f.NICs[j].Name] == sibling[g.PCIAddress]
				}
				if near && (g.NICPath != NearSwitch || sibling[g.NIC] != sibling[g.PCIAddress]) {
					t.Errorf("GPU %s below %s got %s (%s) below %s",
						g.PCIAddress, sibling[g.PCIAddress], g.NIC, g.NICPath, sibling[g.NIC])
				}
				if g.NIC == "" || (!near && g.NICPath == NearSwitch) {
					t.Errorf("GPU %s got %q (%s)", g.PCIAddress, g.NIC, g.NICPath)
				}
			}
			for nic, n := range shared {
				if n > want.most {
					t.Errorf("%d GPUs share %s", n, nic)
				}
			}
		})
	}
}
