package engine

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rcclx.io/commgroup-operator/rcclx"
)

// testDeadline is a safety net.
const testDeadline = 15 * time.Second

// member is one rank of a communicator of threads.
type member struct {
	rank        int
	nonBlocking bool
	*Engine
}

// overRanks forms a communicator of threads of this process, each on a device of its own, and lets each do its work.
func overRanks(t *testing.T, ranks int, bytes int64, nonBlocking bool, change func(*Library),
	work func(m member) error) {
	t.Helper()
	shared := openSimulated(t)
	id, err := shared.UniqueID()
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for rank := range ranks {
		// Each has its own notes of the device, and what a test changes.
		lib := *shared
		lib.collectives = maps.Clone(shared.collectives)
		if change != nil {
			change(&lib)
		}
		all.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			if err := oneRank(&lib, rank, ranks, bytes, id, nonBlocking, work); err != nil {
				t.Errorf("rank %d of %d: %v", rank, ranks, err)
			}
		})
	}
	all.Wait()
}

func oneRank(lib *Library, rank, ranks int, bytes int64, id []byte, nonBlocking bool, work func(m member) error) error {
	if err := lib.UseDevice(rank); err != nil {
		return err
	}
	e, err := NewEngine(lib, rank, ranks, SystemClock{})
	if err != nil {
		return err
	}
	if err := e.Allocate(rcclx.NewMemory(bytes, bytes, 0)); err != nil {
		return err
	}
	if err := e.Join(id, nonBlocking, time.Minute); err != nil {
		return err
	}
	if err := work(member{rank, nonBlocking, e}); err != nil {
		return err
	}
	return e.Close(time.Minute)
}

// everything asks for every collective, datatype and placement at an odd size, with every kind of data that fits.
func everything(sizeBytes int64) []MeasureRequest {
	var all []MeasureRequest
	for _, c := range rcclx.AllCollectives() {
		for _, d := range rcclx.Datatypes() {
			var data []rcclx.Data
			for _, kind := range []rcclx.Data{rcclx.DataExact, rcclx.DataRounding, rcclx.DataGradients,
				rcclx.DataActivations} {
				if fitsData(d, kind) == "" {
					data = append(data, kind)
				}
			}
			for _, p := range []rcclx.Placement{rcclx.OutOfPlace, rcclx.InPlace} {
				if p == rcclx.OutOfPlace || rcclx.HasInPlace(c) {
					all = append(all, MeasureRequest{Collective: c, Datatype: d, Placement: p,
						SizeBytes: sizeBytes, WarmupIterations: 1, Iterations: 3,
						Data: data, Variant: rcclx.Baseline, Deadline: testDeadline})
				}
			}
		}
	}
	return all
}

func measureRight(m member, q MeasureRequest) error {
	r, err := m.Measure(q)
	if err != nil {
		return fmt.Errorf("%s: %w", q.Name(), err)
	}
	// Sums of random data that are rounded to FP8 at every hop are no test of single elements.
	unjudged := func(d rcclx.Data) bool {
		return q.Datatype.Bytes() == 1 && (d == rcclx.DataGradients || d == rcclx.DataActivations) &&
			m.comm.ranks > 2 && (q.Collective == rcclx.AllReduce || q.Collective == rcclx.ReduceScatter ||
			q.Collective == rcclx.Reduce && m.rank == root)
	}
	if r.Latency.MedianNanoseconds <= 0 || r.LaunchNanoseconds <= 0 || r.Latency.Repeats != 3 ||
		len(r.Checks) != len(q.Data) {
		return fmt.Errorf("%s: %+v", q.Name(), r)
	}
	for i, check := range r.Checks {
		if unjudged(check.Data) && check.CheckedElements == 0 {
			check.CheckedElements = r.Shape.RecvBytes / q.Datatype.Bytes()
		}
		if check.Data != q.Data[i] || check.WrongElements != 0 || check.NaNElements != 0 ||
			check.CheckedElements != r.Shape.RecvBytes/q.Datatype.Bytes() {
			return fmt.Errorf("%s with %s data: %+v", q.Name(), q.Data[i], check)
		}
		if exact := check.Data == rcclx.DataExact || check.Data == rcclx.DataRounding; exact &&
			check.MaxRelativeErrorPPM != 0 {
			return fmt.Errorf("%s with %s data: %+v", q.Name(), q.Data[i], check)
		}
	}
	return nil
}

// Every collective, datatype, placement and kind of data at an odd count, over one to eight ranks.
func TestMeasureEverything(t *testing.T) {
	const size = 50021
	for _, ranks := range []int{1, 2, 3, 8} {
		t.Run(fmt.Sprint(ranks), func(t *testing.T) {
			overRanks(t, ranks, size, false, nil, func(m member) error {
				for _, q := range everything(size) {
					if err := measureRight(m, q); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}

// The slowest rank's time comes to all ranks, whatever its size, and no rank's own is longer.
func TestSlowestRank(t *testing.T) {
	for _, ranks := range []int{1, 4} {
		slowest := make([]int64, ranks)
		overRanks(t, ranks, 4096, false, nil, func(m member) error {
			const large = 1 << 40 // ns: more than 32 bits hold
			if got, err := m.slowest(large+int64(m.rank), m.comm.limit(testDeadline)); err != nil ||
				got != large+int64(ranks-1) {
				return fmt.Errorf("slowest of the ranks: %d, %w", got, err)
			}
			q := MeasureRequest{Collective: rcclx.SendRecv, Datatype: rcclx.Float32, SizeBytes: 4096, Iterations: 3,
				Data: []rcclx.Data{rcclx.DataExact}, Deadline: testDeadline, Slowest: true}
			r, err := m.Measure(q)
			if err != nil {
				return err
			}
			slowest[m.rank] = r.SlowestNanoseconds
			if r.SlowestNanoseconds < r.Latency.MedianNanoseconds || r.Checks[0].WrongElements != 0 {
				return fmt.Errorf("%+v", r)
			}
			q.Slowest = false
			if r, err = m.Measure(q); err != nil || r.SlowestNanoseconds != 0 {
				return fmt.Errorf("not asked for: %d, %w", r.SlowestNanoseconds, err)
			}
			return nil
		})
		if slices.Min(slowest) != slices.Max(slowest) {
			t.Errorf("the ranks differ: %v", slowest)
		}
	}
}

// Libraries without AllToAll and AllToAllv get a group of sends and receives, with the same result, the smallest counts
// that measure them included.
func TestAllToAllByMessages(t *testing.T) {
	without := func(l *Library) {
		l.collectives[rcclx.AllToAll], l.collectives[rcclx.AllToAllv] = 0, 0
	}
	overRanks(t, 3, 65536, false, without, func(m member) error {
		for _, q := range everything(4001) {
			if q.Collective != rcclx.AllToAll && q.Collective != rcclx.AllToAllv {
				continue
			}
			for _, q.SizeBytes = range []int64{6 * q.Datatype.Bytes(), 4001} {
				if err := measureRight(m, q); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// A communicator that does not block answers every call with ncclInProgress first, by config or by environment.
func TestNonBlocking(t *testing.T) {
	step := func(m member) error {
		for _, q := range everything(4099) {
			if q.Datatype != rcclx.BFloat16 {
				continue
			}
			if err := measureRight(m, q); err != nil {
				return err
			}
		}
		if peer, ok := m.PairPeer(0); ok {
			if _, err := m.MeasurePair(peer,
				PairRequest{SizeBytes: 4096, Iterations: 1, Deadline: testDeadline}); err != nil {
				return err
			}
		}
		if !m.comm.nonBlocking {
			return errors.New("the communicator blocks")
		}
		return nil
	}
	t.Run("config", func(t *testing.T) { overRanks(t, 3, 8192, true, nil, step) })
	t.Run("environment", func(t *testing.T) {
		if err := setenv("NCCL_COMM_BLOCKING", "0"); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = setenv("NCCL_COMM_BLOCKING", "") }()
		overRanks(t, 3, 8192, false, nil, step)
	})
}

// Ranks that wait for one that never comes end at their deadline, and say what may be the cause.
func TestNonBlockingInitEndsAtItsDeadline(t *testing.T) {
	lib := openSimulated(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := lib.UseDevice(0); err != nil {
		t.Fatal(err)
	}
	id, err := lib.UniqueID()
	if err != nil {
		t.Fatal(err)
	}
	clock := &steppedClock{now: time.Unix(0, 0)}
	e, err := NewEngine(lib, 0, 2, clock)
	if err != nil {
		t.Fatal(err)
	}
	err = e.Join(id, true, 5*time.Second)
	var deadline *DeadlineError
	if !errors.As(err, &deadline) || deadline.Deadline != 5*time.Second {
		t.Fatalf("Join = %v, want a DeadlineError", err)
	}
	for _, part := range []string{"rank 0 of 2", "from another run", "ncclCommAbort"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}

// Random data never stand alone, and the request's own slice is left as it is.
func TestExactDataAreAlwaysChecked(t *testing.T) {
	e := engine(t, 1<<16)
	for _, tt := range []struct {
		variant rcclx.Variant
		ask     []rcclx.Data
		want    []rcclx.Data
	}{
		{rcclx.Baseline, []rcclx.Data{rcclx.DataGradients}, []rcclx.Data{rcclx.DataGradients, rcclx.DataExact}},
		{rcclx.DDA, []rcclx.Data{rcclx.DataExact, rcclx.DataActivations},
			[]rcclx.Data{rcclx.DataExact, rcclx.DataActivations}},
		{rcclx.LowPrecision, []rcclx.Data{rcclx.DataGradients}, []rcclx.Data{rcclx.DataGradients, rcclx.DataRounding}},
		{rcclx.LowPrecision, nil, []rcclx.Data{rcclx.DataRounding}},
	} {
		backing := append(slices.Clone(tt.ask), "untouched")
		r, err := e.Measure(MeasureRequest{Collective: rcclx.AllReduce, Datatype: rcclx.BFloat16, SizeBytes: 1 << 16,
			Iterations: 1, Data: backing[:len(tt.ask)], Variant: tt.variant, Deadline: testDeadline})
		if err != nil {
			t.Fatal(err)
		}
		var got []rcclx.Data
		for _, check := range r.Checks {
			got = append(got, check.Data)
			if check.CheckedElements != 1<<15 || check.WrongElements != 0 {
				t.Errorf("%s of %v: %+v", tt.variant, tt.ask, check)
			}
		}
		if !slices.Equal(got, tt.want) || backing[len(tt.ask)] != "untouched" {
			t.Errorf("%s of %v was checked with %v, want %v", tt.variant, tt.ask, got, tt.want)
		}
	}
}

// FP8 transport in the library itself: safe counts are right, hazardous ones are found out, by the data that show them.
func TestLowPrecisionOverRanks(t *testing.T) {
	if err := setenv("RCCL_LOW_PRECISION_ENABLE", "1"); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = setenv("RCCL_LOW_PRECISION_ENABLE", "0") }()
	const size = 16 << 20
	hazard := rcclx.HazardSizes(rcclx.AllReduce, rcclx.BFloat16, size, 2)
	all := []rcclx.Data{rcclx.DataRounding, rcclx.DataExact, rcclx.DataGradients, rcclx.DataActivations}
	overRanks(t, 2, slices.Max(hazard), false, nil, func(m member) error {
		for _, c := range rcclx.Collectives() {
			r, err := m.Measure(MeasureRequest{Collective: c, Datatype: rcclx.BFloat16, SizeBytes: size, Iterations: 1,
				Data: all, Variant: rcclx.LowPrecision, Path: rcclx.PathLowPrecision, Deadline: testDeadline})
			if err != nil {
				return err
			}
			for _, check := range r.Checks {
				quantised := check.Data != rcclx.DataExact || c == rcclx.AllReduce
				if check.WrongElements != 0 || quantised && check.MaxRelativeErrorPPM == 0 ||
					(check.NaNElements > 0) != (check.Data == rcclx.DataActivations) {
					return fmt.Errorf("%s: %+v", c, check)
				}
			}
		}
		// Where the gates say that FP8 does not take a call, nothing that FP8 does is right.
		r, err := m.Measure(MeasureRequest{Collective: rcclx.AllReduce, Datatype: rcclx.BFloat16, SizeBytes: size,
			Iterations: 1, Variant: rcclx.LowPrecision, Path: rcclx.PathRingTree, Deadline: testDeadline})
		if err != nil {
			return err
		}
		if check := r.Checks[0]; check.Data != rcclx.DataRounding || check.WrongElements < check.CheckedElements/4 ||
			check.CheckedElements != size/2 {
			return fmt.Errorf("quantised data passed for those of a ring: %+v", check)
		}
		for _, size := range hazard {
			r, err := m.Measure(MeasureRequest{Collective: rcclx.AllReduce, Datatype: rcclx.BFloat16, SizeBytes: size,
				Iterations: 1, Variant: rcclx.LowPrecision, Path: rcclx.PathLowPrecision, Deadline: testDeadline})
			if err != nil {
				return err
			}
			if check := r.Checks[0]; check.Data != rcclx.DataRounding || check.WrongElements == 0 ||
				check.FirstWrongElement == nil {
				return fmt.Errorf("a count of %d: the tail that the library loses was not seen: %+v",
					r.Shape.CountElements, check)
			}
		}
		return nil
	})
}
