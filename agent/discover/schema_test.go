package discover

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"testing"
	"unicode/utf8"

	"sigs.k8s.io/yaml"
)

// schema is what an API server holds a value against, as far as the CRDs use it.
type schema struct {
	Type       string            `json:"type"`
	Format     string            `json:"format"`
	Enum       []any             `json:"enum"`
	Required   []string          `json:"required"`
	MaxLength  *int              `json:"maxLength"`
	MaxItems   *int              `json:"maxItems"`
	Items      *schema           `json:"items"`
	Properties map[string]schema `json:"properties"`
}

// factsSchema is status.facts of the CommNode's CRD.
var factsSchema = sync.OnceValues(func() (*schema, error) {
	text, err := os.ReadFile("../../config/crd/bases/rcclx.io_commnodes.yaml")
	if err != nil {
		return nil, err
	}
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema schema `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(text, &crd); err != nil {
		return nil, err
	}
	facts := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"].Properties["facts"]
	if len(facts.Properties) < 20 || len(facts.Required) == 0 {
		return nil, fmt.Errorf("the CRD has no status.facts as this test knows it: %+v", facts)
	}
	return &facts, nil
})

// checkSchema holds facts against the CRD: one value that it refuses costs the whole report.
func checkSchema(t testing.TB, facts any) {
	t.Helper()
	s, err := factsSchema()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(facts)
	if err != nil {
		t.Fatal(err)
	}
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatal(err)
	}
	for _, fault := range s.faults("facts", value) {
		t.Errorf("an API server refuses these facts: %s", fault)
	}
}

// faults says what the schema refuses; a type or a bound that it does not know, it refuses, too.
func (s *schema) faults(path string, value any) (faults []string) {
	add := func(format string, args ...any) { faults = append(faults, path+": "+fmt.Sprintf(format, args...)) }
	if len(s.Enum) > 0 && !slices.Contains(s.Enum, value) {
		add("%v is none of %v", value, s.Enum)
	}
	switch v := value.(type) {
	case string:
		if s.Type != "string" || s.MaxLength != nil && utf8.RuneCountInString(v) > *s.MaxLength {
			add("%q is not of type %s, or too long", v, s.Type)
		}
	case float64:
		if s.Type != "integer" || v != math.Trunc(v) ||
			s.Format == "int32" && (v > math.MaxInt32 || v < math.MinInt32) {
			add("%v is not of type %s %s", v, s.Type, s.Format)
		}
	case []any:
		if s.Type != "array" || s.MaxItems != nil && len(v) > *s.MaxItems {
			add("%d items are not of type %s, or too many", len(v), s.Type)
			return faults
		}
		for i, item := range v {
			faults = append(faults, s.Items.faults(fmt.Sprintf("%s[%d]", path, i), item)...)
		}
	case map[string]any:
		for _, name := range s.Required {
			if _, there := v[name]; !there {
				add("lacks %s", name)
			}
		}
		for name, part := range v {
			if property, there := s.Properties[name]; there {
				faults = append(faults, property.faults(path+"."+name, part)...)
			} else {
				add("has %s, which would be dropped", name)
			}
		}
	default:
		add("%v is of no type that this test knows", v)
	}
	return faults
}

// TestSchemaRefuses: the check of the facts against the CRD finds what an API server would.
func TestSchemaRefuses(t *testing.T) {
	s, err := factsSchema()
	if err != nil {
		t.Fatal(err)
	}
	for field, value := range map[string]any{"bootID": string(make([]byte, 65)), "gpuCount": 1.5,
		"deviceCount": float64(1 << 31), "gpus": make([]any, 17), "function": "Real", "partition": nil} {
		if property := s.Properties[field]; len(property.faults(field, value)) == 0 {
			t.Errorf("%s takes %v", field, value)
		}
	}
	if len(s.faults("facts", map[string]any{"nobody": ""})) != 1+len(s.Required) {
		t.Error("unknown and missing fields are taken")
	}
}
