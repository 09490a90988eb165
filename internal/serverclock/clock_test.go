package serverclock

import (
	"errors"
	"net/http"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

type server func(*http.Request) (*http.Response, error)

func (s server) RoundTrip(r *http.Request) (*http.Response, error) { return s(r) }

var start = time.Date(2026, 1, 2, 3, 4, 5, 600_000_000, time.UTC)

// TestNowIsTheServersTime: whatever the local clock says, and when it is put right, or wrong, meanwhile.
func TestNowIsTheServersTime(t *testing.T) {
	truth, local := start, clocktesting.NewFakePassiveClock(start)
	c := New(local)
	takes := time.Duration(0)
	rt := c.Wrap(server(func(*http.Request) (*http.Response, error) {
		h := http.Header{}
		h.Set("Date", truth.UTC().Format(http.TimeFormat))
		local.SetTime(local.Now().Add(takes))
		truth = truth.Add(takes)
		return &http.Response{Header: h}, nil
	}))
	for _, off := range []time.Duration{0, time.Second, -4 * time.Second, 6 * time.Minute, -11 * time.Minute, 0,
		24 * time.Hour, 3 * time.Second} {
		for _, takes = range []time.Duration{0, time.Second, 20 * time.Second, 0} {
			truth = truth.Add(time.Minute)
			local.SetTime(truth.Add(off))
			before := c.Now()
			if _, err := rt.RoundTrip(&http.Request{}); err != nil {
				t.Fatal(err)
			}
			wrong, allowed := c.Now().Sub(truth).Abs(), tolerance+time.Second+takes
			if wrong > allowed {
				t.Errorf("local clock %s off, answer in %s: now is %s wrong, at most %s is allowed",
					off, takes, wrong, allowed)
			}
			if off == 0 && before.Equal(truth.Add(-takes)) && c.offset.Load() != 0 {
				t.Errorf("a right clock was corrected by %s", time.Duration(c.offset.Load()))
			}
		}
	}
	if got := c.Since(c.Now().Add(-time.Hour)); got != time.Hour {
		t.Errorf("an hour ago is %s ago", got)
	}
}

// TestAnswersThatTeachNothing: an error, no Date, or one that is no time.
func TestAnswersThatTeachNothing(t *testing.T) {
	refused := errors.New("refused")
	for name, s := range map[string]server{
		"error":   func(*http.Request) (*http.Response, error) { return nil, refused },
		"no date": func(*http.Request) (*http.Response, error) { return &http.Response{Header: http.Header{}}, nil },
		"no time": func(*http.Request) (*http.Response, error) {
			return &http.Response{Header: http.Header{"Date": {"yesterday"}}}, nil
		},
	} {
		c := New(clocktesting.NewFakePassiveClock(start))
		if _, err := c.Wrap(s).RoundTrip(&http.Request{}); name == "error" && !errors.Is(err, refused) {
			t.Errorf("error %v", err)
		}
		if !c.Now().Equal(start) {
			t.Errorf("%s: now is %s", name, c.Now())
		}
	}
}
