package simnode

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// segmentPattern is how the simulated library names what its ranks share (hack/simrocm/src/shm.c).
const segmentPattern = "simrocm-*"

// sweepFabric removes what ranks that are gone have left. Whoever uses a file holds a lock on it, as the library's own
// sweep relies on, so files of pods that run stay. What cannot be opened or removed is left to the cluster's end.
func sweepFabric(dir string) {
	files, err := filepath.Glob(filepath.Join(dir, segmentPattern))
	if err != nil {
		return // only a bad pattern
	}
	for _, file := range files {
		f, err := os.OpenFile(file, os.O_RDWR|unix.O_NOFOLLOW, 0)
		if err != nil {
			continue
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			_ = os.Remove(file)
		}
		_ = f.Close()
	}
}
