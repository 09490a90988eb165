package docs

import (
	"reflect"
	"regexp"
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/testenv"
)

var (
	getsOurs = regexp.MustCompile(
		`kubectl get (cgr|commruns?|cg|commgroups?|ct|commtasks?|cn|commnodes?)(?: [^\n\x60]*)?`)
	fieldOf = regexp.MustCompile(`\.((?:spec|status)(?:\.[a-zA-Z]+|\[[^\]]*\])+)`)
	index   = regexp.MustCompile(`\[[^\]]*\]`)
)

// TestFieldsOfCommands: each field of a CommGroup, CommTask, CommNode or CommRun that a kubectl line of a page prints
// is there. Within a range kubectl counts from the list's item, so that only what begins at spec or status is looked
// at.
func TestFieldsOfCommands(t *testing.T) {
	count := 0
	for path, text := range pages(t) {
		for _, line := range getsOurs.FindAllStringSubmatch(text, -1) {
			of := reflect.TypeFor[v1alpha1.CommGroup]()
			switch {
			case strings.HasPrefix(line[1], "ct"), strings.HasPrefix(line[1], "commtask"):
				of = reflect.TypeFor[v1alpha1.CommTask]()
			case strings.HasPrefix(line[1], "cn"), strings.HasPrefix(line[1], "commnode"):
				of = reflect.TypeFor[v1alpha1.CommNode]()
			case line[1] == "cgr", strings.HasPrefix(line[1], "commrun"):
				of = reflect.TypeFor[v1alpha1.CommRun]()
			}
			for _, m := range fieldOf.FindAllStringSubmatch(line[0], -1) {
				count++
				if !testenv.HasField(of, strings.Split(index.ReplaceAllString(m[1], ""), ".")...) {
					t.Errorf("%s: %q: the API has no field %s", path, line[0], m[1])
				}
			}
		}
	}
	run := reflect.TypeFor[v1alpha1.CommRun]()
	if testenv.HasField(run, "status", "span", "test") || !testenv.HasField(run, "status", "span", "tests", "set") {
		t.Error("a field that is not there is found, or one that is there is not")
	}
	if count < 150 {
		t.Errorf("found only %d fields", count)
	}
}
