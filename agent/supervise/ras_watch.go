package supervise

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"rcclx.io/commgroup-operator/agent/ras"
)

// maxRASWait bounds one question. The library itself gives its processes at most 10 s (nccl src/ras/ras_internal.h
// RAS_COLLECTIVE_LEG_TIMEOUT and _EXTRA_TIMEOUT).
const maxRASWait = 12 * time.Second

const (
	rasAddressVariable = "NCCL_RAS_ADDR"
	rasEnableVariable  = "NCCL_RAS_ENABLE"
)

// AskRAS asks the RAS service at an address. Its context has a deadline.
type AskRAS func(ctx context.Context, address string) (ras.Report, error)

func askRAS(ctx context.Context, address string) (ras.Report, error) {
	var dialer net.Dialer
	return ras.Query(ctx, dialer.DialContext, address)
}

// rasAnswer is one answer, or why there was none.
type rasAnswer struct {
	asked  time.Time
	report ras.Report
	err    error
}

// rasWatch asks RAS while ranks are late.
type rasWatch struct {
	ask     AskRAS
	address string // empty: nobody is asked
	problem string // why nobody can be asked, where that is not by choice
	asked   []time.Time
	pending bool
	answers []rasAnswer
	cancel  context.CancelFunc
}

// rasEnvironment gives the environment for a team's ranks and the address of their RAS service; empty where there is
// none. All ranks of a host share the address, and the kernel picks the one that answers, so a team gets an address of
// its own: at the default, localhost:28028, another job of the host could answer. A user's own settings stay.
func rasEnvironment(env []string) (_ []string, address string, release func(), err error) {
	release = func() {}
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		switch name {
		case rasEnableVariable:
			// As the library reads a number (src/misc/param.cc): any base, and text that is none is 0.
			if n, perr := strconv.ParseInt(value, 0, 64); perr != nil && value != "" || perr == nil && n != 1 {
				return env, "", release, nil
			}
		case rasAddressVariable:
			address = reachable(value)
		}
	}
	if address != "" {
		return env, address, release, nil
	}
	if address, release, err = ras.Reserve(); err != nil {
		return env, "", func() {}, err
	}
	return append(env[:len(env):len(env)], rasAddressVariable+"="+address), address, release, nil
}

// reachable turns an address to listen on into one to connect to.
func reachable(address string) string {
	host, port, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsUnspecified() {
		return net.JoinHostPort("localhost", port)
	}
	return address
}

// prepareRAS gives the ranks an address for their RAS service. A probe has no communicator, so nothing to ask about; a
// failure here is no reason not to measure.
func (v *supervision) prepareRAS() (release func()) {
	if len(v.team.Specs) == 0 || v.team.Specs[0].WorldSize == 0 || v.team.AskRASAfter < 0 {
		return func() {}
	}
	env, address, release, err := rasEnvironment(v.team.Env)
	if err != nil {
		v.ras.problem = err.Error()
	}
	v.team.Env, v.ras.address = env, address
	return release
}

// nextQuestion is when RAS has to be asked next; zero where it has not.
func (v *supervision) nextQuestion() time.Time {
	w := &v.ras
	if w.address == "" || w.pending || len(v.failures.all) > 0 || v.team.AskRASAfter < 0 {
		return time.Time{}
	}
	deadline, i := v.ranks.earliest()
	if i < 0 || v.ranks[i].awaits == "load" {
		return time.Time{} // before its initialisation a rank serves nothing
	}
	began := v.ranks[i].began
	if run := v.team.RunDeadline; !run.IsZero() && run.Before(deadline) {
		deadline = run
	}
	allowed := deadline.Sub(began)
	after := v.team.AskRASAfter
	if after == 0 {
		after = allowed / 2
	}
	if after >= allowed {
		return time.Time{}
	}
	asked := 0
	for _, at := range w.asked {
		if !at.Before(began) {
			asked++
		}
	}
	switch asked {
	case 0:
		return began.Add(after)
	case 1:
		return began.Add(after + (allowed-after)/2)
	}
	return time.Time{}
}

// question asks RAS in a goroutine of its own, which never outlives the wait that it is about: nothing waits for it.
func (v *supervision) question(messages chan<- message, stop <-chan struct{}) {
	w := &v.ras
	now := v.clock.Now()
	wait := maxRASWait
	if deadline, _ := v.earliest(); !deadline.IsZero() {
		wait = min(wait, deadline.Sub(now))
	}
	var ctx context.Context
	ctx, w.cancel = context.WithTimeout(context.Background(), wait)
	w.pending, w.asked = true, append(w.asked, now)
	go func(cancel context.CancelFunc, ask AskRAS, address string) {
		defer cancel()
		report, err := ask(ctx, address)
		select {
		case messages <- message{ras: &rasAnswer{asked: now, report: report, err: err}}:
		case <-stop:
		}
	}(w.cancel, w.ask, w.address)
}

func (w *rasWatch) onAnswer(a rasAnswer) {
	w.pending = false
	w.answers = append(w.answers, a)
}

// stop gives up on a question that is still open.
func (w *rasWatch) stop() {
	if w.cancel != nil {
		w.cancel()
	}
}

// told gives what RAS has answered since then, and why a question had no answer.
func (w *rasWatch) told(since time.Time) (told []rasAnswer, why string) {
	why = w.problem
	for _, a := range w.answers {
		switch {
		case a.asked.Before(since):
		case a.err != nil:
			why = a.err.Error()
		default:
			told = append(told, a)
		}
	}
	return told, why
}

// verdict says what RAS has answered since then; empty where it was not asked.
func (w *rasWatch) verdict(since, now time.Time) string {
	told, why := w.told(since)
	if len(told) > 0 {
		last, before, apart := lastTwo(told)
		return ras.Verdict(last, before, apart)
	}
	if n := len(w.asked); why == "" && w.pending && n > 0 && !w.asked[n-1].Before(since) {
		why = fmt.Sprintf("no answer within %s", now.Sub(w.asked[n-1]).Round(time.Millisecond))
	}
	if why == "" {
		return ""
	}
	return "RAS did not answer: " + why
}

// suspicion is what RAS's answers since then say against ranks of the team's communicator.
func (w *rasWatch) suspicion(since time.Time, ranks int) ras.Suspicion {
	told, _ := w.told(since)
	if len(told) == 0 {
		return ras.Suspicion{}
	}
	last, before, apart := lastTwo(told)
	return ras.Suspect(last, before, apart, ranks)
}

// lastTwo are the last answer and the one before it, if any.
func lastTwo(told []rasAnswer) (last ras.Report, before *ras.Report, apart time.Duration) {
	n := len(told)
	if n > 1 {
		before, apart = &told[n-2].report, told[n-1].asked.Sub(told[n-2].asked)
	}
	return told[n-1].report, before, apart
}
