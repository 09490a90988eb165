package executor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"k8s.io/utils/clock"

	"rcclx.io/commgroup-operator/agent/commtask"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
)

// fileEvery is how often a file is looked at.
const fileEvery = 200 * time.Millisecond

// FileLink follows a file with a CommTask as JSON, for who tries a group without Kubernetes: its spec is read, and the CommTask
// with status.session is written to a second file, so that each file has one writer.
type FileLink struct {
	// Path of the CommTask, StatusPath of what is written.
	Path, StatusPath string
	RunID            string
	Clock            clock.Clock
}

// Follow implements Link.
func (f FileLink) Follow(ctx context.Context, see func(Seen)) {
	var last []byte
	for {
		switch data, node, err := f.read(); {
		case errors.Is(err, fs.ErrNotExist):
			if last != nil {
				see(Seen{Gone: true})
			} else {
				see(Seen{Err: err})
			}
		case err != nil: // it may be half written
			see(Seen{Err: err})
		case last == nil || !bytes.Equal(data, last):
			last = data
			s := asked(node.Spec)
			s.BudgetBytes = nodeBudgetBytes
			see(s)
		}
		timer := f.Clock.NewTimer(fileEvery)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		}
	}
}

func (f FileLink) read() ([]byte, api.CommTask, error) {
	var node api.CommTask
	data, err := os.ReadFile(f.Path)
	if err != nil {
		return nil, node, fmt.Errorf("read the session file: %w", err)
	}
	if err := json.Unmarshal(data, &node); err != nil {
		return nil, node, fmt.Errorf("the session file %s is no CommTask as JSON: %w", f.Path, err)
	}
	return data, node, nil
}

// Report implements Link. A reader of the file sees the old report or the new one, never a part.
func (f FileLink) Report(_ context.Context, status api.SessionStatus) error {
	_, node, err := f.read()
	if err != nil {
		return err
	}
	if a := node.Spec.Session; a == nil || a.RunID != f.RunID {
		return fmt.Errorf("%w: %s does not ask for run %s any more", commtask.ErrSuperseded, f.Path, f.RunID)
	}
	node.Status.Session = &status
	data, err := json.MarshalIndent(node, "", "  ")
	if err != nil {
		return fmt.Errorf("%w: %w", commtask.ErrRejected, err)
	}
	temporary, err := os.CreateTemp(filepath.Dir(f.StatusPath), ".session-*")
	if err != nil {
		return fmt.Errorf("write the session's status: %w", err)
	}
	_, err = temporary.Write(append(data, '\n'))
	if err = errors.Join(err, temporary.Close()); err == nil {
		err = os.Rename(temporary.Name(), f.StatusPath)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write the session's status: %w", err), os.Remove(temporary.Name()))
	}
	return nil
}
