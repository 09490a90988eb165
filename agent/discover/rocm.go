package discover

import (
	"path"
	"sort"
	"strings"
)

// readROCm looks for the ROCm user space, in the order of AMD's own tools: the version files of the packages up to
// 7.2, those of TheRock (7.14 and up), versioned directories, the header, and the name of librocm-core. Package
// databases are not read: they tell the same and are megabytes.
func readROCm(r *reader, first []string) ROCmFacts {
	var f ROCmFacts
	for _, dir := range first {
		dir = strings.Trim(path.Clean("/"+dir), "/")
		if dir != "" {
			f.tryInstall(r, dir)
		}
	}
	f.tryInstall(r, "opt/rocm")
	if f.choose() {
		return f
	}
	// No usual path: the versioned directories, which may be several.
	before := len(f.Sources)
	for _, parent := range [...]struct{ dir, prefix string }{{"opt", "rocm-"}, {"opt/rocm", "core-"}} {
		names, rerr := r.dir(parent.dir)
		if rerr != nil {
			continue
		}
		sort.Strings(names)
		for _, name := range names {
			if strings.HasPrefix(name, parent.prefix) {
				f.tryInstall(r, parent.dir+"/"+name)
			}
		}
	}
	versions := map[string]bool{}
	for _, s := range f.Sources[before:] {
		if s.Version != "" {
			versions[s.Version] = true
		}
	}
	switch {
	case len(versions) > 1:
		f.State = ROCmAmbiguous
	case f.choose():
	case len(f.Sources) > 0:
		f.State = ROCmUnreadable
	default:
		f.State = ROCmNotFound
	}
	return f
}

// choose takes the first source that gave a version.
func (f *ROCmFacts) choose() bool {
	for _, s := range f.Sources {
		if s.Version != "" {
			f.State, f.Version, f.Source = ROCmFound, s.Version, s.Path
			return true
		}
	}
	return false
}

// tryInstall looks at one installation; the first file that gives a version ends it.
func (f *ROCmFacts) tryInstall(r *reader, dir string) {
	for _, name := range [...]string{".info/version", ".info/version-rocm", ".info/version-dev", "core/.info/version"} {
		if f.try(r, dir+"/"+name, parseROCmVersion) {
			return
		}
	}
	for _, name := range [...]string{"include/rocm-core/rocm_version.h", "include/rocm_version.h"} {
		if f.try(r, dir+"/"+name, parseROCmHeader) {
			return
		}
	}
	file := dir + "/lib/librocm-core.so.1"
	target, rerr := r.link(file)
	if rerr != nil {
		return // missing, or no link: nothing is told
	}
	s := ROCmSource{Path: file, Raw: printable([]byte(target), 64)}
	version, err := parseROCmCoreLink(target)
	if err != nil {
		s.Error = err.Error()
	}
	s.Version = version
	f.Sources = append(f.Sources, s)
}

func (f *ROCmFacts) try(r *reader, file string, parse func([]byte) (string, error)) bool {
	data, rerr := r.file(file)
	if rerr != nil {
		if rerr.Class != ClassMissing {
			f.Sources = append(f.Sources, ROCmSource{Path: file, Error: string(rerr.Class) + ": " + rerr.Err.Error()})
		}
		return false
	}
	version, err := parse(data)
	s := ROCmSource{Path: file, Version: version, Raw: printable(data[:min(len(data), 64)], 64)}
	if err != nil {
		s.Error = err.Error()
	}
	f.Sources = append(f.Sources, s)
	return err == nil
}
