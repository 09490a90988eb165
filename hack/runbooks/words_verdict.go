package main

// wordsVerdict are of the condition Validated and of nodes, where ranks ran.
var wordsVerdict = map[string]more{
	"AllPassed": {Plain: true,
		Means: "Each member, and with `span: Group` the group over them, formed its communicators, gave right " +
			"results, and met every threshold and reference that applies. Where the speed over several nodes was not " +
			"judged, the message says so."},
	"ResultsStale": {Plain: true,
		Means: "The nodes that the message names were rebooted or changed after they were measured, " +
			"so their results say nothing of them as they are. Which change it was, stands behind the name: " +
			"[NodeRebooted](NodeRebooted.md), [DriverChanged](DriverChanged.md), [ROCmChanged](ROCmChanged.md), " +
			"[Repartitioned](Repartitioned.md), [FirmwareChanged](FirmwareChanged.md), [GPUsChanged](GPUsChanged.md).",
		Ends: "With the run of just these nodes, which starts by itself; Running says what it waits for. " +
			"After three bad results in a row on such a node a person has to ask."},
	"Inconclusive": {
		Seen: []string{
			"node gpu-3: AllGather BFloat16: 2 of 10 sizes were not measured, 0 not checked",
			"AllReduce BFloat16 1073741824 B over 16 nodes reaches 41.2 GB/s, 38 % of its slowest pair (108.4 GB/s); " +
				"at least 50 % is expected.",
			"The search did not name a culprit (NotFound, 12 tests in 3 rounds of 95 s): None of the smaller " +
				"communicators was good."},
		Means: "Something was measured and it is not enough to say Pass or Fail. It gates nobody and lifts nothing. " +
			"Which of the three kinds it is, decides what to do: missing measurements, nothing to judge by, " +
			"or a fault without a name.",
		Causes: []string{"Missing: a size that is too small for the number of ranks, " +
			"a report that was cut, an agent of another version than the manager.",
			"Nothing to judge by: an enforced threshold names a size, datatype or placement that was not measured.",
			"No name: the fault comes and goes, shows at full size only, " +
				"or is shared by all (settings, switch, driver).",
			"`network.requireTransport: RDMA`, and the library's log does not say what carried the data."},
		Look: []string{
			status + "                    # the message, and the tests of the search",
			"kubectl get cgr -n NAMESPACE RUN -o jsonpath='{.status.checks}'     # NotMeasured: which threshold " +
				"found nothing, and why",
			localized + "   # state, rounds, message"},
		Do: []string{"Missing sizes: raise `benchmark.maxSizeBytes` or `benchmark.minSizeBytes`. Nothing to " +
			"judge by: a threshold with `span: Group` for this many nodes ([thresholds](../../thresholds.md)).",
			"No name: run again first; if it stays, read [what NotFound means](../../localization.md#at-3-am)."},
		Escalate: "The network team with the list of tests, where every small communicator is good and the whole is " +
			"bad: spine, adaptive routing, congestion control.",
		Ends: "With a run that can be judged."},
	"SlowLink": {
		Seen: []string{"moves 21.3 GB/s each way at 64 MiB, 44 % of the node's median pair of 48.1 GB/s, expected at " +
			"least 80 %; check the xGMI error counters of both GPUs and reseat or replace the faulty one"},
		Means: "Two GPUs of one node exchange data far slower than all other pairs there, measured one pair at a " +
			"time. Each of the two is fine with others, so it is what is between them. A ring over all GPUs is as " +
			"slow as this link: the whole node is.",
		Causes: []string{"The link runs with retries (bit errors): correctable xGMI errors rise on both sides.",
			"It trained with fewer lanes or a lower rate at the last boot.", "The pair goes over PCIe or two hops, " +
				"and the driver does not show it: well below half of the others, and the same figure in each run.",
			"Dust or a module that is not fully seated, after work on the server."},
		Look: []string{topology + "                                # the cell with ! is the pair; last line: " +
			"the node's median and slowest pair", problems + "   # XGMICorrectableErrors, LinkBandwidth, XGMIPortDown"},
		OnNode: []string{"for i in 1 2; do cat /sys/bus/pci/devices/GPU/ras/xgmi_wafl_err_count; " +
			"sleep 60; done   # of both GPUs: ce rises",
			"amd-smi xgmi                                             # link status and traffic",
			kernelXGMI + "                             # PCS errors: BERExceeded, CRC"},
		Do: []string{"`kubectl cordon NODE`, drain, power off for a minute, on again, uncordon only after a Pass: " +
			"`kubectl commgroup run GROUP -n NAMESPACE --wait`.",
			"Until a spare is there: jobs of four GPUs that do not hold both ends run at full speed."},
		Escalate: "The server's vendor, if the same pair is slow after one cold start and one reseating: " +
			"give both addresses and the counters. One end shared with a second slow pair: RMA of that GPU; " +
			"always this pair alone: baseboard.",
		Ends: "When a run of the node passes."},
	"SlowGPU": {
		Seen: []string{"6 of its 7 links are slow: the slowest, 0000:65:00.0<->0000:d5:00.0, moves 19.8 GB/s, " +
			"41 % of the node's median of 48.1 GB/s, expected at least 80 %; drain the node and check clocks, " +
			"power cap and RAS counters of this GPU"},
		Means: "Most pairs of one GPU are slow and the others of the node are not: it is this GPU, not its links. " +
			"In jobs its rank is the one that all others wait for.",
		Causes: []string{"It is throttled: heat (a fan, a cold plate, paste) or a power cap on this GPU alone.",
			"Its clocks are pinned low: performance level `low` or `manual`, left over from a test.",
			"Correctable memory errors or xGMI retries on all its links.",
			"It runs other firmware than its neighbours.", "A process is still on it."},
		Look: []string{culprits + "   # how many of its links, and the slowest with its figure",
			problems + "   # Throttled, CorrectableErrors, MixedFirmware", nodeRun + "   # preconditions: GPUBusy"},
		OnNode: []string{"amd-smi metric --power --clock --temperature             # during a run: compare the slow " +
			"one with the others", "amd-smi static --limit                                   # a power cap of its own",
			"rocm-smi --showperflevel                                 # auto is right", "amd-smi monitor " +
				"--power-usage --temperature --violation   # which limit holds it back, in percent of the time",
			"amd-smi process                                          # who is on it", "amd-smi firmware"},
		Do: []string{"A cap or level: `amd-smi reset --clocks --gpu ID` and `rocm-smi --setperflevel auto`, " +
			"then run again.", "Only one GPU of the rack is hot: fan or cold plate. All of them: inlet air."},
		Escalate: "Data centre staff for cooling and power. RMA of the GPU, where it stays slow with the same " +
			"clocks, temperature and firmware as its neighbours after a cold start.",
		Ends: "When a run of the node passes."},
	"SlowNode": {
		Seen: []string{
			"Baseline AllReduce BFloat16 at 1 GiB: node gpu-3 reaches 214.0 GB/s, 68 % of the members' median of " +
				"314.2 GB/s; at least 80 % is expected. Compare its clocks, power cap and links with a good node's.",
			"AllReduce BFloat16 1073741824 B is far slower in each communicator with gpu-3, and those without are " +
				"good (9 tests in 3 rounds of 71 s); alone the node is fine. Measured 61.0 GB/s, expected at least " +
				"156.1 GB/s, which is 80 % of the 195.1 GB/s that good ones reach: 31 %. Look at what it shares for " +
				"the way out: NICs, cables, switch port, routes, firewall."},
		Means: "Two findings share the word, and the message tells which: slow alone, against the median of its " +
			"peers (node verdict Fail), or fine alone and slow in every communicator with others (named by the " +
			"group's stage). The first is inside the box, the second is its way out.",
		Causes: []string{"Alone: kernel.numa_balancing on (up to half), power profile of the BIOS, " +
			"an IOMMU that translates (no `iommu=pt`), a tenant on the CPUs.",
			"Alone: another driver, firmware or library than its peers.",
			"Alone: all GPUs throttled by heat or a server-wide power cap.",
			"With others: NICs at half rate or width, one of several NICs down, TCP instead of RDMA.",
			"With others: a cable or switch port with errors, a missing PFC or ECN setting on its port."},
		Look: []string{
			status + "                    # which of the two: members, then the group's stage",
			results + "   # the members' median by size; --node NODE beside it",
			nodeRun + "   # preconditions that are not met, by name",
			network + "   # its NICs and transport",
			inventory + "   # is it the odd one of a version?"},
		OnNode: []string{"sysctl kernel.numa_balancing; cat /sys/kernel/iommu_groups/*/type | sort | uniq -c",
			"cpupower frequency-info | grep governor; uptime           # powersave, or load while idle",
			"amd-smi metric --power --clock --temperature",
			"rdma link; ibstat | grep -E 'State|Rate'                  # Down, or half the rate of its neighbours",
			"ethtool -S IFACE | grep -iE 'err|drop|discard|pause'"},
		Do: []string{"Compare with a good node line by line: the first difference is mostly the cause. " +
			"[Preconditions](../../preconditions.md) has the settings.", "Fine alone: swap cable and switch port " +
			"with a good node's before you touch the server; what moves along is at fault."},
		Escalate: "Alone: platform team for BIOS and kernel. With others: the network team with port and counters; " +
			"RMA of the NIC, where rate or width stays low after reseating.",
		Ends: "When a run of the node passes, and with span Group the stage with it."},
	"BelowThreshold": {
		Seen: []string{
			"node gpu-3: Baseline AllReduce BFloat16 in place at 8 GiB: measured 271.4 GB/s, expected at least 304.0 " +
				"GB/s (amd-acceptance-mi300x): 89 %; look at: kernel.numa_balancing is on, which takes up to half of " +
				"the bandwidth (ROCm/rccl#1562): set it to 0",
			"under FP8's fixed least size of 16777216 bytes (16 MiB)"},
		Means: "As a verdict: a measurement of exactly the kind of a mark stays below it, in the median of all " +
			"repeats. As a setting's reason it is no fault at all: all measured sizes are below the least size at " +
			"which FP8 acts.",
		Causes: []string{"What the message names after `look at`: seen on this node, the likeliest first.",
			"The mark is not of this kind: the average over sizes, another placement, " +
				"more ranks or another partition mode than it was made for.",
			"`runtime.env` limits the library (`NCCL_MAX_NCHANNELS`, `NCCL_P2P_DISABLE`, `NCCL_ALGO`).",
			"Something else used GPUs or links: repeats far apart.",
			"All nodes at once: an update of library, driver or firmware."},
		Look: []string{
			"kubectl get cgr -n NAMESPACE RUN -o jsonpath='{.status.checks}'     # measured, expected, " +
				"percent, causes, node",
			results + "   # the members' median by size: do all stay below?",
			nodeRes + "   # flat from small sizes on: a fixed limit. Only the largest: power, heat",
			status + "                    # Last runs: was it better, and when"},
		OnNode: []string{"amd-smi metric --power --clock --temperature             # while `kubectl commgroup " +
			"run` measures", "sysctl kernel.numa_balancing; cat /proc/cmdline"},
		Do: []string{"Hold the figure against [normal " +
			"numbers](../../normal-numbers.md) of the model before you touch hardware.",
			"A mark that is not yours to meet: `benchmark.references: Report` judges by it no more."},
		Escalate: "The vendor only with a measurement of exactly their kind (collective, size, in place, ranks, " +
			"SPX) on a node whose preconditions are all met; else they send you back to those.",
		Ends: "When a run meets it, or the threshold is changed (which starts a run)."},
	"Regression": {
		Seen: []string{
			"Node gpu-3 lost bandwidth, and 1 of 16 members did: Baseline AllReduce BFloat16, slowest member at 1 " +
				"GiB: measured 251.0 GB/s, the baseline of 7 runs is 312.4 GB/s: 80 %, at least 95 % is expected, " +
				"by the slowest member then. Look at what changed on it since.",
			"The group lost bandwidth as a whole, and no single member stands out: Baseline AllReduce BFloat16 at " +
				"1 GiB: measured 281.0 GB/s, the baseline of 7 runs is 312.4 GB/s: 89 %, at least 95 % is expected. " +
				"Look at what all share: power, cooling, firmware, switches, other jobs."},
		Means: "The same nodes with the same ROCm, library, model, partition and ranks were faster in earlier runs. " +
			"The group's own past is the mark, so no argument about references helps: something changed.",
		Causes: []string{"One node: a link, a GPU or a NIC that wears out, a heat problem, a setting that a reboot " +
			"took back (`numa_balancing`).", "All: settings rolled out, firmware, a switch upgrade, `runtime.env`.",
			"All: a neighbour that shares the network or the power budget at this hour.",
			"The baseline was made on a lucky day: few runs, far apart."},
		Look: []string{
			status + "                    # Last runs: the one where it dropped",
			"kubectl commgroup compare GROUP/previous GROUP/latest -n NAMESPACE  # what differs between them: " +
				"nodes, versions, sizes",
			"kubectl get cgr -n NAMESPACE RUN -o jsonpath='{.status.baseline}'   # its runs and samples",
			problems + "   # what the monitor saw on the node since"},
		OnNode: []string{"last reboot | head -3; journalctl --list-boots | tail -3     # did it reboot " +
			"between the runs?", "grep -E ' (install|upgrade) ' /var/log/dpkg.log | tail -20   # what was updated"},
		Do: []string{"A change that was meant (a power cap, an upgrade): take the new figure as normal by the " +
			"annotation that the message spells out."},
		Escalate: "The owner of the change, once you have found it; the network team, where all nodes lost over " +
			"several nodes only.",
		Ends: "When a run is within `benchmark.regression.maxDropPercent` again, or a new baseline begins."},
	"RankHung": {
		Seen: []string{
			"node gpu-3: Baseline: rank 3 (GPU 0000:65:00.0) missed the deadline of 60s for AllReduce BFloat16 65536 " +
				"B; rank 3 in step AllReduce BFloat16 65536 B, ranks 0-2,4-7 after step AllReduce BFloat16 65536 B",
			"node gpu-3: Baseline: all 8 ranks missed the deadline of 120s for init; ranks 0-7 joining the " +
				"communicator (ncclCommInitRank)"},
		Means: "A rank did not come back from a call in time; the agent killed them all, so that no GPU stays held. " +
			"With one rank named, it or its GPU stands still. With all ranks alike, they wait for each other or the " +
			"step is too long.",
		Causes: []string{"One rank: its GPU hung (ring time-out in the kernel log), " +
			"or a link of it lost a packet for good.", "All at `init`: ranks cannot meet: " +
			"interface, `/dev/shm`, or an IOMMU that translates (no `iommu=pt`; peer access hangs).",
			"All in a collective: settings that differ between ranks, or a library fault at this size.",
			"Not a hang: a huge size on a slow node within too short a `run.stepDeadlineSeconds`."},
		Look: []string{
			nodeRun + "   # step, rasVerdict (who launched fewer operations), logTail",
			culprits + "   # what the search with smaller groups of GPUs found",
			problems,
			runLogs},
		OnNode: []string{"dmesg -T | grep -iE 'ring .* timeout|GPU reset|hung task|Failed " +
			"to evict'   # the GPU by its address", "ps -eo pid,stat,wchan:30,cmd | grep ' " +
			"D'                 # a process in D: only a reset of the GPU or a reboot helps",
			"cat /sys/kernel/iommu_groups/*/type | sort | uniq -c     # identity, or no group at all",
			"amd-smi process                                          # a rank that did not die"},
		Do: []string{"A GPU named: `kubectl cordon NODE`, drain, reboot, run again. It passes: leave it in and " +
			"watch. It hangs again: out.", "No GPU named: once with `run.stepDeadlineSeconds` tripled, once with " +
			"`benchmark.maxSizeBytes` quartered; both hang: the library or driver, so try the image of before."},
		Escalate: "RMA, where the same GPU hangs after a cold start and the kernel log has its ring time-out. " +
			"The library's authors with `rasVerdict` and log, where all ranks hang on every node.",
		Ends: "When a run of the node passes."},
	"WrongData": {
		Seen: []string{
			"node gpu-3: Baseline AllReduce BFloat16 1048576 B gave 512 wrong elements over all ranks, " +
				"expected none; do not run jobs on this node",
			"node gpu-3: FP8 AllReduce BFloat16 67108864 B differs from the fp32 reference by 14.20 %, " +
				"expected at most 12.50 %; raise lowPrecision.maxRelativeErrorPPM if your model bears it, " +
				"else leave the collective out of lowPrecision.collectives"},
		Means: "A collective ended without an error and gave other numbers than the reference. Jobs on this node " +
			"compute wrong gradients and nobody notices. The second form is FP8's rounding against your own limit: " +
			"no hardware fault.",
		Causes: []string{"Memory of one GPU flips bits; often, not always, with uncorrectable errors.",
			"A link corrupts data past its CRC.",
			"The library: a path (DDA, FP8, an algorithm) that is wrong at this size: then every node is named.",
			"FP8 with `lowPrecision.maxRelativeErrorPPM` tighter than FP8 can be."},
		Look: []string{
			status + "                    # one node: hardware. All nodes: library or setting",
			culprits + "   # the GPU or link that the search left over",
			nodeRes + "   # only DDA or LowPrecision wrong, and Baseline right: the setting",
			problems + "   # UncorrectableErrors, RetiredPages"},
		OnNode: []string{"amd-smi metric --ecc-blocks; amd-smi bad-pages",
			"dmesg -T | grep -iE 'poison|uncorrectable|hardware errors'"},
		Do: []string{"At once: `kubectl cordon NODE`, and tell the owners of jobs that ran there since " +
			"the last Pass (`kubectl commgroup status GROUP -n NAMESPACE`, Last runs, has its time).",
			"Run with `benchmark.variants: [Baseline]`: right again means a setting, still wrong means hardware."},
		Escalate: "RMA of the GPU that the search named, also without any error counter: silent corruption is reason " +
			"enough. Never back into service after a reboot alone. All nodes: the library's authors, with variant, " +
			"size and datatype.",
		Ends: "When several runs in a row pass."},
	"RankDied": {
		Seen: []string{"node gpu-3: Baseline: rank 3 (GPU 0000:65:00.0) was killed by signal 9 (killed) while in " +
			"step AllReduce BFloat16 65536 B; it was not the agent that killed it: look for the kernel's OOM killer " +
			"in dmesg and raise the pod's memory limit"},
		Means: "The process of one rank ended by itself. The signal tells nearly all: 9 comes from outside, " +
			"7 from shared memory, 6 and 11 from library or driver.",
		Causes: []string{"SIGKILL (9): memory limit of the pod or the node; no GPU is to blame.",
			"SIGBUS (7): `/dev/shm` too small.", "SIGSEGV (11), SIGABRT (6): library and driver that do not fit, DDA " +
				"with hidden GPUs, or a GPU that took a memory fault.", "An exit code with words: read the log tail.",
			"One GPU of many nodes' ranks, always the same one: poison was consumed there."},
		Look: []string{
			logTail + "   # the last KiB of what the rank wrote",
			nodeRun + "   # preconditions: SharedMemory, HiddenGPUs, ROCmVersion",
			podEvents + "   # OOMKilling",
			runLogs},
		OnNode: []string{"dmesg -T | grep -iE 'out of memory|segfault|poison|page fault'   # page fault with the " +
			"GPU's address: driver or GPU", "df -h /dev/shm"},
		Do: []string{"Memory: drop the limit in `runtime.pod.resources`. Shared memory: `runtime.pod.shmSizeMiB`.",
			"SIGSEGV on every node: the image of before; on one node alone: its driver against the others' " +
				"first, then its GPU."},
		Escalate: "RMA where the kernel says `poison is consumed` for that GPU again after a reset. " +
			"Library's authors for a crash on all nodes, with the log tail.",
		Ends: "When a run of the node passes."},
	"InitFailed": {
		Seen: []string{
			"node gpu-3: Baseline: rank 3 (GPU 0000:65:00.0) failed at init: InitFailed: ncclCommInitRank failed " +
				"with code 2: unhandled system error",
		},
		Means: "The library returned an error before any communicator was there. It is configuration more often than " +
			"hardware: all ranks see it, with the same words.",
		Causes: []string{"ncclSystemError (2): firmware that needs `HSA_NO_SCRATCH_RECLAIM=1`, no usable interface, " +
			"`/dev/shm`.", "ncclInvalidUsage (5): two ranks on one GPU, or `*_VISIBLE_DEVICES` in `runtime.env`.",
			"ncclUnhandledCudaError (1): the HIP runtime cannot use the GPU: driver, image, or a GPU in trouble.",
			"ncclRemoteError (6): another rank failed first; look for the one with other words.",
			"Across nodes: ports, firewall or NetworkPolicy between the pods."},
		Look: []string{nodeRun + "   # message, preconditions not met, logTail", runLogs,
			"kubectl get cg -n NAMESPACE GROUP -o jsonpath='{.spec.runtime.env}'", "kubectl get networkpolicies -n " +
				"NAMESPACE                            # pods of a run must reach each other on all TCP ports"},
		OnNode: []string{"amd-smi firmware | grep -i mec                           # below 177 on MI300, 24 on MI350",
			"dmesg -T | grep -i amdgpu | tail -20"},
		Do: []string{"`runtime.env: [{name: NCCL_DEBUG, value: INFO}]`, run again: the line before the " +
			"error names file, call and interface. `HSA_NO_SCRATCH_RECLAIM=1` is set by the operator; " +
			"a job without it fails alone."},
		Escalate: "The image's owner, where all nodes fail alike. One node alone with code 1: as a GPU fault, " +
			"after a reboot did not help.",
		Ends: "With a run whose communicators form."},
	"CollectiveFailed": {
		Seen: []string{"node gpu-3: Baseline: rank 3 (GPU 0000:65:00.0) failed at AllReduce BFloat16 65536 B: " +
			"CollectiveFailed: node gpu-3 rank 3 at AllReduce BFloat16 65536 B: ncclAllReduce failed with code 1: " +
			"unhandled cuda error"},
		Means: "The communicator was there and worked, and a call then gave an error. Over several nodes the first " +
			"one to fail counts; the others only report that a peer went away.",
		Causes: []string{"Code 1: the GPU reported a fault (memory access, ECC) to HIP.",
			"Code 2 or 6 over several nodes: a connection broke: link flap, RDMA retries used up, a peer that died.",
			"Code 3 (internal error) at one size only: the library.",
			"Out of memory in the middle: something else took it."},
		Look: []string{nodeRun, logTail + "   # 'NET/IB : Got completion with error 12': retries used up",
			tests + "   # across nodes: which test, which members", problems},
		OnNode: []string{"dmesg -T | grep -iE 'page fault|uncorrectable|GPU reset|link (down|up)'", "ethtool " +
			"-S IFACE | grep -iE 'link_down|err|discard|out_of_seq|timeout'   # counters that rise with each run",
			"rdma statistic show link DEV/1 2>/dev/null | tr ',' '\\n' | grep -iE 'retry|rnr|timeout'"},
		Do: []string{"Across nodes: look at switch port and cable of the node that reported first. Within a node: " +
			"as for [RankHung](RankHung.md), by the GPU's address."},
		Escalate: "The network team with port, time and retry counters; RMA of the GPU for uncorrectable errors that " +
			"come again; library's authors for code 3 at one size on every node.",
		Ends: "When a run of the node, and of the group, passes."},
	"LibraryMissing": {
		Seen: []string{"cannot load librccl.so.1: libamdhip64.so.7: cannot open shared object file: " +
			"No such file or directory; put it in the image's library path or set spec.runtime.libraryPath; " +
			"all 8 ranks load it by the same path, so no GPU is to blame"},
		Means: "The loader found no such file in the image; the name in the middle may be another library that the " +
			"first one needs. No GPU was touched.",
		Causes: []string{"`runtime.libraryPath` is a path of the build machine, or of another image version.",
			"The image has the library and not the ROCm that it was built for (`libamdhip64.so.6` against `.so.7`).",
			"A slim image without ROCm: only the agent's side is there."},
		Look: []string{
			"kubectl get cg -n NAMESPACE GROUP -o jsonpath='{.spec.runtime.libraryPath} {.spec.runtime.image}'",
			"kubectl run look -n NAMESPACE --rm -it --restart=Never --image=IMAGE -- sh -c 'find / -name " +
				"\"librccl.so*\" -o -name \"libamdhip64.so*\" 2>/dev/null'   # where it is, and which HIP",
			"kubectl run look -n NAMESPACE --rm -it --restart=Never --image=IMAGE -- ldd " +
				"/opt/rocm/lib/librccl.so.1   # not found: what is missing"},
		Do: []string{"Leave `runtime.libraryPath` out where the library is on the loader's path (`/opt/rocm/lib` in " +
			"`ld.so.conf.d`)."},
		Escalate: "The image's owner.",
		Ends:     "With a run that loads it."},
	"LibraryTooOld": {
		Seen: []string{"/opt/rocm/lib/librccl.so.1 is version 2.11.4; version 2.13.0 or later is needed; " +
			"use a newer runtime image; all 8 ranks load it by the same path, so no GPU is to blame"},
		Means: "It was loaded, and lacks functions of the API that a run calls. That is a matter of the image alone.",
		Causes: []string{"ROCm 5 or older in the image.", "An old copy in the image comes before the new one on the " +
			"search path (PyTorch wheels bring a librccl of their own)."},
		Look: []string{
			"kubectl get commtask -n NAMESPACE GROUP.NODE -o jsonpath='{.status.run.library}'   # path and " +
				"version that won",
			"kubectl get cg -n NAMESPACE GROUP -o jsonpath='{.spec.runtime.image} {.spec.runtime.libraryPath} " +
				"{.spec.runtime.env}'"},
		Do:       []string{"Name the right file in `runtime.libraryPath`, and give jobs the same one."},
		Escalate: "The image's owner; jobs in this image use the old library, too.",
		Ends:     "With a run in which the newer one is loaded."},
	"SymbolMissing": {
		Seen: []string{"/opt/lib/librccl.so.1 has no symbol ncclAllToAll, which AllToAll needs: leave AllToAll out, " +
			"or use a complete build of the library; all 8 ranks load it by the same path, so no GPU is to blame"},
		Means: "The file is a communication library, and the function is not in it. With a collective's name in the " +
			"message, only that collective is impossible; without, it is no complete RCCL or NCCL.",
		Causes: []string{"`ncclAllToAll` and its like came late and not in each fork: the build has none.",
			"A stripped or partial build (`-fvisibility`, a plugin named librccl.so).",
			"`runtime.libraryPath` names a net plugin, or NVIDIA's file."},
		Look: []string{
			"kubectl run look -n NAMESPACE --rm -it --restart=Never --image=IMAGE -- sh -c 'nm -D --defined-only " +
				"LIBRARY | grep -c \" T nccl\"'   # some dozens are normal",
			"kubectl get cg -n NAMESPACE GROUP -o jsonpath='{.spec.benchmark.collectives} " +
				"{.spec.runtime.libraryPath}'"},
		Do:       []string{"Take the collective out of `benchmark.collectives`, if no job uses it."},
		Escalate: "Whoever builds the library.",
		Ends:     "With a run that finds all that it calls."},
	"PreconditionFailed": {
		Seen: []string{
			"SharedMemory: node gpu-3: /dev/shm is full: 262144 bytes are free, expected 524288 for 8 ranks",
			"HiddenGPUs: node gpu-3: HIP_VISIBLE_DEVICES=0,1,2,3 leaves a rank 4 GPUs, 8 ranks need to see that many",
			"No ranks were started on node gpu-3 since its facts show PCIeInsteadOfXGMI " +
				"(0000:65:00.0<->0000:d5:00.0): This pair reaches each other only over PCIe; expected xGMI within a " +
				"hive of 8. The link is down: look for XGMI in the kernel log; power-cycle the node."},
		Means: "It was seen before the library could fail, hang or measure something else by it, " +
			"so nothing was measured. The first word is the precondition's name, or the code of a node's problem; " +
			"each has its own lines in the two pages below.",
		Causes: []string{"A variable in `runtime.env` hides GPUs, changes their order, " +
			"or names no interface (HiddenGPUs, GPUOrder, AddressFamily).",
			"The pod: too little `/dev/shm`, a runtime image too old for the GPUs (SharedMemory, ROCmVersion).",
			"Another process computes on the GPUs, or another run holds them (GPUBusy).",
			"The firmware needs `HSA_NO_SCRATCH_RECLAIM=1` and a variable of yours took it away (ScratchReclaim).",
			"The monitor sees a broken GPU or link: mend that."},
		Look: []string{
			"kubectl get commtask -n NAMESPACE GROUP.NODE -o jsonpath='{.status.run.preconditions}'   # all that " +
				"were not met, not only the first",
			"kubectl get cg -n NAMESPACE GROUP -o jsonpath='{.spec.runtime.env} {.spec.runtime.pod}'",
			problems},
		OnNode: []string{"amd-smi process                                          # GPUBusy: which process",
			"df -h /dev/shm"},
		Do: []string{"All nodes name the same one: it is the spec. One node: its host. " +
			"[Problem codes](../../discovery.md#problem-codes) has the second kind."},
		Escalate: "The owner of the foreign process for GPUBusy; for a node's problem as its own page says " +
			"([TopologyFault](TopologyFault.md), [HealthDegraded](HealthDegraded.md)).",
		Ends: "With a new run in which it holds."},
	"InsufficientMemory": {
		Seen: []string{"GPUMemory: node gpu-3: rank 3 (GPU 0000:65:00.0) has 1073741824 of 206141652992 bytes free, " +
			"the run needs at least 5033164800"},
		Means: "Looked at before anything was allocated. If most of the memory is taken on one GPU, somebody is on " +
			"it; if all have little to spare, the run asks for much.",
		Causes: []string{"A process of a job that ended badly still holds the GPU, outside of Kubernetes' sight.",
			"Another pod shares the GPU (time slicing, a privileged container).",
			"FP8: its pool takes 2.25 GiB a rank and more in larger communicators.",
			"Partitions: CPX leaves an eighth of the memory to each."},
		Look: []string{nodeRun + "   # which rank and GPU; GPUBusy beside it", holders,
			"kubectl get cg -n NAMESPACE GROUP -o jsonpath='{.spec.benchmark.maxSizeBytes} {.spec.lowPrecision.mode}'"},
		OnNode: []string{"amd-smi metric --mem-usage                               # per GPU",
			"amd-smi process                                          # pid and memory; a dead job's pid is not in ps",
			"ls /sys/class/kfd/kfd/proc                               # pids that KFD still knows"},
		Do: []string{"A left-over process: end it by its pid; if it does not go, drain the node and reset the GPU.",
			"All GPUs: halve `benchmark.maxSizeBytes`."},
		Escalate: "The job's owner for a left-over process that comes again.",
		Ends:     "With a run that finds the memory free."},
	"RequirementNotMet": {
		Seen: []string{
			"node gpu-3: dda.AllReduce is NotInEffect (RankCount), NotConfirmed: DDA needs exactly 8 ranks; " +
				"this communicator has 4",
			"dda.mode is Required, but no collective that was measured has the setting"},
		Means: "You asked for a setting as a must, and this library with these ranks, sizes and datatypes " +
			"does not have it in effect, or the A/B run does not show it. The node's hardware is fine, " +
			"and nothing is published.",
		Causes: []string{"The gate that the message names in brackets: each has a page ([RankCount](RankCount.md), " +
			"[NotBuilt](NotBuilt.md), [BelowThreshold](BelowThreshold.md) and so on).",
			"In effect and `NotConfirmed`: it acts, and makes no difference at the measured sizes.",
			"The collective it acts on is not in `benchmark.collectives`."},
		Look: []string{
			explain + "   # gate, library build, nodes that differ, next step",
			results + "   # Baseline beside the variant"},
		Do:       []string{"`Preferred` keeps the wish and drops the must; `Disabled` saves the time of measuring it."},
		Escalate: "The library's builder for NotBuilt; nobody else.",
		Ends:     "With a run in which it is in effect and confirmed, or with another mode."},
}
