package controllers

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/commgroup"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/internal/clip"
	"rcclx.io/commgroup-operator/internal/state"
)

// refusals are what the API server does not take of a reconcile's writes. They go into the conditions, as the manager's
// log is not read by those who own a group. They last as long as the writes are refused: the conditions are computed
// again each time.
type refusals struct {
	// CommTasks are writes of CommTasks, others all else that no condition of its own tells of.
	commTasks []refusal
	others    []refusal
	// nodes whose CommTasks are there and could not be changed.
	nodes []string
}

// refusal is one write: what was to be done, and the API server's words.
type refusal struct {
	what string
	err  error
}

// refusedWordsBytes of the API server's words are told; its answer to a bad DaemonSet may be long, and the next step is
// to follow.
const refusedWordsBytes = 600

// refusedNext is the next step where nothing better is known.
const refusedNext = "Mend what these words name: a quota, an admission policy or webhook, the manager's roles, " +
	"what blocks the name; it is tried again by itself."

// errTaken: an object that is not the group's has the name of one of its own.
var errTaken = errors.New("the name is taken")

// refuses says whether the API server does not take a write, so that to try again helps only once a user has acted.
// Conflicts, timeouts, too many requests and a server that cannot be reached end by themselves.
func refuses(err error) bool {
	var answer apierrors.APIStatus
	switch {
	case errors.Is(err, errTaken), errors.Is(err, errNotOurs):
		return true
	case !errors.As(err, &answer):
		return false
	}
	switch code := answer.Status().Code; code {
	case http.StatusNotFound, http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return false
	default: // an admission webhook that does not answer is a 500
		return code >= http.StatusBadRequest && code <= http.StatusInternalServerError
	}
}

// onlyRefusals says whether err is a refusal or joins nothing but refusals. An error that ends by itself among them is
// retried sooner.
func onlyRefusals(err error) bool {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		found := false
		for _, e := range joined.Unwrap() {
			if errors.Is(errClosureNotWritten, e) { // e is the mark itself, and wraps nothing
				continue
			}
			if !onlyRefusals(e) {
				return false
			}
			found = true
		}
		return found
	}
	if inner := errors.Unwrap(err); inner != nil {
		return onlyRefusals(inner)
	}
	return refuses(err)
}

// add keeps err if it is a refusal.
func add(to *[]refusal, what string, err error) {
	if refuses(err) {
		*to = append(*to, refusal{what, err})
	}
}

// commTask keeps err if it is a refusal to write the CommTask, which exists or does not.
func (r *refusals) commTask(ct *v1alpha1.CommTask, exists bool, err error) {
	add(&r.commTasks, "write CommTask "+ct.Name, err)
	if exists && refuses(err) {
		r.nodes = append(r.nodes, ct.Spec.NodeName)
	}
}

// refusedWords tell of the first refusal, and count the rest.
func refusedWords(all []refusal) string {
	text := fmt.Sprintf("The API server refused to %s: %s.", all[0].what,
		strings.TrimSuffix(clip.Head(strings.Join(strings.Fields(all[0].err.Error()), " "), refusedWordsBytes), "."))
	if more := len(all) - 1; more > 0 {
		text += fmt.Sprintf(" It refused %d more like it.", more)
	}
	return text
}

// tell puts the refusals into the decision's conditions, with one event when each begins.
func (r *refusals) tell(d *Decision, group *state.Group, now time.Time) {
	changed := map[string]decision.Finding{}
	if len(r.commTasks) > 0 {
		agents := decision.Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonCommTasksRefused,
			Message: refusedWords(r.commTasks) + " A run cannot go on without them. " + refusedNext}
		if at := slices.IndexFunc(d.Status.Remarks, func(r v1alpha1.Remark) bool {
			return r.Reason == v1alpha1.ReasonClockSkew
		}); at >= 0 {
			agents.Remark = &d.Status.Remarks[at]
		}
		changed[v1alpha1.ConditionAgentsReporting] = agents
	}
	if len(r.others) > 0 {
		f := d.running
		f.Remark = &v1alpha1.Remark{Reason: v1alpha1.ReasonWritesRefused,
			Message: refusedWords(r.others) + " " + refusedNext}
		changed[v1alpha1.ConditionRunning] = f
	}
	if len(changed) > 0 {
		d.Events = commgroup.Update(&d.Status, d.Events, group, now, changed)
	}
}

// maxRefusedNodes is how many nodes a RunRefusal names.
const maxRefusedNodes = 64

// note writes down in the run since when CommTasks are refused: what is in the status is all that the next decision
// knows of it.
func (r *refusals) note(run *v1alpha1.GroupRunStatus, now time.Time) {
	if len(r.commTasks) == 0 {
		if run.Phase == v1alpha1.RunPhaseRunning { // one that ends has nodes that it gave up
			run.Refused = nil
		}
		return
	}
	next := &v1alpha1.RunRefusal{Since: *decision.Stamp(now), Message: clip.Head(refusedWords(r.commTasks), 512)}
	if run.Refused != nil {
		next.Since = run.Refused.Since
	}
	slices.Sort(r.nodes)
	next.Nodes = slices.Compact(r.nodes)
	if next.More = len(next.Nodes) > maxRefusedNodes; next.More {
		next.Nodes = next.Nodes[:maxRefusedNodes]
	}
	run.Refused = next
}

// configMapRefused takes back what the decision says of a ConfigMap that could not be written. One that another writer
// came first with is checked again at once, and until then the last status holds.
func configMapRefused(d *Decision, group *state.Group, now time.Time, err error) {
	name := d.ConfigMap.Name
	d.Status.Published = group.Status.Published
	d.Events = slices.DeleteFunc(d.Events, func(e decision.Event) bool {
		return e.Reason == v1alpha1.ReasonSettingsRestored
	})
	before := meta.FindStatusCondition(group.Status.Conditions, v1alpha1.ConditionSettingsPublished)
	f := decision.Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonConfigMapNotWritten,
		Message: clip.Head(fmt.Sprintf("ConfigMap %s could not be written: %v. Mend what refuses it (a quota, "+
			"an admission policy, immutable: true); it is tried again.", name, err), 1024)}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		f = decision.Finding{Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonNotProven,
			Message: "Another writer came first; the ConfigMap is looked at again."}
		if before != nil && before.Reason != v1alpha1.ReasonListFailed {
			f = decision.Finding{Status: before.Status, Reason: before.Reason, Message: before.Message}
		}
	}
	d.Events = commgroup.Update(&d.Status, d.Events, group, now,
		map[string]decision.Finding{v1alpha1.ConditionSettingsPublished: f})
}
