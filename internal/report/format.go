// Package report prints CommGroups and CommNodes for people: the kubectl plugin and the demo share it. It shows units in
// each heading, says plainly where numbers are simulated, and prints "-" for what is not known, never zero.
package report

// unknown stands for what nobody measured or reported.
const unknown = "-"

func orUnknown(s string) string {
	if s == "" {
		return unknown
	}
	return s
}
