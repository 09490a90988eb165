package monitor

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"
	"time"

	"rcclx.io/commgroup-operator/agent/discover"
	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// errorKey is one counter of a GPU.
type errorKey struct {
	gpu, block string
	kind       errorKind
}

type errorKind uint8

const (
	uncorrectable errorKind = iota
	correctable
	deferred
	replays
	retired
)

// countErrors follows a GPU's error counters, which only rise while its driver is loaded.
func (l *look) countErrors(g *discover.GPU) {
	var fallen, corrected []string
	var worst rise
	follow := func(block string, kind errorKind, n uint64) rise {
		r := l.errors.look(errorKey{g.PCIAddress, block, kind}, n, l.now)
		if r.fell {
			fallen = append(fallen, fmt.Sprintf("%s was %d, is %d", block, r.was, r.is))
		}
		return r
	}
	for _, block := range slices.Sorted(maps.Keys(g.RAS)) {
		if block == discover.RASBlockXGMI {
			continue // below, under codes of its own
		}
		c := g.RAS[block]
		if r := follow(block, uncorrectable, c.Uncorrectable); r.by > 0 {
			l.note(v1alpha1.SeverityError, v1alpha1.ProblemUncorrectableErrors, subject{GPU: g.PCIAddress},
				"%d more uncorrectable errors in block %s, %d since the driver was loaded.", r.by, block, r.is)
		}
		if r := follow(block, correctable, c.Correctable); r.by > 0 {
			corrected = append(corrected, fmt.Sprintf("%s %d", block, r.by))
			if r.by > worst.by {
				worst = r
			}
		}
		if c.Deferred != nil {
			if r := follow(block, deferred, *c.Deferred); r.by > 0 {
				l.note(v1alpha1.SeverityWarning, v1alpha1.ProblemDeferredErrors, subject{GPU: g.PCIAddress},
					"%d more deferred errors in block %s, %d since the driver was loaded.", r.by, block, r.is)
			}
		}
	}
	if len(corrected) > 0 {
		l.happened(worst.decade(), v1alpha1.ProblemCorrectableErrors, subject{GPU: g.PCIAddress},
			"Correctable errors rise, by block: %s more in %s. Hardware repaired them: watch the kernel log for "+
				"uncorrectable ones, and measure this GPU.", strings.Join(corrected, ", "), seconds(worst.over))
	}
	if n := g.XGMIUncorrectableErrors; n != nil {
		if r := follow(discover.RASBlockXGMI, uncorrectable, *n); r.by > 0 {
			l.note(v1alpha1.SeverityError, v1alpha1.ProblemXGMIUncorrectableErrors, subject{GPU: g.PCIAddress},
				"%d more uncorrectable xGMI errors, %d since the driver was loaded.", r.by, r.is)
		}
	}
	if n := g.XGMICorrectableErrors; n != nil {
		if r := follow(discover.RASBlockXGMI, correctable, *n); r.by > 0 {
			l.happened(r.decade(), v1alpha1.ProblemXGMICorrectableErrors, subject{GPU: g.PCIAddress},
				"Correctable xGMI errors rise: %d more in %s, %d since the driver was loaded. "+
					"A link of this GPU is marginal: measure its links, and reseat or replace it if they are slow.",
				r.by, seconds(r.over), r.is)
		}
	}
	if n := g.RetiredPages; n != nil && *n >= 0 {
		// Not among the fallen: the table of bad pages outlives the driver, and an operator can clear it.
		if r := l.errors.look(errorKey{g.PCIAddress, "vram", retired}, uint64(*n), l.now); r.by > 0 {
			l.note(v1alpha1.SeverityWarning, v1alpha1.ProblemRetiredPages, subject{GPU: g.PCIAddress},
				"%d more pages of its memory are retired, %d in all.", r.by, r.is)
		}
	}
	if g.Metrics != nil && g.Metrics.PCIeReplays != nil {
		if r := follow("PCIe replays", replays, *g.Metrics.PCIeReplays); r.by > 0 {
			l.happened(r.decade(), v1alpha1.ProblemPCIeReplays, subject{GPU: g.PCIAddress},
				"PCIe packets were sent again: %d more in %s. The link between this GPU and its host is marginal: "+
					"look for AER in the kernel log, and reseat the GPU or its riser.", r.by, seconds(r.over))
		}
	}
	if was, is, again := l.startedAgain(g); again {
		fallen = append(fallen, fmt.Sprintf("the firmware's cycles were %d, are %d", was, is))
	}
	if len(fallen) > 0 {
		l.happened(news, v1alpha1.ProblemDriverChanged, subject{GPU: g.PCIAddress},
			"Counters of this GPU started again (%s): it was reset, or its driver was loaded again. "+
				"What ran on it has failed; "+runAgain, strings.Join(fallen[:min(3, len(fallen))], "; "))
	}
}

// startedAgain says that the firmware counts from zero. The counter has 32 bits, so a fall from its upper half is taken
// for an overflow.
func (l *look) startedAgain(g *discover.GPU) (was, is uint64, again bool) {
	before := l.metrics[g.PCIAddress]
	if before == nil || before.AccumulationCounter == nil || g.Metrics == nil || g.Metrics.AccumulationCounter == nil {
		return 0, 0, false
	}
	was, is = *before.AccumulationCounter, *g.Metrics.AccumulationCounter
	return was, is, is < was && was < 1<<31
}

// decade ranks a rate by its power of ten an hour, so that only a rate ten times worse is news.
func (r rise) decade() int {
	over := max(r.over, time.Second)
	hi, lo := bits.Mul64(r.by, uint64(time.Hour/time.Second))
	if hi > 0 {
		return 64 // more than any other
	}
	rank := news + 1
	for n := lo / uint64(over/time.Second); n > 0; n /= 10 {
		rank++
	}
	return rank
}

func seconds(d time.Duration) string { return d.Round(time.Second).String() }

// causeText names a cause of throttling.
var causeText = map[string]string{
	discover.ThrottleProchot:   "an external signal (PROCHOT)",
	discover.ThrottlePower:     "the power limit",
	discover.ThrottleSocketHot: "the socket's temperature",
	discover.ThrottleVRHot:     "a voltage regulator's temperature",
	discover.ThrottleMemoryHot: "the memory's temperature",
}

const (
	// leastPercent of an interval that counts as throttling; for the power limit leastPowerPercent, since a GPU under
	// full load touches it in normal use.
	leastPercent      = 1
	leastPowerPercent = 10
)

// throttling looks whether a GPU ran slower than its load asked for since the last look. Up to revision 1.5 of
// gpu_metrics the firmware tells the present state; from 1.6 on, for how many of its cycles each cause held.
func (l *look) throttling(g *discover.GPU) {
	m := g.Metrics
	if m == nil {
		return
	}
	var causes []string
	most := uint64(0)
	for _, share := range residency(l.metrics[g.PCIAddress], m) {
		if share.percent < leastPercent ||
			(share.cause == discover.ThrottlePower && share.percent < leastPowerPercent) {
			continue
		}
		name := causeText[share.cause]
		if name == "" {
			name = share.cause
		}
		causes = append(causes, fmt.Sprintf("%d %% of the time by %s", share.percent, name))
		most = max(most, share.percent)
	}
	text := strings.Join(causes, ", ")
	if len(causes) == 0 {
		if m.ThrottleStatus == nil || *m.ThrottleStatus == 0 {
			return
		}
		// What each bit means differs from chip to chip (kgd_pp_interface.h: "ASIC dependent").
		text, most = fmt.Sprintf("throttle status %#x", *m.ThrottleStatus), leastPercent
	}
	rank := news
	for _, band := range []uint64{leastPercent, 10, 50} {
		if most >= band {
			rank++
		}
	}
	l.happened(rank, v1alpha1.ProblemThrottled, subject{GPU: g.PCIAddress},
		"Throttled: %s; %s. Expected full clocks: look at fans, inlet air and power supply. At the power limit alone "+
			"the GPU is sound, and results of this time are lower than it can do.", text, temperatures(m))
}

// share is the part of an interval for which a cause throttled the GPU.
type share struct {
	cause   string
	percent uint64
}

// residency is the share of each cause between two readings, the largest first: how much its accumulator rose, in
// percent of how much the counter of cycles did. None where either started again.
func residency(was, is *discover.Metrics) []share {
	if was == nil || was.AccumulationCounter == nil || is.AccumulationCounter == nil ||
		*is.AccumulationCounter <= *was.AccumulationCounter {
		return nil
	}
	cycles := *is.AccumulationCounter - *was.AccumulationCounter
	var shares []share
	for cause, n := range is.ThrottleAccumulators {
		before, known := was.ThrottleAccumulators[cause]
		if !known || n <= before {
			continue
		}
		held := min(n-before, cycles) // two counters are not read at one instant
		hi, lo := bits.Mul64(held, 100)
		percent, _ := bits.Div64(hi, lo, cycles)
		shares = append(shares, share{cause: cause, percent: percent})
	}
	slices.SortFunc(shares, func(a, b share) int {
		if a.percent != b.percent {
			return int(b.percent) - int(a.percent)
		}
		return strings.Compare(a.cause, b.cause)
	})
	return shares
}

func temperatures(m *discover.Metrics) string {
	text := func(n *int64) string {
		if n == nil {
			return "unknown"
		}
		return fmt.Sprintf("%d C", *n)
	}
	return "hotspot " + text(m.HotspotCelsius) + ", memory " + text(m.MemoryCelsius)
}
