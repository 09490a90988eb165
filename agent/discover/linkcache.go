package discover

import "sync"

// rereadLinks is after how many scans every link is read again, whatever the cache holds.
const rereadLinks = 10

// DirID tells one making of a directory from another. KFD removes all its nodes and makes them anew whenever its topology
// changes (kfd_topology.c, kfd_build_sysfs_node_tree), so that their links hold as long as the directory is the same.
type DirID struct {
	Device, Inode uint64
	// ChangedNanoseconds since 1970, of the inode: a file system may give a number a second time.
	ChangedNanoseconds int64
}

// linkCache remembers the links of KFD's directories over the scans of one Scanner. A node of 64 devices has 4000 files of
// links, nine of ten of all that a scan would read.
type linkCache struct {
	mu    sync.Mutex
	scans int
	dirs  map[string]cachedLinks
}

type cachedLinks struct {
	id    DirID
	links []linkRecord
}

// begin starts a scan; at every tenth it forgets.
func (c *linkCache) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dirs == nil || c.scans%rereadLinks == 0 {
		c.dirs = map[string]cachedLinks{}
	}
	c.scans++
}

func (c *linkCache) get(dir string, id DirID) ([]linkRecord, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	hit, ok := c.dirs[dir]
	return hit.links, ok && hit.id == id
}

func (c *linkCache) put(dir string, id DirID, links []linkRecord) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dirs[dir] = cachedLinks{id: id, links: links}
}
