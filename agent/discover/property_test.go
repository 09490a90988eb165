package discover

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rcclx.io/commgroup-operator/hack/simrocm/nodetree"
)

var (
	propertySeed  = flag.Uint64("property.seed", 1, "seed of the first random topology")
	propertyCases = flag.Uint64("property.cases", 400, "number of random topologies")
)

// TestRandomTopologies generates nodes with random models, modes and faults, and demands that a scan gives back what
// was generated: every fact, each fault by its code and subject, and no other problem.
func TestRandomTopologies(t *testing.T) {
	faults, modes := map[string]int{}, map[string]int{}
	for seed := *propertySeed; seed < *propertySeed+*propertyCases; seed++ {
		s := newScenario(seed)
		tree, err := nodetree.Generate(s.node)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		f := scan(t, &shuffledFS{FS: tree, rng: rand.New(rand.NewPCG(seed, 1))}, Options{})
		for _, name := range s.did {
			faults[name]++
		}
		modes[s.node.Model+" "+string(s.node.Partition)]++
		if text := s.compare(f); text != "" {
			t.Errorf("-property.seed=%d -property.cases=1: %s with %s:\n%s",
				seed, s.node.Model, strings.Join(s.did, ", "), text)
		}
		checkNodeFacts(t, f)
	}
	if *propertyCases < 300 {
		return
	}
	// A test that never tries a fault cannot fail on it.
	for _, step := range scenarioSteps {
		if faults[step.name] < 3 {
			t.Errorf("%q was tried %d times in %d topologies", step.name, faults[step.name], *propertyCases)
		}
	}
	for _, model := range nodetree.Models() {
		if modes[model+" SPX"] == 0 {
			t.Errorf("model %s was never tried", model)
		}
	}
}

// shuffledFS gives directories in random order, as no file system promises one.
type shuffledFS struct {
	FS
	mu  sync.Mutex
	rng *rand.Rand
}

func (s *shuffledFS) ReadDir(name string) ([]string, error) {
	names, err := s.FS.ReadDir(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	return names, err
}

// traits are what the test knows of a model, apart from the code that it tests.
type traits struct {
	fabric   string // mesh, bridge, hops, none or newer
	server   int    // GPUs that a server of it has; 0 where that differs
	vf       bool
	blocks   []string // with RAS
	deferred bool
	ports    int    // xGMI ports of a GPU
	place    string // how NICs lie: switch, pair, host, second, guest
	other    uint64 // device id of a sister model with the same shape
}

var (
	blocks100 = []string{"gfx", "mmhub", "pcie_bif", "sdma", "umc", "xgmi_wafl"}
	blocks200 = []string{"gfx", "hdp", "mmhub", "pcie_bif", "sdma", "umc", "xgmi_wafl"}
	blocks300 = []string{"gfx", "jpeg", "mmhub", "sdma", "umc", "vcn", "xgmi_wafl"}
)

var traitsOf = map[string]traits{
	"MI100":  {fabric: "bridge", blocks: blocks100, ports: 3, place: "host"},
	"MI210":  {fabric: "bridge", blocks: blocks200, ports: 3, place: "host"},
	"MI250":  {fabric: "hops", blocks: blocks200, ports: 7, place: "pair"},
	"MI250X": {fabric: "hops", blocks: blocks200, ports: 6, place: "second"},
	"MI300A": {fabric: "mesh", server: 4, blocks: blocks300, deferred: true, ports: 6, place: "host"},
	"MI300X": {fabric: "mesh", server: 8, blocks: blocks300, deferred: true, ports: 7,
		place: "switch", other: 0x74a5},
	"MI308X": {fabric: "mesh", server: 8, blocks: blocks300, deferred: true, ports: 7, place: "switch"},
	"MI325X": {fabric: "mesh", server: 8, blocks: blocks300, deferred: true, ports: 7,
		place: "switch", other: 0x74a1},
	"MI350X": {fabric: "mesh", server: 8, blocks: blocks300, deferred: true, ports: 7,
		place: "switch", other: 0x75a3},
	"MI355X": {fabric: "mesh", server: 8, blocks: blocks300, deferred: true, ports: 7,
		place: "switch", other: 0x75a0},
	"MI350P":    {fabric: "none", blocks: blocks300[:6], deferred: true, place: "host"},
	"MI450X":    {fabric: "newer", blocks: blocks300, deferred: true, ports: 7, place: "switch"},
	"MI300X VF": {fabric: "mesh", vf: true, place: "guest"},
	"MI308X VF": {fabric: "mesh", vf: true, place: "guest"},
	"MI325X VF": {fabric: "mesh", vf: true, place: "guest"},
	"MI350X VF": {fabric: "mesh", vf: true, place: "guest"},
	"MI355X VF": {fabric: "mesh", vf: true, place: "guest"},
	"MI350P VF": {fabric: "none", vf: true, place: "guest"},
}

// scenario is a random node with the problems that a scan must name.
type scenario struct {
	traits
	rng    *rand.Rand
	node   nodetree.Node
	model  string // as the facts name it
	parts  int
	faulty map[[2]int]string // pairs with a link fault, the lower ordinal first
	mixed  int               // GPU of another model; -1
	want   []string
	did    []string
}

// scenarioStep is one thing that a scenario can have; do says whether it was possible.
type scenarioStep struct {
	name string
	do   func(*scenario) bool
}

// scenarioSteps in the order in which they build on each other; lateProblems tells what depends on the whole.
var scenarioSteps = []scenarioStep{
	{"GPU of another model", (*scenario).mixModels}, {"missing GPU", (*scenario).loseGPU},
	{"unbound GPU", (*scenario).unbindGPU},
	{"hives", (*scenario).changeHives}, {"link fault", (*scenario).breakLink},
	{"second link fault", (*scenario).breakLink},
	{"RAS errors", (*scenario).countErrors}, {"retired pages", (*scenario).retirePages},
	{"port down", (*scenario).closePort},
	{"throttling", (*scenario).throttle}, {"fewer NICs", (*scenario).dropNICs}, {"NIC down", (*scenario).downNIC},
	{"no render node", (*scenario).dropRenderNode}, {"firmware", (*scenario).changeFirmware},
	{"NUMA unknown", (*scenario).forgetNUMA},
	{"partition missing", (*scenario).losePartition}, {"PCIe", (*scenario).slowPCIe}, {"gaps", (*scenario).leaveGaps},
	{"host settings", (*scenario).changeHost},
}

func newScenario(seed uint64) *scenario {
	s := &scenario{rng: rand.New(rand.NewPCG(seed, 0)), faulty: map[[2]int]string{}, mixed: -1, parts: 1}
	models := nodetree.Models()
	model := models[s.rng.IntN(len(models))]
	n, err := nodetree.Defaults(model)
	if err != nil {
		panic(err)
	}
	s.traits, s.node, s.model = traitsOf[model], n, model
	s.node.Name = fmt.Sprint("sim-", seed)
	if modes := nodetree.Partitions(model); len(modes) > 0 && s.rng.IntN(3) == 0 {
		mode := modes[s.rng.IntN(len(modes))]
		compute, memory, _ := strings.Cut(mode, "/")
		s.node.Partition, s.node.MemoryPartition = nodetree.PartitionMode(compute), memory
		xcds := map[string]int{"MI300A": 6, "MI308X": 4, "MI308X VF": 4}[model]
		if xcds == 0 {
			xcds = 8
		}
		s.parts = partitionsByMode(mode, xcds)
	}
	s.node.Generation = 1 + s.rng.Uint64N(1000)
	s.node.Driver = []nodetree.Driver{nodetree.DriverDKMS, nodetree.DriverInTree, nodetree.DriverBuiltIn}[s.rng.IntN(3)]
	if s.rng.IntN(3) == 0 {
		s.node.MetricsRevision = []string{"1.3", "1.4", "1.5", "1.6", "1.7", "1.8", "1.9",
			nodetree.NoMetrics}[s.rng.IntN(8)]
	}
	if s.rng.IntN(4) == 0 {
		s.node.ROCm = ""
	}
	s.node.NICKind = []nodetree.NICKind{nodetree.NICEthernet, nodetree.NICInfiniBand, nodetree.NICBroadcom,
		nodetree.NICPensando}[s.rng.IntN(4)]
	for _, step := range scenarioSteps {
		if s.rng.IntN(6) == 0 && step.do(s) {
			s.did = append(s.did, step.name)
		}
	}
	s.lateProblems()
	sort.Strings(s.want)
	return s
}

func (s *scenario) error(code, subject string) {
	s.want = append(s.want, strings.TrimSpace("Error "+code+" "+subject))
}

func (s *scenario) warn(code, subject string) {
	s.want = append(s.want, strings.TrimSpace("Warning "+code+" "+subject))
}

// present are the ordinals of GPUs that KFD has, by PCI address as the facts have them.
func (s *scenario) present() []int {
	var list []int
	for i := range s.node.GPUs {
		if !s.node.GPUs[i].Missing && !s.node.GPUs[i].Unbound {
			list = append(list, i)
		}
	}
	sort.Slice(list, func(i, j int) bool { return s.address(list[i]) < s.address(list[j]) })
	return list
}

func (s *scenario) address(gpu int) string { return s.node.GPUs[gpu].PCIAddress }

// some picks up to n of the GPUs in KFD.
func (s *scenario) some(n int) []int {
	list := s.present()
	s.rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list[:min(len(list), 1+s.rng.IntN(n))]
}

// addresses joins those of the GPUs, as facts order them, the first four.
func (s *scenario) addresses(is func(int) bool) string {
	var list []string
	for _, i := range s.present() {
		if is(i) && len(list) < 4 {
			list = append(list, s.address(i))
		}
	}
	return strings.Join(list, " ")
}

// lateProblems adds those that depend on the whole node.
func (s *scenario) lateProblems() {
	list := s.present()
	unbound := 0
	for i := range s.node.GPUs {
		if s.node.GPUs[i].Unbound {
			unbound++
		}
	}
	switch due, proven := s.due(); {
	case proven && len(list)+unbound < due:
		s.error("GPUMissing", "")
	case len(list)+unbound < due:
		s.warn("GPUMissing", "")
	}
	if s.fabric == "newer" {
		s.warn("UnknownModel", s.address(list[0]))
	}
	hives, hiveless := s.hives()
	switch s.fabric {
	case "mesh", "hops":
		switch {
		case hiveless == len(list) && s.vf:
			s.warn("XGMINotInitialised", "")
		case hiveless == len(list):
			s.error("XGMINotInitialised", "")
		case len(hives) > 1 || hiveless > 0:
			s.error("HiveSplit", "")
		}
	case "bridge":
		switch {
		case hiveless == len(list):
			s.warn("XGMIBridgeAbsent", "")
		case hiveless > 0:
			s.warn("XGMIBridgeAbsent", s.addresses(func(i int) bool { return s.hive(i) < 0 }))
		}
	}
	var far []string
	near := 0
	for _, i := range list {
		switch s.nicPath(i) {
		case NearFar:
			far = append(far, s.address(i))
		case "":
		default:
			near++
		}
	}
	if len(far) > 0 && near > 0 {
		s.warn("NICFar", strings.Join(far[:min(len(far), 4)], " "))
	}
}

// due is how many GPUs there should be, and whether those that KFD has prove it.
func (s *scenario) due() (gpus int, proven bool) {
	here := len(s.present())
	hives, hiveless := s.hives()
	threes := 0
	for _, n := range hives {
		if n == 1 {
			hiveless++
		}
		if n == 3 {
			threes++
		}
	}
	switch {
	case s.server > 0:
		return s.server, false
	case s.fabric == "hops" && here%2 == 1:
		return here + 1, true
	case s.fabric == "bridge" && here != 4 && here != 8 && threes > hiveless:
		return here + threes - hiveless, true
	}
	step := 1
	if s.fabric == "hops" {
		step = 2
	}
	for n := step; ; n *= 2 {
		if n >= here {
			return n, false
		}
	}
}

// hives counts the members of each hive among the GPUs in KFD, and those in none.
func (s *scenario) hives() (members map[int]int, hiveless int) {
	members = map[int]int{}
	for _, i := range s.present() {
		if h := s.hive(i); h >= 0 {
			members[h]++
		} else {
			hiveless++
		}
	}
	return members, hiveless
}

// ownNIC is the NIC beside a GPU; -1 where there is none.
func (s *scenario) ownNIC(gpu int) int {
	nic := gpu
	switch s.place {
	case "pair":
		nic = gpu / 2
	case "second":
		if gpu%2 == 1 {
			return -1
		}
		nic = gpu / 2
	}
	if nic >= s.node.NICs {
		return -1
	}
	return nic
}

// nicPath says how near the nearest NIC is, from where the generator puts them.
func (s *scenario) nicPath(gpu int) string {
	own := s.ownNIC(gpu) >= 0
	switch {
	case s.node.NICs == 0:
		return ""
	// two switches on one port
	case own && (s.place == "switch" || s.place == "pair"), s.place == "pair" && gpu/4*2 < s.node.NICs:
		return NearSwitch
	case own && s.place != "guest":
		return NearHost
	case s.node.GPUs[gpu].NUMANode < 0:
		return ""
	}
	defaults, _ := nodetree.Defaults(s.node.Model)
	for i := range s.node.GPUs { // a NIC is on the NUMA node of its GPU's place
		if s.ownNIC(i) >= 0 && defaults.GPUs[i].NUMANode == s.node.GPUs[gpu].NUMANode {
			return NearNUMA
		}
	}
	return NearFar
}

// compare gives what of the facts is not as generated; "" for nothing.
func (s *scenario) compare(f *Facts) string {
	var text strings.Builder
	check := func(what string, want, got any) {
		if diff := cmp.Diff(want, got); diff != "" {
			fmt.Fprintf(&text, "%s (-want +got):\n%s", what, diff)
		}
	}
	got := problemLines(f)
	slices.Sort(got)
	check("problems", append([]string{}, s.want...), got)
	s.compareNode(f, check)
	s.compareGPUs(f, check)
	s.compareLinks(f, check)
	return text.String()
}
