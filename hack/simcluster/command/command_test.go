package command

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"rcclx.io/commgroup-operator/hack/simcluster/cluster"
)

// TestLockGoesWithItsState: whatever a command does and however it ends, a lock stays only beside a state directory.
func TestLockGoesWithItsState(t *testing.T) {
	refused := errors.New("refused")
	claim := func(state cluster.State) error { return state.Claim() }
	remove := func(state cluster.State) error { return os.RemoveAll(state.Dir) }
	for name, tc := range map[string]struct {
		before, do func(cluster.State) error
		stays      bool
	}{
		"down, and nothing is there": {nil,
			func(state cluster.State) error { return cluster.Down(state, t.Logf) }, false},
		"down, and it is refused": {nil, func(cluster.State) error { return refused }, false},
		"down of a foreign directory": {
			func(state cluster.State) error { return os.Mkdir(state.Dir, 0o755) },
			func(state cluster.State) error { return cluster.Down(state, t.Logf) }, false},
		"down":                   {claim, remove, false},
		"down that does not end": {claim, func(cluster.State) error { return refused }, true},
		"up":                     {nil, claim, true},
		"up, and it is refused":  {nil, func(cluster.State) error { return refused }, false},
	} {
		t.Run(name, func(t *testing.T) {
			state := cluster.State{Dir: filepath.Join(t.TempDir(), "s")}
			if tc.before != nil {
				if err := tc.before(state); err != nil {
					t.Fatal(err)
				}
			}
			down := Down(state.Dir, "", func(_ context.Context, state cluster.State) error { return tc.do(state) })
			down.SetArgs(nil)
			down.SilenceUsage, down.SilenceErrors = true, true
			_ = down.Execute()
			if _, err := os.Stat(state.LockFile()); errors.Is(err, fs.ErrNotExist) == tc.stays {
				t.Errorf("the lock file: %v", err)
			}
		})
	}
}
