// Command chartdoc makes the chart's values.schema.json, and the table of values in docs/chart.md, from its
// values.yaml: the comment above a value is its description, its type follows from its default, and a line "@schema
// JSON" says what does not.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"
)

const (
	begin = "<!-- values: begin -->\n"
	end   = "<!-- values: end -->\n"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "chartdoc: expected three arguments: VALUES.yaml SCHEMA.json PAGE.md")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "chartdoc:", err)
		os.Exit(1)
	}
}

func write(valuesPath, schemaPath, pagePath string) error {
	data, err := os.ReadFile(valuesPath)
	if err != nil {
		return err
	}
	values, err := parse(data)
	if err != nil {
		return fmt.Errorf("%s: %w", valuesPath, err)
	}
	schema, err := json.MarshalIndent(schemaOf(values), "", "  ")
	if err != nil {
		return err
	}
	page, err := os.ReadFile(pagePath)
	if err != nil {
		return err
	}
	page, err = putTable(page, values)
	if err != nil {
		return fmt.Errorf("%s: %w", pagePath, err)
	}
	return errors.Join(os.WriteFile(schemaPath, append(schema, '\n'), 0o644), os.WriteFile(pagePath, page, 0o644))
}

// value is one value of the chart, or a group of values.
type value struct {
	path        []string
	description string
	// extra is what "@schema" adds.
	extra map[string]any
	// node is its default.
	node *yaml.Node
	// group: the value is an object whose keys are values themselves.
	group    bool
	children []*value
}

var (
	errNoDescription = errors.New("has no description: write a comment above it")
	errNoMapping     = errors.New("no mapping of values")
	errMarkers       = errors.New("lacks the lines " + strings.TrimSpace(begin) + " and " + strings.TrimSpace(end))
)

// parse reads values.yaml. Every value needs a description.
func parse(data []byte) (*value, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err != nil {
		return nil, err
	}
	if len(document.Content) != 1 || document.Content[0].Kind != yaml.MappingNode {
		return nil, errNoMapping
	}
	root := &value{node: document.Content[0], group: true}
	return root, root.parseChildren()
}

func (v *value) parseChildren() error {
	for i := 0; i+1 < len(v.node.Content); i += 2 {
		key, node := v.node.Content[i], v.node.Content[i+1]
		child := &value{path: append(append([]string(nil), v.path...), key.Value), node: node}
		if err := child.parseComment(key.HeadComment); err != nil {
			return fmt.Errorf("%s (line %d) %w", child.name(), key.Line, err)
		}
		_, free := child.extra["x-free"]
		child.group = node.Kind == yaml.MappingNode && len(node.Content) > 0 && !free
		if !child.group && child.description == "" {
			return fmt.Errorf("%s (line %d) %w", child.name(), key.Line, errNoDescription)
		}
		if child.group {
			if err := child.parseChildren(); err != nil {
				return err
			}
		}
		v.children = append(v.children, child)
	}
	return nil
}

// parseComment takes the paragraph right above the key; one further up belongs to the file.
func (v *value) parseComment(comment string) error {
	if i := strings.LastIndex(comment, "\n\n"); i >= 0 {
		comment = comment[i+2:]
	}
	var words []string
	for line := range strings.Lines(comment) {
		line = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "#"))
		text, ok := strings.CutPrefix(line, "@schema")
		if !ok {
			words = append(words, line)
			continue
		}
		if err := json.Unmarshal([]byte(text), &v.extra); err != nil {
			return fmt.Errorf("has an @schema line that is no JSON object: %w", err)
		}
	}
	v.description = strings.Join(words, " ")
	return nil
}

func (v *value) name() string { return strings.Join(v.path, ".") }

// schemaOf is the JSON schema of a value. A group knows its keys and takes no other.
func schemaOf(v *value) map[string]any {
	s := map[string]any{}
	if len(v.path) == 0 {
		s["$schema"] = "http://json-schema.org/draft-07/schema#"
	}
	if v.description != "" {
		s["description"] = v.description
	}
	if v.group {
		properties, required := map[string]any{}, []string{}
		for _, child := range v.children {
			key := child.path[len(child.path)-1]
			properties[key] = schemaOf(child)
			// Helm drops what a user sets to null: a template would then find nothing where it expects the default.
			if child.node.Tag != "!!null" {
				required = append(required, key)
			}
		}
		s["type"], s["additionalProperties"], s["properties"], s["required"] = "object", false, properties, required
		return s
	}
	s["type"] = typeOf(v.node)
	for key, extra := range v.extra {
		if key != "x-free" {
			s[key] = extra
		}
	}
	return s
}

func typeOf(node *yaml.Node) string {
	switch {
	case node.Kind == yaml.MappingNode:
		return "object"
	case node.Kind == yaml.SequenceNode:
		return "array"
	case node.Tag == "!!bool":
		return "boolean"
	case node.Tag == "!!int":
		return "integer"
	case node.Tag == "!!float":
		return "number"
	case node.Tag == "!!null":
		return "null"
	}
	return "string"
}

// putTable puts the table of values between the page's two markers.
func putTable(page []byte, values *value) ([]byte, error) {
	before, rest, ok := bytes.Cut(page, []byte(begin))
	if !ok {
		return nil, errMarkers
	}
	_, after, ok := bytes.Cut(rest, []byte(end))
	if !ok {
		return nil, errMarkers
	}
	var out bytes.Buffer
	out.Write(before)
	out.WriteString(begin + "\n| Value | Default | What it does |\n|---|---|---|\n")
	var rows func(v *value) error
	rows = func(v *value) error {
		if v.group {
			for _, child := range v.children {
				if err := rows(child); err != nil {
					return err
				}
			}
			return nil
		}
		var plain any
		if err := v.node.Decode(&plain); err != nil {
			return err
		}
		text, err := json.Marshal(plain)
		if err != nil {
			return err
		}
		description := v.description
		if words, ok := v.extra["enum"].([]any); ok {
			description += " One of " + strings.Trim(fmt.Sprint(words), "[]") + "."
		}
		fmt.Fprintf(&out, "| `%s` | `%s` | %s |\n", v.name(), text, strings.ReplaceAll(description, "|", `\|`))
		return nil
	}
	if err := rows(values); err != nil {
		return nil, err
	}
	out.WriteString("\n" + end)
	out.Write(after)
	return out.Bytes(), nil
}
