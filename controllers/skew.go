package controllers

import (
	"fmt"
	"time"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/nodefacts"
	"rcclx.io/commgroup-operator/controllers/words"
)

// skewRemark names members whose clocks are off, for the condition AgentsReporting; empty where none is.
func skewRemark(members []decision.Member, commNodes map[string]*v1alpha1.CommNode, now time.Time) string {
	var apart []string
	for i := range members {
		cn := commNodes[members[i].Name]
		if !nodefacts.Hold(cn, now) {
			continue
		}
		// No amount: it would make each report a change.
		switch skew := nodefacts.ClockSkew(cn); {
		case skew > 0:
			apart = append(apart, members[i].Name+" (ahead)")
		case skew < 0:
			apart = append(apart, members[i].Name+" (behind)")
		}
	}
	if len(apart) == 0 {
		return ""
	}
	return fmt.Sprintf(" %s: by the reports of their monitors the clocks of %s are more than %d s off the API server's: %s. No deadline depends on them; mend time synchronisation there, or times in logs and reports mislead.",
		v1alpha1.ReasonClockSkew, words.Counted(len(apart), "member"), int(nodefacts.MaxClockSkew/time.Second), words.SomeNames(apart, 5))
}
