package discover

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
)

const (
	dpkgStatus  = "var/lib/dpkg/status"
	rocmPackage = "rocm-core"
	// maxDpkgBytes of the package database are searched; a full desktop has about 6 MiB.
	maxDpkgBytes = 32 << 20
	// maxDpkgPackages of ROCm are kept.
	maxDpkgPackages = 16
	// maxDpkgLine of a line is kept: those that are asked for are short, and descriptions are not.
	maxDpkgLine = 256
)

// rpmDatabases are where rpm keeps its packages, in SQLite, Berkeley DB or NDB (rpm's macros.in, _dbpath). None of them
// is parsed: docs/decisions/0010.
var rpmDatabases = []string{
	"usr/lib/sysimage/rpm/rpmdb.sqlite", "var/lib/rpm/rpmdb.sqlite", "usr/lib/sysimage/rpm/Packages.db",
	"var/lib/rpm/Packages.db", "var/lib/rpm/Packages",
}

// debianPackages are the names that tell ROCm's version in Debian's database, the surest first. All have ROCm's release
// for a version: AMD's up to 7.2, AMD's from 7.13 on, which has the release in its name as well, and Debian's own.
var debianPackages = []struct {
	name    *regexp.Regexp
	install string // that it belongs to; $1 is the release in the name
	rccl    bool
}{
	{regexp.MustCompile(`^rocm-core$`), "opt/rocm", false},
	{regexp.MustCompile(`^amdrocm-core(\d+\.\d+)$`), "opt/rocm/core-$1", false},
	{regexp.MustCompile(`^amdrocm-core$`), "opt/rocm/core", false},
	{regexp.MustCompile(`^libamdhip64-\d+$`), "usr", false},
	{regexp.MustCompile(`^librccl1$`), "usr", true},
	{regexp.MustCompile(`^amdrocm-rccl(\d+\.\d+)?$`), "opt/rocm/core-$1", true},
}

// dpkg asks Debian's package database. It is megabytes, so it is asked only where nothing else told a version, or where
// a distribution's librccl does not tell its own.
func (s *rocmScan) dpkg() {
	var d dpkgScan
	whole, rerr := s.r.stream(dpkgStatus, maxDpkgBytes, d.add)
	if rerr != nil {
		if rerr.Class != ClassMissing {
			s.add(rocmSource{tier: tierDatabase, ROCmSource: ROCmSource{Path: dpkgStatus, Error: errorText(rerr)}})
		}
		return
	}
	d.finish()
	if len(d.found) == 0 && !whole {
		s.add(rocmSource{tier: tierDatabase, ROCmSource: ROCmSource{Path: dpkgStatus,
			Error: "the first 32 MiB do not have " + rocmPackage + ", and the rest was not searched"}})
	}
	slices.SortStableFunc(d.found, func(a, b debianPackage) int { return a.kind - b.kind })
	for _, p := range d.found {
		kind := debianPackages[p.kind]
		version, err := parseDebianVersion(p.version)
		install := strings.TrimSuffix(kind.name.ReplaceAllString(p.name, kind.install), "-")
		s.add(rocmSource{tier: tierDatabase, install: install, rccl: kind.rccl,
			ROCmSource: told(dpkgStatus, version, []byte(p.name+" "+p.version), err)})
	}
}

// rpm says that there is a database which could know more.
func (s *rocmScan) rpm() {
	for _, name := range rpmDatabases {
		// Read nothing of it: that it is there is enough. A database that is no link answers EINVAL.
		if _, rerr := s.r.link(name); rerr == nil || rerr.Class == ClassUnsupported {
			s.add(rocmSource{tier: tierDatabase, hint: true, ROCmSource: ROCmSource{Path: name,
				Error: "rpm's database is not read; ask it with rpm -qa " + rocmPackage + " 'amdrocm-core*'"}})
			return
		}
	}
}

// debianPackage is an installed package, with its place in debianPackages.
type debianPackage struct {
	kind          int
	name, version string
}

// dpkgScan finds the installed packages of ROCm in a stream of Debian's stanzas (deb822: fields begin lines, blank
// lines end stanzas).
type dpkgScan struct {
	line      []byte
	cut       bool // the line was longer than is kept
	installed bool
	stanza    debianPackage
	begun     bool // it has a name
	found     []debianPackage
}

// add takes a piece; more is false when no more packages are kept.
func (d *dpkgScan) add(chunk []byte) (more bool) {
	for len(chunk) > 0 && len(d.found) < maxDpkgPackages {
		at := bytes.IndexByte(chunk, '\n')
		part := chunk
		if at >= 0 {
			part, chunk = chunk[:at], chunk[at+1:]
		} else {
			chunk = nil
		}
		room := maxDpkgLine - len(d.line)
		d.cut = d.cut || len(part) > room
		d.line = append(d.line, part[:min(len(part), room)]...)
		if at >= 0 {
			d.endLine()
		}
	}
	return len(d.found) < maxDpkgPackages
}

// finish ends the last stanza, which needs no blank line.
func (d *dpkgScan) finish() {
	if len(d.found) < maxDpkgPackages {
		d.endLine()
		d.endStanza()
	}
}

func (d *dpkgScan) endLine() {
	line, cut := strings.TrimRight(string(d.line), " \t\r"), d.cut
	d.line, d.cut = d.line[:0], false
	if line == "" && !cut {
		d.endStanza()
		return
	}
	name, value, ok := strings.Cut(line, ":")
	if !ok || cut || line[0] == ' ' || line[0] == '\t' {
		return
	}
	value = strings.TrimSpace(value)
	switch strings.ToLower(name) {
	case "package":
		d.stanza.name, d.begun = value, true
	case "status": // want, error flag, state: "deinstall ok config-files" is a package that was removed
		d.installed = strings.HasSuffix(value, " installed")
	case "version":
		d.stanza.version = value
	}
}

func (d *dpkgScan) endStanza() {
	if d.begun && d.installed && d.stanza.version != "" {
		for kind := range debianPackages {
			if debianPackages[kind].name.MatchString(d.stanza.name) {
				d.stanza.kind = kind
				d.found = append(d.found, d.stanza)
				break
			}
		}
	}
	d.stanza, d.begun, d.installed = debianPackage{}, false, false
}

var debianVersion = regexp.MustCompile(`^(?:\d+:)?(\d{1,4}\.\d{1,4}(?:\.\d{1,4})?)(?:[.~+-][0-9A-Za-z.+~:-]*)?$`)

// parseDebianVersion reads ROCm's version out of its package's: 7.0.2.70002-56~22.04 is 7.0.2, 1:6.4.3-2 is 6.4.3.
func parseDebianVersion(text string) (string, error) {
	m := debianVersion.FindStringSubmatch(text)
	if m == nil {
		return "", malformedf("%.64q is not a version of %s", text, rocmPackage)
	}
	return m[1], nil
}
