package rcclx

import (
	"math"
	"strconv"
	"strings"
)

// environment is a set of variables, read as the library reads them.
type environment map[string]string

func environmentMap(vars []EnvVar) environment {
	env := environment{}
	for _, e := range vars {
		env[e.Name] = e.Value
	}
	return env
}

// integer reads a variable as RCCL_PARAM does (src/include/param.h): strtoll with base 0, text that is no number is 0.
// A variable that is not set has the table's value for that.
func (e environment) integer(name string) int64 {
	text := e[name]
	if text == "" {
		row, _ := rowOf(name)
		text = row.unset
	}
	return parseStrtoll(text)
}

// limitBytes reads a size as RCCLX's DDA does, which casts it to 32 bits (meta/algorithms/AlgoInit.h) and compares it
// unsigned: what does not fit wraps, and a negative limit is none.
func (e environment) limitBytes(name string) int64 {
	if limit := int64(int32(e.integer(name))); limit >= 0 {
		return limit
	}
	return math.MaxInt64
}

// parseStrtoll is C's strtoll(text, NULL, 0): leading space, a sign, 0x or 0 for the base, then as many digits as there
// are.
func parseStrtoll(text string) int64 {
	text = strings.TrimLeft(text, " \t\n\v\f\r")
	sign := ""
	if text != "" && (text[0] == '-' || text[0] == '+') {
		sign, text = strings.TrimPrefix(text[:1], "+"), text[1:]
	}
	base, digits := 10, "0123456789"
	switch {
	case len(text) > 2 && (text[:2] == "0x" || text[:2] == "0X") &&
		strings.ContainsRune("0123456789abcdefABCDEF", rune(text[2])):
		base, digits, text = 16, "0123456789abcdefABCDEF", text[2:]
	case strings.HasPrefix(text, "0"):
		base, digits = 8, "01234567"
	}
	end := 0
	for end < len(text) && strings.IndexByte(digits, text[end]) >= 0 {
		end++
	}
	// On overflow ParseInt answers the largest value, as strtoll does; on no digits it answers zero, as strtoll does.
	n, _ := strconv.ParseInt(sign+text[:end], base, 64)
	return n
}

// lowPrecision says whether FP8 is on for a collective: the exact text "1" (meta/lpcoll/low_precision_common.h).
func (e environment) lowPrecision(f Flavor, c Collective) bool {
	if !f.rcclx() {
		return false
	}
	return e[envFP8] == "1" || (f == FlavorRCCLXDev && e[envFP8PerCollective[c]] == "1")
}
