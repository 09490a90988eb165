package realnode

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// kernelSettings are what a kubelet sets on its machine, by their path below /proc/sys. No namespace keeps them apart,
// so a node has files in their place: the machine's own stay as they are.
var kernelSettings = []string{
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys",
	"kernel/keys/root_maxbytes",
}

// machineSettings are the folders of /proc/sys that hold settings of the whole machine: read-only in a node, so that
// what the files above do not catch fails in the open.
var machineSettings = []string{"fs", "kernel", "vm"}

// kernelSettings puts files with the machine's values in the place of the settings that the node will change.
func (r *root) kernelSettings() {
	const copies = "/realcluster/kernel-settings"
	for _, name := range machineSettings {
		dir := r.at("/proc/sys/" + name)
		r.do(dir, func() error { return bindMount(dir, dir, false) })
	}
	for _, name := range kernelSettings {
		setting, file := r.at("/proc/sys/"+name), filepath.Join(r.at(copies), name)
		r.do(setting, func() error {
			value, err := os.ReadFile(setting)
			if errors.Is(err, fs.ErrNotExist) {
				return nil // a kernel built without keys
			}
			if err == nil {
				err = os.MkdirAll(filepath.Dir(file), 0o755)
			}
			if err == nil {
				err = os.WriteFile(file, value, 0o644)
			}
			if err != nil {
				return err
			}
			return bindMount(file, setting, true)
		})
	}
}
