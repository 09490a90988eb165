package discover

import (
	"fmt"
	"strings"

	"rcclx.io/commgroup-operator/hack/simrocm/nodetree"
)

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
			g.Errors[block] = nodetree.ErrorCounts{Uncorrectable: s.rng.Uint64N(3), Correctable: s.rng.Uint64(),
				Deferred: s.rng.Uint64N(3)}
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
		text = map[string]string{"MI100": "1.3", "MI210": "1.3", "MI250": "1.3",
			"MI250X": "1.3", "MI300A": "1.6", "MI300X": "1.7", "MI308X": "1.5", "MI325X": "1.8",
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
		s.node.GPUs[i].ThrottleResidency = map[string]uint32{"hbm_thm": 1 + s.rng.Uint32N(1000),
			"ppt": s.rng.Uint32N(1000)}
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
	prefix := map[nodetree.NICKind]string{nodetree.NICBroadcom: "bnxt_re",
		nodetree.NICPensando: "ionic_"}[s.node.NICKind]
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
		s.warn("NUMABalancing", "proc/sys/kernel/numa_balancing")
		return true
	}
	s.node.KernelCommand = "ro iommu=nopt"
	if !s.vf {
		s.warn("IOMMUNotPassthrough", "proc/cmdline")
	}
	return true
}
