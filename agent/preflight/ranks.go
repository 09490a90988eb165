package preflight

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"rcclx.io/commgroup-operator/agent/discover"
	"rcclx.io/commgroup-operator/rcclx"
	"rcclx.io/commgroup-operator/rcclx/compat"
)

const (
	envNoScratchReclaim = "HSA_NO_SCRATCH_RECLAIM"
	// busyMemoryBytes that another process may hold without a remark: less than a runtime's own buffers for one GPU.
	busyMemoryBytes = 64 << 20
	// busyPercentLeast from which a GPU is at work: an idle one says 0, and what the firmware averages may be a little
	// more.
	busyPercentLeast = 5
	// usedMemoryBytes, or a twentieth of the memory where that is more, may be gone before a remark: the runtime's own
	// buffers of a process for each GPU.
	usedMemoryBytes = 4 << 30
	// libraryMemoryBytes is this package's allowance for what every communicator takes and no source tells: channels
	// and their buffers. RCCL 2.13.4 and 2.27.7 took 1.30 to 1.53 GB a rank at eight ranks. Less free memory than this
	// on top of the need is a remark.
	libraryMemoryBytes = 2 << 30
)

// CheckRanks holds what each rank's process saw when it had loaded the library against what the run needs, before any
// communicator is formed: one finding for each precondition that applies. f was gathered before these processes began.
func CheckRanks(f NodeFacts, ranks []RankFacts, need Need) []Finding {
	for _, r := range ranks {
		if !need.known() && r.Library != nil {
			need.Flavor = r.Library.Gates()
		}
	}
	var out []Finding
	if f.needsLibrary() {
		out = checkGPUs(f, need)
	}
	if f.isAMD(need) {
		out = append(out, checkScratchReclaim(f, ranks, need))
	}
	return append(out, checkSharedGPU(f, ranks), checkOneProcess(ranks, need), checkGPUOrder(f, ranks, need),
		checkSameLibrary(ranks), checkSameSettings(ranks), checkGPUBusy(f, ranks), checkGPUMemory(ranks, need))
}

func checkScratchReclaim(f NodeFacts, ranks []RankFacts, need Need) Finding {
	if v, _ := need.variable(envNoScratchReclaim); v == "1" {
		return met(ScratchReclaim, "%s is 1", envNoScratchReclaim)
	}
	if f.Discovered == nil || len(f.Discovered.Devices) == 0 {
		return found(ScratchReclaim, Unknown, -1, "%s is not 1, and the GPUs' firmware could not be read (%s)",
			envNoScratchReclaim, f.unread("sys/class/kfd/kfd/topology"))
	}
	d := f.Discovered.Devices[0] // as the library does, the first GPU stands for all
	least, looked := compat.ScratchFirmware(d.GFXTarget)
	runtime := 0
	for _, r := range ranks {
		if r.Library != nil && (runtime == 0 || r.Library.RuntimeVersionCode < runtime) {
			runtime = r.Library.RuntimeVersionCode
		}
	}
	switch {
	case d.GFXTarget == "":
		return found(ScratchReclaim, Unknown, -1, "%s is not 1, and the architecture of GPU %s is not known",
			envNoScratchReclaim, d.PCIAddress)
	case compat.SlowScratch(d.GFXTarget, runtime):
		return found(ScratchReclaim, Warning, -1, "%s is not 1, expected 1 on %s with HIP runtime %d: "+
			"the runtime takes scratch memory back at each launch, which slows RCCL down",
			envNoScratchReclaim, d.GFXTarget, runtime)
	case !looked:
		return met(ScratchReclaim, "%s is not 1, and %s needs it not", envNoScratchReclaim, d.GFXTarget)
	case runtime == 0 || d.FWVersion == nil || *d.FWVersion == 0:
		return found(ScratchReclaim, Unknown, -1,
			"%s is not 1, and the HIP runtime's version (%d) or the MEC firmware's of GPU %s is not known",
			envNoScratchReclaim, runtime, d.PCIAddress)
	case (runtime < compat.ScratchRuntimeCode || *d.FWVersion < least) && need.Flavor != rcclx.FlavorRCCLXDev:
		return found(ScratchReclaim, Warning, -1, "%s is not 1, and HIP runtime %d with MEC firmware "+
			"%d of GPU %s is older than %d with %d (%s): RCCLX refuses then, and newer RCCL may",
			envNoScratchReclaim, runtime, *d.FWVersion, d.PCIAddress, compat.ScratchRuntimeCode, least, d.GFXTarget)
	case runtime < compat.ScratchRuntimeCode || *d.FWVersion < least:
		return found(ScratchReclaim, Failed, -1, "%s is not 1, and HIP runtime %d with MEC "+
			"firmware %d of GPU %s is older than %d with %d (%s): the library would refuse",
			envNoScratchReclaim, runtime, *d.FWVersion, d.PCIAddress, compat.ScratchRuntimeCode, least, d.GFXTarget)
	}
	return met(ScratchReclaim, "HIP runtime %d and MEC firmware %d of GPU %s are new enough to do without %s",
		runtime, *d.FWVersion, d.PCIAddress, envNoScratchReclaim)
}

// checkSharedGPU: each rank has a GPU of its own. Partitions of one GPU share its address, so that several ranks at one
// address are an error only where the kernel says how many devices it has.
func checkSharedGPU(f NodeFacts, ranks []RankFacts) Finding {
	on := map[string][]int{}
	var unknown *Finding
	for _, r := range ranks {
		pci := r.gpu()
		if pci == "" {
			x := found(SharedGPU, Unknown, r.Rank, "rank %d did not say which GPU it got", r.Rank)
			unknown = &x
			continue
		}
		on[pci] = append(on[pci], r.Rank)
		devices, isKnown := f.devicesAt(pci)
		switch n := len(on[pci]); {
		case n == 1 || isKnown && n <= devices:
		case !isKnown:
			x := found(SharedGPU, Unknown, r.Rank,
				"%s both got GPU %s, and how many devices the kernel has there is not known",
				rankList(on[pci][:2]), pci)
			unknown = &x
		case devices == 1:
			return found(SharedGPU, Failed, r.Rank, "%s both got GPU %s, expected %d different ones",
				rankList(on[pci]), pci, len(ranks))
		default:
			return found(SharedGPU, Failed, r.Rank, "%s all got GPU %s, which has %d partitions, expected one for each",
				rankList(on[pci]), pci, devices)
		}
	}
	if unknown != nil {
		return *unknown
	}
	return met(SharedGPU, "%d ranks are on %d GPUs", len(ranks), len(on))
}

// devicesAt is how many devices the kernel has at a PCI address: one, or the partitions of one GPU. isKnown is false
// where it shows none there, or has a device that it does not say the address of.
func (f NodeFacts) devicesAt(pci string) (count int, isKnown bool) {
	if slices.Contains(f.NVIDIAGPUs, pci) {
		return 1, true
	}
	if f.Discovered == nil {
		return 0, false
	}
	for i := range f.Discovered.Devices {
		if f.Discovered.Devices[i].PCIAddress == pci {
			count++
		}
	}
	return count, count > 0 && len(f.Discovered.UnreadableNodes) == 0
}

// rankList writes ranks as "rank 1" or "ranks 1, 2 and 5".
func rankList(n []int) string {
	var b strings.Builder
	b.WriteString("rank ")
	if len(n) > 1 {
		b.Reset()
		b.WriteString("ranks ")
	}
	for i, x := range n {
		switch {
		case i > 0 && i == len(n)-1:
			b.WriteString(" and ")
		case i > 0:
			b.WriteString(", ")
		}
		fmt.Fprint(&b, x)
	}
	return b.String()
}

func checkOneProcess(ranks []RankFacts, need Need) Finding {
	state, consequence := Warning, "RCCLX's DDA would abort"
	if need.rcclxDDA() {
		state, consequence = Failed, "DDA aborts"
	}
	of := map[int]int{}
	for _, r := range ranks {
		if r.ProcessID <= 0 {
			return found(OneProcessPerGPU, Unknown, r.Rank, "the process of rank %d is not known", r.Rank)
		}
		if other, taken := of[r.ProcessID]; taken {
			return found(OneProcessPerGPU, state, r.Rank,
				"ranks %d and %d are both in process %d, expected one for each: %s", other, r.Rank,
				r.ProcessID, consequence)
		}
		of[r.ProcessID] = r.Rank
	}
	return met(OneProcessPerGPU, "each of %d ranks is a process of its own", len(ranks))
}

func checkGPUOrder(f NodeFacts, ranks []RankFacts, need Need) Finding {
	if need.rcclxDDA() {
		for _, r := range ranks {
			if r.Device != r.Rank {
				return found(GPUOrder, Failed, r.Rank,
					"rank %d is on ordinal %d, expected %d: with DDA the library aborts the process",
					r.Rank, r.Device, r.Rank)
			}
		}
	}
	order := f.gpuAddresses(need)
	if len(order) == 0 {
		return found(GPUOrder, Unknown, -1,
			"the kernel's order of GPUs is not known, so it could not be compared with the runtime's")
	}
	byOrdinal := slices.SortedFunc(slices.Values(ranks), func(a, b RankFacts) int { return a.Device - b.Device })
	last := 0 // only the sequence is compared: the kernel may list GPUs that the runtime does not have
	for i, r := range byOrdinal {
		at := slices.Index(order, r.gpu())
		if at < 0 {
			return found(GPUOrder, Unknown, r.Rank,
				"the GPU of rank %d (%s) is not among those that the kernel lists (%s)", r.Rank, r.gpu(),
				strings.Join(order, " "))
		}
		if at < last {
			before := byOrdinal[i-1]
			return found(GPUOrder, Warning, r.Rank,
				"ordinal %d is GPU %s and ordinal %d is GPU %s, the kernel lists them the other way round: "+
					"this run names GPUs by address, but other programs may mean another GPU by an ordinal",
				before.Device, before.gpu(), r.Device, r.gpu())
		}
		last = at
	}
	return met(GPUOrder, "ordinals follow the kernel's order of GPUs")
}

// differ says whether two values that are both known are not the same.
func differ[T comparable](a, b T) bool {
	var unknown T
	return a != b && a != unknown && b != unknown
}

func checkSameLibrary(ranks []RankFacts) Finding {
	unread := -1
	for i, r := range ranks {
		if r.Library == nil {
			return found(SameLibrary, Unknown, r.Rank, "rank %d did not say what it loaded", r.Rank)
		}
		first, lib := ranks[0].Library, r.Library
		switch {
		case differ(lib.BuildHash, first.BuildHash) || differ(lib.VersionCode, first.VersionCode):
			return found(SameLibrary, Failed, r.Rank,
				"rank %d loaded %s (%s, build %s), rank %d loaded %s (%s, build %s), expected one library for all",
				r.Rank, lib.Path, lib.VersionString(), lib.BuildHash, ranks[0].Rank, first.Path,
				first.VersionString(), first.BuildHash)
		case differ(lib.RuntimeVersionCode, first.RuntimeVersionCode):
			return found(SameLibrary, Failed, r.Rank,
				"rank %d has GPU runtime %d, rank %d has %d, expected one for all", r.Rank, lib.RuntimeVersionCode,
				ranks[0].Rank, first.RuntimeVersionCode)
		case unread < 0 && (lib.BuildHash == "" || lib.VersionCode == 0 || lib.RuntimeVersionCode == 0):
			unread = i
		}
	}
	switch {
	case len(ranks) == 0:
		return found(SameLibrary, Unknown, -1, "no rank said what it loaded")
	case unread >= 0:
		lib := ranks[unread].Library
		return found(SameLibrary, Unknown, ranks[unread].Rank,
			"of rank %d's library the build (%q), the version (%d) or the GPU runtime (%d) is not known",
			ranks[unread].Rank, lib.BuildHash, lib.VersionCode, lib.RuntimeVersionCode)
	}
	lib := ranks[0].Library
	return met(SameLibrary, "all ranks loaded %s (%s, build %s)", lib.Path, lib.VersionString(), lib.BuildHash)
}

func checkSameSettings(ranks []RankFacts) Finding {
	for _, r := range ranks {
		if r.Library == nil || r.Library.SettingsHash == "" {
			return found(SameSettings, Unknown, r.Rank, "rank %d did not say which settings its library sees", r.Rank)
		}
		if first := ranks[0].Library; r.Library.SettingsHash != first.SettingsHash {
			return found(SameSettings, Failed, r.Rank,
				"the settings of rank %d (%s) differ from those of rank %d (%s), expected the same for all",
				r.Rank, r.Library.SettingsHash, ranks[0].Rank, first.SettingsHash)
		}
	}
	if len(ranks) == 0 {
		return found(SameSettings, Unknown, -1, "no rank said which settings its library sees")
	}
	return met(SameSettings, "all ranks see the settings %s", ranks[0].Library.SettingsHash)
}

func checkGPUMemory(ranks []RankFacts, need Need) Finding {
	least, of := int64(-1), -1
	for _, r := range ranks {
		if r.Library == nil || r.Library.TotalMemoryBytes <= 0 {
			return found(GPUMemory, Unknown, r.Rank, "rank %d did not say how much memory its GPU has", r.Rank)
		}
		if free := r.Library.FreeMemoryBytes; least < 0 || free < least {
			least, of = free, r.Rank
		}
		if free := r.Library.FreeMemoryBytes; free < need.MemoryBytes {
			return found(GPUMemory, Failed, r.Rank,
				"rank %d (GPU %s) has %d of %d bytes free, the run needs at least %d", r.Rank, r.gpu(), free,
				r.Library.TotalMemoryBytes, need.MemoryBytes)
		}
	}
	switch {
	case of < 0:
		return found(GPUMemory, Unknown, -1, "no rank said how much memory its GPU has")
	case least < need.MemoryBytes+libraryMemoryBytes:
		return found(GPUMemory, Warning, of, "rank %d has %d bytes free, and the run needs %d beside what the "+
			"library takes for a communicator, which may be about %d", of, least, need.MemoryBytes, libraryMemoryBytes)
	}
	return met(GPUMemory, "each GPU has at least %d bytes free (rank %d), the run needs %d",
		least, of, need.MemoryBytes)
}

// checkGPUBusy: KFD names the processes that held memory on the ranks' GPUs before the run; what the runtime says of
// free memory is all that there is elsewhere.
func checkGPUBusy(f NodeFacts, ranks []RankFacts) Finding {
	for _, look := range []func(NodeFacts, []RankFacts) *Finding{busyByKFD, busyByFirmware} {
		if busy := look(f, ranks); busy != nil {
			return *busy
		}
	}
	for _, r := range ranks {
		if r.Library == nil || r.Library.TotalMemoryBytes <= 0 {
			return found(GPUBusy, Unknown, r.Rank, "rank %d did not say how much memory of its GPU is free", r.Rank)
		}
		total, used := r.Library.TotalMemoryBytes, r.Library.TotalMemoryBytes-r.Library.FreeMemoryBytes
		if used > max(usedMemoryBytes, total/20) {
			return found(GPUBusy, Warning, r.Rank,
				"%d of %d bytes of GPU %s (rank %d) are taken before the run: something else seems to use it", used,
				total, r.gpu(), r.Rank)
		}
	}
	for _, p := range f.KFDProcesses {
		if p.Unread != "" {
			return found(GPUBusy, Unknown, -1,
				"what process %d (pid of the host) holds on the GPUs could not be read: %s", p.ProcessID, p.Unread)
		}
	}
	for _, r := range ranks {
		if _, isRead := f.BusyPercent[r.gpu()]; isRead || f.KFDProcesses != nil {
			continue
		}
		return found(GPUBusy, Unknown, -1, "hardly any memory of the GPUs is taken, but there is no list of "+
			"processes that would tell whether one computes")
	}
	if f.KFDProcesses == nil {
		return met(GPUBusy, "hardly any memory of the GPUs is taken, and the firmware says that they are idle")
	}
	return met(GPUBusy, "no other process held memory or queues on the GPUs")
}

// busyByFirmware is a GPU that is at work, by whomever: work that does not go through KFD, and a process that the list
// does not show.
func busyByFirmware(f NodeFacts, ranks []RankFacts) *Finding {
	for _, r := range ranks {
		if percent := f.BusyPercent[r.gpu()]; percent >= busyPercentLeast {
			b := found(GPUBusy, Warning, r.Rank, "GPU %s (rank %d) was %d %% busy before the run, expected under %d %%",
				r.gpu(), r.Rank, percent, busyPercentLeast)
			return &b
		}
	}
	return nil
}

// busyByKFD is an error only where the rank's GPU is one device: KFD counts the partitions of one GPU apart, but a rank
// says no more than their common address, and ranks that are not on the busy one are slowed at most.
func busyByKFD(f NodeFacts, ranks []RankFacts) *Finding {
	if f.Discovered == nil {
		return nil
	}
	deviceOf, ranksAt := map[uint64]discover.Device{}, map[string][]int{}
	for _, r := range ranks {
		ranksAt[r.gpu()] = append(ranksAt[r.gpu()], r.Rank)
	}
	for _, d := range f.Discovered.Devices {
		if d.GPUID != nil && len(ranksAt[d.PCIAddress]) > 0 {
			deviceOf[*d.GPUID] = d
		}
	}
	var warning *Finding
	for _, p := range f.KFDProcesses {
		for _, id := range slices.Sorted(maps.Keys(deviceOf)) {
			d := deviceOf[id]
			at := ranksAt[d.PCIAddress]
			who := fmt.Sprintf("process %d (pid of the host)", p.ProcessID)
			does, seen, computes := p.doesOn(id, f.BusyPercent[d.PCIAddress])
			if does == "" {
				continue
			}
			where := fmt.Sprintf("GPU %s (%s)", d.PCIAddress, rankList(at))
			if f.isPartitioned(d) {
				where = fmt.Sprintf("partition %d of GPU %s, on whose partitions %s may be",
					d.Partition, d.PCIAddress, rankList(at))
				computes = false
			}
			b := found(GPUBusy, Warning, at[0], "%s %s %s%s", who, does, where, seen)
			if computes {
				b.State = Failed
				return &b
			}
			if warning == nil {
				warning = &b
			}
		}
	}
	return warning
}

// doesOn says what a process does on a GPU, "computes on", and by what that is seen; empty for nothing. percent is how
// busy the firmware says that the GPU is: a process may compute with little memory, and between two kernels it uses no
// compute unit.
func (p KFDProcess) doesOn(gpu, percent uint64) (does, seen string, computes bool) {
	units, bytes, queues := p.BusyComputeUnits[gpu], p.MemoryBytes[gpu], p.Queues[gpu]
	switch {
	case units > 0:
		return "computes on", fmt.Sprintf(", with %d compute units in use", units), true
	case queues > 0 && percent >= busyPercentLeast:
		return "computes on", fmt.Sprintf(", which is %d %% busy and has %d of its queues", percent, queues), true
	case bytes >= busyMemoryBytes:
		return fmt.Sprintf("holds %d bytes of", bytes), "", false
	case queues > 0:
		return "can compute on", fmt.Sprintf(", which has %d of its queues", queues), false
	}
	return "", "", false
}

// isPartitioned says whether a device is one of several of its GPU, shown to this container or not.
func (f NodeFacts) isPartitioned(d discover.Device) bool {
	if n, isKnown := f.devicesAt(d.PCIAddress); n > 1 || !isKnown {
		return true
	}
	return slices.ContainsFunc(f.Discovered.GPUs, func(g discover.GPU) bool {
		return g.PCIAddress == d.PCIAddress && g.ExpectedPartitions > 1
	})
}
