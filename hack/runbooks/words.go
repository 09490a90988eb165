package main

// more is what a page says beyond docs/reasons.md. Only reasons that people are called for have it.
type more struct {
	// Why is a sentence or two on where it comes from.
	Why string
	// Look are commands before the section's own, and Do steps after the table's.
	Look, Do []string
	// Instead: Look are all commands; those of the section would show nothing for it.
	Instead bool
	// Ends says when it is over.
	Ends string
}

// The commands that most pages share.
const (
	status   = "kubectl commgroup status GROUP -n NAMESPACE                    # conditions, members, culprits"
	explain  = "kubectl commgroup explain GROUP -n NAMESPACE                   # each setting: requested, effective, verified, and the gate"
	results  = "kubectl commgroup results GROUP -n NAMESPACE --node NODE       # that node's measurements"
	topology = "kubectl commgroup topology NODE -n NAMESPACE                   # its GPUs, links, NICs and error counters"
	nodeRun  = "kubectl get commnode -n NAMESPACE GROUP.NODE -o jsonpath='{.status.run}'     # verdict, step; log tail where a rank ended"
	facts    = "kubectl get commnode -n NAMESPACE GROUP.NODE -o jsonpath='{.status.facts}'   # what the node's monitor saw"
	runPods  = "kubectl get pods -n NAMESPACE -l rcclx.io/commgroup=GROUP -o wide            # run pods: while the run is, and of failed nodes after it"
	// Run pods that ended by themselves on failed nodes stay until the next run; all others go with their logs.
	runLogs   = "# Ended pods of failed nodes, at most 16, keep their logs until the group's next run; a pod that had to be deleted has none.\nkubectl logs -n NAMESPACE -l rcclx.io/commgroup=GROUP,rcclx.io/role=run --all-containers --prefix --tail=-1\n# Where none is left: kubectl commgroup run GROUP -n NAMESPACE, and while it runs the same with -f."
	podEvents = "kubectl get events -n NAMESPACE --field-selector involvedObject.kind=Pod --sort-by=.lastTimestamp    # of run pods; kept for an hour"
	monitors  = "kubectl get pods -A -l rcclx.io/role=monitor,rcclx.io/commgroup=GROUP -o wide"
	managers  = "kubectl logs -n commgroup-system -l app.kubernetes.io/name=commgroup-manager --tail=200"
	events    = "kubectl get events -n NAMESPACE --field-selector involvedObject.name=GROUP --sort-by=.lastTimestamp"
	describe  = "kubectl describe node NODE"
	kernel    = "dmesg -T | grep -iE 'amdgpu|xgmi|ras'                          # on the node"
	spans     = "kubectl get cg -n NAMESPACE GROUP -o jsonpath='{.status.span}'                # stage, tests, rounds, results"
	groupPods = "kubectl get pods -n NAMESPACE -l rcclx.io/commgroup=GROUP,rcclx.io/stage=group -o wide"
	inventory = "kubectl get cg -n NAMESPACE GROUP -o jsonpath='{.status.inventory}'           # which values, on how many nodes, and one example"
	published = "kubectl get configmap -n NAMESPACE GROUP-rccl-settings -o yaml"
)

// looks are the commands of each section of docs/reasons.md.
var looks = map[string][]string{
	"Condition Accepted":                                     {status, "kubectl get nodes --show-labels"},
	"Condition AgentsReporting":                              {status, monitors, "kubectl logs -n commgroup-system -l rcclx.io/role=monitor,rcclx.io/commgroup=GROUP --prefix --tail=50", describe},
	"Condition Compatible":                                   {status, inventory, topology, facts},
	"Condition Running":                                      {status, runPods, events},
	"Condition Validated and node verdicts":                  {status, results, nodeRun, runLogs},
	"The group's stage (status.span, span Group)":            {status, spans, groupPods, runLogs},
	"A node's network (CommNode.status.session.reason)":      {status, "kubectl get commnode -n NAMESPACE GROUP.NODE -o jsonpath='{.status.session}'   # the network as resolved on the node", "ip -br link; ip -br address; rdma link                                # on the node"},
	"Gating: events, and the Node's condition CommValidated": {status, "kubectl get cg -n NAMESPACE GROUP -o jsonpath='{.status.gating}'", describe},
	"Condition SettingsInEffect":                             {explain, "kubectl commgroup results GROUP -n NAMESPACE"},
	"Condition SettingsPublished":                            {status, published, explain},
	"Conditions Simulated, Ready and deletion":               {status, events, managers},
	"Settings (status.settings[].reason)":                    {explain, "bin/agent explain --flavor rcclx-dev --collective AllReduce --datatype bf16 --ranks 8   # the gates of a build, without a cluster"},
	"Warnings of a setting (status.settings[].warnings)":     {explain, "kubectl commgroup results GROUP -n NAMESPACE                   # errors with random data"},
	"Stale results (CommNode.spec.run.stale.reason)":         {status, facts, events},
}

var words = map[string]more{
	"NoNodesMatched": {Why: "Mostly a label that the nodes do not have: AMD's node labeller or node feature discovery is not installed, or writes another label.", Look: []string{"kubectl get cg -n NAMESPACE GROUP -o jsonpath='{.spec.members}'"}, Ends: "As soon as a node matches; the manager watches Nodes."},
	"NoGPUResource":  {Why: "The device plugin is not running on the node, holds GPUs for unhealthy, or publishes another resource (partitions: `amd.com/cpx_nps4` and the like).", Look: []string{describe + " | grep -A12 -E 'Capacity|Allocatable'"}, Do: []string{"For partitions set `runtime.pod.gpuResourceName` to the resource that the plugin publishes.", "A taint `rcclx.io/comm-failed` or `readiness.k8s.io/comm-validated` on the node also keeps a device plugin away that does not tolerate it: give its DaemonSet the toleration (docs/gating.md, What must tolerate the taint)."}, Ends: "By itself, once the node has the GPUs allocatable."},
	"TooFewMembers":  {Ends: "Of the members: as soon as enough nodes match. Of the group's stage: with a run in which enough pass alone."},
	"AgentNotReporting": {Why: "The monitor's pod does not run there (image, taint, a full node), cannot reach the API server, or cannot read sysfs; or the node is down.",
		Do: []string{"Pod Pending or ImagePullBackOff: read its events. Pod running: its log names the call that is refused. No pod: look at the DaemonSet in the operator's namespace."}, Ends: "With the next report, at most `health.intervalSeconds` later. Results of before count again only if the node has not rebooted or changed."},
	"TopologyFault": {Why: "An xGMI link did not train or went down; the driver then shows the pair over PCIe, or not at all. A loose or broken bridge, a module that was swapped, or a reset that did not bring the hive back.",
		Look: []string{topology, kernel}, Do: []string{"Power-cycle the node (a warm reboot does not retrain all links); if it stays, reseat or replace the module that the message names."}, Ends: "When the monitor sees a full mesh again, without a run."},
	"GPUCountMismatch": {Look: []string{topology, describe}, Ends: "When all counts agree."},
	"HealthDegraded":   {Why: "Error counters of a GPU's blocks rose, or a link went down, since the monitor's last look.", Look: []string{topology, kernel}, Do: []string{"Uncorrectable errors: take the node out and let the vendor's tool decide on the GPU. Correctable ones that rise steadily announce them."}},
	"SysfsUnreadable":  {Look: []string{facts}},
	"SlowLink": {Why: "One xGMI link runs with fewer lanes or with retries: dust, a module that is not seated, a bad bridge.", Look: []string{topology, kernel},
		Do: []string{"Cordon the node first: `kubectl cordon NODE`. A ring or mesh over all GPUs is as slow as this link.", "After the repair: `kubectl commgroup run GROUP -n NAMESPACE`, then `kubectl commgroup wait GROUP -n NAMESPACE`."}, Ends: "When a run of the node passes."},
	"SlowGPU":             {Why: "A power cap, thermal throttling, a firmware that differs, or memory errors that cost retries.", Look: []string{topology, "rocm-smi --showclocks --showpower --showtemp --showmaxpower        # on the node"}, Ends: "When a run of the node passes."},
	"SlowNode":            {Why: "Most often BIOS or power settings, NUMA balancing, the IOMMU, another tenant on the host, or another library or driver.", Look: []string{"kubectl commgroup results GROUP -n NAMESPACE                   # the members' median, to compare with", spans}, Do: []string{"Which of the two it is, says `kubectl commgroup status`: slow alone (the node's verdict is Fail), or only together with others (it passed alone, and the group's stage names it).", "`status.run.preconditions` lists what the node lacks; [preconditions](../../preconditions.md) has each."}, Ends: "When a run of the node passes."},
	"BelowThreshold":      {Do: []string{"Hold the measurement against [normal numbers](../../normal-numbers.md) first: a threshold of another size, datatype or placement is not comparable."}, Ends: "When a run meets it, or the threshold is changed (which starts a run)."},
	"Regression":          {Why: "The same nodes were faster before: an update of driver, firmware, library or settings, a part that wears out, or a neighbour on the network.", Look: []string{"kubectl commgroup compare --list GROUP -n NAMESPACE             # past runs, to compare two of them"}, Ends: "When a run is within `regression.maxDropPercent` of the baseline again, or begins a new one (`rcclx.io/baseline-from`)."},
	"RankHung":            {Why: "A GPU that stopped answering, a link that lost a packet for good, a kernel that waits for a peer that died, or settings that differ between ranks.", Look: []string{nodeRun, kernel}, Do: []string{"Cordon the node. A GPU that hung is reset by a reboot at the latest; if it hangs again, replace it."}, Ends: "When a run of the node passes."},
	"WrongData":           {Why: "Silent data corruption: memory or a link flips bits without an error being reported, or the library has a fault. FP8's known hazards are not counted here.", Look: []string{results, topology}, Do: []string{"`kubectl cordon NODE` at once: each job there computes wrong numbers without noticing.", "Run again with `benchmark.variants: [Baseline]` to tell hardware from a setting: if Baseline is wrong too, it is the hardware."}, Ends: "When a run of the node passes; do not lift the cordon before several did."},
	"RankDied":            {Look: []string{nodeRun, runLogs}, Do: []string{"Signal 9: the memory limit of the pod (`runtime.pod.resources`, `shmSizeMiB`). Signal 7 or 11: the library or the driver; the log tail has the frame."}},
	"InitFailed":          {Look: []string{nodeRun, runLogs}, Do: []string{"Set `runtime.env: [{name: NCCL_DEBUG, value: INFO}]` and run again: the library then names interface, transport and the call that fails."}},
	"PreconditionFailed":  {Look: []string{nodeRun}},
	"RequirementNotMet":   {Look: []string{explain}},
	"RunPodUnschedulable": {Why: "A job holds the GPUs. Runs have a low priority on purpose and never push a job away.", Instead: true, Look: []string{status, podEvents, describe}},
	"RunPodNotStarted": {Why: "The image cannot be pulled (name, tag, registry, pull secret), the API server refused the pod (quota, Pod Security), or the kubelet could not start its container.", Instead: true,
		Look: []string{status, podEvents, "kubectl get cg -n NAMESPACE GROUP -o jsonpath='{.spec.runtime.image} {.spec.runtime.imagePullSecrets}'", "kubectl get resourcequota -n NAMESPACE", "kubectl get namespace NAMESPACE --show-labels                      # its Pod Security level"},
		Do:   []string{"A pull secret must be in the group's namespace and be named in `runtime.imagePullSecrets`."}},
	"RunPodFailed":        {Look: []string{nodeRun, podEvents}},
	"RuntimeImageMissing": {Instead: true, Look: []string{status, "kubectl get cg -n NAMESPACE GROUP -o jsonpath='{.spec.runtime.image}'", "kubectl get deployment -n commgroup-system -l app.kubernetes.io/name=commgroup-manager -o jsonpath='{.items[*].spec.template.spec.containers[*].args}'   # --default-runtime-image"}},
	"InvalidSchedule":     {Instead: true, Look: []string{status, "kubectl get cg -n NAMESPACE GROUP -o jsonpath='{.spec.run.schedule}'"}},
	"WaitingForQueue":     {Instead: true, Look: []string{status, "kubectl get workloads,localqueues -n NAMESPACE", "kubectl get clusterqueues                                           # quota, and what uses it"}},
	"NodeBusy":            {Instead: true, Look: []string{status, "kubectl get pods -A -o wide --field-selector spec.nodeName=NODE     # who holds the GPUs", describe}, Why: "`run.nodes: Idle` starts no run beside other pods with GPUs.", Ends: "By itself when the node is idle, up to five times; then with the next run of all."},
	"RunDeadlineExceeded": {Look: []string{runPods, runLogs}},
	"HangAcrossNodes":     {Why: "A switch port, route, firewall rule or NIC that loses what goes between nodes, or members with different settings.", Look: []string{spans, "rdma link; ethtool -S IFACE | grep -iE 'err|drop|discard'             # on the named node"}, Do: []string{"`NCCL_SOCKET_IFNAME` and the port range must be reachable between all members: NetworkPolicies too."}, Ends: "When a run over all members passes."},
	"SlowPair":            {Look: []string{spans}, Do: []string{"Each node is fine with others, so look at what only these two share: switch ports on one leaf, a link between two leaves, a route."}, Ends: "When a run over all members passes."},
	"SlowRail":            {Look: []string{spans, topology, "ibstat; ethtool IFACE; lspci -vv -s NIC | grep LnkSta                 # on the node: speed and width of NIC and PCIe slot"}, Do: []string{"A NIC at half its rate or PCIe width after a reboot is the most common case: reseat it, then its cable, then the switch port."}, Ends: "When a run over all members passes."},
	"TransportFallback":   {Look: []string{spans, "kubectl get commnode -n NAMESPACE GROUP.NODE -o jsonpath='{.status.session.task.communicators}'   # what the library's log said, while the run's session is there", "kubectl exec -n NAMESPACE POD -- ls /dev/infiniband                      # while a group pod runs (kubectl commgroup run): are the devices there?"}, Do: []string{"`network.rdmaResources` puts the devices into the pod; `ulimit -l` must be unlimited in it."}, Ends: "When a run over all members uses RDMA, or `network.requireTransport` is Any."},
	"SlowCommunicator":    {Look: []string{spans}, Do: []string{"No node is to blame by this alone: drain nobody, look at what the communicator's members share."}, Ends: "When a run over all members passes."},
	"SlowGroup":           {Look: []string{spans}, Ends: "When a run over all members meets the threshold, or the threshold is changed (which starts a run)."},
	"MeshMismatch":        {Look: []string{spans}, Ends: "With the first run whose members fit the mesh."},
	"NotInEffect":         {Why: "The setting was asked for, and this build of the library, or the ranks, sizes and datatypes of the run, do not let it act. It costs nothing; it does nothing."},
	"NotVerified":         {Why: "By its gates the setting acts, but the A/B numbers show no difference: the measured sizes may lie outside of where it helps, or the library ignores the variable."},
	"TailHazard":          {Why: "FP8 divides counts over ranks and blocks; the rest at the end of some counts comes out wrong, and the library reports no error."},
	"ConfigMapNotOwned":   {Look: []string{published}},
	"BreakerOpen":         {Why: "Many nodes failed at once. That is hardly ever many broken nodes: an image, a library, a driver rollout, a switch or a wrong threshold.", Ends: "At the end of a run in which no more than `gating.maxPercent` of the members failed, or may fail still: could not be measured, or were rebooted or changed since. That a run begins, or is aborted, ends it not."},
	"ClockSkew":           {Look: []string{"chronyc tracking                                                     # on the node"}},
}
