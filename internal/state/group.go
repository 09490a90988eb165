// Package state has a CommGroup and its latest CommRun as one value. The controller decides on it, and the plugin
// shows it; what of it is stored in which object is known here alone.
package state

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// Group is a CommGroup with all that its latest run has shown.
//
// +kubebuilder:object:root=true
type Group struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	Spec   v1alpha1.CommGroupSpec
	Status Status
}

// Status is the CommGroup's own, and that of the latest CommRun. While a run repeats an earlier one, the results are
// the earlier one's.
//
// +kubebuilder:object:generate=true
type Status struct {
	Conditions         []metav1.Condition
	ObservedGeneration int64
	Origin             v1alpha1.Origin
	Members            v1alpha1.MemberCounts
	Run                *v1alpha1.GroupRunStatus
	Template           *v1alpha1.RunTemplate
	Plan               *v1alpha1.RunPlan
	Effective          string
	Headline           *v1alpha1.Headline
	Inventory          []v1alpha1.InventoryItem
	Libraries          []v1alpha1.RunLibrary
	Settings           []v1alpha1.SettingStatus
	Results            []v1alpha1.GroupResultSeries
	ResultsRunID       string // of the run that results, settings, checks and culprits are of
	DataErrors         []v1alpha1.DataErrors
	Culprits           []v1alpha1.Culprit
	CulpritsRunID      string
	Span               *v1alpha1.SpanStatus
	Checks             []v1alpha1.PerformanceCheck
	Baseline           *v1alpha1.BaselineStatus
	Advice             []v1alpha1.SettingAdvice
	History            []v1alpha1.RunSummary
	Trend              v1alpha1.Trend
	Budget             *v1alpha1.BudgetStatus
	Gating             *v1alpha1.GatingStatus
	WouldGate          []string
	Remarks            []v1alpha1.Remark
	Published          *v1alpha1.PublishedStatus
	NextRunTime        *metav1.Time
	Schedule           *v1alpha1.ScheduleStatus
	// Requests are the names of the CommRuns that ask for a run and have not started, the oldest first.
	Requests []string
	// RunSuspended: spec.suspend of the run's CommRun is true, and the run is not over.
	RunSuspended bool
	// Behind: the CommGroup's own status does not yet say of the run what its CommRun says, which is written first.
	// The conditions are older than the run's phase and verdict then.
	Behind bool
}

// Settled says whether the latest run is over and the conditions speak of its end.
func (s *Status) Settled() bool { return s.Run != nil && Over(s.Run) && !s.Behind }

// EarlierCulpritsRun is the run that named the culprits, where that is not the present one: a run that repeats
// another one leaves its culprits until it ends. Empty where they are the present run's, or there are none.
func (s *Status) EarlierCulpritsRun() string {
	if len(s.Culprits) == 0 || s.Run == nil || s.CulpritsRunID == s.Run.ID {
		return ""
	}
	return s.CulpritsRunID
}
