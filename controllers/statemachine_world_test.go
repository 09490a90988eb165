package controllers

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/commrun"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/objects"
	"rcclx.io/commgroup-operator/controllers/podstate"
	"rcclx.io/commgroup-operator/controllers/publish"
	"rcclx.io/commgroup-operator/controllers/runs"
	"rcclx.io/commgroup-operator/controllers/testkit"
	"rcclx.io/commgroup-operator/internal/state"
)

// machine is a cluster as a manager really sees it: its caches lag behind the API server, each kind by itself; writes
// that rest on a stale read are refused as the API server refuses them, any write may fail, and what was written before
// stays. The agents of the group's stage are those of groupWorld. All of it follows from the seed.
type machine struct {
	*groupWorld
	rng *rand.Rand
	// views are what the API server has had, the last is what it has; never changed once they are there.
	views []apiView
	// cache says which view each kind in the manager's cache is of; other is that of a manager that was paused while
	// this one took over, and does not know it yet.
	cache, other caches
	// stored is the CommGroup's own status; runs of the world has its CommRuns.
	stored v1alpha1.CommGroupStatus
	// version is the last resource version; made counts objects, for their UIDs.
	version, made int
	// absent nodes are no objects of the API, by name; their places stay, for the agents go by them.
	absent map[string]bool
	// oddities are what is odd in the facts of nodes, by name.
	oddities map[string]func(*v1alpha1.NodeFacts)
	// skew of the nodes' clocks, by name.
	skew map[string]time.Duration
	// failing: one write in so many fails; 0 for none.
	failing int
	// punctual: no time goes by while an agent has something to do.
	punctual bool
	trace    []string
	wakeAt   time.Time
	writes   writeCounts
	known    knowledge
}

type caches struct{ group, runs, nodes, commNodes, commTasks, pods, configMap int }

type apiView struct {
	group     *v1alpha1.CommGroup
	runs      []v1alpha1.CommRun
	nodes     []corev1.Node
	commNodes map[string]*v1alpha1.CommNode
	commTasks map[string]*v1alpha1.CommTask
	pods      map[string]*corev1.Pod
	configMap *corev1.ConfigMap
}

// writeCounts are the writes that the API server took from the manager, and the nodes that they were of.
type writeCounts struct {
	status, runs, commTasks, pods, configMaps, marks int
	nodes                                            map[string]bool
}

var errInjected = errors.New("the API server does not answer")

// errConflict is what the API server says to a write that rests on a stale read.
var errConflict = apierrors.NewConflict(schema.GroupResource{Resource: "objects"}, "one", errors.New("it was changed"))

func (m *machine) logf(format string, args ...any) {
	m.trace = append(m.trace, m.now.Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// failf ends the history, and prints its end.
func (m *machine) failf(format string, args ...any) {
	m.t.Helper()
	m.t.Fatalf("%s\nsettings: %s\nfaults: %+v\nthe history's end:\n%s", fmt.Sprintf(format, args...),
		describe(&m.group.Spec), m.faults, strings.Join(m.trace[max(0, len(m.trace)-60):], "\n"))
}

func describe(s *v1alpha1.CommGroupSpec) string {
	return fmt.Sprintf("span %s, maxParallelNodes %d, minMembers %d, schedule %q, mesh %d",
		s.Span, s.Run.MaxParallelNodes, s.Members.MinMembers, s.Run.Schedule, len(s.Mesh))
}

// record gives each object that changed a new resource version.
func (m *machine) record() {
	next, changed := apiView{}, false
	last := apiView{}
	if len(m.views) > 0 {
		last = m.views[len(m.views)-1]
	}
	bump := func() string { m.version++; changed = true; return strconv.Itoa(m.version) }
	group := &v1alpha1.CommGroup{ObjectMeta: m.group.ObjectMeta, Spec: m.group.Spec, Status: m.stored}
	if next.group = last.group; last.group == nil || !objects.Same(group, last.group) {
		m.group.ResourceVersion = bump()
		next.group = group.DeepCopy()
		next.group.ResourceVersion = m.group.ResourceVersion
	}
	if now := []v1alpha1.CommRun(m.runs); len(now) != len(last.runs) || !objects.Same(&now, &last.runs) {
		next.runs, changed = (&v1alpha1.CommRunList{Items: now}).DeepCopy().Items, true
	} else {
		next.runs = last.runs
	}
	present := slices.DeleteFunc(slices.Clone(m.nodes), func(n corev1.Node) bool { return m.absent[n.Name] })
	if next.nodes = last.nodes; last.group == nil || !objects.Same(&present, &last.nodes) {
		bump()
		next.nodes = (&corev1.NodeList{Items: present}).DeepCopy().Items
	}
	next.commNodes = make(map[string]*v1alpha1.CommNode, len(m.commNodes))
	for name, cn := range m.commNodes {
		if m.absent[name] {
			continue // the garbage collector deletes it with its Node
		}
		if next.commNodes[name] = last.commNodes[name]; last.commNodes[name] == nil ||
			last.commNodes[name].Status.Facts != cn.Status.Facts || last.commNodes[name].Spec != cn.Spec {
			cn.ResourceVersion = bump()
			own := *cn // facts are replaced as a whole
			next.commNodes[name] = &own
		}
	}
	changed = changed || len(next.commNodes) != len(last.commNodes)
	next.commTasks = make(map[string]*v1alpha1.CommTask, len(m.commTasks))
	changed = changed || len(m.commTasks) != len(last.commTasks) || len(m.pods) != len(last.pods)
	for name, ct := range m.commTasks {
		if next.commTasks[name] = last.commTasks[name]; !sameCommTasks(ct, last.commTasks[name]) {
			ct.ResourceVersion = bump()
			next.commTasks[name] = copyOf(ct)
		}
	}
	next.pods = make(map[string]*corev1.Pod, len(m.pods))
	for name, pod := range m.pods {
		if next.pods[name] = last.pods[name]; !objects.Same(pod, last.pods[name]) {
			pod.ResourceVersion = bump()
			next.pods[name] = pod.DeepCopy()
		}
	}
	if next.configMap = last.configMap; !objects.Same(m.configMap, last.configMap) {
		if m.configMap != nil {
			m.configMap.ResourceVersion = bump()
		}
		next.configMap, changed = m.configMap.DeepCopy(), true
	}
	if changed {
		m.views = append(m.views, next)
	}
}

// sameCommTasks and copyOf take reports as values that nobody changes: they are replaced as a whole, and large.
func sameCommTasks(a, b *v1alpha1.CommTask) bool {
	if b == nil || a.Status.Run != b.Status.Run {
		return false
	}
	x, y := *a, *b
	x.Status.Run, y.Status.Run = nil, nil
	return objects.Same(&x, &y)
}

func copyOf(ct *v1alpha1.CommTask) *v1alpha1.CommTask {
	bare := *ct
	bare.Status.Run = nil
	out := bare.DeepCopy()
	out.Status.Run = ct.Status.Run
	return out
}

// catchUp moves the caches on: all the way, or each by some random way. None ever goes back.
func (m *machine) catchUp(fresh bool) {
	last := len(m.views) - 1
	for _, at := range []*int{&m.cache.group, &m.cache.runs, &m.cache.nodes, &m.cache.commNodes, &m.cache.commTasks,
		&m.cache.pods, &m.cache.configMap} {
		if fresh || m.rng.IntN(2) == 0 {
			*at = last
		} else {
			*at += m.rng.IntN(last - *at + 1)
		}
	}
}

// read is gather: from the caches, and from the API itself where they lack a pod.
func (m *machine) read() *Snapshot {
	group, runs := m.views[m.cache.group].group, m.views[m.cache.runs].runs
	if latest := state.Latest(runs); group.Status.Run != nil &&
		(latest == nil || latest.Status.Number < group.Status.Run.Number) {
		runs = m.views[len(m.views)-1].runs
	}
	latest := state.Latest(runs)
	deleted := group.Status.Run != nil && (latest == nil || latest.Status.Number < group.Status.Run.Number)
	if deleted {
		latest = nil
	}
	s := &Snapshot{Now: m.now, RunDeleted: deleted, Group: state.Join(group, runs), Stored: group, StoredRun: latest,
		Runs: runs, Nodes: m.views[m.cache.nodes].nodes}
	commNodes := m.views[m.cache.commNodes].commNodes
	for _, name := range slices.Sorted(maps.Keys(commNodes)) {
		s.CommNodes = append(s.CommNodes, *commNodes[name])
	}
	commTasks := m.views[m.cache.commTasks].commTasks
	for _, name := range slices.Sorted(maps.Keys(commTasks)) {
		s.CommTasks = append(s.CommTasks, *commTasks[name])
	}
	pods := func(v *apiView) {
		s.RunPods = nil
		for _, name := range slices.Sorted(maps.Keys(v.pods)) {
			s.RunPods = append(s.RunPods, *v.pods[name])
		}
	}
	pods(&m.views[m.cache.pods])
	if len(missingPods(s)) > 0 {
		pods(&m.views[len(m.views)-1])
	}
	if cm := m.views[m.cache.configMap].configMap; cm != nil && objects.OwnedBy(cm, group) {
		s.OwnedConfigMaps = append(s.OwnedConfigMaps, cm.Name)
		if cm.Name == publish.ConfigMapName(s.Group) {
			s.ConfigMap, s.ConfigMapCertain = cm, true
		}
	}
	return s
}

// reconcile is Reconcile: it reads, decides, writes the objects, and then the status. Now and then it is the other
// manager's, whose caches stand still for longer, and of which nobody waits for the next wake.
func (m *machine) reconcile(fresh bool) (*Snapshot, Decision, error) {
	m.record()
	if !fresh && m.rng.IntN(4) == 0 {
		m.logf("by the other manager")
		m.cache, m.other = m.other, m.cache
		wakeAt := m.wakeAt
		defer func() { m.cache, m.other, m.wakeAt = m.other, m.cache, wakeAt }()
		if m.rng.IntN(3) == 0 {
			m.catchUp(false)
		}
	} else {
		m.catchUp(fresh)
	}
	s := m.read()
	if showsLaterRun(s) && runs.LatestNumber(m.group) != runs.LatestNumber(s.Group) {
		m.known.seen["old read"]++
		return s, Decision{Status: *s.Group.Status.DeepCopy()}, errOldRead
	}
	d := Decide(s, testConfig)
	if d.NeedConfigMapLookup {
		s.ConfigMap, s.ConfigMapCertain = nil, true
		if cm := m.views[len(m.views)-1].configMap; cm != nil && cm.Name == publish.ConfigMapName(s.Group) {
			s.ConfigMap = cm
		}
		if d = Decide(s, testConfig); d.NeedConfigMapLookup {
			m.failf("it looks for the ConfigMap again and again")
		}
	}
	m.decided = d
	if d.takesAway() && !m.runUpToDate(s) {
		m.known.seen["old read"]++
		return s, d, errOldRead
	}
	for _, node := range d.restsOn {
		if m.known.seen["rests on"]++; !m.upToDate(s, node) {
			m.known.seen["old objects"]++
			return s, d, errOldRead
		}
	}
	err := m.apply(s, &d)
	if errors.Is(err, errOldRead) {
		return s, d, err
	}
	if errors.Is(err, errClosureNotWritten) && finishes(s.Group, &d) {
		return s, d, err
	}
	if statusErr := m.writeStatus(s, &d); statusErr != nil {
		return s, d, statusErr
	}
	m.wakeAt = d.WakeAt
	return s, d, err
}

// refused fails a write at random.
func (m *machine) refused() error {
	if m.failing > 0 && m.rng.IntN(m.failing) == 0 {
		return errInjected
	}
	return nil
}

func (m *machine) apply(s *Snapshot, d *Decision) error {
	var errs []error
	for _, name := range d.DeletePods {
		if pod := m.pods[name]; pod != nil {
			if err := m.refused(); err != nil {
				errs = append(errs, err)
				continue
			}
			m.writes.pods++
			m.deletePod(name)
		}
	}
	for _, name := range d.DeleteCommTasks {
		if err := m.refused(); err != nil {
			errs = append(errs, err)
		} else {
			m.deleteCommTask(name)
		}
	}
	for _, name := range d.DeleteConfigMaps {
		if m.configMap != nil && m.configMap.Name == name {
			m.configMap = nil
			m.writes.configMaps++
		}
	}
	for _, change := range d.CommTasks {
		if err := m.writeCommTask(change); err != nil {
			if run := change.Desired.Spec.Run; run != nil && run.Closed != nil {
				err = closureError(err)
			}
			errs = append(errs, err)
		}
	}
	errs = append(errs, m.createPods(s, d.CreatePods), m.writeMarks(s, d))
	if d.ConfigMap != nil {
		errs = append(errs, m.writeConfigMap(s, d))
	}
	return errors.Join(errs...)
}

// deletePod is the API server's: a pod that never came to a node, or is over, is gone at once; the kubelet ends the
// others.
func (m *machine) deletePod(name string) {
	if pod := m.pods[name]; pod.Spec.NodeName == "" || !podstate.Alive(pod) {
		delete(m.pods, name)
	} else if pod.DeletionTimestamp.IsZero() {
		pod.DeletionTimestamp = decision.Stamp(m.now)
	}
}

// deleteCommTask takes its pods along, as the garbage collector does.
func (m *machine) deleteCommTask(name string) {
	ct := m.commTasks[name]
	if ct == nil {
		return
	}
	m.writes.commTasks++
	m.writes.nodes[ct.Spec.NodeName] = true
	delete(m.commTasks, name)
	for _, podName := range slices.Sorted(maps.Keys(m.pods)) {
		if m.pods[podName].OwnerReferences[0].UID == ct.UID {
			m.deletePod(podName)
		}
	}
}

func (m *machine) writeCommTask(change commrun.Change) error {
	if err := m.refused(); err != nil {
		return err
	}
	name := change.Desired.Name
	old := m.commTasks[name]
	switch {
	case change.Current == nil && old != nil:
		return errors.New("already exists")
	case change.Current != nil && old == nil:
		return errors.New("not found")
	case change.Current != nil && old.ResourceVersion != change.Current.ResourceVersion:
		return errConflict
	}
	next := change.Desired.DeepCopy()
	if old != nil {
		next.Status = old.Status
	} else {
		m.made++
		next.UID, next.CreationTimestamp = types.UID(fmt.Sprintf("uid-ct-%d", m.made)), *decision.Stamp(m.now)
	}
	m.version++
	next.ResourceVersion = strconv.Itoa(m.version) // so that a second write on the same read conflicts
	m.commTasks[name] = next
	m.writes.commTasks++
	m.writes.nodes[next.Spec.NodeName] = true
	return nil
}

// createPods is that of apply.go, with its look at the API itself.
func (m *machine) createPods(s *Snapshot, pods []*corev1.Pod) error {
	var errs []error
	taken := 0
	for _, pod := range m.pods {
		if podstate.Alive(pod) && !podstate.Stuck(pod, m.now) && !ofGroupStage(pod) {
			taken++
		}
	}
	for _, pod := range pods {
		if m.pods[pod.Name] != nil || !ofGroupStage(pod) && taken >= int(s.Group.Spec.Run.MaxParallelNodes) {
			continue
		}
		taken++
		if err := m.refused(); err != nil {
			errs = append(errs, err)
			continue
		}
		pod = pod.DeepCopy()
		pod.CreationTimestamp, pod.Status.Phase = *decision.Stamp(m.now), corev1.PodPending
		m.pods[pod.Name] = pod
		m.writes.pods++
		if !slices.ContainsFunc(slices.Sorted(maps.Keys(m.commTasks)), func(n string) bool {
			return m.commTasks[n].UID == pod.OwnerReferences[0].UID
		}) {
			m.deletePod(pod.Name) // its owner is gone
		}
	}
	return errors.Join(errs...)
}

func (m *machine) writeConfigMap(s *Snapshot, d *Decision) error {
	err := m.refused()
	switch {
	case s.ConfigMap != nil && !objects.OwnedBy(s.ConfigMap, s.Group):
		m.failf("a ConfigMap of someone else is to be written: %+v", d.ConfigMap)
	case err != nil:
	case s.ConfigMap == nil && m.configMap != nil,
		s.ConfigMap != nil && (m.configMap == nil || m.configMap.ResourceVersion != s.ConfigMap.ResourceVersion):
		err = errConflict
	default:
		m.configMap = d.ConfigMap.DeepCopy()
		m.writes.configMaps++
		return nil
	}
	configMapRefused(d, s.Group, s.Now, err)
	return err
}

// runUpToDate says whether the group and its run are as they were read.
func (m *machine) runUpToDate(s *Snapshot) bool {
	live, read := state.Latest(m.runs), s.StoredRun
	if s.RunDeleted && live != nil && live.Status.Number < s.Group.Status.Run.Number {
		live = nil
	}
	return m.group.ResourceVersion == s.Stored.ResourceVersion && (read == nil) == (live == nil) &&
		(read == nil || read.ResourceVersion == live.ResourceVersion)
}

// writeStatus writes the run, and then the group; each write may fail by itself.
func (m *machine) writeStatus(s *Snapshot, d *Decision) error {
	err := m.writeRun(s, d)
	if err == nil {
		m.events = append(m.events, d.RunEvents...)
		err = m.writeGroup(s, d)
	}
	m.join()
	return err
}

// join puts the group together from what is stored.
func (m *machine) join() {
	stored := &v1alpha1.CommGroup{ObjectMeta: m.group.ObjectMeta, Spec: m.group.Spec, Status: m.stored}
	m.group.Status = *state.Join(stored, m.runs).Status.DeepCopy()
}

// deleteRun deletes the CommRun of the latest run.
func (m *machine) deleteRun() {
	if latest := state.Latest(m.runs); latest != nil {
		m.runs = slices.DeleteFunc(slices.Clone(m.runs), func(r v1alpha1.CommRun) bool { return r.Name == latest.Name })
		m.join()
	}
}

func (m *machine) writeRun(s *Snapshot, d *Decision) error {
	run := d.Status.Run
	if run == nil {
		return nil
	}
	stored := s.StoredRun
	if was := s.Group.Status.Run; was == nil || was.ID != run.ID {
		at := slices.IndexFunc(m.runs, func(r v1alpha1.CommRun) bool { return r.Name == run.Name })
		switch {
		case at >= 0 && !state.Pending(&m.runs[at]):
			return errOldRead
		case at < 0:
			if err := m.refused(); err != nil {
				return err
			}
			created := state.NewRun(m.group, run.Name)
			m.version++
			created.ResourceVersion = strconv.Itoa(m.version)
			m.runs, at = append(m.runs, *created), len(m.runs)
		}
		stored = m.runs[at].DeepCopy()
	}
	if stored == nil {
		return nil // it was deleted
	}
	group := state.Group{ObjectMeta: s.Group.ObjectMeta, Spec: s.Group.Spec, Status: d.Status}
	next := stored.DeepCopy()
	status := group.RunStatus(stored)
	if next.Status = *status.DeepCopy(); objects.Same(&stored.Status, &next.Status) {
		return nil
	}
	if err := m.refused(); err != nil {
		return err
	}
	at := slices.IndexFunc(m.runs, func(r v1alpha1.CommRun) bool { return r.Name == stored.Name })
	if at < 0 || m.runs[at].ResourceVersion != stored.ResourceVersion {
		return errConflict
	}
	m.version++
	next.ResourceVersion = strconv.Itoa(m.version)
	m.runs = append(append(m.runs[:at:at], *next), m.runs[at+1:]...)
	m.runs = m.runs[max(0, len(m.runs)-3):]
	m.writes.runs++
	return nil
}

func (m *machine) writeGroup(s *Snapshot, d *Decision) error {
	next := d.Status.GroupStatus()
	if objects.Same(&s.Stored.Status, &next) {
		return nil
	}
	if err := m.refused(); err != nil {
		return err
	}
	if m.group.ResourceVersion != s.Stored.ResourceVersion {
		return errConflict
	}
	m.stored = *next.DeepCopy()
	m.events = append(m.events, d.Events...)
	m.writes.status++
	return nil
}

// newMachine is a cluster with the group in it, of which the manager has seen nothing yet.
func newMachine(t *testing.T, seed uint64, group *state.Group, nodes int) *machine {
	m := &machine{rng: rand.New(rand.NewPCG(seed, 23)), absent: map[string]bool{},
		oddities: map[string]func(*v1alpha1.NodeFacts){}, skew: map[string]time.Duration{},
		writes: writeCounts{nodes: map[string]bool{}}}
	m.groupWorld = groupWorldOf(t, newWorld(group, testkit.Nodes(nodes)))
	for i := range m.nodes {
		m.index[m.nodes[i].Name] = i
	}
	m.known = newKnowledge()
	m.record()
	return m
}

// nodeNames of the nodes that are there, in order.
func (m *machine) nodeNames() []string {
	var out []string
	for i := range m.nodes {
		if !m.absent[m.nodes[i].Name] {
			out = append(out, m.nodes[i].Name)
		}
	}
	return out
}

// podsOn are the names of the node's pods, in order.
func (m *machine) podsOn(node string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(m.pods)), func(name string) bool {
		return m.pods[name].Labels[v1alpha1.LabelNode] != node
	})
}

// kubelets end the pods that are to end, and those of nodes that are gone.
func (m *machine) kubelets() {
	for _, name := range slices.Sorted(maps.Keys(m.pods)) {
		if pod := m.pods[name]; !pod.DeletionTimestamp.IsZero() || m.absent[pod.Labels[v1alpha1.LabelNode]] {
			delete(m.pods, name)
		}
	}
}

// clock of the node: its kubelet, its agents and its monitor go by it.
func (m *machine) clock(node string) time.Time { return m.now.Add(m.skew[node]) }

// monitor reports the node's facts by its own clock.
func (m *machine) monitor(node string) {
	written(m.setFacts(node, m.facts(node)), m.now)
}

// facts of the node as they are: a change of the node is another boot.
func (m *machine) facts(node string) *v1alpha1.NodeFacts {
	f := testkit.Facts(m.clock(node))
	f.BootID = fmt.Sprint("boot-", m.changes[node])
	if change := m.oddities[node]; change != nil {
		change(f)
	}
	return f
}
