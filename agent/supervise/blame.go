package supervise

import (
	"time"

	"rcclx.io/commgroup-operator/agent/rank"
)

// deathGrace is how long the team is left alone after an error that a peer's death may have caused: the rank that lost
// a connection can be heard before the death that cut it is noticed. Short, since a death must be told within a second.
const deathGrace = 300 * time.Millisecond

// failures are what went wrong in a team, in the order in which it was noticed.
type failures struct {
	all   []Failure
	since time.Time // when the first was noticed
	// complaints are those of the failures that a peer's death may have caused; until then it is waited for.
	complaints int
	until      time.Time
}

func (fs *failures) add(f Failure, now time.Time) {
	if len(fs.all) == 0 {
		fs.since = now
	}
	fs.all = append(fs.all, f)
}

// complain counts a failure, before it is added, that a peer's death may have caused.
func (fs *failures) complain(now time.Time) {
	if fs.complaints++; fs.complaints == 1 {
		fs.until = now.Add(deathGrace)
	}
}

// awaitDeath says whether all that has failed so far may be the result of a death that is not noticed yet.
func (fs *failures) awaitDeath(now time.Time) bool {
	return len(fs.all) == fs.complaints && now.Before(fs.until)
}

// blame chooses the failure to name. A death explains the errors of peers that lost their connection, and comes first
// even where a peer's complaint was read before the death was noticed.
func (fs *failures) blame(rs ranks) *Failure {
	if len(fs.all) == 0 {
		return nil
	}
	first := fs.all[0]
	if (first.Kind == FailRankError || first.Kind == FailHung) && consequence(first.Code) {
		for _, f := range fs.all[1:] {
			if f.Kind == FailDied && rs.explains(f, first) || first.Kind == FailRankError && f.Kind == FailRankError &&
				!consequence(f.Code) {
				first = f
				break
			}
		}
	}
	for i, r := range rs {
		if r.Stuck {
			first.Message += "; " + r.Name() + " did not end on SIGKILL: it hangs in the kernel driver, " +
				"look at dmesg; only a reset of the GPU or a reboot helps"
			if first.Rank < 0 {
				first.Rank = i
			}
		}
	}
	return &first
}

// explains says whether a death can be the cause of what another rank complained of. A rank that crashes once the one
// that complained is gone may have crashed for that; no lost connection sends a SIGKILL. Nor is a hang, which takes a
// whole deadline, explained by a crash at its end.
func (rs ranks) explains(death, complaint Failure) bool {
	if death.Killed || complaint.Kind != FailRankError {
		return death.Killed
	}
	gone := rs[complaint.Rank].ended
	return gone.IsZero() || !gone.Before(rs[death.Rank].ended)
}

// consequence says whether an error can be the mere result of a peer's end.
func consequence(code string) bool {
	return code == rank.CodeInitFailed || code == rank.CodeCollectiveFailed || code == rank.CodeRankHung
}
