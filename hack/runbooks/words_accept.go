package main

// wordsAccepted are of the condition Accepted, and of the monitors.
var wordsAccepted = map[string]more{
	"Accepted": {Plain: true,
		Means: "The spec can be carried out on the members that the message counts. Nodes that it names as " +
			"unable to run have fewer allocatable GPUs than `ranksPerNode`: they keep the group from a Pass, " +
			"see [NoGPUResource](NoGPUResource.md)."},
	"NoNodesMatched": {
		Seen: []string{"No node matches members: selector amd.com/gpu.product-name=AMD_Instinct_MI300X_OAM, 0 names, " +
			"1 excluded. Compare with `kubectl get nodes --show-labels`."},
		Means: "The group has no member, so nothing is measured. The message has the selector as the API " +
			"server reads it.",
		Causes: []string{
			"The label is not on the nodes: AMD's node labeller or node feature discovery is not installed, " +
				"does not tolerate a taint of the nodes, or writes the value otherwise (blanks become underscores).",
			"The GPUs are virtual functions: their nodes have `feature.node.kubernetes.io/amd-vgpu=true` " +
				"and not `amd-gpu`.",
			"All nodes that match stand in `members.exclude` as well, or `members.nodeNames` has a name " +
				"that no Node has.",
			"The nodes were re-created under other names by their pool."},
		Look: []string{
			"kubectl get cg -n NAMESPACE GROUP -o jsonpath='{.spec.members}'",
			"kubectl get nodes -L amd.com/gpu.product-name,feature.node.kubernetes.io/amd-gpu," +
				"feature.node.kubernetes.io/amd-vgpu   # empty columns: the labeller or NFD has not been there",
			"kubectl get nodes -o jsonpath='{.items[*].metadata.name}'                          # against " +
				"members.nodeNames, letter by letter",
			"kubectl get pods -A -o wide | grep -E 'labeller|node-feature-discovery'            # not Running, " +
				"or not on these nodes"},
		Do:       []string{"Until a labeller is there, `members.nodeNames` needs no label."},
		Escalate: "Whoever runs the AMD GPU operator or NFD, where their pods are the ones that are missing.",
		Ends:     "As soon as a node matches: Nodes are watched, and the first run follows by itself."},
	"TooFewMembers": {
		Seen: []string{
			"3 nodes match and members.minMembers is 4: add or label nodes, or lower minMembers.",
			"No communicator over the group was formed: 1 of 4 nodes passed alone and it takes 2. Not passed: " +
				"gpu-2 (SlowLink), gpu-3 (NodeBusy), gpu-4 (NodeBusy). Mend those, or what the spec holds " +
				"them against; a new run follows once they or the spec change, or ask for a new run: " +
				"kubectl commgroup run mi300x -n ml."},
		Means: "In `Accepted` the selection is too small, and no run starts. At the group's stage enough " +
			"nodes were selected but too few of them passed alone, so nothing over several nodes was measured; " +
			"each node that did not pass is named with its own reason.",
		Causes: []string{
			"At the stage: nodes that failed or were busy. Their reasons differ, or they share one, which points at " +
				"an image or a threshold.",
			"In `Accepted`: nodes that were deleted, renamed or lost the label since the group was made.",
			"`members.minMembers` is above what the pool has, or `span: Group` was asked of a pool of one node."},
		Look: []string{
			status + "                    # members with verdict and reason each",
			culprits,
			"kubectl get nodes --show-labels | grep -c ' Ready'                  # how many nodes there are at all"},
		Do: []string{
			"Open the page of the reason that most of the nodes have, and mend that first.",
			"A pool that shrank for good: lower `members.minMembers`, then `kubectl commgroup run GROUP " +
				"-n NAMESPACE`."},
		Escalate: "The owner of the node pool, where nodes are gone that should be there.",
		Ends:     "In `Accepted` as soon as enough nodes match; at the stage with a run in which enough pass alone."},
	"NoGPUResource": {
		Seen: []string{
			"None of the 4 members has 8 allocatable amd.com/gpu: check that the device plugin runs on them " +
				"(`kubectl describe node gpu-1`).",
			"Node gpu-2 has 7 allocatable amd.com/gpu and a run needs 8: check the device plugin on it (`kubectl " +
				"describe node gpu-2`), lower ranksPerNode, or exclude the node. Once it is mended, a run of the " +
				"node starts by itself."},
		Means: "The kubelet does not offer as many devices as a run asks for. No rank was started; " +
			"nothing is known about the GPUs themselves.",
		Causes: []string{
			"All nodes show 0: the device plugin does not run there. After a taint of ours " +
				"(`rcclx.io/comm-failed`) or the readiness controller's it stays away unless it tolerates it " +
				"([gating](../../gating.md#what-must-tolerate-the-taint)).",
			"One node shows a few less: the plugin holds a GPU for unhealthy, or the kernel lost one.",
			"The GPUs are partitioned, and the plugin offers them by another name (`amd.com/cpx_nps4`) or, in CPX, " +
				"registers none (ROCm/k8s-device-plugin#184).",
			"`ranksPerNode` is 8 on nodes with 4 GPUs."},
		Look: []string{
			describe + " | grep -A12 -E '^(Capacity|Allocatable|Taints)'   # capacity 8, allocatable 7: " +
				"one is unhealthy. Both 7 or 0: go on below",
			topology +
				"                                # what the kernel shows: 8 there and 7 here is the plugin's matter",
			"kubectl get pods -A -o wide --field-selector spec.nodeName=NODE | grep -i device-plugin   # none, " +
				"or restarting: its log says why"},
		OnNode: []string{"lspci -d 1002: | grep -ci -E 'accelerator|display'     # GPUs that the bus has",
			"dmesg -T | grep -iE 'GPU reset|amdgpu.*failed'   # by the address of the GPU that is missing"},
		Do: []string{
			"Another resource's name: set `runtime.pod.gpuResourceName`, or the plugin's resource naming " +
				"strategy to single.",
			"The plugin alone is wrong: `kubectl delete pod` of it on that node, and look at the " +
				"allocatable count again."},
		Escalate: "The GPU's vendor, where the bus itself shows fewer GPUs than were bought and a power cycle does " +
			"not bring them back.",
		Ends: "By itself once the node has its GPUs allocatable."},
	"RuntimeImageMissing": {
		Seen: []string{"No runtime image: set spec.runtime.image to an image with ROCm and the library under test, " +
			"or start the manager with --default-runtime-image."},
		Means: "Ranks run in an image that you choose, since it holds the library that is tested. " +
			"The operator brings none.",
		Causes: []string{"`spec.runtime.image` was left out, and this install has no default.",
			"The default was lost in an upgrade of the chart (value `defaultRuntimeImage`)."},
		Look: []string{
			"kubectl get cg -n NAMESPACE GROUP -o jsonpath='{.spec.runtime.image}'",
			"kubectl get deployment -n commgroup-system -l app.kubernetes.io/name=commgroup-manager -o " +
				"jsonpath='{.items[*].spec.template.spec.containers[*].args}'   # --default-runtime-image",
			"helm get values commgroup -n commgroup-system   # defaultRuntimeImage"},
		Do: []string{"Take the image of the jobs, by digest: `kubectl patch cg GROUP -n NAMESPACE " +
			"--type=merge -p '{\"spec\":{\"runtime\":{\"image\":\"IMAGE@sha256:DIGEST\"}}}'`. " +
			"[Compatibility](../../compatibility.md) says which ROCm the GPUs need."},
		Escalate: "The team that builds the jobs' images, where none has the library yet.",
		Ends:     "With the image; the first run follows by itself."},
	"InvalidSchedule": {
		Seen: []string{
			"run.schedule \"0 3 * *\" is not a cron line: it has 4 fields, expected five: minute, hour, day of the " +
				"month, month, day of the week; or one of @yearly, @annually, @monthly, @weekly, @daily, @midnight, " +
				"@hourly. Write five fields (minute hour day month weekday), for example '0 3 * * *'.",
			"run.schedule \"0 3 30 2 *\" never comes within five years: no such day of the month is in those months. " +
				"Correct its day or month, for example '0 3 28 2 *'."},
		Means: "Accepted is False as a whole: not only the scheduled runs stay away, no other run starts either.",
		Causes: []string{"The CommGroup is older than the rule: the API server refuses most such lines now.",
			"A field is missing or one too many, as with a line that has seconds.",
			"`7` for Sunday, a time zone (`TZ=`, `CRON_TZ=`) or `@every`: none of them is taken.",
			"A day that no year has, such as 30 February."},
		Look: []string{
			"kubectl get cg -n NAMESPACE GROUP -o jsonpath='{.spec.run.schedule}'",
			"kubectl get cg -n NAMESPACE GROUP -o jsonpath='{.status.nextRunTime}'   # in UTC, once the line is right"},
		Do: []string{"Local time: convert it to UTC by hand. Spread groups by `run.jitterSeconds`, " +
			"not by odd minutes."},
		Escalate: "Nobody: this is the spec's author's.",
		Ends:     "At once when the line is right; `status.nextRunTime` then has the time."},
	"HostNetworkNotAllowed": {
		Seen: []string{"network.mode is Host, which namespace ml may not use; allowed: none. Use mode Pod or Multus, " +
			"or have the administrator name the namespace in the manager's --privileged-namespaces."},
		Means: "A pod on the node's network reaches everything that listens there, loopback too. So an administrator " +
			"lets in namespaces one by one; nothing runs until then.",
		Causes: []string{"The namespace was never let in.",
			"It is let in by Pod Security (`privileged`), and the manager was not told: these are two doors.",
			"A chart upgrade dropped the value `privilegedNamespaces`."},
		Look: []string{
			"kubectl get deployment -n commgroup-system -l app.kubernetes.io/name=commgroup-manager -o " +
				"jsonpath='{.items[*].spec.template.spec.containers[*].args}'   # --privileged-namespaces",
			"kubectl get namespace NAMESPACE --show-labels                       # " +
				"pod-security.kubernetes.io/enforce must be privileged as well",
			"kubectl get network-attachment-definitions -A                       # Multus is there: " +
				"mode Multus does without the privilege"},
		Do: []string{"Where Multus has a network with the NICs, `network.mode: Multus` with `network.multusNetworks` " +
			"needs no privilege."},
		Escalate: "The cluster's administrator: Helm value `privilegedNamespaces`.",
		Ends:     "When the manager restarts with the namespace, or the mode is another one."},
	"PodOverridesNotAllowed": {
		Seen: []string{"runtime.pod.annotations has the key \"k8s.v1.cni.cncf.io/networks\" of a cluster's " +
			"component, which may give run pods more than a CommGroup's author may hand out. Remove it; " +
			"docs/security.md says what is allowed."},
		Means: "Labels and annotations of such domains tell other controllers to add networks, volumes, identities " +
			"or profiles to the pod, past Pod Security. One that is refused stops all runs.",
		Causes: []string{"Networks asked for by annotation: `network.multusNetworks` is the place for them.",
			"A service mesh's or a cloud identity's key, copied from a job.",
			"`priorityClassName: system-node-critical` or its like, to win against jobs: runs are meant to lose."},
		Look: []string{
			"kubectl get cg -n NAMESPACE GROUP -o jsonpath='{.spec.runtime.pod}'",
			"kubectl get priorityclasses                                         # commgroup-run is the one for runs"},
		Do: []string{"To keep a mesh's sidecar away, `sidecar.istio.io/inject: \"false\"` and `linkerd.io/inject: " +
			"disabled` are allowed.", "Runs that find no place: set `run.nodes`, the schedule, or Kueue's " +
			"`run.queueName` instead of a priority."},
		Escalate: "The cluster's administrator, where the pods cannot run without the key.",
		Ends:     "At once when the key is gone."},
	"ListFailed": {
		Seen: []string{
			"The group's objects could not be read: run pods: the server was unable to return a response in the time " +
				"allotted. The controller tries again.",
			"No run was started on node gpu-3 within 300 s: run.nodes is Idle, and whether other " +
				"pods hold GPUs there could not be read: pods on node gpu-3: pods is forbidden: " +
				"User \"system:serviceaccount:commgroup-system:commgroup-manager\" cannot list resource " +
				"\"pods\" in API group \"\" at the cluster scope. Once it is mended, ask for a new run: " +
				"kubectl commgroup run mi300x -n ml."},
		Means: "As a condition: all are Unknown, nothing is concluded from a part of the objects. Runs on the nodes " +
			"go on, and what they report is read later. On one node: Error, and nothing is said of the node itself; " +
			"the others were measured.",
		Causes: []string{"The API server or etcd is overloaded or restarting.",
			"The manager's role lacks a right, after an upgrade that changed roles.",
			"A NetworkPolicy or proxy between the manager and the API server."},
		Look: []string{
			managers + "   # the same words, how often, and of which call",
			"kubectl get --raw='/readyz?verbose'                                  # a check that failed is " +
				"the API server's",
			"kubectl auth can-i list pods --as=system:serviceaccount:commgroup-system:commgroup-manager   " +
				"# no: the role"},
		Do: []string{"Forbidden in the log: install the chart's roles again (`helm upgrade`). With `namespaces` set, " +
			"the group's namespace must be among them."},
		Escalate: "Whoever runs the control plane, where `/readyz` fails or calls take seconds.",
		Ends:     "With the first read that works."},

	"AllReporting": {Plain: true,
		Means: "Each member has a report that is younger than the chart's `monitor.reportValidSeconds`. " +
			"That the clocks of some are off is a remark behind it: [ClockSkew](ClockSkew.md)."},
	"WaitingForAgents": {Plain: true,
		Means: "Monitors are being started on the members that the message names: the image is pulled, and the first " +
			"look takes a few seconds. Unknown meanwhile; nothing is wrong yet.",
		Ends: "With their first reports. After `run.startDeadlineSeconds` it becomes " +
			"[AgentNotReporting](AgentNotReporting.md), which names the nodes."},
	"AgentNotReporting": {
		Seen: []string{
			"The monitors of 2 of 16 members do not report: gpu-3, gpu-7. Check that each runs (`kubectl get pods " +
				"-A -l rcclx.io/role=monitor -o wide`; the chart's values monitor.nodeSelector and monitor.affinity " +
				"choose the nodes) and its log: on a node without AMD GPUs a monitor reports nothing.",
			"The monitor of node gpu-3 has not reported within 300 s of the start of run 4-2: its last report of " +
				"2026-11-28T09:12:04Z has run out. Look at its pod in the operator's namespace (`kubectl get pods -A " +
				"-l rcclx.io/role=monitor -o wide`). Once it is mended, a run of the node starts by itself."},
		Means: "Facts that are older than they hold count for nothing, so the node is not measured and its results " +
			"are not known to be true. It says nothing yet about GPUs. \"It never reported\" and \"has run out\" are " +
			"different stories: the first is an install that never worked there, the second a node or pod that died.",
		Causes: []string{
			"The node is down or NotReady: all its pods are silent.",
			"The monitor's pod is not there: the chart's `monitor.nodeSelector`, `monitor.affinity` or " +
				"`monitor.tolerations` leave the node out, the node has no room, or the DaemonSet may make no pod " +
				"(its events: a quota, Pod Security, an admission policy).",
			"It is there and waits: ImagePullBackOff, or a volume.",
			"It runs and cannot write: the API server refuses its CommNode, or a NetworkPolicy is in its way.",
			"It runs and finds no AMD GPU on the PCI bus, so that it makes no CommNode: the node is no member to be.",
			"It runs and hangs: a GPU that is being reset blocks reads of sysfs."},
		Look: []string{
			"kubectl get node NODE                                               # NotReady: " +
				"leave the monitor, mend the node",
			monitors + "   # no pod on NODE: taints, or the DaemonSet. Pending: events below",
			"kubectl get cn NODE                                                 # what it reported last, and when",
			"kubectl describe daemonsets,pods -n commgroup-system -l app.kubernetes.io/name=commgroup-monitor | " +
				"grep -A8 Events",
			"kubectl logs -n commgroup-system -l rcclx.io/role=monitor --prefix --tail=50   # forbidden, timeout, " +
				"or a file that does not answer"},
		OnNode: []string{"dmesg -T | grep -iE 'GPU reset|hung task'               # reads that hang",
			"journalctl -u kubelet --since '-30 min' | tail -50       # why the pod does not start"},
		Do: []string{"Deleting the monitor's pod is safe at any time: it keeps nothing but what the CommNode has."},
		Escalate: "The node's owner where the node is NotReady; the cluster's administrator where the API server " +
			"refuses the monitor; the GPU's vendor where reads hang again after a power cycle.",
		Ends: "With the next report, at most `monitor.intervalSeconds` of the chart later. Results of before " +
			"count again only where the node has not rebooted or changed."},
	"CommTasksRefused": {
		Seen: []string{
			"The API server refused to make CommTask ml/mi300x.gpu-3: admission webhook denied the request. " +
				"No run goes on without its CommTask.",
			"the name is taken: CommTask mi300x.gpu-3 is being deleted and waits for its finalizers " +
				"example.com/hold: remove them"},
		Means: "A CommTask is the one object that controller and run pod share. Without it the node is not measured, " +
			"however healthy it is.",
		Causes: []string{"A webhook or admission policy of the cluster that looks at all custom resources.",
			"A CommTask of another CommGroup of a like name has the name (`a.b` and node `c`, or `a` and node `b.c`).",
			"The old CommTask cannot go: somebody put a finalizer on it.",
			"An object-count quota of the namespace (`count/commtasks.rcclx.io`)."},
		Look: []string{
			"kubectl get commtask -n NAMESPACE GROUP.NODE -o jsonpath='{.metadata.finalizers} " +
				"{.metadata.deletionTimestamp} {.spec.group}'",
			"kubectl get resourcequota -n NAMESPACE -o yaml | grep -A3 count/",
			"kubectl get validatingwebhookconfigurations,validatingadmissionpolicies"},
		Do: []string{"Finalizers of a CommTask that is being deleted hold nothing of ours: `kubectl patch commtask " +
			"GROUP.NODE -n NAMESPACE --type=merge -p '{\"metadata\":{\"finalizers\":null}}'`."},
		Escalate: "The owner of the webhook or policy that the words name.",
		Ends: "With the first write that is taken. A node that a run gave up since its CommTask could not be " +
			"created is measured by itself then; for one whose CommTask could not be changed, ask for a run."},
	"ClockSkew": {
		Seen: []string{
			"ClockSkew: by the reports of their monitors the clocks of 2 members are more than 30 s off the API " +
				"server's: gpu-3 (ahead), gpu-7 (behind). No deadline depends on them; mend time synchronisation " +
				"there, or times in logs and reports mislead.",
			"Clocks are more than 30 s off the API server's on gpu-3 (ahead). No deadline depends on them; " +
				"mend time synchronisation, or times in logs and reports mislead."},
		Means: "No verdict is wrong by it. But `dmesg`, pod logs and `status` can no longer be laid side by side, " +
			"certificates may fail, and jobs with their own time-outs may do so.",
		Causes: []string{"No time daemon runs, or it has no source it trusts.",
			"The node came back from a long power-off with a dead clock battery.",
			"UDP port 123 is closed towards the servers.",
			"All members are named: then it is the API server's host that is off."},
		Look: []string{status + "                    # which nodes, and in which direction",
			"kubectl get lease -n kube-node-lease NODE -o jsonpath='{.spec.renewTime}'; date -u   # the kubelet " +
				"writes it each 10 s by its own clock: the same offset"},
		OnNode: []string{"chronyc tracking                                         " +
			"# Leap status: Not synchronised, or the last offset",
			"chronyc sources -v                                       # no line with ^*: no source is trusted",
			"timedatectl                                              # System clock synchronized: no"},
		Do: []string{"`chronyc makestep` sets the clock at once; do it while no job runs on the node."},
		Escalate: "Whoever runs the site's time servers, where no node finds a source; the server's vendor for a " +
			"battery of the board's clock.",
		Ends: "With the node's next report after the clock is right."},
}
