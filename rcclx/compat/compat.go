// Package compat holds the rules on which versions and models fit together, as data with their sources, and the pure
// functions that apply them. It knows nothing of sysfs or Kubernetes.
package compat

// Level says how much a broken rule weighs.
type Level string

// The levels. What could not be compared gives no finding at all: it is neither a pass nor a fault.
const (
	Error   Level = "Error"
	Warning Level = "Warning"
)

// Finding is one broken rule.
type Finding struct {
	Level Level
	// Rule is its name: ROCmMinimum, DriverWindow or FP8Encoding.
	Rule string
	// Message says what was seen, what was expected and what to do. Source is where the rule is from.
	Message, Source string
}

// The names of the rules.
const (
	RuleROCmMinimum  = "ROCmMinimum"
	RuleDriverWindow = "DriverWindow"
	RuleFP8Encoding  = "FP8Encoding"
)
