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

// SessionFile is what a FileLink reads: the node's CommTask, and the CommRun that it is of.
type SessionFile struct {
	CommTask api.CommTask `json:"commTask"`
	CommRun  api.CommRun  `json:"commRun"`
}

// FileLink follows a SessionFile as JSON, for who tries a group without Kubernetes: the CommTask's spec is read, and
// the CommTask with status.session is written to a second file, so that each file has one writer.
type FileLink struct {
	// Path of the SessionFile, StatusPath of what is written.
	Path, StatusPath string
	RunID            string
	Clock            clock.Clock
}

// Follow implements Link.
func (f FileLink) Follow(ctx context.Context, see func(Seen)) {
	var last []byte
	for ctx.Err() == nil {
		switch data, file, err := f.read(); {
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
			s := asked(file.CommTask.Spec, &file.CommRun)
			s.BudgetBytes = mostBytes
			see(s)
		}
		pause(ctx, f.Clock, fileEvery)
	}
}

func (f FileLink) read() ([]byte, SessionFile, error) {
	var file SessionFile
	data, err := os.ReadFile(f.Path)
	if err != nil {
		return nil, file, fmt.Errorf("read the session file: %w", err)
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, file, fmt.Errorf("the session file %s is no commTask and commRun as JSON: %w", f.Path, err)
	}
	if err := checkRun(&file.CommRun, f.RunID); file.CommTask.Spec.Session != nil && err != nil {
		return nil, file, fmt.Errorf("the session file %s: %w", f.Path, err)
	}
	return data, file, nil
}

// ReportSession implements Link. A reader of the file sees the old report or the new one, never a part.
func (f FileLink) ReportSession(_ context.Context, status api.SessionStatus) error {
	_, file, err := f.read()
	if err != nil {
		return err
	}
	node := file.CommTask
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
