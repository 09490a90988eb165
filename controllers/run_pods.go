package controllers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/commrun"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/objects"
	"rcclx.io/commgroup-operator/controllers/podstate"
	"rcclx.io/commgroup-operator/internal/clip"
	"rcclx.io/commgroup-operator/internal/explain"
	"rcclx.io/commgroup-operator/internal/units"
)

// createPods makes the run pods, after a look at the API itself: the cache may not yet show pods made a moment ago, and
// at most maxParallelNodes nodes may hold GPUs. Pods that were refused less than a minute ago are neither looked for
// nor sent.
func (r *writer) createPods(ctx context.Context, s *Snapshot, d *Decision) error {
	key := client.ObjectKeyFromObject(s.Group)
	known := r.podsRefused.of(key, s)
	var refused, missing []*corev1.Pod
	for _, pod := range d.CreatePods {
		if known.why(pod) != nil {
			refused = append(refused, pod)
		} else {
			missing = append(missing, pod)
		}
	}
	var created []error
	if len(missing) > 0 {
		var err error
		if missing, created, err = r.createMissing(ctx, s, missing, &known); err != nil {
			return err
		}
		r.podsRefused.set(key, known)
	}
	byCommTask := make(map[types.UID]*v1alpha1.CommTask, len(s.CommTasks))
	for i := range s.CommTasks {
		byCommTask[s.CommTasks[i].UID] = &s.CommTasks[i]
	}
	for _, pod := range refused {
		missing, created = append(missing, pod), append(created, known.why(pod))
	}
	var errs []error
	noted := func(ct *v1alpha1.CommTask, err error) {
		if ct != nil && ct.Spec.Run != nil {
			d.refused.commTask(ct, true, err)
		}
		errs = append(errs, err)
	}
	for i, err := range created {
		pod := missing[i]
		ct := byCommTask[pod.OwnerReferences[0].UID]
		switch {
		case err == nil:
		case apierrors.IsAlreadyExists(err):
		case ofGroupStage(pod):
			errs = append(errs, err) // tried again until the deadline for members, which then says that there is no pod
		case quotaExceeded(err):
			message := quotaMessage(err, known.admitted, s.Group.Spec.Run.MaxParallelNodes)
			noted(ct, r.noteQuotaWait(ctx, ct, message, s.Now))
		case apierrors.IsForbidden(err) || apierrors.IsInvalid(err):
			// A pod security level or the user's own overrides refuse the pod; to try again would not help.
			noted(ct, r.closeRefused(ctx, ct, pod.Name, err, s))
		case refuses(err):
			// An admission webhook that is away, which may come back.
			noted(ct, r.noteQuotaWait(ctx, ct, "the run pod was refused: "+err.Error(), s.Now))
		default:
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// createMissing makes those of the pods that are not there yet and have a place, and returns them with their errors.
// What is refused is added to known.
func (r *writer) createMissing(ctx context.Context, s *Snapshot, pods []*corev1.Pod,
	known *podRefusal) (missing []*corev1.Pod, errs []error, err error) {
	live, err := r.liveRunPods(ctx, s.Group)
	if err != nil {
		return nil, nil, err
	}
	present := make(map[string]bool, len(live))
	for i := range live {
		present[live[i].Name] = true
	}
	alive, admitted := livingPods(live, s.Now)
	taken := admitted
	for _, pod := range pods {
		// The group's stage needs all its members at once; maxParallelNodes bounds the nodes that run alone.
		if present[pod.Name] || !ofGroupStage(pod) && taken >= int(s.Group.Spec.Run.MaxParallelNodes) {
			continue
		}
		missing = append(missing, pod)
		taken++
	}
	// The pods of a namespace are alike to its quota, and to a webhook that is away: after one refusal the others need
	// not be sent.
	var all atomic.Pointer[error]
	errs = atOnce(missing, func(pod *corev1.Pod) error {
		if refused := all.Load(); refused != nil {
			return *refused
		}
		err := r.Client.Create(ctx, pod.DeepCopy(), client.FieldOwner(v1alpha1.FieldManagerController))
		if quotaExceeded(err) || apierrors.IsInternalError(err) {
			all.Store(&err)
		}
		return err
	})
	for i, err := range errs {
		switch {
		case err == nil:
			alive++
			admitted++
		case refuses(err):
			known.pods[missing[i].Name] = err
		}
	}
	known.alive, known.admitted = alive, admitted
	if refused := all.Load(); refused != nil {
		known.all = *refused
	}
	return missing, errs, nil
}

// livingPods counts the pods that hold GPUs, and those of them that are of nodes alone.
func livingPods(pods []corev1.Pod, now time.Time) (all, alone int) {
	for i := range pods {
		if pod := &pods[i]; podstate.Alive(pod) && !podstate.Stuck(pod, now) {
			if all++; !ofGroupStage(pod) {
				alone++
			}
		}
	}
	return all, alone
}

func ofGroupStage(pod *corev1.Pod) bool {
	return pod.Labels[v1alpha1.LabelStage] == v1alpha1.StagePodGroup
}

func (r *writer) closeRefused(ctx context.Context, ct *v1alpha1.CommTask, podName string, cause error,
	s *Snapshot) error {
	if ct == nil || ct.Spec.Run == nil {
		return cause
	}
	return r.closeNotStarted(ctx, ct, s,
		fmt.Sprintf("The API server refused run pod %s for node %s: %v. Fix what these words name: runtime.image, "+
			"runtime.pod, the namespace's pod security level, or the fields that its quota requires; then %s.",
			podName, ct.Spec.NodeName, cause, v1alpha1.AskRun(ct.Namespace, ct.Spec.Group.Name)))
}

func (r *writer) closeNotStarted(ctx context.Context, ct *v1alpha1.CommTask, s *Snapshot, message string) error {
	desired := ct.DeepCopy()
	desired.Spec.Run.Closed = &v1alpha1.RunClosure{
		Verdict: v1alpha1.VerdictError, Reason: v1alpha1.ReasonRunPodNotStarted, Time: *decision.Stamp(s.Now),
		Message: clip.Head(message, 1024),
	}
	return r.writeCommTask(ctx, commrun.Change{Current: ct, Desired: desired})
}

// quotaExceeded says whether a ResourceQuota has no room for a pod now. The API server has no status cause of its own
// for that; its quota admission begins the text so (k8s.io/apiserver,
// pkg/admission/plugin/resourcequota/controller.go). A quota that demands fields which the pod lacks ("failed quota")
// stays a refusal, since no wait helps.
func quotaExceeded(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), exceededQuota)
}

const exceededQuota = "exceeded quota"

// quotaMessage says that the quota refused the pod, and what would fit it. admitted are the run's own pods that hold
// part of the quota.
func quotaMessage(cause error, admitted int, maxParallelNodes int32) string {
	fits := "None of the run's own pods hold any of it, so that no smaller run.maxParallelNodes would fit: " +
		"raise the quota, or end what uses it."
	if admitted > 0 && admitted < int(maxParallelNodes) {
		fits = fmt.Sprintf("It admits %s of the run at a time: a run.maxParallelNodes of %d would fit instead of %d, "+
			"or raise the quota.", units.Counted(admitted, "pod"), admitted, maxParallelNodes)
	}
	const causeBytes = 300                                   // the message of a RunWait has 512
	_, quota, _ := strings.Cut(cause.Error(), exceededQuota) // what comes before names the pod that was refused first
	return fmt.Sprintf("the run pod was refused: %s%s %s",
		exceededQuota, explain.Sentence(clip.Head(quota, causeBytes)), fits)
}

// noteQuotaWait records in the node's assignment that its run pod waits for the quota.
func (r *writer) noteQuotaWait(ctx context.Context, ct *v1alpha1.CommTask, message string, now time.Time) error {
	if ct == nil || ct.Spec.Run == nil {
		return nil
	}
	desired := ct.DeepCopy()
	wait := &v1alpha1.RunWait{Reason: v1alpha1.ReasonRunPodNotStarted, Message: clip.Head(message, 512),
		Since: *decision.Stamp(now)}
	if was := ct.Spec.Run.Waiting; was != nil && was.Reason == wait.Reason {
		wait.Since = was.Since
	}
	desired.Spec.Run.Waiting = wait
	if objects.SameSpec(&ct.Spec, &desired.Spec) {
		return nil
	}
	return r.writeCommTask(ctx, commrun.Change{Current: ct, Desired: desired})
}

// podRefusal is what the API server refused of a run's pods, and until when it is not asked again.
type podRefusal struct {
	runID string
	until time.Time
	// pods by name, with why; all is why no pod of the run is taken, as by a quota.
	pods map[string]error
	all  error
	// alive are the group's pods that held GPUs then; once there are fewer, a quota may have room again. admitted are
	// those of nodes alone.
	alive, admitted int
}

// why the pod was refused; nil where it was not.
func (k *podRefusal) why(pod *corev1.Pod) error {
	if err := k.pods[pod.Name]; err != nil {
		return err
	}
	return k.all
}

// refusedPods is the refusal of each group's pods. No decision needs it: it spares a list of thousands of pods, and as
// many writes, in each reconcile, and a new manager does without.
type refusedPods struct {
	lock   sync.Mutex
	groups map[types.NamespacedName]podRefusal
}

// of the group what still holds for its run; else an empty one, which holds for refusedRetry.
func (m *refusedPods) of(group types.NamespacedName, s *Snapshot) podRefusal {
	m.lock.Lock()
	defer m.lock.Unlock()
	known, ok := m.groups[group]
	left := known.until.Sub(s.Now)
	alive, _ := livingPods(s.RunPods, s.Now)
	if run := s.Group.Status.Run; !ok || run == nil || known.runID != run.ID || left <= 0 || left > refusedRetry ||
		alive < known.alive {
		delete(m.groups, group)
		known = podRefusal{until: s.Now.Add(refusedRetry), pods: map[string]error{}}
		if run != nil {
			known.runID = run.ID
		}
	}
	known.pods = maps.Clone(known.pods)
	return known
}

// set keeps what refuses anything.
func (m *refusedPods) set(group types.NamespacedName, known podRefusal) {
	m.lock.Lock()
	defer m.lock.Unlock()
	if len(known.pods) == 0 {
		delete(m.groups, group)
		return
	}
	if m.groups == nil {
		m.groups = map[types.NamespacedName]podRefusal{}
	}
	m.groups[group] = known
}

func (m *refusedPods) forget(group types.NamespacedName) {
	m.lock.Lock()
	defer m.lock.Unlock()
	delete(m.groups, group)
}
