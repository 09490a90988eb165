package main

import "maps"

// more is what a page says of a reason beyond docs/reasons.md. Each reason has its own; no text would fit another one
// as well.
type more struct {
	// Plain: a state that nobody has to do anything about. Its page has Means, and may have Ends.
	Plain bool
	// Seen are messages as the code writes them, with names and figures put in.
	Seen []string
	// Means is what is known by it, and what is not.
	Means string
	// Causes, the likeliest first.
	Causes []string
	// Look are commands that tell the causes apart, from anywhere; OnNode those for the node itself. What stands
	// behind # says what to look for in the answer.
	Look, OnNode []string
	// Do are steps after the table's next step.
	Do []string
	// Escalate says when to call whom.
	Escalate string
	// Ends says when it is over.
	Ends string
}

// The commands that several pages share.
const (
	status   = "kubectl commgroup status GROUP -n NAMESPACE"
	explain  = "kubectl commgroup explain GROUP -n NAMESPACE"
	results  = "kubectl commgroup results GROUP -n NAMESPACE"
	nodeRes  = "kubectl commgroup results GROUP -n NAMESPACE --node NODE"
	topology = "kubectl commgroup topology NODE -n NAMESPACE"
	again    = "kubectl commgroup run GROUP -n NAMESPACE --wait"
	history  = "kubectl commgroup compare --list GROUP -n NAMESPACE"
	nodeRun  = "kubectl get commtask -n NAMESPACE GROUP.NODE -o jsonpath='{.status.run}'"
	problems = "kubectl get cn NODE -o jsonpath='{.status.facts.problems}'"
	logTail  = "kubectl get commtask -n NAMESPACE GROUP.NODE -o jsonpath='{.status.run.logTail}'"
	runPods  = "kubectl get pods -n NAMESPACE -l rcclx.io/commgroup=GROUP -o wide"
	// Run pods that ended by themselves on failed nodes stay until the next run; all others go with their logs.
	runLogs = "# Ended pods of failed nodes, at most 16, keep their logs until the group's next run; a pod " +
		"that had to be deleted has none.\nkubectl logs -n NAMESPACE -l rcclx.io/commgroup=GROUP,rcclx.io/role=run " +
		"--all-containers --prefix --tail=-1\n# Where none is left: kubectl commgroup run GROUP -n NAMESPACE, " +
		"and while it runs the same with -f --max-log-requests=64 (kubectl follows 5 containers, else)."
	podEvents = "kubectl get events -n NAMESPACE --field-selector involvedObject.kind=Pod --sort-by=.lastTimestamp"
	events    = "kubectl get events -n NAMESPACE --field-selector involvedObject.name=GROUP --sort-by=.lastTimestamp"
	monitors  = "kubectl get pods -A -l rcclx.io/role=monitor -o wide"
	managers  = "kubectl logs -n commgroup-system -l app.kubernetes.io/name=commgroup-manager --tail=200"
	describe  = "kubectl describe node NODE"
	holders   = "kubectl get pods -A -o wide --field-selector spec.nodeName=NODE"
	tests     = "kubectl get cgr -n NAMESPACE RUN -o jsonpath='{.status.span.tests}'"
	culprits  = "kubectl get cgr -n NAMESPACE RUN -o jsonpath='{.status.culprits}'"
	localized = "kubectl get cgr -n NAMESPACE RUN -o jsonpath='{.status.span.localization}'"
	inventory = "kubectl get cgr -n NAMESPACE RUN -o jsonpath='{.status.inventory}'"
	nodesNow  = "kubectl get cn -o wide"
	models    = "kubectl get cn -o " +
		"custom-columns=NODE:.metadata.name,MODEL:.status.facts.gpuModel,GFX:.status.facts.gfxTarget"
	network    = "kubectl get commtask -n NAMESPACE GROUP.NODE -o jsonpath='{.status.session}'"
	published  = "kubectl get configmap -n NAMESPACE GROUP-rccl-settings -o yaml"
	kernelLog  = "dmesg -T | grep -iE 'amdgpu|xgmi|ras'"
	kernelXGMI = "dmesg -T | grep -i xgmi"
)

// words has the text of each reason. The files words_*.go have a part each, and no reason is in two of them.
var words = joined(parts)

var parts = []map[string]more{wordsAccepted, wordsCompatible, wordsRunning, wordsVerdict, wordsSpan, wordsGating,
	wordsSettings, wordsPublished}

func joined(parts []map[string]more) map[string]more {
	all := map[string]more{}
	for _, p := range parts {
		maps.Copy(all, p)
	}
	return all
}
