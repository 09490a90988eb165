package report

import (
	"bytes"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/state"
)

// TestPagesShowTodaysTables: the headings of the tables that README and docs/demo.md show are those that are printed
// now, so that a page of an older build is found out.
func TestPagesShowTodaysTables(t *testing.T) {
	columns := regexp.MustCompile(` {2,}`)
	heading := func(print func(*bytes.Buffer) error) []string {
		var b bytes.Buffer
		if err := print(&b); err != nil {
			t.Fatal(err)
		}
		text := lines(&b)
		if i := slices.IndexFunc(text, func(line string) bool {
			return line != "" && line == strings.ToUpper(line) && strings.Contains(line, "  ")
		}); i >= 0 {
			return columns.Split(text[i], -1)
		}
		return columns.Split(text[0], -1)
	}
	group := &state.Group{}
	tests := []TestLine{{ID: "screen-1", OfBestPair: ptr.To[int64](100)}}
	results := []v1alpha1.SpanResultSeries{{SizeBytes: []int64{1}}}
	now := [][]string{
		heading(func(b *bytes.Buffer) error { return spanTests(b, tests) }),
		heading(func(b *bytes.Buffer) error { return spanTests(b, []TestLine{{ID: "group-1"}}) }),
		heading(func(b *bytes.Buffer) error { return spanResults(b, results) }),
		heading(func(b *bytes.Buffer) error { return Conditions(b, group) }),
		heading(func(b *bytes.Buffer) error { return Nodes(b, group, nil, 0) }),
		heading(func(b *bytes.Buffer) error { return Settings(b, []v1alpha1.SettingStatus{{Name: "a"}}) }),
		heading(func(b *bytes.Buffer) error { return nics(b, []v1alpha1.NICFacts{{Name: "a"}}) }),
		heading(func(b *bytes.Buffer) error { return History(b, &state.Status{}) }),
		printed(t, "commgroups"), printed(t, "commtasks"), printed(t, "commnodes"),
	}
	for _, page := range []string{"../../README.md", "../../docs/demo.md"} {
		raw, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for line := range strings.Lines(string(raw)) {
			cells := columns.Split(strings.TrimRight(line, " \n"), -1)
			for _, h := range now {
				if len(cells) < 3 || cells[0] != h[0] || cells[1] != h[1] {
					continue
				}
				found++
				if !slices.ContainsFunc(now, func(h []string) bool { return slices.Equal(h, cells) }) {
					t.Errorf("%s shows a table of another build:\n%s\nnow it is\n%s", page, line, strings.Join(h, "  "))
				}
				break
			}
		}
		if found == 0 {
			t.Errorf("%s: no table is known", page)
		}
	}
}

// printed are the columns of kubectl get, as the CRD has them.
func printed(t *testing.T, plural string) []string {
	t.Helper()
	raw, err := os.ReadFile("../../config/crd/bases/rcclx.io_" + plural + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(raw), "additionalPrinterColumns:")
	text, _, also := strings.Cut(text, "    name: v1alpha1")
	if !ok || !also {
		t.Fatalf("no columns in the CRD of %s", plural)
	}
	out := []string{"NAME"}
	for _, column := range strings.Split(text, "- jsonPath:")[1:] {
		name := regexp.MustCompile(`(?m)^ +name: (.*)$`).FindStringSubmatch(column)
		if name == nil {
			t.Fatalf("a column without a name: %s", column)
		}
		if !strings.Contains(column, "priority:") {
			out = append(out, strings.ToUpper(name[1]))
		}
	}
	return out
}
