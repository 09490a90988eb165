package rcclx

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

func TestParseNames(t *testing.T) {
	for text, want := range map[string]Collective{
		"AllReduce": AllReduce, "allreduce": AllReduce, "all_reduce": AllReduce, "all-reduce": AllReduce,
		"all_reduce_perf": AllReduce, "ncclAllReduce": AllReduce,
		"alltoall": AllToAll, "AlltoAll": AllToAll, "all_to_all": AllToAll, "alltoallv_perf": AllToAllv,
		"reduce_scatter": ReduceScatter,
		"reduce":         Reduce, "bcast": Broadcast, "broadcast_perf": Broadcast, "sendrecv_perf": SendRecv,
		"send_recv": SendRecv, "ALL_GATHER": AllGather,
	} {
		if got, err := ParseCollective(text); err != nil || got != want {
			t.Errorf("ParseCollective(%q) = %s, %v; want %s", text, got, err, want)
		}
	}
	for text, want := range map[string]Datatype{
		"BFloat16": BFloat16, "bf16": BFloat16, "bfloat16": BFloat16, "float": Float32, "fp32": Float32,
		"half": Float16, "fp16": Float16,
		"double": Float64, "fp8_e4m3": Float8E4M3, "ncclFloat8e4m3": Float8E4M3, "float8_e5m2": Float8E5M2,
		"int8": Int8, "int32": Int32,
	} {
		if got, err := ParseDatatype(text); err != nil || got != want {
			t.Errorf("ParseDatatype(%q) = %s, %v; want %s", text, got, err, want)
		}
	}
	for text, want := range map[string]Placement{"InPlace": InPlace, "in-place": InPlace, "in": InPlace,
		"OutOfPlace": OutOfPlace, "out_of_place": OutOfPlace} {
		if got, err := ParsePlacement(text); err != nil || got != want {
			t.Errorf("ParsePlacement(%q) = %s, %v; want %s", text, got, err, want)
		}
	}
	for _, err := range []error{second(ParseCollective("gather")), second(ParseCollective("")),
		second(ParseCollective("perf")), second(ParseDatatype("uint8")), second(ParseDatatype("")),
		second(ParseDatatype("fp8")), second(ParsePlacement("")), second(ParsePlacement("both"))} {
		if err == nil || !strings.Contains(err.Error(), "use ") {
			t.Errorf("error %v does not say what to use", err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestParseSizeBytes(t *testing.T) {
	for text, want := range map[string]int64{
		"8": 8, "1K": 1024, "1k": 1024, "1KiB": 1024, "1 KiB": 1024, "64M": 64 << 20, "1MiB": 1 << 20, "1G": 1 << 30,
		"16gib": 16 << 30, "7B": 7, " 12 ": 12,
		"9223372036854775807": math.MaxInt64, "8589934591G": 8589934591 << 30,
	} {
		if got, err := ParseSizeBytes(text); err != nil || got != want {
			t.Errorf("ParseSizeBytes(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
	for text, says := range map[string]string{
		"": "64K", "K": "64K", "-1": "64K", "1.5K": "64K", "1X": "64K", "0x10": "64K", "0": "at least 1",
		"0K": "at least 1", "1KB": "1KiB", "64MB": "64M or 64MiB",
		"9223372036854775808": "64 bits", "8589934592G": "64 bits", "99999999999999999999999": "64 bits", "1K1": "64K",
	} {
		if got, err := ParseSizeBytes(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("ParseSizeBytes(%q) = %d, %v; want an error with %q", text, got, err, says)
		}
	}
}

func TestParseSizes(t *testing.T) {
	for text, want := range map[string][]int64{
		"8":          {8},
		"8,1K,1M":    {8, 1024, 1 << 20},
		"1M, 8, 8":   {8, 1 << 20},
		"1K:16K:4":   {1024, 4096, 16384},
		"1K:10000:2": {1024, 2048, 4096, 8192},
		"1M:4M:+1M":  {1 << 20, 2 << 20, 3 << 20, 4 << 20},
		"1M:1M:2":    {1 << 20},
		"8,4:32:2,9": {4, 8, 9, 16, 32},
		"7:10:+2":    {7, 9},
		"4611686018427387904:9223372036854775807:2": {1 << 62},
	} {
		if got, err := ParseSizes(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("ParseSizes(%q) = %v, %v; want %v", text, got, err, want)
		}
	}
	if got, err := ParseSizes("1:1024:+1"); err != nil || len(got) != MaxSizes {
		t.Errorf("%d sizes, %v; want %d", len(got), err, MaxSizes)
	}
	for text, says := range map[string]string{
		"": "1K:1G:2", " ": "1K:1G:2", ",": "64K", "8,": "64K", "1K:1M": "MIN:MAX:FACTOR",
		"1K:1M:2:2": "MIN:MAX:FACTOR",
		"1K:1M:1":   "at least 2", "1K:1M:0": "at least 2", "1K:1M:-2": "at least 2", "1K:1M:1.5": "at least 2",
		"1K:1M:":   "at least 2",
		"1K:1M:+0": "step of at least 1", "1K:1M:+-1": "step of at least 1", "1K:1M:+": "step of at least 1",
		"1M:1K:2": "write 1K:1M:2", "1:1G:+1": "more than 1024", "1:1024:+1,2048": "more than 1024",
		"1:1M:+1K,1:1M:+1K":    "more than 1024",
		"1K:99999999999999G:2": "64 bits", "x:1M:2": "64K",
	} {
		if got, err := ParseSizes(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("ParseSizes(%q) = %d sizes, %v; want an error with %q", text, len(got), err, says)
		}
	}
}

// A name that is accepted must fold to the same value again, and an error must quote what was written.
func fuzzName[T ~string](f *testing.F, parse func(string) (T, error), all []T, seeds ...string) {
	for _, v := range all {
		f.Add(string(v))
	}
	for _, seed := range seeds {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v, err := parse(text)
		if err != nil {
			if v != "" || !strings.Contains(err.Error(), fmt.Sprintf("%q", text)) {
				t.Errorf("%q gave %q and %v", text, v, err)
			}
			return
		}
		if !slices.Contains(all, v) {
			t.Errorf("%q gave %q, which is none of %v", text, v, all)
		}
		if again, err := parse(strings.ToUpper(string(v))); err != nil || again != v {
			t.Errorf("%q gave %q, which gave %q, %v", text, v, again, err)
		}
	})
}

func FuzzParseCollective(f *testing.F) {
	fuzzName(f, ParseCollective, AllCollectives(), "all_reduce_perf", "nccl", "bcast", "")
}

func FuzzParseDatatype(f *testing.F) {
	fuzzName(f, ParseDatatype, Datatypes(), "bf16", "fp8", "ncclFloat", "")
}

func FuzzParsePlacement(f *testing.F) {
	fuzzName(f, ParsePlacement, []Placement{OutOfPlace, InPlace}, "in", "out of place", "")
}

func FuzzParseSizeBytes(f *testing.F) {
	for _, seed := range []string{"8", "1K", "1KiB", "64M", "1G", "1KB", "0", "-1", "9223372036854775807G", "٣"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, err := ParseSizeBytes(text)
		if err != nil {
			if n != 0 {
				t.Errorf("%q gave %d and %v", text, n, err)
			}
			return
		}
		if again, err := ParseSizeBytes(fmt.Sprint(n)); n < 1 || err != nil || again != n {
			t.Errorf("%q gave %d, which gave %d, %v", text, n, again, err)
		}
	})
}

func FuzzParseSizes(f *testing.F) {
	for _, seed := range []string{"8,1K,1M", "1K:1G:2", "1M:16M:+1M", "1:9223372036854775807:+9223372036854775807",
		"1K:1M:1", "1M:1K:2", ",", ":::"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		sizes, err := ParseSizes(text)
		if err != nil {
			if sizes != nil {
				t.Errorf("%q gave %v and %v", text, sizes, err)
			}
			return
		}
		if len(sizes) < 1 || len(sizes) > MaxSizes {
			t.Errorf("%q gave %d sizes", text, len(sizes))
		}
		for i, size := range sizes {
			if size < 1 || i > 0 && size <= sizes[i-1] {
				t.Errorf("%q gave %v, which does not ascend", text, sizes)
			}
		}
	})
}
