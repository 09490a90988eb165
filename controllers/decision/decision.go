package decision

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// Finding is the outcome of one check, ready to become a condition.
type Finding struct {
	Status  metav1.ConditionStatus
	Reason  string
	Message string
	// Remark is something beside it that changes nothing in it; nil where there is none.
	Remark *v1alpha1.Remark
}

// Text is the message with the remark.
func (f Finding) Text() string {
	if f.Remark == nil {
		return f.Message
	}
	return f.Message + " " + f.Remark.Reason + ": " + f.Remark.Message
}

// IsTrue says whether the condition holds.
func (f Finding) IsTrue() bool { return f.Status == metav1.ConditionTrue }

// Member is one node of a group, with its share of the ranks.
type Member struct {
	Name string
	UID  string
	// AllocatableGPUs of the resource that the group asks for.
	AllocatableGPUs int64
	Ranks           v1alpha1.RankRange
	// Node is what the API has of it; nil in tests that need none.
	Node *corev1.Node
}

// Event is a Kubernetes Event to send once the status is written.
type Event struct {
	// Warning says whether a user should look.
	Warning bool
	Reason  string
	// Action that was taken or failed, CamelCase.
	Action string
	Note   string
}
