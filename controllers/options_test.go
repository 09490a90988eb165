package controllers

import (
	"strings"
	"testing"
)

func TestCheckNamespaces(t *testing.T) {
	for _, c := range []struct {
		served, privileged []string
		wrong              string
	}{
		{nil, nil, ""},
		{nil, []string{"ml"}, ""},
		{[]string{"ml", "research"}, []string{"ml"}, ""},
		{[]string{"operator"}, nil, "operator is the operator's own"},
		{[]string{"ml"}, []string{"other"}, "other is privileged and not served"},
		{[]string{"ML"}, nil, `"ML" is no name of a namespace`},
		{nil, []string{""}, `"" is no name of a namespace`},
	} {
		err := CheckNamespaces("operator", c.served, c.privileged)
		if (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("served %v, privileged %v: %v, expected %q", c.served, c.privileged, err, c.wrong)
		}
	}
}
