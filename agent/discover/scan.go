package discover

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sort"
	"strconv"
	"strings"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

const (
	topologyDir = "sys/class/kfd/kfd/topology"
	nodesDir    = topologyDir + "/nodes"
	pciDir      = "sys/bus/pci/devices"
	// simulationMark at the root of a tree says that the node simulator made it.
	simulationMark = "simrocm.conf"
	maxScans       = 3
	maxUnread      = 256
	amdVendorID    = 0x1002
)

// Scan reads a root once. Its error is ctx's alone: whatever is wrong with the tree is among the facts' problems.
func Scan(ctx context.Context, fs FS, opts Options) (*Facts, error) {
	return NewScanner(fs, opts).Scan(ctx)
}

// Scan reads the root. It reads again, up to three times, while KFD's topology changes under it.
func (s *Scanner) Scan(ctx context.Context) (*Facts, error) {
	for scan := 1; ; scan++ {
		facts, err := s.scanOnce(ctx)
		if err != nil {
			return nil, fmt.Errorf("scan was ended before it was done: %w", err)
		}
		facts.Scans = scan
		if facts.GenerationStable || scan == maxScans {
			facts.Mesh = buildMesh(facts, s.opts.ExpectedGPUs)
			facts.setModules()
			facts.Problems = findProblems(facts, s.opts.ExpectedGPUs)
			return facts, nil
		}
	}
}

// base is what the scan reads before it knows the GPUs.
type base struct {
	simulated  bool
	sysErr     *ReadError
	generation *uint64
	nodes      []int
	kfdErr     *ReadError
	nodesErr   *ReadError
	host       hostFacts
	rocm       ROCmFacts
	pci        pciBus
	minors     map[uint64]bool
	nics       []NIC
	unread     []*ReadError
}

func (s *Scanner) scanOnce(ctx context.Context) (*Facts, error) {
	parts, err := runAll(ctx, s, 6, func(r *reader, i int) *base {
		b := &base{}
		switch i {
		case 0:
			b.readTopologyRoot(r)
		case 1:
			b.host = readHost(r, s.opts.Proc)
			b.unread = b.host.unread
		case 2:
			b.rocm = readROCm(r, s.opts.ROCmPaths)
		case 3:
			b.pci = readPCIBus(r)
			b.unread = b.pci.unread
		case 4:
			b.nics, b.unread = readNICs(r)
		case 5:
			b.minors, b.unread = readRenderNodes(r)
		}
		return b
	})
	if err != nil {
		return nil, err
	}
	root, host, pci := parts[0], parts[1].host, parts[3].pci
	s.links.begin(root.generation)
	nodes, err := runAll(ctx, s, len(root.nodes), func(r *reader, i int) *kfdNode {
		return readNode(r, root.nodes[i], &s.links)
	})
	if err != nil {
		return nil, err
	}
	f := &Facts{
		Origin:        v1alpha1.OriginHardware,
		ObservedTime:  s.opts.Clock.Now(),
		KernelRelease: host.kernelRelease,
		BootID:        host.bootID,
		Driver:        driverFacts(host, root.kfdErr == nil),
		ROCm:          parts[2].rocm,
		Host:          host.settings,
		PCIGPUs:       pci.gpus,
		NICs:          parts[4].nics,
		pciReadable:   pci.err == nil,
		pciAddresses:  pci.addresses,
		renderMinors:  parts[5].minors,
		kfdPresent:    root.kfdErr == nil,
	}
	f.sysClass, f.kfdClass, f.nodesClass = classOf(root.sysErr), classOf(root.kfdErr), classOf(root.nodesErr)
	f.moduleClass, f.modulesSeen = classOf(host.moduleErr), host.modulesSeen
	if root.simulated || s.opts.Simulated {
		f.Origin = v1alpha1.OriginSimulated
	}
	for _, part := range parts {
		f.addUnread(part.unread...)
	}
	f.addUnread(root.sysErr, root.kfdErr, root.nodesErr, pci.err)
	f.group(nodes)
	details, err := runAll(ctx, s, len(f.GPUs), func(r *reader, i int) *gpuDetails {
		return readGPU(r, &f.GPUs[i], nodes)
	})
	if err != nil {
		return nil, err
	}
	for i, d := range details {
		d.apply(&f.GPUs[i])
		f.addUnread(d.unread...)
	}
	if err := s.readHives(ctx, f); err != nil {
		return nil, err
	}
	groups, err := runAll(ctx, s, 1, func(r *reader, _ int) iommuGroups {
		return readIOMMUGroups(r, slices.ContainsFunc(f.GPUs, func(g GPU) bool { return g.iommu == "" }))
	})
	if err != nil {
		return nil, err
	}
	f.applyIOMMU(groups[0])
	f.nameUnknown()
	f.summarise()
	f.countRenderNodes()
	assignNICs(f)
	after, err := runAll(ctx, s, 1, func(r *reader, _ int) *uint64 {
		generation, _ := readGeneration(r) // why not, was told at the scan's begin
		return generation
	})
	if err != nil {
		return nil, err
	}
	f.Generation = after[0]
	f.GenerationStable = root.generation == nil || after[0] == nil || *root.generation == *after[0]
	return f, nil
}

// readHives reads the order of each hive from one of its GPUs: all of them lead to the same directory.
func (s *Scanner) readHives(ctx context.Context, f *Facts) error {
	groups := hives(f.GPUs)
	ids := make([]uint64, 0, len(groups))
	for id := range groups {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	type answer struct {
		order  []string
		unread []*ReadError
	}
	answers, err := runAll(ctx, s, len(ids), func(r *reader, i int) answer {
		var a answer
		for _, member := range groups[ids[i]] {
			if a.order = readHiveOrder(r, f.GPUs[member].PCIAddress, &a.unread); a.order != nil {
				break
			}
		}
		return a
	})
	if err != nil {
		return err
	}
	orders := make(hiveOrders, len(ids))
	for i, a := range answers {
		orders[ids[i]] = a.order
		f.addUnread(a.unread...)
	}
	f.hiveOrder = orders.fitting(f.GPUs)
	return nil
}

func classOf(e *ReadError) Class {
	if e == nil {
		return ""
	}
	return e.Class
}

func (f *Facts) addUnread(errs ...*ReadError) {
	for _, e := range errs {
		if e == nil {
			continue
		}
		if node, ok := linkNode(e.Path); ok {
			if f.linksUnread == nil {
				f.linksUnread = map[int]bool{}
			}
			f.linksUnread[node] = true
		}
		if len(f.Unread) < maxUnread {
			f.Unread = append(f.Unread, Unread{Path: e.Path, Class: e.Class, Message: e.Err.Error(),
				revision: errors.As(e.Err, new(errRevision))})
		}
	}
}

// readGeneration is nil where no number could be read; the error is nil where there is none, as in a copy of some
// files.
func readGeneration(r *reader) (*uint64, []*ReadError) {
	var unread []*ReadError
	return field(r, topologyDir+"/generation_id", parseUintFile, &unread), unread
}

func (b *base) readTopologyRoot(r *reader) {
	// A mark that is there but not readable is a mark all the same.
	if _, err := r.file(simulationMark); err == nil || !errors.Is(err.Err, fs.ErrNotExist) {
		b.simulated = true
	}
	if _, err := r.dir("sys"); err != nil {
		b.sysErr = err
	}
	if _, err := r.dir(topologyDir); err != nil {
		b.kfdErr = err
		return
	}
	b.generation, b.unread = readGeneration(r)
	names, err := r.dir(nodesDir)
	if err != nil {
		b.nodesErr = err
		return
	}
	b.nodes = numbers(names)
}

// numbers picks the names that are numbers, ascending. KFD's numbering can have gaps.
func numbers(names []string) []int {
	list := make([]int, 0, len(names))
	for _, name := range names {
		if n, err := strconv.Atoi(name); err == nil && n >= 0 {
			list = append(list, n)
		}
	}
	sort.Ints(list)
	return list
}

// kfdNode is what was read of one KFD node.
type kfdNode struct {
	number     int
	gpuID      *uint64
	properties nodeProperties
	propErr    *ReadError
	hidden     bool // EPERM: outside the container's device cgroup
	gpu        bool
	links      []linkRecord
	unread     []*ReadError
}

// linkRecord is one file of io_links or p2p_links.
type linkRecord struct {
	from, to          int
	kind              uint64
	weight            uint64
	minMBps, maxMBps  *uint64
	indirect          bool
	claimedFrom       uint64 // node_from in the file; the directory says from
	directoryMismatch bool
}

// readNode reads one KFD node. A node counts as a GPU by simd_count; gpu_id, which some dumps lack, must not be 0.
func readNode(r *reader, number int, cache *linkCache) *kfdNode {
	n := &kfdNode{number: number}
	dir := nodesDir + "/" + strconv.Itoa(number)
	data, rerr := r.file(dir + "/gpu_id")
	switch {
	case rerr == nil:
		id, err := parseUintFile(data)
		if err != nil {
			n.unread = append(n.unread, &ReadError{Path: dir + "/gpu_id", Class: Classify(err), Err: err})
			break
		}
		n.gpuID = &id
		if id == 0 { // a CPU; its links to GPUs are told by the GPUs, too
			return n
		}
	case rerr.Class == ClassForbidden:
		n.hidden = true
		n.unread = append(n.unread, rerr)
		return n
	case rerr.Class != ClassMissing:
		n.unread = append(n.unread, rerr)
	}
	data, rerr = r.file(dir + "/properties")
	if rerr == nil {
		if err := parseProperties(data, n.properties.field); err != nil {
			rerr = &ReadError{Path: dir + "/properties", Class: Classify(err), Err: err}
		}
	}
	if rerr != nil {
		n.unread = append(n.unread, rerr)
		n.hidden = rerr.Class == ClassForbidden
		n.propErr = rerr
	}
	p := &n.properties
	n.gpu = (p.SIMDCount != nil && *p.SIMDCount > 0) || (n.gpuID != nil && *n.gpuID != 0 && p.SIMDCount == nil)
	if n.hidden || !n.gpu {
		return n
	}
	if !n.readLinks(r, cache, dir+"/io_links", false) {
		// The driver makes io_links beside mem_banks for every node (kfd_topology.c, kfd_build_sysfs_node_entry). Where
		// only that one is gone, the topology is being re-created or the copy is not whole: no link is known to be
		// missing.
		if _, err := r.dir(dir + "/mem_banks"); err == nil {
			n.unread = append(n.unread, &ReadError{Path: dir + "/io_links", Class: ClassFailed,
				Err: errors.New("it is not there, though the driver makes it for every GPU")})
		}
	}
	n.readLinks(r, cache, dir+"/p2p_links", true)
	return n
}

// readLinks reads a directory of links; false says that it is not there.
func (n *kfdNode) readLinks(r *reader, cache *linkCache, dir string, indirect bool) bool {
	id, done := r.within(dir)
	defer done()
	if id != nil {
		if links, ok := cache.get(dir, *id); ok {
			n.links = append(n.links, links...)
			return true
		}
	}
	first, unread := len(n.links), len(n.unread)
	names, rerr := r.dir(dir)
	if rerr != nil {
		if rerr.Class != ClassMissing {
			n.unread = append(n.unread, rerr)
		}
		return rerr.Class != ClassMissing
	}
	for _, i := range numbers(names) {
		path := dir + "/" + strconv.Itoa(i) + "/properties"
		data, rerr := r.file(path)
		var p linkProperties
		if rerr == nil {
			err := parseProperties(data, p.field)
			switch {
			case err != nil:
			case p.Type == nil || p.To == nil || p.Weight == nil:
				err = malformedf("type, node_to or weight is missing")
			case *p.Type == ioLinkXGMI && (p.MinBandwidth == nil || p.MaxBandwidth == nil):
				err = malformedf("the file is cut: min_bandwidth or max_bandwidth is missing")
			}
			if err != nil {
				rerr = &ReadError{Path: path, Class: Classify(err), Err: err}
			}
		}
		if rerr != nil {
			n.unread = append(n.unread, rerr)
			continue
		}
		l := linkRecord{from: n.number, to: int(*p.To & 0xffffffff), kind: *p.Type, weight: *p.Weight,
			indirect: indirect}
		l.minMBps, l.maxMBps = stated(p.MinBandwidth), stated(p.MaxBandwidth)
		if p.From != nil {
			l.claimedFrom = *p.From
			l.directoryMismatch = *p.From != uint64(n.number)
		}
		n.links = append(n.links, l)
	}
	if id != nil && len(n.unread) == unread {
		cache.put(dir, *id, slices.Clone(n.links[first:]))
	}
	return true
}

// stated is nil for 0: the driver writes 0 where it does not know a bandwidth.
func stated(n *uint64) *uint64 {
	if n == nil || *n == 0 {
		return nil
	}
	return n
}

// linkNode is the KFD node of a path that is a link's or the directory of its links.
func linkNode(path string) (int, bool) {
	rest, found := strings.CutPrefix(path, nodesDir+"/")
	number, below, deeper := strings.Cut(rest, "/")
	if !found || !deeper || !strings.HasPrefix(below, "io_links") && !strings.HasPrefix(below, "p2p_links") {
		return 0, false
	}
	node, err := strconv.Atoi(number)
	return node, err == nil
}
