package demo

import (
	"fmt"
	"io"
	"time"
)

// transcript tells the user what the demo does, and in the end where the time went.
type transcript struct {
	out    io.Writer
	began  time.Time
	mark   time.Time // when the present phase began
	phases []phase
}

// phase is one part of the time that the demo took.
type phase struct {
	name    string
	seconds float64
}

func (t *transcript) say(format string, args ...any) { _, _ = fmt.Fprintf(t.out, format+"\n", args...) }

func (t *transcript) step(format string, args ...any) { t.say("\n==> "+format, args...) }

// done closes a phase.
func (t *transcript) done(name string) {
	now := time.Now()
	t.phases = append(t.phases, phase{name, now.Sub(t.mark).Seconds()})
	t.mark = now
}

func (t *transcript) printTimes() {
	t.step("Where the time went")
	for _, p := range t.phases {
		t.say("  %8.1f s  %s", p.seconds, p.name)
	}
	t.say("  %8.1f s  in all", time.Since(t.began).Seconds())
}
