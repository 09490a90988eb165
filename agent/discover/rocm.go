package discover

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"sort"
	"strings"

	"rcclx.io/commgroup-operator/rcclx/compat"
)

const (
	// maxROCmDirs bounds the versioned directories of one parent, and maxROCmSources what is listed in all.
	maxROCmDirs    = 16
	maxROCmSources = 48
)

// rocmScan looks for the ROCm user space in every place that tells its version.
type rocmScan struct {
	r       *reader
	sources []rocmSource
	seen    map[string]bool // files that were looked at
}

// rocmSource is a source with the place that it counts in.
type rocmSource struct {
	ROCmSource
	tier    int
	install string // directory that holds include/ and lib/ of the same installation; "" where it has none
	// hint is a source that does not speak of ROCm alone: where it fails, ROCm is not thereby unreadable.
	hint bool
	// rccl is a source that tells which ROCm the library itself is of.
	rccl bool
}

// The tiers, in the order in which they count.
const (
	tierEnvironment = iota // directories that the workload names itself
	tierPackage            // opt/rocm/.info: packages of ROCm up to 7.2
	tierCore               // opt/rocm/core/.info: packages of ROCm from 7.14
	// rocm_version.h of opt/rocm and opt/rocm/core: what is in use goes before what lies beside it
	tierOwnHeader
	tierOwnLibrary // names of its libraries that carry the version
	tierVersioned  // opt/rocm-*, opt/rocm/core-*
	tierHeader     // rocm_version.h of these, and of a distribution's packages below usr
	tierLibrary    // names of their libraries
	tierDatabase   // Python wheels, then the package database
)

var (
	infoFiles   = []string{".info/version", ".info/version-rocm", ".info/version-dev"}
	headerFiles = []string{"include/rocm-core/rocm_version.h", "include/rocm_version.h"}
	// libraryDirs that a distribution uses below usr (Fedora and SUSE, Debian), and ROCm's own.
	libraryDirs    = []string{"lib"}
	usrLibraryDirs = []string{"lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu"}
)

// readROCm looks for the ROCm user space, in the order of the tiers, and lists every source that exists: the first with
// a version wins. first are the workload's own directories ($ROCM_PATH, $ROCM_HOME), absolute or relative to the root.
func readROCm(r *reader, first []string) ROCmFacts {
	s := &rocmScan{r: r, seen: map[string]bool{}}
	for _, dir := range first {
		dir = strings.Trim(path.Clean("/"+dir), "/")
		if dir == "" {
			continue
		}
		s.info(tierEnvironment, dir)
		s.info(tierEnvironment, dir+"/core")
		s.headers(tierEnvironment, dir)
		s.library(tierEnvironment, dir, "lib/librocm-core.so.1", parseROCmCoreLink)
	}
	s.info(tierPackage, "opt/rocm")
	s.info(tierCore, "opt/rocm/core")
	own := []string{"opt/rocm", "opt/rocm/core"}
	for _, dir := range own {
		s.headers(tierOwnHeader, dir)
	}
	s.libraries(tierOwnLibrary, own)
	versioned := s.versioned()
	for _, dir := range versioned {
		s.info(tierVersioned, dir)
	}
	// Headers and library names of versioned directories matter only where no version file of any told.
	var deep []string
	if !s.found() {
		deep = versioned
	}
	for _, dir := range append(slices.Clone(deep), "usr") {
		s.headers(tierHeader, dir)
	}
	s.libraries(tierLibrary, append(slices.Clone(deep), "usr"))
	s.wheels()
	switch {
	case !s.found():
		s.dpkg()
		s.rpm()
	case slices.ContainsFunc(s.sources, func(x rocmSource) bool {
		return x.rccl && x.install == "usr" && x.Version == ""
	}):
		s.dpkg()
	}
	f := s.facts()
	if f.State == ROCmAmbiguous || f.State == ROCmNotFound {
		// AMD's packages link opt/rocm, or opt/rocm/core, to etc/alternatives, which a pod that mounts only opt does
		// not have.
		for _, link := range own {
			target, rerr := r.link(link)
			if rerr != nil {
				continue
			}
			if _, rerr := r.dir(link); rerr != nil && rerr.Class == ClassMissing {
				f.LostLink, f.LostLinkPath = printable([]byte(target), 256), link
				break
			}
		}
	}
	if f.State == ROCmFound {
		f.HIPVersion, f.RCCLVersion = readLibraries(r, s.winner().install)
	}
	return f
}

func (s *rocmScan) found() bool { return s.winner() != nil }

// winner is the first source, by tier, that gave a version; nil where none did. Where the installation in use has a
// version file that cannot be read, what lies beside it says nothing of it; only the package database does.
func (s *rocmScan) winner() *rocmSource {
	var best *rocmSource
	unread := slices.ContainsFunc(s.sources, func(x rocmSource) bool {
		return x.tier <= tierOwnLibrary && x.Error != "" && !x.hint
	})
	for i := range s.sources {
		x := &s.sources[i]
		if x.Version == "" || (unread && x.tier > tierOwnLibrary && x.Path != dpkgStatus) {
			continue
		}
		if best == nil || x.tier < best.tier {
			best = x
		}
	}
	return best
}

// facts sums up. Several versioned installations of different versions, with nothing that says which one is used, are
// ambiguous: none of them is guessed.
func (s *rocmScan) facts() ROCmFacts {
	f := ROCmFacts{State: ROCmNotFound}
	sort.SliceStable(s.sources, func(i, j int) bool { return s.sources[i].tier < s.sources[j].tier })
	for _, x := range s.sources[:min(len(s.sources), maxROCmSources)] {
		f.Sources = append(f.Sources, x.ROCmSource)
	}
	won := s.winner()
	if won == nil {
		if slices.ContainsFunc(s.sources, func(x rocmSource) bool { return x.Error != "" && !x.hint }) {
			f.State = ROCmUnreadable
		}
		return f
	}
	if isVersioned(won.install) && won.tier != tierEnvironment &&
		slices.ContainsFunc(s.sources, func(x rocmSource) bool {
			return x.tier == won.tier && x.Version != "" && x.Version != won.Version && isVersioned(x.install)
		}) {
		f.State = ROCmAmbiguous
		return f
	}
	f.State, f.Version, f.Source = ROCmFound, won.Version, won.Path
	for i := range s.sources {
		if x := &s.sources[i]; x.Version != "" && inUse(x, won) && !sameRelease(x.Version, won.Version) {
			f.rivals = append(f.rivals, rival{x.ROCmSource, x.rccl})
		}
	}
	return f
}

// rival is a source of what a process may load as well, with another version than the one that won.
type rival struct {
	ROCmSource
	rccl bool
}

// inUse says that a process may load what a source speaks of beside the installation that won: it is that one's own
// librccl, or lies where libraries are found without asking for a version. What the workload names itself goes before
// all of these. A distribution's packages are built to work together: Debian 13 has librccl1 5.4.3 with libamdhip64-5
// 5.7.1.
func inUse(x, won *rocmSource) bool {
	switch {
	case x.Path == dpkgStatus && x.install == "usr" && won.install == "usr":
		return false
	case x.install == won.install:
		return x.rccl
	case x.tier == tierEnvironment:
		return true
	case won.tier == tierEnvironment, isVersioned(x.install):
		return false
	}
	return !x.hint || x.rccl || x.install == "usr" || x.tier <= tierOwnLibrary
}

// sameRelease compares the numbers that both versions have.
func sameRelease(a, b string) bool {
	v, known := compat.ParseVersion(a)
	w, alsoKnown := compat.ParseVersion(b)
	return !known || !alsoKnown || !v.Less(w) && !w.Less(v)
}

// disagreements say which sources of what a process may load have other versions than the one that is reported.
func (f *ROCmFacts) disagreements() []string {
	var texts []string
	for _, x := range f.rivals {
		texts = append(texts, f.differs(x))
	}
	return texts
}

// RCCLDiffers says that librccl is of another release than the ROCm that is reported; "" where it is of the same, or
// that is not known.
func (f *ROCmFacts) RCCLDiffers() string {
	for _, x := range f.rivals {
		if x.rccl {
			return f.differs(x)
		}
	}
	return ""
}

func (f *ROCmFacts) differs(x rival) string {
	where := x.Path
	if x.Path == dpkgStatus {
		where = x.Raw
	}
	word := "a newer"
	v, _ := compat.ParseVersion(x.Version)
	if w, _ := compat.ParseVersion(f.Version); v.Less(w) {
		word = "an older"
	}
	if x.rccl {
		return fmt.Sprintf("librccl (%s) is of ROCm %s, %s release than ROCm %s (%s)",
			where, x.Version, word, f.Version, f.Source)
	}
	return fmt.Sprintf("ROCm %s (%s) is %s release than ROCm %s (%s)", x.Version, where, word, f.Version, f.Source)
}

// next says what to do about a source that cannot be read.
func (s *ROCmSource) next() string {
	switch {
	case strings.HasSuffix(s.Path, metadata), path.Base(s.Path) == sdkDir:
		return "See what pip says of the wheel (pip show rocm-sdk-core)."
	case s.Path == dpkgStatus:
		return "Ask dpkg itself (dpkg -l rocm-core 'amdrocm-core*')."
	}
	return "Look at the file; if a package made it (dpkg -S, rpm -qf), install that package anew."
}

func isVersioned(install string) bool {
	return strings.HasPrefix(install, "opt/rocm-") || strings.HasPrefix(install, "opt/rocm/core-")
}

// versioned lists opt/rocm-* and opt/rocm/core-*, by name.
func (s *rocmScan) versioned() []string {
	var dirs []string
	for _, parent := range [...]struct{ dir, prefix string }{{"opt", "rocm-"}, {"opt/rocm", "core-"}} {
		names := s.list(tierVersioned, parent.dir, false)
		names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, parent.prefix) })
		for _, name := range names[:min(len(names), maxROCmDirs)] {
			dirs = append(dirs, parent.dir+"/"+name)
		}
	}
	return dirs
}

// list is what is in a directory, by name; nothing where it is missing. One that is there and cannot be read is a
// source.
func (s *rocmScan) list(tier int, dir string, hint bool) []string {
	names, rerr := s.r.dir(dir)
	if rerr != nil {
		if rerr.Class != ClassMissing && !s.seen[dir] {
			s.seen[dir] = true
			s.add(rocmSource{tier: tier, hint: hint, ROCmSource: ROCmSource{Path: dir, Error: errorText(rerr)}})
		}
		return nil
	}
	sort.Strings(names)
	return names
}

func (s *rocmScan) add(x rocmSource) { s.sources = append(s.sources, x) }

func errorText(rerr *ReadError) string { return string(rerr.Class) + ": " + rerr.Err.Error() }

func (s *rocmScan) info(tier int, dir string) {
	for _, name := range infoFiles {
		s.file(tier, dir, name, parseROCmVersion)
	}
}

func (s *rocmScan) headers(tier int, dir string) {
	for _, name := range headerFiles {
		s.file(tier, dir, name, parseROCmHeader)
	}
}

func (s *rocmScan) file(tier int, dir, name string, parse func([]byte) (string, error)) {
	file := dir + "/" + name
	if s.seen[file] {
		return
	}
	s.seen[file] = true
	data, rerr := s.r.file(file)
	if rerr != nil {
		if rerr.Class != ClassMissing {
			s.add(rocmSource{tier: tier, install: dir, ROCmSource: ROCmSource{Path: file, Error: errorText(rerr)}})
		}
		return
	}
	version, err := parse(data)
	s.add(rocmSource{tier: tier, install: dir, ROCmSource: told(file, version, data, err)})
}

// libraries asks the names of the libraries in directories, librocm-core of all of them before librccl of any.
func (s *rocmScan) libraries(tier int, dirs []string) {
	for _, library := range []struct {
		name  string
		parse func(string) (string, error)
	}{{"librocm-core.so.1", parseROCmCoreLink}, {"librccl.so.1", parseRCCLLink}} {
		for _, dir := range dirs {
			for _, lib := range librariesOf(dir) {
				s.library(tier, dir, lib+"/"+library.name, library.parse)
			}
		}
	}
}

// library asks the name that a library's link leads to. A file that is no link is not told of: it tells nothing.
func (s *rocmScan) library(tier int, dir, name string, parse func(string) (string, error)) {
	file := dir + "/" + name
	if s.seen[file] {
		return
	}
	s.seen[file] = true
	target, rerr := s.r.link(file)
	if rerr != nil {
		if rerr.Class != ClassMissing && rerr.Class != ClassUnsupported { // EINVAL: no link
			s.add(rocmSource{tier: tier, install: dir, hint: true,
				ROCmSource: ROCmSource{Path: file, Error: errorText(rerr)}})
		}
		return
	}
	version, err := parse(target)
	// The name of another build than AMD's own packages need not have the version.
	s.add(rocmSource{tier: tier, install: dir, hint: true, rccl: path.Base(name) == "librccl.so.1",
		ROCmSource: told(file, version, []byte(target), err)})
}

// passed is the first version file that counts for more than what won, and could not be read; nil where there is none.
func (f *ROCmFacts) passed() *ROCmSource {
	for i := range f.Sources {
		s := &f.Sources[i]
		if s.Path == f.Source {
			return nil
		}
		if s.Error != "" && (strings.Contains(s.Path, "/.info/") || path.Base(s.Path) == "rocm_version.h") {
			return s
		}
	}
	return nil
}

// told is what one source said: a version, or why it has none.
func told(file, version string, raw []byte, err error) ROCmSource {
	line := bytes.Join(bytes.Fields(raw[:min(len(raw), 256)]), []byte(" ")) // a header has several
	x := ROCmSource{Path: file, Version: version, Raw: printable(line, 64)}
	if err != nil {
		x.Version, x.Error = "", err.Error()
	}
	return x
}
