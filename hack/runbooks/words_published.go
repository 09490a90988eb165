package main

// wordsPublished are of the published ConfigMap, of the group as a whole, and of stale results.
var wordsPublished = map[string]more{
	"Published": {Plain: true, Means: "The ConfigMap holds what the named run proved on all members. Jobs that take " +
		"it by `envFrom` get a change with their next start only; [settings](../../settings.md#in-a-job) says how to " +
		"keep all ranks of a job on one version."},
	"PublishOff": {Plain: true, Means: "The spec asks for no ConfigMap. One that an earlier spec published is " +
		"deleted, so jobs that refer to it do not start any more."},
	"NotProven": {
		Seen: []string{
			"Run 4-2 did not pass on every member (Fail). ConfigMap mi300x-rccl-settings still holds the " +
				"settings of run 3-7.",
			"Variable RCCL_DDA_ALL_REDUCE_TREE_MAX_BYTES differs between node gpu-1 and node gpu-3: " +
				"use one runtime image on all members."},
		Means: "Nothing new is published, since no run proves it. What was published before stays, is still what " +
			"that earlier run proved, and may be used.",
		Causes: []string{"The last run did not pass on each member.", "The spec changed and its run is not over.",
			"Results are stale after a reboot or update: the run of those nodes is due.",
			"Members reported other variables, or none."},
		Look: []string{status + "                    # Validated first: its reason is the one to mend",
			published + "   # rcclx.io/proven-by-run: which run the present one is of"},
		Do: []string{"Jobs need it now: the last proven ConfigMap is good for nodes that have not " +
			"changed since."},
		Escalate: "As the page of Validated's reason says.",
		Ends:     "With a run that passes on every member."},
	"SimulatedResults": {
		Seen: []string{"The results come from the simulator. Set publish.simulated to Allow to publish " +
			"them all the same."},
		Means: "Some member's ranks or facts were simulated, so the numbers are made up. They never reach " +
			"jobs by themselves.",
		Causes: []string{"A demo or test cluster: right so.",
			"On real nodes: the runtime image is the simulator's, or `SIMROCM_ROOT` is in `runtime.env`."},
		Look: []string{"kubectl get ct -n NAMESPACE -l rcclx.io/commgroup=GROUP -o " +
			"custom-columns=NODE:.spec.nodeName,LIBRARY:.status.run.library.flavor   # whose ranks were simulated",
			"kubectl get cn -o custom-columns=NODE:.metadata.name,ORIGIN:.status.facts.origin   # whose facts are",
			"kubectl get cg -n NAMESPACE GROUP -o jsonpath='{.spec.runtime.image} {.spec.runtime.env}'"},
		Do:       []string{"A single simulated node in a real pool: exclude it, its figures are in the medians."},
		Escalate: "Whoever made the group, where nobody meant a simulation.",
		Ends:     "With a run on hardware alone."},
	"ResultsNotUsable": {
		Seen: []string{
			"FP8 gave NaN, infinite or clipped values with AllToAll (Overflow), a mean error over 6.25 % with " +
				"AllToAll (Underflow): it is off for them; if your models bear the loss, set publish.acceptedLosses " +
				"to [Overflow, Underflow]."},
		Means: "FP8 takes effect and loses data: with random data of the range of activations or gradients the run " +
			"saw NaN, clipped or zeroed values. So it is published switched off for these collectives, and the rest " +
			"is published as usual.",
		Causes: []string{"Activations over 240 (gfx942) or 448 (gfx950): [Overflow](Overflow.md).",
			"Gradients under 2^-10: [Underflow](Underflow.md).",
			"Counts that FP8 does not divide: [TailHazard](TailHazard.md)."},
		Look: []string{results + "   # errors with random data: NaN, overflow, mean", explain + " lowPrecision",
			published + "   # comments in rccl.conf say what is off and why"},
		Do: []string{"Jobs that send activations by AllToAll, as mixture-of-experts models do, need the bf16 " +
			"transport: leave it off."},
		Escalate: "The model's owner: only they know the range of the tensors, and whether the model bears the loss.",
		Ends: "With FP8 off (`lowPrecision.mode: Disabled`) or for other collectives only, or with a library " +
			"that scales before it casts."},
	"NotWorthIt": {
		Seen: []string{"dda.mode is Required, and it loses at the smallest size: set it to Preferred, " +
			"or publish.choice to AsRequested."},
		Means: "It works and does not pay: the A/B numbers show no gain, or a loss at some sizes. `Required` forbids " +
			"to publish it switched off, so nothing is published.",
		Causes: []string{"DDA's gain is at small sizes that were not measured, or lost at large ones without a limit.",
			"FP8's AllGather: small calls go peer to peer while FP8 is on, and take longer.",
			"Noise: nothing stands out of it."},
		Look: []string{status + "                    # the advice: where it wins and loses, error, memory",
			"kubectl get cgr -n NAMESPACE RUN -o jsonpath='{.status.advice}'", results},
		Do: []string{"A mixed DDA: set the limit that the advice recommends (`dda.allReduceTreeMaxBytes`); " +
			"then it is worth it up to there."},
		Escalate: "The job's owner, who knows which sizes it sends.",
		Ends:     "With another mode or choice, or a run in which it pays."},
	"ConfigMapNotOwned": {
		Seen: []string{"ConfigMap rccl-settings exists and belongs to CommGroup mi325x, which publishes under the " +
			"same name; it is left alone. Set publish.configMapName to another name, or delete it."},
		Means: "An object of that name is somebody else's. It was neither read nor changed; jobs that use it get " +
			"that owner's settings, not this group's.",
		Causes: []string{"Two CommGroups with one `publish.configMapName`.",
			"A ConfigMap made by hand or by Helm before.",
			"A group that was deleted with `--cascade=orphan` and made anew: the old owner is gone."},
		Look: []string{"kubectl get configmap -n NAMESPACE CONFIGMAP -o " +
			"jsonpath='{.metadata.ownerReferences} {.metadata.labels} {.metadata.annotations}'",
			"kubectl get cg -n NAMESPACE -o custom-columns=NAME:.metadata.name,CONFIGMAP:.spec.publish.configMapName"},
		Do: []string{"Look who mounts it before you delete it: `kubectl get pods -n NAMESPACE -o yaml | grep " +
			"-B2 CONFIGMAP`."},
		Escalate: "The owner of the other group or chart.",
		Ends:     "Within five minutes once the name is free."},
	"ConfigMapChanged": {
		Seen: []string{"ConfigMap mi300x-rccl-settings was changed by someone after run 3-7 proved its settings: " +
			"do not use it. They are put back once a run passes. Run 4-2 did not pass on every member (Fail)."},
		Means: "Its content is not what any run proved. Settings that differ by one variable between ranks hang " +
			"jobs, so do not start new ones with it.",
		Causes: []string{"Edited by hand to try something.",
			"A GitOps tool that holds an older copy and applies it again and again.",
			"A mutating webhook that adds or changes data."},
		Look: []string{"kubectl get configmap -n NAMESPACE GROUP-rccl-settings -o " +
			"yaml --show-managed-fields   # the manager and time of the last change",
			published + "   # rcclx.io/proven-by-run and settings-hash against the content"},
		Do: []string{"`kubectl commgroup run GROUP -n NAMESPACE`: a Pass puts the proven settings back.",
			"Own changes belong into the spec, or into a copy under another name."},
		Escalate: "The owner of the tool that managedFields names.",
		Ends:     "With a run that passes."},
	"VariableNotPublishable": {
		Seen: []string{"Nothing is published: variable NCCL_DEBUG has a line break or another control character " +
			"in its value \"INFO\\nNCCL_NET_PLUGIN=/x.so\". Correct runtime.env, or the runtime image where " +
			"it is not there.", "ConfigMap mi300x-rccl-settings holds the settings of run 3-7 with FP8 off: " +
			"variable RCCL_LOW_PRECISION_ENABLE_ALLTOALL switches FP8 on for AllToAll, which spec.lowPrecision " +
			"does not ask for. Pods that run keep their environment: restart the jobs that took it before. " +
			"What the next run that passes proves is published."},
		Means: "Each line of rccl.conf is one variable, so a line break in a value would set a second one, past " +
			"the rules on names, plugins and FP8. In a ConfigMap that switches FP8 on where it may not (any more), " +
			"FP8 is switched off; one that holds another variable that may not be published is deleted, whatever the " +
			"present run shows: pods that take it by `envFrom` do not start without it.",
		Causes: []string{"The CommGroup is older than the rule: the API server refuses such a value now.",
			"A value that a template folded over lines.",
			"An agent or image that is not this release's reports other variables than the group's.", "An older " +
				"release published FP8 or a variable that agents compute (`NCCL_HOSTID`), and no run has passed since.",
			"`publish.acceptedLosses`, `publish.jobCounts` or `lowPrecision` changed, and FP8 is published " +
				"that rested on it."},
		Look: []string{"kubectl get cg -n NAMESPACE GROUP -o jsonpath='{.spec.runtime.env}'",
			"kubectl get ct -n NAMESPACE -l rcclx.io/commgroup=GROUP -o jsonpath='{.items[*].status.run.environment}'"},
		Do: []string{"Restart jobs that took the ConfigMap while it had the variable, once it is " +
			"there without it."},
		Escalate: "The security contact, where nobody knows how a line break came into a value.",
		Ends:     "With the next run that passes with correct variables."},
	"ConfigMapNameInvalid": {
		Seen: []string{"No ConfigMap can be named \"RCCL_Settings\": a lowercase RFC 1123 subdomain must consist of " +
			"lower case alphanumeric characters, '-' or '.'. Change publish.configMapName."},
		Means: "The API server would refuse the name. What was published under an earlier name stays.",
		Causes: []string{"Capitals, underscores, blanks, or more than 253 characters.",
			"A template that was not filled in."},
		Look:     []string{"kubectl get cg -n NAMESPACE GROUP -o jsonpath='{.spec.publish.configMapName}'"},
		Do:       []string{"Without the field the name is `GROUP-rccl-settings`."},
		Escalate: "Nobody: it is the spec's.",
		Ends:     "At once with a valid name."},
	"ConfigMapNotWritten": {
		Seen: []string{"ConfigMap mi300x-rccl-settings could not be written: configmaps \"mi300x-rccl-settings\" " +
			"is forbidden: field is immutable when `immutable` is set. Mend what refuses it (a quota, an admission " +
			"policy, immutable: true); it is tried again."},
		Means: "The run passed and its settings could not be stored. Jobs go on with the older ones, if there are any.",
		Causes: []string{"`immutable: true` was set on the present one.", "A quota on ConfigMaps in the namespace.",
			"An admission policy, or the manager's role without ConfigMaps here."},
		Look: []string{"kubectl get configmap -n NAMESPACE GROUP-rccl-settings -o jsonpath='{.immutable}'",
			"kubectl get resourcequota -n NAMESPACE -o yaml | grep -A4 configmaps", managers},
		Do: []string{"Immutable: `kubectl delete configmap GROUP-rccl-settings -n NAMESPACE`; it is made anew by " +
			"itself. Pods that run keep their environment."},
		Escalate: "The owner of quota or policy.",
		Ends:     "With the write that is taken."},
	"SettingsRestored": {
		Seen: []string{"ConfigMap mi300x-rccl-settings did not hold what run 3-7 proved: someone changed it. " +
			"It holds the proven settings again."},
		Means: "Two write one object, and the operator won this time. Jobs that started in between had other " +
			"settings; if it comes every few minutes, a tool is at it.",
		Causes: []string{"A GitOps tool with a copy of the ConfigMap.", "A person who edits it."},
		Look: []string{events + "   # how often", "kubectl get configmap -n NAMESPACE GROUP-rccl-settings -o yaml " +
			"--show-managed-fields | grep -E 'manager:|time:'"},
		Do:       []string{"Take the ConfigMap out of the tool's repository."},
		Escalate: "The owner of the tool.",
		Ends:     "It is an event; over when nobody else writes."},
	"Simulated": {
		Seen: []string{"Facts or results of this group come from the simulator, not from hardware."},
		Means: "At least one member's facts, or its ranks, are made up. A Pass of such a group says nothing " +
			"about a machine.",
		Causes: []string{"A demo, by design.",
			"The simulator's image or its variables in a real group ([SimulatedResults](SimulatedResults.md))."},
		Look: []string{"kubectl get cn -o custom-columns=NODE:.metadata.name,ORIGIN:.status.facts.origin"},
		Do: []string{"Let no admission or gating rest on it: `gating.simulated` and `publish.simulated` are Forbid " +
			"by default for that."},
		Escalate: "Nobody in a demo.",
		Ends:     "When all members are hardware."},
	"Hardware": {Plain: true, Means: "No member and no rank of this group is simulated."},
	"Ready": {Plain: true,
		Means: "Accepted, Validated, Compatible and AgentsReporting are all True for this generation of the spec. " +
			"Where Ready is not True it carries the reason of the first of these that is not: open that page."},
	"Deleting": {Plain: true, Means: "The group is being deleted; for one with an older version's finalizer the " +
		"message has what is still there.", Ends: "After 2 minutes at most: what is left then is named in the event " +
		"[CleanupTimedOut](CleanupTimedOut.md)."},
	"CleanedUp": {Plain: true, Means: "Run pods of the deleted group are gone; GPUs are free."},
	"CleanupTimedOut": {
		Seen: []string{"Still there after 2 minutes: run pod mi300x-4-2-gpu-3. The group is released; " +
			"delete them by hand."},
		Means: "The group is gone and something of it is not. A run pod that is left may hold GPUs.",
		Causes: []string{"The node is down, so that its kubelet cannot end the pod.",
			"A process of the pod hangs in the kernel (state D): not even SIGKILL ends it.",
			"A finalizer of another controller on the pod.",
			"The API server refused the delete: a policy, or the manager's role."},
		Look: []string{
			"kubectl get pods -n NAMESPACE -l rcclx.io/role=run -o wide           # Terminating since " +
				"when, on which node",
			"kubectl get pod -n NAMESPACE POD -o jsonpath='{.metadata.finalizers} {.metadata.deletionTimestamp}'"},
		OnNode: []string{"ps -eo pid,stat,wchan:30,cmd | grep ' D'                 # hangs in the driver: " +
			"only a reboot frees the GPU"},
		Do: []string{"Only when the node is surely off or rebooted: `kubectl delete pod POD -n NAMESPACE --force " +
			"--grace-period=0`. Else a second pod may get the same GPUs."},
		Escalate: "The node's owner for a kubelet that is down.",
		Ends:     "When they are deleted."},

	"NodeRebooted": {
		Seen: []string{"After the measurement: the boot id was 6f1c0d4e-2a41-4c0f-9a53-0b1f6b7ad001 and is " +
			"1b7e9f20-77aa-4d0b-8c1f-52d5a0e4c002."},
		Means: "The node booted since it was measured. Links are trained anew at a boot, so what was good may not " +
			"be. It is measured again by itself; if nobody rebooted it, find out why it went down.",
		Causes: []string{"A planned reboot: update, repair.", "A crash: kernel panic, machine check, watchdog.",
			"Power: a supply, a PDU, or a BMC's power cycle.",
			"It went down under the run itself: then it does so again, and after three times no run starts by itself."},
		Look: []string{"kubectl get events -A --field-selector involvedObject.kind=Node --sort-by=.lastTimestamp | " +
			"grep NODE   # Rebooted", status + "                    # did the run follow, and pass"},
		OnNode: []string{"last -x reboot shutdown | head -5                        " +
			"# a reboot without a shutdown before it: a crash",
			"journalctl -k -b -1 | tail -40                           # the last words of the boot before",
			"ipmitool sel list | tail -20                             # power, temperature, machine checks"},
		Do: []string{"It goes down whenever a run starts: `kubectl annotate node NODE gating.rcclx.io/exempt=true` " +
			"does not help, `members.exclude` does."},
		Escalate: "The server's vendor with the BMC's log, for machine checks and power.",
		Ends:     "With its next result."},
	"DriverChanged": {
		Seen: []string{"After the measurement: the amdgpu driver was 6.12.12 and is 6.16.6."},
		Means: "Another driver runs now than was measured. Planned or not, its speed and faults are other ones; " +
			"the node is measured again by itself.",
		Causes: []string{"An update through packages or the GPU operator.",
			"DKMS failed after a kernel update and the in-tree driver was loaded: then the version is gone, not newer.",
			"A rollback."},
		Look: []string{nodesNow + "   # DRIVER and KERNEL: is it the only node",
			history + "   # runs before and after it, for compare"},
		OnNode: []string{"cat /sys/module/amdgpu/version; uname -r; dkms status"},
		Do: []string{"A roll-out over the pool: let one node pass before the next; the baseline of the " +
			"group begins anew."},
		Escalate: "The platform team, where nobody planned it.",
		Ends:     "With its next result."},
	"ROCmChanged": {Plain: true, Means: "The host's ROCm or its RCCL is another one than when the node was measured. " +
		"Runs and jobs use the container's; where that has not changed, the new result will be the old one.",
		Ends: "With the node's next result, which comes by itself."},
	"Repartitioned": {Plain: true, Means: "The GPUs are in another compute or memory mode, so devices, memory " +
		"and links are other ones. If it was not meant, [MixedPartitions](MixedPartitions.md) has the commands; " +
		"`ranksPerNode` and `runtime.pod.gpuResourceName` may have to follow.", Ends: "With the node's next result; " +
		"where the device plugin offers another number now, [NoGPUResource](NoGPUResource.md) comes first."},
	"FirmwareChanged": {Plain: true, Means: "MEC or SDMA firmware of the GPUs is another one. " +
		"Single GPUs that differ from their neighbours are [MixedFirmware](MixedFirmware.md).",
		Ends: "With the node's next result, which comes by itself."},
	"GPUsChanged": {
		Seen: []string{"After the measurement: GPUs (count/hash of their PCI addresses) was 8/1f3ac02b and " +
			"is 7/90bd41aa."},
		Means: "The set of GPUs is another one: number before the slash, addresses behind it. Fewer is a loss; " +
			"the same number with another hash are other slots, or a swapped riser. One that could merely not be " +
			"read is not counted as lost.",
		Causes: []string{"A GPU fell off the bus ([GPUCountMismatch](GPUCountMismatch.md)).",
			"A GPU or tray was replaced or moved.", "BIOS or firmware enumerates the bus otherwise after an update.",
			"A virtual machine got other functions."},
		Look: []string{topology, problems + "   # GPULost, GPUMissing, GPUNotInKFD"},
		OnNode: []string{"lspci -d 1002: | grep -iE 'accelerator|display'           # addresses that are there now",
			"dmesg -T | grep -iE 'GPU reset|AER|link down|amdgpu.*failed'", "ipmitool sel list | tail -20"},
		Do: []string{"Fewer than before: drain and power-cycle first; a node with fewer GPUs stays gated until it " +
			"passes with all."},
		Escalate: "RMA of the GPU that does not come back after a cold start.",
		Ends:     "With its next result."},
}
