// Command crdbounds bounds the fields of the CRDs whose Go types are Kubernetes' own, so that no marker of
// controller-gen reaches them. hack/generate.sh runs it over what controller-gen wrote.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// bounds are by path below spec: a name is a property, [] a list's items, {} a map's values. Lengths are those that
// Kubernetes itself takes: 317 is a qualified name with its prefix, 63 a label's value, 253 a name.
var bounds = map[string]map[string]int{
	"members.nodeSelector.matchExpressions":            {"maxItems": 32},
	"members.nodeSelector.matchExpressions[].key":      {"maxLength": 317},
	"members.nodeSelector.matchExpressions[].operator": {"maxLength": 16},
	"members.nodeSelector.matchExpressions[].values":   {"maxItems": 256},
	"members.nodeSelector.matchExpressions[].values[]": {"maxLength": 63},
	"members.nodeSelector.matchLabels":                 {"maxProperties": 32},
	"members.nodeSelector.matchLabels{}":               {"maxLength": 63},
	"runtime.imagePullSecrets[].name":                  {"maxLength": 253},
	"runtime.pod.annotations{}":                        {"maxLength": 1024},
	"runtime.pod.labels{}":                             {"maxLength": 63},
	"runtime.pod.resources.claims":                     {"maxItems": 16},
	"runtime.pod.resources.claims[].name":              {"maxLength": 63},
	"runtime.pod.resources.claims[].request":           {"maxLength": 63},
	"runtime.pod.resources.limits":                     {"maxProperties": 32},
	"runtime.pod.resources.limits{}":                   {"maxLength": 64},
	"runtime.pod.resources.requests":                   {"maxProperties": 32},
	"runtime.pod.resources.requests{}":                 {"maxLength": 64},
	"runtime.pod.tolerations[].effect":                 {"maxLength": 16},
	"runtime.pod.tolerations[].key":                    {"maxLength": 317},
	"runtime.pod.tolerations[].operator":               {"maxLength": 16},
	"runtime.pod.tolerations[].value":                  {"maxLength": 63},
	"network.interface.pciAddress":                     {"maxLength": 12},
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: crdbounds FOLDER-OF-CRDS")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "crdbounds:", err)
		os.Exit(1)
	}
}

func run(folder string) error {
	paths, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		return err
	}
	set := map[string]bool{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if text, err = bound(text, set); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return err
		}
	}
	for path := range bounds {
		if !set[path] {
			return fmt.Errorf("no CRD has the field spec.%s: correct its path, or take it out of the table", path)
		}
	}
	return nil
}

// bound sets the bounds of the fields that the CRD has, and notes them.
func bound(text []byte, set map[string]bool) ([]byte, error) {
	data, err := yaml.YAMLToJSON(text)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber() // sizes go over what a float shows as digits
	var crd map[string]any
	if err := decoder.Decode(&crd); err != nil {
		return nil, err
	}
	versions, _ := at(crd, "spec")["versions"].([]any)
	for _, version := range versions {
		v, _ := version.(map[string]any)
		root := at(v, "schema", "openAPIV3Schema")
		for path, values := range bounds {
			// a CommRun's template is a part of its CommGroup's spec
			for _, prefix := range []string{"spec.", "status.template."} {
				field := fieldOf(root, prefix+path)
				if field == nil {
					continue
				}
				set[path] = true
				for name, value := range values {
					field[name] = value
				}
			}
		}
	}
	if data, err = json.Marshal(crd); err != nil {
		return nil, err
	}
	out, err := yaml.JSONToYAML(data)
	return append([]byte("---\n"), out...), err
}

func fieldOf(schema map[string]any, path string) map[string]any {
	for name := range strings.SplitSeq(path, ".") {
		plain := strings.TrimRight(name, "[]{}")
		schema = at(schema, "properties", plain)
		for suffix := name[len(plain):]; suffix != ""; suffix = suffix[2:] {
			if suffix[:2] == "[]" {
				schema = at(schema, "items")
			} else {
				schema = at(schema, "additionalProperties")
			}
		}
	}
	return schema
}

// at is the object below the keys; nil where there is none.
func at(object map[string]any, keys ...string) map[string]any {
	for _, key := range keys {
		object, _ = object[key].(map[string]any)
	}
	return object
}
