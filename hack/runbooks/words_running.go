package main

// wordsRunning are of the condition Running, and of what ends a node's part of a run without a measurement.
var wordsRunning = map[string]more{
	"RunInProgress": {Plain: true,
		Means: "The message has the run's id and trigger, how many nodes have pods, wait and are done, " +
			"and what holds up the others (an image, a queue, a busy node). `kubectl commgroup wait GROUP -n " +
			"NAMESPACE` follows it.",
		Ends: "At the latest when each node's `run.startDeadlineSeconds` and `run.nodeDeadlineSeconds` are over, " +
			"and with `span: Group` those of the stage."},
	"RunFinished": {Plain: true, Means: "Nothing runs now. The verdict is in the message and, node by node, " +
		"behind the condition Validated; the run's CommRun stays for `kubectl commgroup compare`."},
	"NeverRan": {
		Seen: []string{"No run has been made."},
		Means: "No run of this group has begun since it was made. That is normal for the first minute; " +
			"later, another condition is in the way and says so.",
		Causes: []string{"`Accepted` is False: nothing starts.", "The monitors have not reported yet.",
			"No manager is at work: then conditions are old, or none are there."},
		Look: []string{
			status + "                    # the first condition that is not True is the reason",
			"kubectl get pods -n commgroup-system -l app.kubernetes.io/name=commgroup-manager   # none " +
				"Ready: no controller",
			"kubectl get cg -n NAMESPACE GROUP -o jsonpath='{.metadata.generation} {.status.observedGeneration}'   # " +
				"they differ: the manager has not looked"},
		Do: []string{"With the chart's `namespaces` set, the group's namespace must be among them, or nobody " +
			"looks at the group."},
		Escalate: "Whoever installed the operator, where no manager is Ready.",
		Ends:     "With the first run."},
	"Suspended": {
		Seen: []string{"run.state is Suspended: no run starts until it is Active.",
			"Run 4-2 was aborted since run.state is Suspended.",
			"CommRun mi300x-4 is suspended: set its spec.suspend to false and it starts again, or delete it."},
		Means: "Somebody switched runs off, of the group (`run.state`) or one run (`suspend` of its CommRun). " +
			"One that was under way was aborted and its pods deleted; nodes that had no result keep none. " +
			"Monitors go on, and so does what they find.",
		Causes: []string{"A maintenance window, which may be long over.",
			"The group was made suspended, to be switched on by hand."},
		Look: []string{"kubectl get cg -n NAMESPACE GROUP --show-managed-fields -o yaml | grep -B30 'f:state' | grep " +
			"-E 'manager|time'   # who set it, and when", events},
		Do: []string{"`kubectl patch cg GROUP -n NAMESPACE --type=merge -p " +
			"'{\"spec\":{\"run\":{\"state\":\"Active\"}}}'`. Results that became stale meanwhile are measured first.",
			"One run: `kubectl patch commrun RUN -n NAMESPACE --type=merge -p '{\"spec\":{\"suspend\":false}}'`, " +
				"or delete it."},
		Escalate: "Ask who is named before you switch it on: a run takes the GPUs of idle nodes.",
		Ends:     "With `run.state: Active`, or `suspend: false` of the CommRun."},
	"WaitingForPreconditions": {
		Seen: []string{
			"A run is due (SpecChanged) and waits until the monitors of at least 14 nodes report; 9 of 16 do. " +
				"See `kubectl get commtasks` and the monitor pods.",
			"A run of 2 nodes with stale results is due and waits: gpu-3 (its monitor does not report), gpu-7 (it " +
				"has 0 allocatable amd.com/gpu and needs 8).",
			"A run is due (Scheduled) and waits until 2026-11-29T00:00:00Z: run.maxGPUMinutesPerDay is 2000 " +
				"GPU-minutes, 1700 used on 2026-11-28 (UTC), and the run would take about 640 (run 3-7 on 16 nodes). " +
				"To run now, ask for a new run: kubectl commgroup run mi300x -n ml."},
		Means: "There is a reason to run and a reason not to, and both stand in the message. Nothing has failed.",
		Causes: []string{"Right after a reboot: the device plugin or the monitor of the node is not up yet. Minutes.",
			"Fewer monitors report than `members.minMembers`.",
			"The day's budget is used up (`run.maxGPUMinutesPerDay`), or one run alone is larger than it.",
			"The facts of the node show an Error, so that to measure it would tell nothing new."},
		Look: []string{
			status + "                    # the message of Running names what each node lacks",
			"kubectl get cg -n NAMESPACE GROUP -o jsonpath='{.status.budget}'     # used and limit of the " +
				"day, in GPU-minutes",
			"kubectl get ct -n NAMESPACE -l rcclx.io/commgroup=GROUP              # which members report",
			monitors},
		Do: []string{"A run asked for by hand goes past the budget: `kubectl commgroup run GROUP -n NAMESPACE`."},
		Escalate: "The owner of the page that the message leads to: [AgentNotReporting](AgentNotReporting.md), " +
			"[NoGPUResource](NoGPUResource.md), [TopologyFault](TopologyFault.md).",
		Ends: "By itself, when what is named is there; the budget at midnight UTC."},
	"NoCommGroup": {
		Seen: []string{"There is no CommGroup mi300 in namespace ml, so that nothing runs. Create it, or delete this " +
			"CommRun and create one whose spec.groupName is one of `kubectl get commgroups -n ml`."},
		Means: "A CommRun asks for a run of a group that does not exist. It waits: once there is a group of that " +
			"name, its run starts.",
		Causes: []string{"`spec.groupName` is mistyped, or the group is in another namespace.",
			"The group was deleted, or is not created yet."},
		Look:     []string{"kubectl get cg,cgr -n NAMESPACE"},
		Do:       []string{"Delete the CommRun and create one with the right name: `spec.groupName` does not change."},
		Escalate: "Nobody, or who created the CommRun.",
		Ends:     "When the group is there, or the CommRun is gone."},
	"WritesRefused": {
		Seen: []string{"WritesRefused: The API server refused to make group pod mi300x-4-2-group-gpu-3: " +
			"pods is forbidden: exceeded quota. Mend what these words name: a quota, an admission policy or webhook, " +
			"the manager's roles, what blocks the name; it is tried again by itself."},
		Means: "One kind of object cannot be written. What depends on it waits up to its deadline and then ends " +
			"as Error: group pods make their node fall out of the stage, a node's mark is not set or not lifted. " +
			"Without its CommRun no run starts, and one that is under way stands still.",
		Causes: []string{"Quota on pods, CPU or the GPU resource: the stage over several nodes wants all pods at once.",
			"Pod Security: `network.rdmaResources` (IPC_LOCK) and `network.mode: Host` need a privileged namespace.",
			"A ResourceQuota with the scope CrossNamespacePodAffinity, which run pods need.",
			"A ServiceAccount or RoleBinding of the name `commgroup-run` that is not ours.",
			"A quota on CommRuns: a group keeps as many as `historyLimits` says.",
			"The manager's roles are older than the manager."},
		Look: []string{
			events + "   # the API server's words, once for each beginning",
			"kubectl get resourcequota -n NAMESPACE -o yaml",
			"kubectl get namespace NAMESPACE --show-labels                       # pod-security.kubernetes.io/enforce",
			"kubectl get serviceaccounts,rolebindings -n NAMESPACE               # commgroup-run without our labels"},
		Do: []string{"After an upgrade: install the roles of the same version (`helm upgrade`, or `kubectl apply -k " +
			"config/default`)."},
		Escalate: "The cluster's administrator, with the words of the event: they name the policy or quota.",
		Ends:     "With the write that is taken; the remark then goes."},

	"RunPodFailed": {
		Seen: []string{
			"Run pod mi300x-4-2-gpu-3 on node gpu-3 ended without a report of the agent: container ranks exited with " +
				"code 137 by signal 9 (OOMKilled).",
			"Run pod mi300x-4-2-gpu-3 on node gpu-3 was deleted before the agent reported. Look for evictions and " +
				"preemption (`kubectl get events`), then ask for a new run: kubectl commgroup run mi300x -n ml."},
		Means: "The agent in the pod died or was taken away before it could say anything. It speaks against the " +
			"image or the cluster far more often than against GPUs: a rank that dies alone is [RankDied](RankDied.md).",
		Causes: []string{"137, OOMKilled: `runtime.pod.resources` limits memory below what ranks and `/dev/shm` take " +
			"together.", "137 without OOMKilled, or deleted: somebody, a drain, or the kubelet under disk pressure.",
			"126 or 127, exec format error: the image's architecture or loader (musl) is not the agent's.",
			"1 or 2 with words: the agent's own error, for example no access to its CommTask."},
		Look: []string{
			podEvents + "   # OOMKilling, Evicted, Killing, with who did it; kept for an hour",
			runPods,
			runLogs},
		OnNode: []string{"dmesg -T | grep -iE 'out of memory|oom-kill'",
			"journalctl -u kubelet --since '-1 hour' | grep -iE 'evict|mi300x'"},
		Do: []string{"Memory: leave the limit out, or give 8 GiB and `runtime.pod.shmSizeMiB` on top."},
		Escalate: "The image's owner for exit codes 126, 127 and 132 (illegal instruction); the node's owner for " +
			"evictions by disk pressure.",
		Ends: "With a new run, which you have to ask for."},
	"RunPodUnschedulable": {
		Seen: []string{"Run pod mi300x-4-2-gpu-3 found no place on node gpu-3 within startDeadlineSeconds (300 s): " +
			"0/16 nodes are available: 1 Insufficient amd.com/gpu. The GPUs are probably in use; " +
			"it is tried again by itself."},
		Means: "Skipped: nothing was measured and nothing is wrong with the node. Runs have a low priority on " +
			"purpose and push nobody aside.",
		Causes: []string{"A job holds GPUs of the node (with `run.nodes: Any`, or it came between the look " +
			"and the pod).", "`Insufficient cpu` or `memory`: `runtime.pod.resources` asks for more than is left.",
			"`untolerated taint`: a taint that run pods do not tolerate.",
			"`Insufficient rdma/...`: `network.rdmaResources` of the stage."},
		Look: []string{podEvents + "   # FailedScheduling: what exactly is insufficient",
			holders + "   # who holds the GPUs", describe + " | grep -A12 -E '^(Taints|Allocated)'"},
		Do: []string{"A taint that is meant to stay: `runtime.pod.tolerations`. CPU and memory: " +
			"lower `runtime.pod.resources`."},
		Escalate: "The owner of the pod that holds the GPUs, only where it should have ended long ago.",
		Ends:     "It is tried again after 5, 10, 20, 40 and 80 minutes, then with the next run of all."},
	"NodeBusy": {
		Seen: []string{
			"No run was started on node gpu-3 within 300 s: run.nodes is Idle, and GPUs there are held by ml/train-7 " +
				"(8). It is tried again by itself.",
			"The group's stage found no time when all its nodes were free: one run at a time is on a node, and on " +
				"gpu-3 there is run pod ml/mi325x-1-9-gpu-3 of CommGroup ml/mi325x. Run it again when they are."},
		Means: "Skipped: the node does its work, and the run let it. The result of before stays what it was.",
		Causes: []string{"A job runs there: by design nothing starts beside it.",
			"Another CommGroup's run is on the node, or its stage has claimed it.",
			"A pod that ended long ago for its owner and is still Running (a notebook, a debug shell) keeps the GPUs."},
		Look: []string{holders + "   # the pods with amd.com/gpu, of all namespaces", "kubectl get cg " +
			"-A                                                   # another group over the same nodes, and its run",
			"kubectl get ct -n NAMESPACE GROUP.NODE -o jsonpath='{.spec.run.waiting}'   # for whom it waits, " +
				"and since when"},
		Do: []string{"Nodes that are never idle: a schedule in the pool's quiet hours, " +
			"a longer `run.startDeadlineSeconds`, or `run.nodes: Any` for nodes that are shared anyway.",
			"Two groups over one pool: schedules that do not meet."},
		Escalate: "The owner of a forgotten pod. Nobody for a job at work.",
		Ends:     "By itself when the node is idle, up to five times; then with the next run of all."},
	"Preempted": {
		Seen: []string{"Run pod mi300x-4-2-gpu-3 on node gpu-3 was taken away: the scheduler gave its GPUs to a pod " +
			"of higher priority (PreemptionByScheduler). The node is measured again by itself."},
		Means: "Skipped, as it should be: a job wanted the GPUs. It counts against no node, in gating neither.",
		Causes: []string{"A job of higher priority was placed.", "A drain of the node (EvictionByEvictionAPI).",
			"A NoExecute taint that run pods do not tolerate (DeletionByTaintManager).",
			"Kueue took the quota back for another workload."},
		Look: []string{podEvents + "   # Preempted, Evicted, TaintManagerEviction",
			describe + " | grep -A4 -E '^(Taints|Unschedulable)'   # a drain that goes on"},
		Do:       []string{"Five times in a row on a busy pool: run at another hour (`run.schedule`)."},
		Escalate: "Nobody, unless a controller drains the node again and again: then its owner.",
		Ends:     "It is tried again after 5, 10, 20, 40 and 80 minutes."},
	"WaitingForQueue": {
		Seen: []string{"Kueue has not admitted run pod mi300x-4-2-gpu-3 for node gpu-3 in queue gpu within 1800 s. " +
			"Look at the queue's quota (`kubectl get workloads -n ml`); it is tried again by itself."},
		Means: "Skipped: the pod stood behind Kueue's gate the whole time and held nothing.",
		Causes: []string{"The ClusterQueue's quota of `amd.com/gpu` is in use, and runs have the lowest priority.",
			"The LocalQueue named in `run.queueName` is not there, or its ClusterQueue is stopped or inactive.",
			"The stage over several nodes needs the quota of all its pods at once, which the queue never has.",
			"No ResourceFlavor fits the nodes' labels."},
		Look: []string{
			"kubectl get localqueues,workloads -n NAMESPACE                       # no such queue; " +
				"or the workload's place",
			"kubectl describe workloads -n NAMESPACE | grep -A4 -i quotareserved  # Kueue's own words",
			"kubectl get clusterqueues -o wide                                    # quota, pending, " +
				"and whether it is active"},
		Do: []string{"A queue of their own for runs, with borrowing, keeps them from standing behind " +
			"jobs for ever."},
		Escalate: "Whoever owns the ClusterQueue.",
		Ends:     "By itself up to five times, then with the next run of all."},
	"RunPodNotStarted": {
		Seen: []string{
			"Run pod mi300x-4-2-gpu-3 on node gpu-3 has not started its ranks within startDeadlineSeconds (300 s): " +
				"container ranks, image registry.example/rccl:7.0: ImagePullBackOff: Back-off pulling image. " +
				"It is spec.runtime.image: correct it or runtime.imagePullSecrets.",
			"The API server refused run pod mi300x-4-2-gpu-3 for node gpu-3: pods is forbidden: " +
				"violates PodSecurity. Fix what these words name: runtime.image, runtime.pod, " +
				"the namespace's pod security level, or the fields that its quota requires; then ask for a new run: " +
				"kubectl commgroup run mi300x -n ml."},
		Means: "The node had a place, and the container did not come up. No rank ran. All nodes at once: " +
			"the image's name or secret; one node: its disk or its way to the registry. What the API server refused " +
			"is the namespace's, so that no node is among the culprits.",
		Causes: []string{"ImagePullBackOff, ErrImagePull: name, tag, digest or pull secret; " +
			"a first pull of 20 GB that takes longer than the deadline.",
			"Refused by the API server: Pod Security, quota, or an admission policy.",
			"CreateContainerError: a device that the plugin promised and the runtime cannot open.",
			"FailedMount: a volume of `runtime.pod`, or a full disk."},
		Look: []string{
			podEvents + "   # the kubelet's words: not found, unauthorized, no space left",
			"kubectl get cg -n NAMESPACE GROUP -o jsonpath='{.spec.runtime.image} {.spec.runtime.imagePullSecrets}'",
			"kubectl get secrets -n NAMESPACE                                    # the pull secret must be " +
				"in this namespace",
			describe + " | grep -E 'DiskPressure|Ready'"},
		OnNode: []string{"crictl pull IMAGE                                        # the registry's answer, " +
			"and how long it takes", "df -h /var/lib/containerd"},
		Do: []string{"A slow first pull: raise `run.startDeadlineSeconds`, or pull the image ahead by a DaemonSet.",
			"`unauthorized`: name the secret in `runtime.imagePullSecrets`."},
		Escalate: "The registry's owner for pulls that fail on all nodes; the node's owner where one node " +
			"alone cannot pull.",
		Ends: "With a new run, which you have to ask for."},
	"Interrupted": {
		Seen: []string{"node gpu-3: Baseline was interrupted (terminated) with ranks 0-7 at AllReduce BFloat16 " +
			"1048576 B; the spec may have changed, or the pod was evicted: where no new one has started, " +
			"ask for a new run: kubectl commgroup run mi300x -n ml"},
		Means: "The agent was told to stop (SIGTERM), ended its ranks in order and reported how far it was. " +
			"Not a fault of the node.",
		Causes: []string{"Somebody deleted the pod.",
			"A drain or shutdown of the node that left no condition on the pod.",
			"The kubelet stopped it: the pod's own deadline (`activeDeadlineSeconds`) while no manager was there."},
		Look: []string{podEvents + "   # Killing, NodeShutdown, DeadlineExceeded",
			"kubectl get events -A --field-selector involvedObject.kind=Node --sort-by=.lastTimestamp | grep NODE",
			nodeRun + "   # step and message"},
		Do:       []string{"Nobody did it on purpose: look in the API server's audit log for the delete of that pod."},
		Escalate: "Nobody for one; the cluster's administrator, where a controller deletes run pods again and again.",
		Ends:     "With a new run."},
	"RunDeadlineExceeded": {
		Seen: []string{
			"Node gpu-3 has not reported within nodeDeadlineSeconds (1800 s) of the start of its ranks; it was at: " +
				"AllReduce BFloat16. The pod is deleted to free the GPUs. Raise the deadline or measure less: " +
				"either starts a run of all members.",
			"9 of 16 nodes have not reported test group-1 within 700 s, and no other says that it failed: " +
				"gpu-1, gpu-2. Look whether their agents reach the API server."},
		Means: "Time ran out and no rank was seen to hang (that would be [RankHung](RankHung.md)). In the group's " +
			"stage it names no culprit: when most are silent, it is the way to the API server or the manager.",
		Causes: []string{"Much is measured: many collectives, sizes, " +
			"repeats and variants in one `run.nodeDeadlineSeconds`.",
			"The node is slow: a step that takes ten times its usual time is still within its step deadline.",
			"Reports do not arrive: NetworkPolicy, API server overload, or an expired token.",
			"No manager was there to give out the stage's tasks."},
		Look: []string{
			nodeRun + "   # step: how far it came; results: what was slow",
			status + "                    # Last runs: how long earlier ones took",
			runLogs,
			managers + "   # leader changes at that time"},
		Do: []string{"Rule of thumb: the last good run's time, doubled. Measure less by `benchmark.sizeFactor: " +
			"4`, fewer `benchmark.collectives`, or `benchmark.repeats: 1`."},
		Escalate: "The control plane's owner, where agents log timeouts of the API server.",
		Ends:     "With a run that comes to its end."},
	"Superseded": {Plain: true,
		Means: "The spec changed while this run went on, or after it, so that what it measured is not what is asked " +
			"for now; or its CommRun was deleted. Its pods were ended.",
		Ends: "With the run of the new spec, which starts by itself; after a deletion, with the next run."},
	"MemberLost": {
		Seen: []string{
			"Node gpu-3 left the group during run 4-2: it was deleted, made anew or no longer matches members.",
			"The agent of node gpu-3 has not reported the end of task 4-2/group-1 within 700 s (it was last seen " +
				"Joining). Look whether it reaches the API server, at its group pod's log, and in dmesg for GPU " +
				"resets and hung tasks."},
		Means: "The node is gone from the run, by the cluster's doing or by silence. Silence accuses nobody: " +
			"such a node gets a verdict only where the group is good without it and nobody else.",
		Causes: []string{"The Node object was deleted or re-created: autoscaler, reboot with a new name, a repair.",
			"Its labels changed, so that it matches `members` no more.",
			"The node died or froze in the middle of a step: kernel panic, a GPU that takes the host along.",
			"It lives and cannot reach the API server."},
		Look: []string{
			"kubectl get node NODE                                               # NotFound, NotReady, or a young AGE",
			events,
			"kubectl logs -n NAMESPACE -l rcclx.io/commgroup=GROUP,rcclx.io/stage=group --prefix --tail=50"},
		OnNode: []string{"journalctl -k -b -1 | tail -40                           " +
			"# the boot before: panic, machine check, GPU reset",
			"uptime                                                   # it rebooted during the run"},
		Do: []string{"Silent in the same step twice: take it out (`members.exclude`) and let the group pass without " +
			"it; that proves or clears it."},
		Escalate: "The server's vendor for machine checks and panics; the pool's owner for nodes that were taken away.",
		Ends:     "With a run in which it takes part, or without it."},
	"SessionIdle": {
		Seen: []string{"node gpu-3: no task came within 15m0s, so the GPUs were given back: the manager may be down " +
			"or may not reach the API server; the run goes on without the node or ends at its deadline"},
		Means: "A node of the stage gave its GPUs back, since no task came for a long time. That is the safety net " +
			"against a manager that is gone; the node is fine.",
		Causes: []string{"No manager was at work: down, without a leader, or being upgraded.",
			"The node could not read its CommTask: network, or the API server.",
			"The stage waits for another member longer than the idle deadline."},
		Look: []string{
			"kubectl get pods -n commgroup-system -l app.kubernetes.io/name=commgroup-manager   # " +
				"restarts, and their time",
			managers,
			"kubectl logs -n NAMESPACE -l rcclx.io/commgroup=GROUP,rcclx.io/stage=group --prefix --tail=50",
			network + "   # session: state, reason and message"},
		Do:       []string{"Two managers (`manager.replicas: 2`) bridge a node that goes down with one of them."},
		Escalate: "Whoever runs the operator, where managers restart without an upgrade.",
		Ends:     "With a new run."},
}
