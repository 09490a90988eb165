package main

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

const sample = `# About the file.

# The greeting.
# @schema {"enum":["hello","bye"]}
greeting: hello
group:
  # How many | of them.
  count: 3
  # Free.
  # @schema {"x-free":true}
  free:
    a: 1
`

func TestSchemaAndTable(t *testing.T) {
	values, err := parse([]byte(sample))
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(schemaOf(values))
	if err != nil {
		t.Fatal(err)
	}
	expected := `{"$schema":"http://json-schema.org/draft-07/schema#","additionalProperties":false,"properties":{` +
		`"greeting":{"description":"The greeting.","enum":["hello","bye"],"type":"string"},` +
		`"group":{"additionalProperties":false,"properties":{"count":{"description":"How many | of them.","type":"integer"},` +
		`"free":{"description":"Free.","type":"object"}},"required":["count","free"],"type":"object"}},"required":["greeting","group"],"type":"object"}`
	if string(got) != expected {
		t.Errorf("schema\n%s\nexpected\n%s", got, expected)
	}
	page, err := putTable([]byte("before\n"+begin+"old\n"+end+"after\n"), values)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"| `greeting` | `\"hello\"` | The greeting. One of hello bye. |\n",
		"| `group.count` | `3` | How many \\| of them. |\n",
		"| `group.free` | `{\"a\":1}` | Free. |\n", "before\n", "after\n",
	} {
		if !strings.Contains(string(page), line) {
			t.Errorf("the page lacks %q:\n%s", line, page)
		}
	}
	if strings.Contains(string(page), "old") {
		t.Error("the old table is still there")
	}
	if again, err := putTable(page, values); err != nil || string(again) != string(page) {
		t.Errorf("a second time changes the page: %v", err)
	}
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		text string
		want error
	}{
		{"a: 1\n", errNoDescription},
		{"- a\n", errNoMapping},
		{"", errNoMapping},
	} {
		if _, err := parse([]byte(c.text)); !errors.Is(err, c.want) {
			t.Errorf("%q: %v, expected %v", c.text, err, c.want)
		}
	}
	if _, err := parse([]byte("# A.\n# @schema {\na: 1\n")); err == nil ||
		!strings.Contains(err.Error(), "a (line 3)") {
		t.Errorf("a broken @schema line: %v, expected it to name a and its line", err)
	}
	if _, err := putTable([]byte("no markers"), &value{group: true}); !errors.Is(err, errMarkers) {
		t.Errorf("a page without markers: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(sample)
	f.Add("a: &x [*x]\n")
	f.Add("# @schema null\na: !!binary x\n")
	f.Fuzz(func(t *testing.T, text string) {
		values, err := parse([]byte(text))
		if err != nil {
			return
		}
		if _, err := json.Marshal(schemaOf(values)); err != nil {
			t.Errorf("%q gives a schema that is no JSON: %v", text, err)
		}
	})
}
