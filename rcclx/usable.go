package rcclx

import (
	"fmt"
	"slices"
	"strings"

	"rcclx.io/commgroup-operator/internal/units"
)

// MaxMeanErrorPPM is the largest mean error with any kind of data at which results count as usable: 2^-4, the most that
// one rounding to E4M3's three mantissa bits is off. Rounding alone stays under half of it; what is over it lost its
// small values or its outliers.
const MaxMeanErrorPPM = 62_500

// ConfirmGainPercent is the least gain in latency over Baseline that confirms DDA.
const ConfirmGainPercent = 5

// Loss is what a setting does to data, so that a job cannot use its results as they are.
type Loss string

// The losses, the worst first.
const (
	// LossWrongData: elements are wrong that nothing explains.
	LossWrongData Loss = "WrongData"
	// LossTail: elements are wrong at counts that FP8 does not divide evenly.
	LossTail Loss = "TailHazard"
	// LossOverflow: values became NaN or infinite, or were clipped.
	LossOverflow Loss = "Overflow"
	// LossUnderflow: the mean error is over MaxMeanErrorPPM, since small values became zero.
	LossUnderflow Loss = "Underflow"
)

// Losses lists them, the worst first.
func Losses() []Loss { return []Loss{LossWrongData, LossTail, LossOverflow, LossUnderflow} }

// The states of Usability.
const (
	Usable           = "Usable"
	NotUsable        = "NotUsable"
	UsabilityUnknown = "Unknown"
)

// DataSeen is what the data checks of a setting found with one collective, over all sizes, ranks and kinds of data.
type DataSeen struct {
	CheckedElements int64
	// WrongElements that nothing explains, and TailElements that FP8 is known to lose at some counts.
	WrongElements, TailElements int64
	// LostElements became NaN or infinite, or were clipped.
	LostElements int64
	// MeanErrorPPM is the largest one with any kind of data.
	MeanErrorPPM int64
	// Missing are the kinds of data that were to be checked and were not at every size.
	Missing []Data
}

// Usability says whether a job can use what a setting computes. Whether the setting takes effect is another question.
type Usability struct {
	State string
	// Losses are why it is NotUsable, the worst first.
	Losses []Loss
}

// Usability judges what was seen. One loss makes the results not usable, whatever else was not checked; without a loss,
// data that was not checked leaves it unknown.
func (d DataSeen) Usability() Usability {
	var losses []Loss
	for loss, seen := range map[Loss]bool{LossWrongData: d.WrongElements > 0, LossTail: d.TailElements > 0,
		LossOverflow: d.LostElements > 0, LossUnderflow: d.MeanErrorPPM > MaxMeanErrorPPM} {
		if seen {
			losses = append(losses, loss)
		}
	}
	switch {
	case len(losses) > 0:
		slices.SortFunc(losses, func(a, b Loss) int { return slices.Index(Losses(), a) - slices.Index(Losses(), b) })
		return Usability{NotUsable, losses}
	case d.CheckedElements == 0 || len(d.Missing) > 0:
		return Usability{State: UsabilityUnknown}
	}
	return Usability{State: Usable}
}

// Names are the losses as the API has them.
func (u Usability) Names() []string {
	var out []string
	for _, l := range u.Losses {
		out = append(out, string(l))
	}
	return out
}

// Accepting is the usability for jobs whose owner accepts losses; LossWrongData is none that anybody can accept.
func (u Usability) Accepting(accepted []Loss) Usability {
	if u.State != NotUsable {
		return u
	}
	left := slices.DeleteFunc(slices.Clone(u.Losses), func(l Loss) bool {
		return l != LossWrongData && slices.Contains(accepted, l)
	})
	if len(left) == 0 && len(u.Losses) > 0 {
		return Usability{State: Usable}
	}
	return Usability{NotUsable, left}
}

// Objection says why FP8's results of a collective are not usable, in half a sentence; empty where they are.
func (u Usability) Objection(c Collective) string {
	switch {
	case u.State == Usable:
		return ""
	case u.State != NotUsable:
		return fmt.Sprintf("whether its results are usable is not known, since the data of %s was not checked in full",
			c)
	case len(u.Losses) == 0:
		return fmt.Sprintf("the results of %s are not usable", c)
	}
	words := make([]string, 0, len(u.Losses))
	for _, l := range u.Losses {
		words = append(words, l.words(c))
	}
	return fmt.Sprintf("%s gave results that are not usable: %s", c, strings.Join(words, "; "))
}

// words say what was seen.
func (l Loss) words(c Collective) string {
	switch l {
	case LossWrongData:
		return "wrong elements (WrongData)"
	case LossTail:
		return fmt.Sprintf("wrong elements at counts that are no multiple of %s (TailHazard)", hazardWords(c))
	case LossOverflow:
		return "values beyond FP8's range became NaN or infinite, or were clipped (Overflow)"
	case LossUnderflow:
		return fmt.Sprintf("a mean error over %s, since small values became zero (Underflow)",
			units.Percent(MaxMeanErrorPPM))
	}
	return string(l)
}
