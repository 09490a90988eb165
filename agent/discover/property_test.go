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

// TestRandomTopologies generates nodes with random models, modes and faults, and demands that a scan gives back what was
// generated: every fact, each fault by its code and subject, and no other problem.
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
			t.Errorf("-property.seed=%d -property.cases=1: %s with %s:\n%s", seed, s.node.Model, strings.Join(s.did, ", "), text)
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
	"MI100":     {fabric: "bridge", blocks: blocks100, ports: 3, place: "host"},
	"MI210":     {fabric: "bridge", blocks: blocks200, ports: 3, place: "host"},
	"MI250":     {fabric: "hops", blocks: blocks200, ports: 7, place: "pair"},
	"MI250X":    {fabric: "hops", blocks: blocks200, ports: 6, place: "second"},
	"MI300A":    {fabric: "mesh", server: 4, blocks: blocks300, deferred: true, ports: 6, place: "host"},
	"MI300X":    {fabric: "mesh", server: 8, blocks: blocks300, deferred: true, ports: 7, place: "switch", other: 0x74a5},
	"MI308X":    {fabric: "mesh", server: 8, blocks: blocks300, deferred: true, ports: 7, place: "switch"},
	"MI325X":    {fabric: "mesh", server: 8, blocks: blocks300, deferred: true, ports: 7, place: "switch", other: 0x74a1},
	"MI350X":    {fabric: "mesh", server: 8, blocks: blocks300, deferred: true, ports: 7, place: "switch", other: 0x75a3},
	"MI355X":    {fabric: "mesh", server: 8, blocks: blocks300, deferred: true, ports: 7, place: "switch", other: 0x75a0},
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
	{"GPU of another model", (*scenario).mixModels}, {"missing GPU", (*scenario).loseGPU}, {"unbound GPU", (*scenario).unbindGPU},
	{"hives", (*scenario).changeHives}, {"link fault", (*scenario).breakLink}, {"second link fault", (*scenario).breakLink},
	{"RAS errors", (*scenario).countErrors}, {"retired pages", (*scenario).retirePages}, {"port down", (*scenario).closePort},
	{"throttling", (*scenario).throttle}, {"fewer NICs", (*scenario).dropNICs}, {"NIC down", (*scenario).downNIC},
	{"no render node", (*scenario).dropRenderNode}, {"firmware", (*scenario).changeFirmware}, {"NUMA unknown", (*scenario).forgetNUMA},
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
		s.node.MetricsRevision = []string{"1.3", "1.4", "1.5", "1.6", "1.7", "1.8", "1.9", nodetree.NoMetrics}[s.rng.IntN(8)]
	}
	if s.rng.IntN(4) == 0 {
		s.node.ROCm = ""
	}
	s.node.NICKind = []nodetree.NICKind{nodetree.NICEthernet, nodetree.NICInfiniBand, nodetree.NICBroadcom, nodetree.NICPensando}[s.rng.IntN(4)]
	for _, step := range scenarioSteps {
		if s.rng.IntN(6) == 0 && step.do(s) {
			s.did = append(s.did, step.name)
		}
	}
	s.lateProblems()
	sort.Strings(s.want)
	return s
}

func (s *scenario) error(code, subject string) { s.want = append(s.want, "Error "+code+" "+subject) }

func (s *scenario) warn(code, subject string) { s.want = append(s.want, "Warning "+code+" "+subject) }

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

func (s *scenario) mixModels() bool {
	if s.other == 0 {
		return false
	}
	s.mixed = s.rng.IntN(len(s.node.GPUs))
	s.node.GPUs[s.mixed].DeviceID = s.other
	s.model = Mixed
	s.error("MixedModels", s.address(s.mixed))
	return true
}

// absentAny takes GPUs away until at least three are left; the one of another model stays.
func (s *scenario) absentAny(take func(*nodetree.GPU, int)) bool {
	done := false
	for _, i := range s.some(2) {
		if len(s.present()) > 3 && i != s.mixed {
			take(&s.node.GPUs[i], i)
			done = true
		}
	}
	return done
}

func (s *scenario) loseGPU() bool {
	return s.absentAny(func(g *nodetree.GPU, _ int) { g.Missing = true })
}

func (s *scenario) unbindGPU() bool {
	return s.absentAny(func(g *nodetree.GPU, i int) {
		g.Unbound = true
		if s.rng.IntN(2) == 0 {
			g.BoundTo = "vfio-pci"
			s.warn("GPUNotInKFD", s.address(i))
			return
		}
		s.error("GPUNotInKFD", s.address(i))
	})
}

func (s *scenario) changeHives() bool {
	if s.fabric == "none" {
		return false
	}
	switch s.rng.IntN(3) {
	case 0: // two hives at random
		for i := range s.node.GPUs {
			s.node.GPUs[i].Hive = 1 + s.rng.IntN(2)
		}
	case 1: // one GPU in none
		s.node.GPUs[s.some(1)[0]].Hive = -1
	default: // none at all
		for i := range s.node.GPUs {
			s.node.GPUs[i].Hive = -1
		}
	}
	return true
}

// hive numbers the hive of a GPU, as the generator's options say it; -1 is none.
func (s *scenario) hive(gpu int) int {
	switch h := s.node.GPUs[gpu].Hive; {
	case h != 0:
		return max(h, 0) - 1
	case s.fabric == "none":
		return -1
	case s.fabric == "bridge":
		return gpu / 4
	}
	return 0
}

func (s *scenario) sameHive(a, b int) bool { return s.hive(a) >= 0 && s.hive(a) == s.hive(b) }

func (s *scenario) breakLink() bool {
	var pairs [][2]int
	list := s.present()
	for _, a := range list {
		for _, b := range list {
			if a < b && s.sameHive(a, b) && s.faulty[[2]int{a, b}] == "" {
				pairs = append(pairs, [2]int{a, b})
			}
		}
	}
	if len(pairs) == 0 {
		return false
	}
	kinds := []string{"pcie", "none", "one way none", "one way pcie", "driver only"}
	if s.fabric == "mesh" && s.parts == 1 {
		kinds = append(kinds, "two hops")
		halved := false
		for _, kind := range s.faulty {
			halved = halved || kind == "half"
		}
		if !halved && len(pairs) > 4 {
			kinds = append(kinds, "half")
		}
	}
	pair, kind := pairs[s.rng.IntN(len(pairs))], kinds[s.rng.IntN(len(kinds))]
	a, b := pair[0], pair[1]
	l := nodetree.Link{A: a, B: b, Kind: nodetree.LinkNone}
	subject := min(s.address(a), s.address(b)) + "<->" + max(s.address(a), s.address(b))
	judge := s.error
	if s.fabric == "newer" {
		judge = func(string, string) {} // it has no expectations
	}
	switch kind {
	case "pcie":
		l.Kind = nodetree.LinkPCIe
		judge("PCIeInsteadOfXGMI", subject)
	case "none":
		judge("LinkMissing", subject)
	case "one way none":
		l.OneWay = true
		judge("LinkAsymmetric", subject)
	case "one way pcie":
		l.Kind, l.OneWay = nodetree.LinkPCIe, true
		judge("LinkAsymmetric", subject)
	case "driver only":
		l.OneWay, l.DriverOnly = true, true
		if s.fabric == "mesh" {
			judge("LinkAsymmetric", subject)
		} else if s.fabric != "newer" {
			s.warn("LinkAsymmetric", subject)
		}
	case "two hops":
		l.Kind, l.Hops = nodetree.LinkXGMI, 2
		judge("LinkWeight", subject)
	case "half":
		l.Kind, l.BandwidthMBps = nodetree.LinkXGMI, 32000
		if s.node.Model == "MI300A" {
			l.BandwidthMBps = 64000 // of two links
		}
		judge("LinkBandwidth", subject)
	}
	s.node.Links = append(s.node.Links, l)
	s.faulty[pair] = kind
	return true
}

func (s *scenario) countErrors() bool {
	if s.vf {
		return false
	}
	for _, i := range s.some(2) {
		g := &s.node.GPUs[i]
		g.Errors = map[string]nodetree.ErrorCounts{}
		other, xgmi, deferred := false, false, false
		for range 1 + s.rng.IntN(3) {
			block := s.blocks[s.rng.IntN(len(s.blocks))]
			g.Errors[block] = nodetree.ErrorCounts{Uncorrectable: s.rng.Uint64N(3), Correctable: s.rng.Uint64(), Deferred: s.rng.Uint64N(3)}
		}
		for block, c := range g.Errors {
			xgmi = xgmi || block == "xgmi_wafl" && c.Uncorrectable > 0
			other = other || block != "xgmi_wafl" && c.Uncorrectable > 0
			deferred = deferred || block == "umc" && s.deferred && c.Deferred > 0
		}
		if xgmi {
			s.error("XGMIUncorrectableErrors", s.address(i))
		}
		if other {
			s.error("UncorrectableErrors", s.address(i))
		}
		if deferred {
			s.warn("DeferredErrors", s.address(i))
		}
	}
	return true
}

func (s *scenario) retirePages() bool {
	if s.vf {
		return false
	}
	for _, i := range s.some(2) {
		s.node.GPUs[i].RetiredPages = 1 + s.rng.IntN(100)
		s.warn("RetiredPages", s.address(i))
	}
	return true
}

// revision is the content revision of gpu_metrics; 0 where there is none.
func (s *scenario) revision() int {
	text := s.node.MetricsRevision
	if text == "" {
		text = map[string]string{"MI100": "1.3", "MI210": "1.3", "MI250": "1.3", "MI250X": "1.3", "MI300A": "1.6", "MI300X": "1.7", "MI308X": "1.5", "MI325X": "1.8",
			"MI350X": "1.8", "MI355X": "1.9", "MI350P": "1.9", "MI450X": "1.9"}[strings.TrimSuffix(s.node.Model, " VF")]
	}
	var revision int
	_, _ = fmt.Sscanf(text, "1.%d", &revision)
	return revision
}

func (s *scenario) closePort() bool {
	if s.vf || s.ports == 0 || s.revision() < 7 || len(s.present()) < 4 {
		return false
	}
	i := s.some(1)[0]
	s.node.GPUs[i].DownPorts = []int{s.rng.IntN(s.ports)}
	s.warn("XGMIPortDown", s.address(i))
	return true
}

func (s *scenario) throttle() bool {
	for _, i := range s.some(2) {
		s.node.GPUs[i].ThrottleStatus = 1 << s.rng.IntN(8)
		s.node.GPUs[i].ThrottleResidency = map[string]uint32{"hbm_thm": 1 + s.rng.Uint32N(1000), "ppt": s.rng.Uint32N(1000)}
	}
	return s.revision() > 0
}

func (s *scenario) dropNICs() bool {
	s.node.NICs = s.rng.IntN(s.node.NICs)
	return true
}

func (s *scenario) downNIC() bool {
	if s.node.NICs < 2 {
		return false
	}
	nic := s.rng.IntN(s.node.NICs)
	s.node.DownNICs = []int{nic}
	s.warn("NICDown", s.nicName(nic))
	return true
}

func (s *scenario) nicName(i int) string {
	prefix := map[nodetree.NICKind]string{nodetree.NICBroadcom: "bnxt_re", nodetree.NICPensando: "ionic_"}[s.node.NICKind]
	if prefix == "" {
		prefix = "mlx5_"
	}
	return fmt.Sprint(prefix, i)
}

func (s *scenario) dropRenderNode() bool {
	for _, i := range s.some(2) {
		s.node.GPUs[i].NoRenderNode = true
	}
	s.error("RenderNodeMissing", s.addresses(func(i int) bool { return s.node.GPUs[i].NoRenderNode }))
	return true
}

func (s *scenario) changeFirmware() bool {
	i := s.some(1)[0]
	if i == s.mixed || len(s.present()) < 4 {
		return false
	}
	s.node.GPUs[i].Firmware = 999
	s.warn("MixedFirmware", s.address(i))
	return true
}

func (s *scenario) forgetNUMA() bool {
	for _, i := range s.some(6) {
		s.node.GPUs[i].NUMANode = -1
	}
	if !s.vf {
		s.warn("NUMAUnknown", s.addresses(func(i int) bool { return s.node.GPUs[i].NUMANode < 0 }))
	}
	return true
}

func (s *scenario) losePartition() bool {
	if s.parts == 1 || s.fabric == "newer" {
		return false
	}
	i := s.some(1)[0]
	s.node.GPUs[i].MissingPartitions = 1 + s.rng.IntN(s.parts-1)
	s.error("PartitionMissing", s.address(i))
	return true
}

func (s *scenario) slowPCIe() bool {
	i := s.some(1)[0]
	if s.rng.IntN(2) == 0 {
		s.node.GPUs[i].PCIeWidth = 8
	} else {
		s.node.GPUs[i].PCIeSpeed = "2.5 GT/s PCIe"
	}
	s.warn("PCIeDegraded", s.address(i))
	return true
}

func (s *scenario) leaveGaps() bool {
	for _, i := range s.some(3) {
		s.node.GPUs[i].NodeGap = 1 + s.rng.IntN(5)
	}
	return true
}

func (s *scenario) changeHost() bool {
	if s.rng.IntN(2) == 0 {
		s.node.NUMABalancing = 1
		s.warn("NUMABalancing", "kernel.numa_balancing")
		return true
	}
	s.node.KernelCommand = "ro iommu=ptx"
	if !s.vf {
		s.warn("IOMMUNotPassthrough", "proc/cmdline")
	}
	return true
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
	if len(list)+unbound < s.server {
		s.warn("GPUMissing", s.model)
	}
	if s.fabric == "newer" {
		s.warn("UnknownModel", s.address(list[0]))
	}
	hives, hiveless := s.hives()
	switch s.fabric {
	case "mesh", "hops":
		switch {
		case hiveless == len(list) && s.vf:
			s.warn("XGMINotInitialised", s.model)
		case hiveless == len(list):
			s.error("XGMINotInitialised", s.model)
		case len(hives) > 1 || hiveless > 0:
			s.error("HiveSplit", s.model)
		}
	case "bridge":
		switch {
		case hiveless == len(list):
			s.warn("XGMIBridgeAbsent", s.model)
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
	case own && (s.place == "switch" || s.place == "pair"), s.place == "pair" && gpu/4*2 < s.node.NICs: // two switches on one port
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
