package discover

import "sync"

// rereadLinks is after how many scans every link is read again, whatever the cache holds.
const rereadLinks = 10

// DirID tells one making of a directory from another. KFD removes all its nodes and re-creates them whenever its
// topology changes (kfd_topology.c, kfd_build_sysfs_node_tree), so that their links hold as long as the directory is
// the same.
type DirID struct {
	Device, Inode uint64
	// ChangedNanoseconds since 1970, of the inode: a file system may give a number a second time.
	ChangedNanoseconds int64
}

// linkCache remembers the links of KFD's directories over the scans of one Scanner. A node of 64 devices has 4000 files
// of links, nine of ten of all that a scan would read.
//
// KFD fills a directory file by file, and sysfs gives it no other identity for that. So nothing holds beyond one
// generation of the topology, and a directory's links are only remembered once a scan finds it that has seen it before.
type linkCache struct {
	mu         sync.Mutex
	scans      int
	reread     bool // this scan reads every link
	generation uint64
	dirs       map[string]cachedLinks
}

type cachedLinks struct {
	id    DirID
	links []linkRecord
	whole bool // an earlier scan saw the directory
}

// begin starts a scan of a generation of the topology; nil is one that is not known.
func (c *linkCache) begin(generation *uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dirs == nil || generation == nil || *generation != c.generation {
		c.dirs = map[string]cachedLinks{}
	}
	if generation != nil {
		c.generation = *generation
	}
	c.reread = c.scans%rereadLinks == 0
	c.scans++
}

func (c *linkCache) get(dir string, id DirID) ([]linkRecord, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	hit, ok := c.dirs[dir]
	return hit.links, ok && hit.whole && hit.id == id && !c.reread
}

func (c *linkCache) put(dir string, id DirID, links []linkRecord) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, ok := c.dirs[dir]
	c.dirs[dir] = cachedLinks{id: id, links: links, whole: ok && before.id == id}
}
