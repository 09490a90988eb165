package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
)

// installed are the binaries that a run pod needs; they lie side by side in the agent's image.
var installed = []string{"agent", "rank"}

func newInstallCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "install DIR",
		Short: "Copy the agent's binaries to DIR, for images that do not carry them",
		Long: `Copy this binary and rank, which lies beside it, to DIR/agent and DIR/rank with mode 0755. A copy appears whole or not at
all: it is written beside its place and renamed. Run pods use it as an init container, so that any runtime image will do.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			self, err := os.Executable()
			if err != nil {
				return fmt.Errorf("find this binary: %w", err)
			}
			for _, name := range installed {
				source, target := filepath.Join(filepath.Dir(self), name), filepath.Join(args[0], name)
				if err := installFile(source, target); err != nil {
					return err
				}
				if _, err := fmt.Fprintln(cmd.OutOrStdout(), "installed", target); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// installFile copies source to target by way of a temporary file in target's directory, synced before it is renamed.
func installFile(source, target string) (err error) {
	in, err := os.Open(source)
	if err != nil {
		return fmt.Errorf("open the binary: %w", err)
	}
	defer func() { _ = in.Close() }()
	out, err := os.CreateTemp(filepath.Dir(target), ".agent-*")
	if err != nil {
		return fmt.Errorf("write %s: %w: mount a writable volume there", target, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("install %s: %w", target, err), os.Remove(out.Name()))
		}
	}()
	_, err = io.Copy(out, in)
	if err == nil {
		err = out.Chmod(0o755)
	}
	if err == nil {
		err = out.Sync()
	}
	if closeErr := out.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return os.Rename(out.Name(), target)
}
