package main

// wordsCompatible are of the condition Compatible: versions, and what a monitor finds on its node.
var wordsCompatible = map[string]more{
	"AllCompatible": {Plain: true, Means: "The facts of all members are known and agree where they must: " +
		"ROCm, driver, GPU model, partition mode and number of devices. Remarks behind it (labels, driver window, " +
		"firmware) change nothing in the verdict, but each has a page here."},
	"MixedROCmVersions": {
		Seen: []string{
			"Mixed ROCm version: 7.0.2 on 14 nodes, but 6.4.3 on gpu-3, gpu-9. Bring the odd nodes to the same ROCm, " +
				"or make a group of their own for them.",
			"Mixed ROCm version in the run's container: 7.0.2 on 15 nodes, but 6.4.3 on gpu-9. Use one runtime image " +
				"by digest: the tag was resolved differently."},
		Means: "Two sides are compared, each by itself: the hosts' `/opt`, and the containers that the ranks ran in. " +
			"The container is what jobs use; a host without ROCm is normal and is not compared.",
		Causes: []string{"Container: a tag such as `latest` was pulled at different times, " +
			"or a node kept an old image (`imagePullPolicy: IfNotPresent`).",
			"Host: a rolling update stopped half way, or a node was re-imaged.",
			"Host: two installs and no `/opt/rocm` link, so that another one was found (`ROCmAmbiguous`)."},
		Look: []string{
			inventory + "   # ROCmVersion is the hosts', ContainerROCm the containers', each with an example node",
			"kubectl get ct -n NAMESPACE -l rcclx.io/commgroup=GROUP -o " +
				"custom-columns=NODE:.spec.nodeName,HOST:.spec.run.platform.rocm,RUN:.status.run.rocm.version"},
		OnNode: []string{"ls -l /opt/rocm /opt/rocm-*; cat /opt/rocm/.info/version",
			"crictl images | grep -i rocm                             # the image that the node has, with its digest"},
		Do: []string{"Write the image by digest (`@sha256:`) in `runtime.image`; the change starts a run that " +
			"compares anew."},
		Escalate: "Whoever rolls out node images, where hosts differ.",
		Ends:     "Hosts: with the monitors' next reports. Containers: with a run in which all agree."},
	"MixedDriverVersions": {
		Seen: []string{"Mixed amdgpu driver version: 6.16.6 on 15 nodes, but 6.12.12 on gpu-9. Bring the odd nodes " +
			"to the same driver."},
		Means: "Kernel drivers differ, so jobs over these nodes may differ in speed, in what ROCm they bear, " +
			"and in faults. A driver without a version (in-tree) is compared by its source version.",
		Causes: []string{"The package was updated and the node not rebooted: the old module still runs.",
			"DKMS failed to build for a new kernel, and the in-tree driver was loaded instead.",
			"A node that joined from another image."},
		Look: []string{nodesNow + "   # DRIVER and KERNEL: does the kernel differ, too?"},
		OnNode: []string{"cat /sys/module/amdgpu/version; modinfo -F version amdgpu  # loaded against installed: " +
			"they differ, so reboot", "dkms status; uname -r                                    # not installed for " +
			"this kernel: the build failed", "grep -i error /var/lib/dkms/amdgpu/*/build/make.log"},
		Do: []string{"Drain (`kubectl drain NODE --ignore-daemonsets --delete-emptydir-data`), update, reboot, " +
			"uncordon. The node is measured again by itself ([DriverChanged](DriverChanged.md))."},
		Escalate: "The platform team for the package or KMM build; the vendor, where a driver fails to build on a " +
			"supported kernel.",
		Ends: "With the odd nodes' next report."},
	"MixedModels": {
		Seen: []string{
			"Mixed GPU model: MI300X on 12 nodes, but MI325X on gpu-13, gpu-14. " +
				"Narrow members.nodeSelector to one model.",
			"MixedModels on gpu-3: 0000:65:00.0: The GPUs are of different models: 7 x MI300X, 1 x MI325X. " +
				"RCCL expects one; exclude the node or replace the odd GPU."},
		Means: "Medians, marks and FP8's encoding are those of one model. Within a node it is hardware that was " +
			"fitted wrongly, or a driver that reads one GPU's table wrongly.",
		Causes: []string{"The selector takes the whole pool, and the pool has several generations.",
			"A GPU was replaced by one of another model.",
			"KFD and the PCI bus name one GPU differently: the driver misread it, reload it."},
		Look: []string{models, topology},
		OnNode: []string{"lspci -nn -d 1002:                                       " +
			"# device ids: 74a1 MI300X, 74a5 MI325X, 75a0 MI350X",
			"amd-smi static --board --asic                            # product name of each GPU"},
		Do: []string{"One CommGroup for each model: select by `amd.com/gpu.product-name` or " +
			"`amd.com/gpu.device-id`."},
		Escalate: "The server's vendor, where one node has two models that were not bought so.",
		Ends:     "When the selection has one model."},
	"MixedFP8Encodings": {
		Seen: []string{"FP8 is encoded differently, FNUZ on gfx942 and OCP on gfx950, so that data would " +
			"be wrong on the other side: turn FP8 (low precision) off, or make a group for each model. " +
			"No FP8 setting is published for this group."},
		Means: "The same byte is another number on MI300 than on MI350. RCCLX sends FP8 as it is encoded and " +
			"converts nothing: sums over both would be wrong without an error. Under Compatible it blocks Ready; " +
			"under SettingsPublished it says that FP8 was published off (False: nothing was, " +
			"since `lowPrecision.mode` is Required).",
		Causes: []string{"A pool of two generations behind one selector, with `lowPrecision.mode` Preferred " +
			"or Required.", "New nodes of the next generation joined under the old label."},
		Look: []string{models + "   # GFX: both values",
			"kubectl get cg -n NAMESPACE GROUP -o jsonpath='{.spec.lowPrecision}'"},
		Do: []string{"Jobs that started over both generations with FP8 on: stop them, their gradients are wrong.",
			"One group a generation, each with its own ConfigMap; or `lowPrecision.mode: Disabled` for this one."},
		Escalate: "The owner of the jobs, so that no job with FP8 is placed over both.",
		Ends:     "When the members have one encoding, or FP8 is not asked for."},
	"MixedFirmware": {
		Seen: []string{
			"MEC firmware 173 on gpu-3, gpu-9 is older than 177, with which RCCL starts on gfx942 only with " +
				"HSA_NO_SCRATCH_RECLAIM=1; 14 nodes have newer firmware, so that a job without the variable fails on " +
				"some nodes only. Update the firmware of the older ones; the published settings set the variable.",
			"Devices of one model (MI300X) run different firmware: MEC 7 x 177, 1 x 173; expected the same on all. " +
				"Update the firmware package and reload the driver, or update the GPU's IFWI."},
		Means: "A job without `HSA_NO_SCRATCH_RECLAIM=1` starts on the newer nodes and dies on the older ones with " +
			"`ncclSystemError`, which looks like a broken node and is none. Any other difference is a remark only.",
		Causes: []string{"The firmware package (`amdgpu-dkms-firmware`, or the distribution's linux-firmware) " +
			"is older there.", "The package is new, and the driver still runs with what it loaded at boot.",
			"A replaced GPU came with another IFWI."},
		Look: []string{"kubectl get cn -o " +
			"custom-columns=NODE:.metadata.name,MEC:.status.facts.firmware.mec,SDMA:.status.facts.firmware.sdma"},
		OnNode: []string{"amd-smi firmware                                         # of each GPU: is one alone the " +
			"odd one?", "dmesg -T | grep -i 'amdgpu.*firmware'                    # what was loaded, and from where"},
		Do:       []string{"Until then give jobs the published ConfigMap, or `HSA_NO_SCRATCH_RECLAIM=1` by hand."},
		Escalate: "The server's vendor for an IFWI update of single GPUs.",
		Ends:     "With the reports after reboot or reload; results become stale by it and are measured again."},
	"ROCmTooOld": {
		Seen: []string{"In the run's container on gpu-3: ROCm 6.2.4 is older than 6.4, which gfx942 (MI300A, MI300X, " +
			"MI308X, MI325X) needs: use an image or installation with ROCm 6.4 or newer."},
		Means: "The library finds no code for these GPUs, or refuses, or misbehaves in the middle of a run. " +
			"Of the host it is a warning only: jobs bring their own ROCm.",
		Causes: []string{"`runtime.image` is an image of the generation before.",
			"`ROCM_PATH` in `runtime.env` points to an old install within the image.",
			"New nodes (MI350 needs 7.0) under a group made for older ones."},
		Look: []string{
			"kubectl get commtask -n NAMESPACE GROUP.NODE -o jsonpath='{.status.run.rocm}'   # version, and the file " +
				"that it was read from",
			"kubectl get cg -n NAMESPACE GROUP -o jsonpath='{.spec.runtime.image} {.spec.runtime.env}'"},
		Do: []string{"Take an image whose ROCm [compatibility](../../compatibility.md) names for GPUs **and** " +
			"driver: a newer ROCm may need a newer driver ([DriverMismatch](DriverMismatch.md))."},
		Escalate: "The team that builds the runtime image.",
		Ends:     "With a run in the new image."},
	"DriverMismatch": {
		Seen: []string{"DriverMismatch on gpu-3, gpu-9: amdgpu 6.8.5 (driver of ROCm 6.2) is supported with " +
			"ROCm 6.0 to 7.0, and this is ROCm 7.2.0: update the driver, or use ROCm 7.0 or older (ROCm in the " +
			"run's container)."},
		Means: "The pair is outside of what AMD supports. It often works; where a run then hangs, dies or loses " +
			"speed, this is the first suspect. The condition stays True.",
		Causes: []string{"The jobs' image moved on and the nodes' driver did not (the usual case: " +
			"drivers need a drain, images do not).", "A new driver with images that are years old."},
		Look: []string{inventory + "   # DriverVersion against ContainerROCm"},
		OnNode: []string{"cat /sys/module/amdgpu/version                           # not there: in-tree, " +
			"which has no version and is not judged"},
		Do: []string{"Choose by the table DriverWindow of [compatibility](../../compatibility.md#driverwindow): " +
			"for a night the image is the quicker side to change."},
		Escalate: "AMD only after this is mended: a hang or crash with a pair outside of the published window is no " +
			"supported case.",
		Ends: "When the pair is within the window; the remark goes with the next report or run."},
	"InventoryMismatch": {
		Seen: []string{"InventoryMismatch: on gpu-3: label driver-version says 6.12.12 and the kernel has 6.16.6 " +
			"loaded. Restart the node labeller on it; selectors by these labels choose wrongly."},
		Means: "The labeller reads a node once, when it starts. Its labels are of the time before; " +
			"the facts here are what the kernel shows now. Whoever selects nodes by these labels gets wrong ones.",
		Causes: []string{"Driver, partition mode or GPUs changed and the labeller was not restarted " +
			"(ROCm/gpu-operator#420).", "Labels were set by hand, or restored from a backup.", "The label is right " +
			"and a GPU fell off the bus: then there is a [GPUCountMismatch](GPUCountMismatch.md), too."},
		Look: []string{
			"kubectl get node NODE --show-labels | tr ',' '\\n' | grep amd.com/",
			topology + "                                # model, partition and driver as the kernel has them",
			"kubectl get pods -A -o wide --field-selector spec.nodeName=NODE | grep -i labeller   # its age against " +
				"the node's last change"},
		Do:       []string{"`kubectl delete pod` of the labeller on that node: it comes back and reads anew."},
		Escalate: "Whoever runs the AMD GPU operator, where labels stay wrong after the restart.",
		Ends:     "When label and fact agree."},
	"MixedPartitions": {
		Seen: []string{
			"Mixed partition mode: SPX/NPS1 on 15 nodes, but CPX/NPS4 on gpu-9. Set the same compute and memory " +
				"partition on every node.",
			"MixedPartitions on gpu-3: 0000:05:00.0: The GPUs are in different partition modes: 7 x SPX/NPS1, " +
				"1 x CPX/NPS4. Set one mode on all (amd-smi set --compute-partition).",
			"PartitionMissing on gpu-3: 0000:e5:00.0: 7 of 8 partitions: KFD has fewer than mode CPX makes. " +
				"Older kernels allow 64 render nodes in all; update the kernel, or reload the driver."},
		Means: "Devices differ in compute units, memory and links, so ranks of one communicator would, too. " +
			"A single GPU that differs within a node, or lacks partitions, is a change that was not finished.",
		Causes: []string{"Somebody, or AMD's device config manager, repartitioned a part of the pool.",
			"Setting the mode failed on one GPU: a process held it (device busy).", "Compute and memory modes that " +
				"do not go together, so that one half was refused: on an MI300X NPS4 goes with CPX alone."},
		Look: []string{nodesNow + "   # PARTITION: which nodes are the odd ones", topology, "kubectl get pods -A -o " +
			"wide --field-selector spec.nodeName=NODE     # who held the GPUs while the mode was set"},
		OnNode: []string{"amd-smi static --partition                               # of each GPU",
			"amd-smi process                                          # what keeps a GPU busy",
			"dmesg -T | grep -iE 'partition|NPS'"},
		Do: []string{"Drain the node first: `amd-smi set --gpu all --compute-partition SPX`; " +
			"a memory mode (`--memory-partition`) reloads the driver for all GPUs.",
			"Restart the device plugin on the node afterwards, and look at the allocatable count."},
		Escalate: "The vendor, where a mode is refused on one GPU of a drained node after a power cycle.",
		Ends: "With the reports after the change; the node is measured again by itself " +
			"([Repartitioned](Repartitioned.md))."},
	"MixedLibraryVersions": {
		Seen: []string{"The members' ranks load different library builds: \"rcclx-dev 2.27.7 4f1c\" on 14 nodes " +
			"(gpu-1, gpu-2, gpu-4, gpu-5 and 10 more), \"rcclx-dev 2.27.7 91ab\" on 2 nodes (gpu-3, gpu-9). " +
			"Pin one runtime image by digest, and runtime.libraryPath."},
		Means: "Builds of one version may choose other algorithms for one call, and a communicator over both hangs " +
			"or gives wrong sums. So nothing over several nodes was tried. Where one build is on more than half, " +
			"the others are the culprits.",
		Causes: []string{"An image tag that was pushed again between two pulls.",
			"`runtime.libraryPath`, or `LD_LIBRARY_PATH`, leads to a folder that the node mounts into the container.",
			"Two copies in the image, and a loader that finds one or the other."},
		Look: []string{
			inventory + "   # Library: build hashes, with nodes",
			"kubectl get ct -n NAMESPACE -l rcclx.io/commgroup=GROUP -o custom-columns=NODE:.spec.nodeName," +
				"VERSION:.status.run.library.version,BUILD:.status.run.library.buildHash," +
				"PATH:.status.run.library.path   # PATH differs: it is the search path, not the image"},
		OnNode: []string{"crictl images --digests | grep IMAGE                     # the odd node has " +
			"another digest"},
		Do:       []string{"After pinning, `crictl rmi` the old image on the odd nodes if the tag must stay."},
		Escalate: "The owner of the image, so that jobs are pinned as well: they meet the same mixture.",
		Ends:     "With a run in which all ranks load one build."},
	"TopologyFault": {
		Seen: []string{
			"PCIeInsteadOfXGMI on gpu-3: 0000:65:00.0<->0000:d5:00.0: This pair reaches each other only over PCIe; " +
				"expected xGMI within a hive of 8. The link is down: look for XGMI in the kernel log; " +
				"power-cycle the node.",
			"XGMINotInitialised on gpu-5: xGMI is not initialised on any of the 8 GPUs (MI300X): no hive and no " +
				"link, where this model has one hive. Look for \"XGMI: Failed to\" in the kernel log; " +
				"power-cycle the node."},
		Means: "By the driver's own tables the xGMI mesh is not what the model has. Seen without a run. " +
			"Collectives on the node fall to PCIe speed (about a tenth) or do not start.",
		Causes: []string{"One pair: a link did not train at boot, or went down. Most come back with a cold start.",
			"All pairs of one GPU: its module is not seated, or the GPU is broken.", "No hive at all, or two: " +
				"the hive was not brought up after a reset (`XGMI: Failed to`), or a guest is not shown it.",
			"The driver states half the bandwidth for one link: it trained narrow."},
		Look: []string{topology + "                                # one cell of the table: a link. A whole row: a GPU",
			problems},
		OnNode: []string{kernelXGMI +
			"                             # 'Failed to' and PCS errors, by PCI address; 'Add node' counts the hive",
			"amd-smi xgmi                                             # link status and traffic of each GPU",
			"amd-smi topology --link-type                             # PCIE where XGMI is expected (hops are not " +
				"to be trusted)"},
		Do: []string{"`kubectl cordon NODE`, drain, power off for a minute, " +
			"on again: a warm reboot does not retrain all links.",
			"Same pair after that: swap nothing blindly, take the kernel's XGMI lines of this boot for the case."},
		Escalate: "After one cold start: the server's vendor, with both PCI addresses. One pair: baseboard or either " +
			"module; all pairs of one GPU: RMA of that GPU.",
		Ends: "When the monitor sees the whole mesh again, without a run; the node is then measured by itself."},
	"GPUCountMismatch": {
		Seen: []string{
			"Node gpu-3: KFD shows 8 devices, the device plugin offers 7 of amd.com/gpu (capacity 8): " +
				"one is unhealthy to it. Look at its log, and at `dmesg` for this GPU.",
			"GPULost on gpu-7: 0000:c5:00.0: KFD has this GPU, and the PCI bus does not (GPUs: KFD 8, PCI 7): " +
				"it fell off the bus, or was removed while this scan ran. Look for its address in the kernel log; " +
				"power-cycle the node."},
		Means: "GPUs are counted on the PCI bus, in KFD, by render nodes and by the device plugin. Where the counts " +
			"part tells which layer lost one: bus to KFD is hardware or driver, KFD to plugin is software.",
		Causes: []string{"Plugin offers fewer than its capacity: it holds a GPU for unhealthy " +
			"(an error record, also an old one).", "Plugin's capacity itself is off: " +
			"it started before the GPUs were there, or the mode changed after; restart it.",
			"On the bus and not in KFD: the driver did not take the GPU (`invalid ip discovery binary`, failed init).",
			"Gone from the bus: the GPU fell off, by power, heat, or a dead module.",
			"Render nodes missing: 64 partitions on a kernel that allows 64 in all."},
		Look: []string{topology + "                                # line GPUs: KFD, PCI bus, render nodes",
			describe + " | grep -A8 -E '^(Capacity|Allocatable)'",
			"kubectl get pods -A -o wide --field-selector spec.nodeName=NODE | grep -i device-plugin   # then its log"},
		OnNode: []string{"lspci -d 1002: | grep -ci -E 'accelerator|display'; ls /sys/class/drm | grep -c renderD",
			"dmesg -T | grep -iE 'amdgpu.*(fatal|failed|discovery)|GPU reset|AER'   # by the PCI address of " +
				"the message", "amd-smi list                                             # which BDF is missing"},
		Do: []string{"A GPU off the bus: drain, power off for a minute, on again. A warm reboot often leaves it dark."},
		Escalate: "RMA of the GPU, where it is missing or fails to start after one cold start; the firmware team " +
			"first, where the kernel says `invalid ip discovery binary`.",
		Ends: "With the report in which all counts agree; no run is needed."},
	"NoGPUs": {
		Seen: []string{
			"NoGPUs on gpu-3: KFD: KFD shows only CPUs: no GPU that the driver supports. Take the node out of the " +
				"group, or check that its GPUs have power and are seated.",
			"NoGPUs on gpu-3: KFD: KFD shows no GPU, but 8 are on the PCI bus: the driver did not take them. " +
				"Look for amdgpu errors in the kernel log."},
		Means: "The driver is there and no GPU came out of it. The second form is the better news: " +
			"the GPUs have power, and the driver failed.",
		Causes: []string{"The node is no GPU node and the selector is too wide.",
			"The driver is too old for the model, or its firmware files are missing: init fails on all GPUs at once.",
			"The GPU tray has no power, or its cable to the host is out (none on the bus).",
			"A virtual machine that got no function."},
		Look: []string{topology, problems},
		OnNode: []string{"lspci -nn -d 1002:                                       # nothing: power or cabling. " +
			"GPUs: the driver", "dmesg -T | grep -iE 'amdgpu.*(error|failed|firmware)'    # the first line counts, " +
			"the rest follows from it"},
		Do: []string{"No GPU node: narrow `members.nodeSelector`, or put it into `members.exclude`."},
		Escalate: "The server's vendor (tray, power, PCIe switch), where all GPUs are gone from the bus: " +
			"eight do not die together.",
		Ends: "With the first report that has GPUs."},
	"DriverNotLoaded": {
		Seen: []string{
			"DriverNotLoaded on gpu-3: amdgpu: The amdgpu driver is not loaded, and 8 GPUs are on the PCI bus. " +
				"Install or load it (modprobe amdgpu), then look at the kernel log.",
			"DriverNotLoaded on gpu-3: KFD: amdgpu is loaded, but KFD is not: the compute part failed to start or is " +
				"not built in (CONFIG_HSA_AMD). Look at the kernel log."},
		Means: "Without amdgpu and KFD there are no devices for pods. The GPUs may be perfectly well.",
		Causes: []string{"A kernel update for which DKMS has not built the module.", "amdgpu is blacklisted " +
			"for the GPU operator to load its own, and the operator's driver pod (KMM) is not through.",
			"`modprobe` fails: Secure Boot refuses an unsigned module.",
			"The module was unloaded for an update that then failed."},
		Look: []string{problems, "kubectl get pods -A -o wide --field-selector spec.nodeName=NODE | grep -iE " +
			"'kmm|driver'   # the operator's loader, if it brings the driver"},
		OnNode: []string{"lsmod | grep amdgpu; dkms status; uname -r               # built for another kernel",
			"grep -r blacklist /etc/modprobe.d | grep amdgpu",
			"modprobe amdgpu; dmesg -T | tail -30                     # Key was rejected by service: Secure Boot"},
		Escalate: "The platform team for kernel and driver packages; the vendor only where a built " +
			"module does not load.",
		Ends: "With the first report after the driver is up; the node is measured again by itself."},
	"SysfsUnreadable": {
		Seen: []string{
			"GPUHidden on gpu-3: 2 of KFD's nodes (2,3) answer EPERM: these GPUs are hidden from this " +
				"container by its device cgroup, neither absent nor broken. Run privileged or with DRA admin access.",
			"A GPU that is hung or resetting blocks its files: look at the kernel log and reset it."},
		Means: "The monitor could not see a part of its node, and vouches for nothing it has not read. " +
			"EPERM is the container's rights; a read that does not return is a GPU in trouble.",
		Causes: []string{"`Forbidden` (EPERM): a webhook of the cluster took the monitor's privilege away, or a " +
			"sandboxed runtime gives none, so KFD hides GPUs.", "`Timeout` or `Busy`: a GPU hangs, or is being reset.",
			"`TopologyUnstable`: repartitioning or a reset went on during three scans.",
			"`Malformed`: a kernel that writes these files otherwise."},
		Look: []string{problems + "   # path, class and the kernel's word for each",
			"kubectl get pods -n commgroup-system -l rcclx.io/role=monitor -o " +
				"jsonpath='{.items[*].spec.containers[*].securityContext.privileged}'   # not true: the webhook",
			"kubectl logs -n commgroup-system -l rcclx.io/role=monitor --prefix --tail=50"},
		OnNode: []string{"timeout 5 cat /sys/class/kfd/kfd/topology/nodes/*/gpu_id  # hangs here, too: " +
			"the GPU or driver, not the container", "dmesg -T | grep -iE 'GPU reset|hung task|ring .* timeout'",
			"agent discover -o table                                  # exit code 4: not all could be read"},
		Do: []string{"A read that hangs: drain now; such a node takes down whatever touches the GPU next. " +
			"`amd-smi reset --gpureset --gpu all` on a drained node, else reboot."},
		Escalate: "The cluster's administrator for the monitor's rights; the GPU's vendor, where the same GPU hangs " +
			"again after a reboot.",
		Ends: "With the first scan that can read everything."},
	"HealthDegraded": {
		Seen: []string{
			"Correctable xGMI errors rise: 12 more in 30s, 40 since the driver was loaded. A link of this GPU is " +
				"marginal: measure its links, and reseat or replace it if they are slow.",
			"Uncorrectable errors since the driver was loaded, by block: umc 3; expected none. Drain the node and " +
				"reset the GPU; if they come back, replace it."},
		Means: "Counters, ports or sensors of a GPU say that something is wearing out or broke, " +
			"mostly before a collective shows it. Which one, stands in front of the message: " +
			"[the codes](../../discovery.md#problem-codes).",
		Causes: []string{"`UncorrectableErrors` in umc: memory of the GPU; data was lost, a process died of " +
			"it or will.", "`XGMIUncorrectableErrors`, `XGMIPortDown`: a link or its module.", "`CorrectableErrors`, " +
			"`XGMICorrectableErrors`, `PCIeReplays` that rise: repaired so far; they announce the others.",
			"`RetiredPages`: memory that was taken out of use; counts towards the driver's threshold for replacement.",
			"`Throttled`: heat, a power cap, or a supply that gave up. Not a defect of the GPU.",
			"`NUMABalancing`, `IOMMUNotPassthrough`: settings of the host."},
		Look: []string{problems,
			topology + "                                # the node's sums, problems by GPU, RDMA devices"},
		OnNode: []string{kernelLog +
			"            # 'N uncorrectable hardware errors detected in BLOCK block', by address",
			"amd-smi metric --ecc-blocks                              # the same counters, by block",
			"amd-smi bad-pages                                        # retired, pending and unreservable pages",
			"amd-smi metric --power --clock --temperature             # throttling"},
		Do: []string{"Uncorrectable: drain, then reset the GPU or reboot, then `kubectl commgroup run GROUP " +
			"-n NAMESPACE`. They are counted from the driver's load, so a reboot also clears the record: " +
			"note them first."},
		Escalate: "RMA of the GPU: uncorrectable errors that come again after a reset, `Saved bad pages ... " +
			"reaches threshold` in the kernel log, or unreservable pages. Data centre staff: throttling by heat on " +
			"several nodes of a rack.",
		Ends: "15 minutes after the last rise for what rises; else when the driver was loaded again or " +
			"the port is up."},
	"FactsUnknown": {
		Seen: []string{"The facts of 2 of 16 members are not known."},
		Means: "Nothing was compared for these members, and nothing is wrong by this: what is not known is never " +
			"taken for right. Simulated says the same while no member has reported.",
		Causes: []string{"Their monitors are starting, or do not report: " +
			"[AgentNotReporting](AgentNotReporting.md) has the names.",
			"The reports are older than the chart's `monitor.reportValidSeconds`: the monitor died, or cannot write.",
			"The group has no member."},
		Look: []string{"kubectl get cn -o custom-columns=NODE:.metadata.name,SEEN:.status.facts.observedTime   # a " +
			"member is not there: never; old: silent since", monitors},
		Do:       []string{"Mend the monitors; Compatible is computed anew with each report."},
		Escalate: "As for AgentNotReporting: the node's owner, or the cluster's administrator.",
		Ends:     "With a valid report of each member."},
}
