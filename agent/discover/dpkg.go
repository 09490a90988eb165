package discover

import (
	"bytes"
	"regexp"
	"strings"
)

const (
	dpkgStatus  = "var/lib/dpkg/status"
	rocmPackage = "rocm-core"
	// maxDpkgBytes of the package database are searched; a full desktop has about 6 MiB.
	maxDpkgBytes = 32 << 20
	// maxDpkgLine of a line is kept: those that are asked for are short, and descriptions are not.
	maxDpkgLine = 256
)

// rpmDatabases are where rpm keeps its packages, in SQLite, Berkeley DB or NDB (rpm's macros.in, _dbpath). None of them is
// parsed: docs/decisions/0010.
var rpmDatabases = []string{
	"usr/lib/sysimage/rpm/rpmdb.sqlite", "var/lib/rpm/rpmdb.sqlite", "usr/lib/sysimage/rpm/Packages.db", "var/lib/rpm/Packages.db", "var/lib/rpm/Packages",
}

// dpkg asks Debian's package database for rocm-core. It is megabytes, so it is asked only where nothing else told a version.
func (s *rocmScan) dpkg() {
	var d dpkgScan
	whole, rerr := s.r.stream(dpkgStatus, maxDpkgBytes, d.add)
	if rerr != nil {
		if rerr.Class != ClassMissing {
			s.add(rocmSource{tier: tierDatabase, ROCmSource: ROCmSource{Path: dpkgStatus, Error: errorText(rerr)}})
		}
		return
	}
	if d.finish(); d.found == "" {
		if !whole {
			s.add(rocmSource{tier: tierDatabase, ROCmSource: ROCmSource{Path: dpkgStatus,
				Error: "the first 32 MiB do not have " + rocmPackage + ", and the rest was not searched"}})
		}
		return
	}
	version, err := parseDebianVersion(d.found)
	s.add(rocmSource{tier: tierDatabase, install: "opt/rocm", ROCmSource: told(dpkgStatus, version, []byte(rocmPackage+" "+d.found), err)})
}

// rpm says that there is a database which could know more.
func (s *rocmScan) rpm() {
	for _, name := range rpmDatabases {
		// Read nothing of it: that it is there is enough. A database that is no link answers EINVAL.
		if _, rerr := s.r.link(name); rerr == nil || rerr.Class == ClassUnsupported {
			s.add(rocmSource{tier: tierDatabase, hint: true, ROCmSource: ROCmSource{Path: name,
				Error: "rpm's database is not read; ask it with rpm -q " + rocmPackage}})
			return
		}
	}
}

// dpkgScan finds the version of an installed rocm-core in a stream of Debian's stanzas (deb822: fields begin lines, blank
// lines end stanzas).
type dpkgScan struct {
	line                 []byte
	cut                  bool // the line was longer than is kept
	isPackage, installed bool
	version, found       string
}

// add takes a piece; more is false when the package was found.
func (d *dpkgScan) add(chunk []byte) (more bool) {
	for len(chunk) > 0 && d.found == "" {
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
	return d.found == ""
}

// finish ends the last stanza, which needs no blank line.
func (d *dpkgScan) finish() {
	if d.found == "" {
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
		d.isPackage = value == rocmPackage
	case "status": // want, error flag, state: "deinstall ok config-files" is a package that was removed
		d.installed = strings.HasSuffix(value, " installed")
	case "version":
		d.version = value
	}
}

func (d *dpkgScan) endStanza() {
	if d.isPackage && d.installed && d.version != "" {
		d.found = d.version
	}
	d.isPackage, d.installed, d.version = false, false, ""
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
