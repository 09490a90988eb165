package rcclx

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// MaxSizes bounds the sizes of one list.
const MaxSizes = 1024

// separators are what users write differently in a name.
var separators = strings.NewReplacer("_", "", "-", "", " ", "")

// folded is a name without case and separators.
func folded(text string) string { return separators.Replace(strings.ToLower(text)) }

// ParseCollective reads a collective as users and benchmarks name it: AllReduce, all_reduce, allreduce,
// all_reduce_perf.
func ParseCollective(text string) (Collective, error) {
	name := strings.TrimPrefix(strings.TrimSuffix(folded(text), "perf"), "nccl")
	if name == "bcast" {
		return Broadcast, nil
	}
	for _, c := range AllCollectives() {
		if name == folded(string(c)) {
			return c, nil
		}
	}
	return "", fmt.Errorf("collective %q is not known: use %s", text, names(AllCollectives()))
}

// datatypeNames are what a datatype is called beside its own name: by PyTorch, rccl-tests and rccl.h.
var datatypeNames = map[string]Datatype{
	"fp64": Float64, "f64": Float64, "double": Float64,
	"fp32": Float32, "f32": Float32, "float": Float32, "single": Float32,
	"fp16": Float16, "f16": Float16, "half": Float16,
	"bf16":    BFloat16,
	"fp8e4m3": Float8E4M3, "f8e4m3": Float8E4M3, "e4m3": Float8E4M3, "float8e4m3fn": Float8E4M3,
	"float8e4m3fnuz": Float8E4M3,
	"fp8e5m2":        Float8E5M2, "f8e5m2": Float8E5M2, "e5m2": Float8E5M2, "float8e5m2fnuz": Float8E5M2,
	"i32": Int32, "int": Int32,
	"i8": Int8, "char": Int8,
}

// ParseDatatype reads an element type as users and benchmarks name it: BFloat16, bf16, half, float, fp8_e4m3.
func ParseDatatype(text string) (Datatype, error) {
	name := strings.TrimPrefix(folded(text), "nccl")
	if d, ok := datatypeNames[name]; ok {
		return d, nil
	}
	for _, d := range Datatypes() {
		if name == folded(string(d)) {
			return d, nil
		}
	}
	if name == "fp8" || name == "float8" {
		return "", fmt.Errorf("datatype %q has two forms: use fp8_e4m3 or fp8_e5m2", text)
	}
	return "", fmt.Errorf("datatype %q is not known: use %s", text, names(Datatypes()))
}

// ParsePlacement reads a placement: OutOfPlace, out-of-place, out, InPlace, in_place or in.
func ParsePlacement(text string) (Placement, error) {
	switch folded(text) {
	case "outofplace", "out":
		return OutOfPlace, nil
	case "inplace", "in":
		return InPlace, nil
	}
	return "", fmt.Errorf("placement %q is not known: use %s or %s", text, OutOfPlace, InPlace)
}

// sizeUnits are powers of 1024, as rccl-tests has them.
var sizeUnits = map[string]int64{"": 1, "b": 1, "k": 1 << 10, "kib": 1 << 10, "m": 1 << 20, "mib": 1 << 20,
	"g": 1 << 30, "gib": 1 << 30}

// ParseSizeBytes reads a message size of at least one byte: plain bytes, or whole K, M and G of 1024 (1K and 1KiB are
// 1024). KB, MB and GB are errors, since elsewhere they mean powers of 1000.
func ParseSizeBytes(text string) (int64, error) {
	trimmed := strings.TrimSpace(text)
	digits := len(trimmed) - len(strings.TrimLeft(trimmed, "0123456789"))
	number, unit := trimmed[:digits], strings.ToLower(strings.TrimSpace(trimmed[digits:]))
	factor, ok := sizeUnits[unit]
	switch {
	case unit == "kb" || unit == "mb" || unit == "gb":
		letter := strings.ToUpper(unit[:1])
		return 0,
			fmt.Errorf("size %q may mean powers of 1000 or of 1024: write %s%s or %s%siB for 1024, or plain bytes",
				text, number, letter, number, letter)
	case digits == 0 || !ok:
		return 0,
			fmt.Errorf("size %q is not a size: write whole bytes, or K, M or G of 1024, as in 8, 64K, 1M or 2G", text)
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n > math.MaxInt64/factor {
		return 0, fmt.Errorf("size %q has more bytes than 64 bits count: write a smaller one", text)
	}
	if n == 0 {
		return 0, fmt.Errorf("size %q would measure an empty call: write at least 1", text)
	}
	return n * factor, nil
}

// ParseSizes reads message sizes: a list of sizes and ranges, as in "8,1K,1M", "1K:1G:2" (each size twice the one
// before) and "1M:16M:+1M" (each 1 MiB more than the one before). They come back ascending and each once, MaxSizes at
// most.
func ParseSizes(text string) ([]int64, error) {
	if strings.TrimSpace(text) == "" {
		return nil, fmt.Errorf("no sizes: write a list such as 8,1K,1M or a range such as 1K:1G:2")
	}
	var all []int64
	for item := range strings.SplitSeq(text, ",") {
		sizes, err := parseSizeItem(item, MaxSizes-len(all))
		if err != nil {
			return nil, err
		}
		all = append(all, sizes...)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// parseSizeItem reads one size or one range of at most the given number of sizes.
func parseSizeItem(item string, most int) ([]int64, error) {
	tooMany := fmt.Errorf("sizes up to %q are more than %d: use a larger factor or step", item, MaxSizes)
	parts := strings.Split(item, ":")
	if len(parts) == 1 {
		size, err := ParseSizeBytes(item)
		if err == nil && most < 1 {
			err = tooMany
		}
		return []int64{size}, err
	}
	if len(parts) != 3 {
		return nil,
			fmt.Errorf("range %q is not MIN:MAX:FACTOR or MIN:MAX:+STEP: write for example 1K:1G:2 or 1M:16M:+1M", item)
	}
	first, err := ParseSizeBytes(parts[0])
	if err != nil {
		return nil, fmt.Errorf("range %q: %w", item, err)
	}
	last, err := ParseSizeBytes(parts[1])
	if err != nil {
		return nil, fmt.Errorf("range %q: %w", item, err)
	}
	if last < first {
		return nil, fmt.Errorf("range %q ends before it begins: write %s:%s:%s", item, parts[1], parts[0], parts[2])
	}
	factor, step, err := parseIncrement(item, parts[2])
	if err != nil {
		return nil, err
	}
	var sizes []int64
	for size := first; ; size = next(size, factor, step) {
		if len(sizes) >= most {
			return nil, tooMany
		}
		sizes = append(sizes, size)
		// The next size is computed only where it is at most last, so it cannot overflow.
		if step > 0 && size > last-step || step == 0 && size > last/factor {
			return sizes, nil
		}
	}
}

func next(size, factor, step int64) int64 {
	if step > 0 {
		return size + step
	}
	return size * factor
}

// parseIncrement reads a range's FACTOR or +STEP; the step is zero for a factor.
func parseIncrement(item, text string) (factor, step int64, err error) {
	text = strings.TrimSpace(text)
	if bytes, ok := strings.CutPrefix(text, "+"); ok {
		if step, err = ParseSizeBytes(bytes); err != nil {
			return 0, 0,
				fmt.Errorf("range %q needs a step of at least 1 byte: write for example 1M:16M:+1M (%w)", item, err)
		}
		return 0, step, nil
	}
	factor, err = strconv.ParseInt(text, 10, 64)
	if err != nil || factor < 2 {
		return 0, 0, fmt.Errorf("range %q has the factor %q: write a whole factor of at least 2, as in 1K:1G:2, "+
			"or a step, as in 1M:16M:+1M", item, text)
	}
	return factor, 0, nil
}
