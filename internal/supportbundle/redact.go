package supportbundle

import (
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// redacted stands where something was taken out.
const redacted = "REDACTED"

// ownEnv are the variables whose values a supporter needs and that hold no secret: those of the communication library and the
// ROCm runtime, and this operator's own.
var ownEnv = regexp.MustCompile(`^(RCCL|NCCL|HSA|HIP|ROCR|COMMGROUP|SIMROCM)_[A-Z0-9_]+$`)

// redactPodSpec takes out of a pod's spec what may be secret: values of foreign variables and the names of pull secrets.
func redactPodSpec(spec *corev1.PodSpec) {
	for i := range spec.InitContainers {
		redactContainer(&spec.InitContainers[i])
	}
	for i := range spec.Containers {
		redactContainer(&spec.Containers[i])
	}
	spec.EphemeralContainers = nil
	spec.ImagePullSecrets = redactPullSecrets(spec.ImagePullSecrets)
}

func redactPullSecrets(in []corev1.LocalObjectReference) []corev1.LocalObjectReference {
	var out []corev1.LocalObjectReference
	for range in {
		out = append(out, corev1.LocalObjectReference{Name: redacted})
	}
	return out
}

func redactContainer(c *corev1.Container) {
	for i := range c.Env {
		if e := &c.Env[i]; e.Value != "" && !ownEnv.MatchString(e.Name) {
			e.Value = redacted
		}
	}
}

// redactMeta leaves out what is of no use, and annotations that hold a copy of the whole object, redacted or not.
func redactMeta(m *metav1.ObjectMeta) {
	m.ManagedFields = nil
	delete(m.Annotations, corev1.LastAppliedConfigAnnotation)
}

// secretShapes are texts that are secrets by their form, wherever they stand.
var secretShapes = []struct {
	shape       *regexp.Regexp
	replacement string
}{
	{regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)`), redacted + " PRIVATE KEY"},
	{regexp.MustCompile(`eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(\.[A-Za-z0-9_-]*)?`), redacted},
	{regexp.MustCompile(`(?i)\b(bearer|basic)[ \t]+[A-Za-z0-9._~+/=-]{8,}`), "$1 " + redacted},
	{regexp.MustCompile(`\b(AKIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{20,}|hf_[A-Za-z0-9]{20,}|glpat-[A-Za-z0-9_-]{16,}|xox[abprs]-[A-Za-z0-9-]{10,})`), redacted},
	{regexp.MustCompile(`(://)[^/\s:@"']+:[^/\s@"']+@`), "${1}" + redacted + "@"},
	{regexp.MustCompile(`(?i)((?:[a-z0-9_.-]*[_.-])?(?:password|passwd|secret|token|api[_-]?key|access[_-]?key|credentials?))(["']?[ \t]*[:=][ \t]*["']?)([^\s"',;{}\[\]]{6,})`), "${1}${2}" + redacted},
}

// scrub takes out of a text what looks like a secret. It rather takes too much.
func scrub(text string) string {
	for _, s := range secretShapes {
		text = s.shape.ReplaceAllString(text, s.replacement)
	}
	return text
}

// boundedLog keeps the end of a log, since that is where it went wrong, and says what was cut.
func boundedLog(raw []byte, limit int) string {
	text := strings.ToValidUTF8(string(raw), "\uFFFD")
	if len(text) > limit {
		cut := len(text) - limit
		if i := strings.IndexByte(text[cut:], '\n'); i >= 0 {
			cut += i + 1
		}
		text = fmt.Sprintf("... %d bytes before this were left out\n%s", cut, text[cut:])
	}
	return text
}
