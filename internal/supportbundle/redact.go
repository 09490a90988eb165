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

// ownEnv are the variables whose values a supporter needs and that hold no secret: those of the communication library
// and the ROCm runtime, and this operator's own.
var ownEnv = regexp.MustCompile(`^(RCCL|NCCL|HSA|HIP|ROCR|COMMGROUP|SIMROCM)_[A-Z0-9_]+$`)

// redactPodSpec takes out of a pod's spec what may be secret: values of foreign variables and the names of pull
// secrets.
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

// secretName ends a name whose value is secret, whatever is before it: DB_PASSWORD, clientSecret, api-key.
const secretName = `[a-z0-9_.-]*(?:password|passwd|passphrase|pwd|secret|token|auth|credentials?|(?:api|access|secret|private|signing|encryption|account)[_-]?key)`

// named is such a name with its sign.
var named = regexp.MustCompile(`(?i)` + secretName + `\\*["']?[ \t]*[:=][ \t]*`)

// plain are values that are no secrets.
var plain = regexp.MustCompile(`(?i)^(true|false|null|nil|none|yes|no)?[,;})\]. \t\r]*$`)

// withoutNamed takes out the values of secret names.
func withoutNamed(text string) string {
	var out strings.Builder
	for {
		at := named.FindStringIndex(text)
		if at == nil {
			out.WriteString(text)
			return out.String()
		}
		out.WriteString(text[:at[1]])
		equals := strings.HasSuffix(strings.TrimRight(text[:at[1]], " \t"), "=")
		text = text[at[1]:]
		from, to := valueIn(text, equals)
		if value := text[from:to]; plain.MatchString(value) ||
			from == 0 && strings.ContainsRune("{[|>&*<", rune(value[0])) {
			continue // the value begins in a later line, or is an object
		}
		out.WriteString(text[:from] + redacted)
		text = text[to:]
	}
}

// valueIn is where the value lies that a text begins with: in quotes (those of JSON within JSON are escaped) to their
// end, else of a word after an equals sign, and after a colon to the end of the line or of the quotes around it all.
func valueIn(text string, word bool) (from, to int) {
	escapes := len(text) - len(strings.TrimLeft(text, `\`))
	if rest := text[escapes:]; rest != "" && (rest[0] == '"' || rest[0] == '\'') {
		from = escapes + 1
		return from, from + quotedEnd(text[from:], rest[0], escapes)
	}
	ends := "\n\"<"
	if word {
		ends = " \t\r\n\"'&<"
	}
	end := strings.IndexAny(text, ends)
	if end < 0 {
		end = len(text)
	}
	return 0, len(strings.TrimRight(text[:end], `\`))
}

// quotedEnd is where a quoted text ends. A quote of its own has more backslashes before it than the one that ends it,
// by the rules of JSON as often as it lies within JSON.
func quotedEnd(text string, quote byte, escapes int) int {
	run := 0
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '\n':
			return i
		case text[i] == '\\':
			run++
			continue
		case text[i] != quote:
		case quote == '\'' && i+1 < len(text) && text[i+1] == quote:
			i++ // YAML's way to write one
		case quote == '\'' || run%(2*(escapes+1)) == escapes:
			return i - min(run, escapes)
		}
		run = 0
	}
	return len(text)
}

// secretShapes are texts that are secrets by their form, wherever they stand.
var secretShapes = []struct {
	shape       *regexp.Regexp
	replacement string
}{
	{regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)`),
		redacted + " PRIVATE KEY"},
	{regexp.MustCompile(`eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(\.[A-Za-z0-9_-]*)?`), redacted},
	{regexp.MustCompile(`(?i)\b(bearer|basic)[ \t]+[A-Za-z0-9._~+/=-]{8,}`), "$1 " + redacted},
	{regexp.MustCompile(
		`\b(AKIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{20,}|hf_[A-Za-z0-9]{20,}|glpat-[A-Za-z0-9_-]{16,}|xox[abprs]-[A-Za-z0-9-]{10,})`),
		redacted},
	{regexp.MustCompile(`(://)[^/\s:@"']+:[^/\s@"']+@`), "${1}" + redacted + "@"},
	// A flag and its value, on one line, as items of a list in YAML, or in JSON.
	{regexp.MustCompile(`(?i)(-{1,2}` + secretName +
		`\\*["']?(?:[ \t]*,[ \t]*|[ \t]+|[ \t]*\n[ \t]*-[ \t]+)\\*["']?)([^\s"'\\,\]-][^\s"'\\]*)`), "${1}" + redacted},
}

// scrub takes out of a text what looks like a secret. It rather takes too much.
func scrub(text string) string {
	for _, s := range secretShapes {
		text = s.shape.ReplaceAllString(text, s.replacement)
	}
	return withoutNamed(text)
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
