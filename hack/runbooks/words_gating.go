package main

// wordsGating are of gating, and of the Node's condition.
var wordsGating = map[string]more{
	"NodeGated": {
		Seen: []string{"Gated by CommGroup ml/mi300x: SlowLink: Link 0000:65:00.0<->0000:d5:00.0: " +
			"moves 21.3 GB/s each way"},
		Means: "The node failed a run and carries the group's mark: a condition, label or taint, as `gating.actions` " +
			"has them. Pods that run there stay; with the taint no new job is placed.",
		Causes: []string{"The reason behind the colon is the cause: [SlowLink](SlowLink.md), " +
			"[RankHung](RankHung.md), [WrongData](WrongData.md) and so on have its page.",
			"The group's stage named the node for what happens between nodes."},
		Look: []string{
			describe + " | grep -A6 -E 'CommValidated|Taints'   # group, run and cause",
			status,
			"kubectl get node NODE -o jsonpath='{.metadata.annotations}' | tr ',' '\\n' | grep gating.rcclx.io   # " +
				"each group that holds the node failed"},
		Do: []string{
			"Mend the node, then `kubectl commgroup run GROUP -n NAMESPACE`: run pods tolerate the taint, " +
				"and the mark goes with the Pass.",
			"You need the node tonight all the same: `kubectl annotate node NODE gating.rcclx.io/exempt=true`; " +
				"note it in the ticket, it stays until you remove it."},
		Escalate: "As the page of the cause says.",
		Ends:     "When the node passes, is replaced, exempted, or leaves the group."},
	"NodeUngated": {Plain: true, Means: "The mark of this group is gone; jobs may come back unless another group " +
		"still holds the node failed. The event says why. Only \"the node passed\" is proof that it was mended: " +
		"the others (it left, was replaced, is exempt, gating is off) say nothing of its health."},
	"BreakerOpen": {
		Seen: []string{"7 of 16 members failed at once and gating.maxPercent (20) allows 3: gpu-1, gpu-2, gpu-3 and " +
			"4 more. No further node is marked. BelowThreshold on 6. Look for what they share (image, library build, " +
			"driver, switch, a threshold), then ask for a new run: kubectl commgroup run mi300x -n ml."},
		Means: "More nodes failed than gating may take away, so it takes no more. Marks that stand stay. " +
			"So many broken nodes at once hardly ever are broken nodes.",
		Causes: []string{"An image, library or driver that was rolled out since the last good run.",
			"A threshold or reference that was changed, or never fitted these nodes.",
			"A switch, a rack's power or cooling: the failed nodes are neighbours.",
			"Another workload that ran on all of them (`run.nodes: Any`)."},
		Look: []string{
			"kubectl get cg -n NAMESPACE GROUP -o jsonpath='{.status.gating}'     # names and the commonest reason",
			"kubectl commgroup compare GROUP/previous GROUP/latest -n NAMESPACE  # what changed between good and bad",
			"kubectl get nodes -L topology.kubernetes.io/zone                    # or your own label for racks and " +
				"leaves: do the failed ones share one",
			inventory},
		Do: []string{"Take the change back first, then ask for a run: that is also the proof.",
			"Truly so many bad nodes: `kubectl cordon NODE` each by hand, or raise `gating.maxPercent` for the time."},
		Escalate: "The owner of the change; facility staff for a rack. Not the GPU's vendor: seven GPUs do not " +
			"break in one night.",
		Ends: "At the end of a run in which no more than `gating.maxPercent` of the members failed, " +
			"or may fail still: could not be measured, or were rebooted or changed since. That a run begins, " +
			"or is aborted, ends it not."},
	"BreakerClosed": {Plain: true, Means: "A run ended with few enough failures, so gating works again. " +
		"Nodes that failed in it were marked just now: each has its own [NodeGated](NodeGated.md)."},
	"CommFailed": {
		Seen: []string{"Failed in CommGroup ml/mi300x, run 4-2: RankHung. GPU 0000:65:00.0:"},
		Means: "Seen on a Node, as condition `CommValidated` False and `CommProblem` True: " +
			"at least one CommGroup holds that communicators on this node do not work as they should. " +
			"Other groups may hold the opposite; one is enough.",
		Causes: []string{"The reason behind the run: its page has the causes.",
			"A group with a stricter mark than the others'."},
		Look: []string{
			describe + " | grep -A4 -E 'CommValidated|CommProblem'",
			"kubectl get ct -A -o wide | grep NODE   # its CommTasks in all groups: verdict and reason of each",
			"kubectl get node NODE -o jsonpath='{.metadata.annotations}' | tr ',' '\\n' | grep gating.rcclx.io"},
		Do: []string{"Go by the group and run that the message names: `kubectl commgroup status`, then the page " +
			"of its reason."},
		Escalate: "The owners of the group that is named, who can say whether its mark is right.",
		Ends:     "When that group's next run of the node passes, and no other holds it failed."},
	"CommPassed": {Plain: true, Means: "Condition `CommValidated` is True, and `CommProblem` False: the node passed " +
		"its last run, and no group holds that it failed. The time is that of the last change, not of the last run; " +
		"a node nobody measures any more keeps it until the group is gone."},
}
