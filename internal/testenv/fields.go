package testenv

import (
	"reflect"
	"strings"
)

// HasField says whether a type of the API has the field that the JSON names lead to; a free-form map ends the way.
func HasField(of reflect.Type, names ...string) bool {
	for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
		of = of.Elem()
	}
	if len(names) == 0 || of.Kind() == reflect.Map {
		return true
	}
	if of.Kind() != reflect.Struct {
		return false
	}
	for i := range of.NumField() {
		f := of.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == names[0]:
			return HasField(f.Type, names[1:]...)
		case name == "" && f.Anonymous && HasField(f.Type, names...): // its fields stand among the others
			return true
		}
	}
	return false
}
