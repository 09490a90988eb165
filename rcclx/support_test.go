package rcclx

import (
	"strings"
	"testing"
)

func TestDatatypeSupport(t *testing.T) {
	for _, tt := range []struct {
		f       Flavor
		version int
		d       Datatype
		says    string // in the reason; empty where the datatype is there
	}{
		{FlavorNCCL, 22809, Float8E4M3, ""},
		{FlavorNCCL, 22403, Float8E5M2, ""},
		{FlavorNCCL, 22304, Float8E4M3, "from version 2.24.0, and this library is 2.23.4"},
		{FlavorNCCL, 20909, BFloat16, "2.9.9"},
		{FlavorNCCL, 2804, BFloat16, "2.8.4"},
		{FlavorNCCL, 21003, BFloat16, ""},
		{FlavorNCCL, 2804, Float32, ""},
		{FlavorNCCL, 0, Float8E4M3, "does not say its version"},
		{FlavorNCCL, -7, Int8, ""},
		{FlavorRCCL, 22105, Float8E4M3, ""},
		{FlavorRCCL, 21806, Float8E4M3, "2.20.5"},
		{FlavorRCCL, 21806, BFloat16, ""},
		{FlavorRCCLDDA, 23004, Float8E5M2, ""},
		{FlavorRCCLXDev, 22803, Float8E4M3, ""},
		{FlavorRCCLXStable, 22707, Float8E4M3, ""},
		{FlavorUnknown, 22803, Float8E4M3, "flavor is not known"},
		{FlavorUnknown, 22803, Float32, ""},
		{FlavorNCCL, 22809, "Int7", "Int8"},
	} {
		ok, why := DatatypeSupport(tt.f, tt.version, tt.d)
		if ok != (tt.says == "") || ok != (why == "") || !strings.Contains(why, tt.says) {
			t.Errorf("DatatypeSupport(%s, %d, %s) = %v, %q; want %q", tt.f, tt.version, tt.d, ok, why, tt.says)
		}
	}
	// Every flavor that names its version has the types that every run may ask for.
	for _, f := range []Flavor{FlavorRCCL, FlavorRCCLDDA, FlavorRCCLXDev, FlavorRCCLXStable, FlavorNCCL} {
		for _, d := range []Datatype{Float64, Float32, Float16, BFloat16, Int32, Int8} {
			if ok, why := DatatypeSupport(f, 22105, d); !ok {
				t.Errorf("%s lacks %s: %s", f, d, why)
			}
		}
	}
}

func TestReductionSupport(t *testing.T) {
	for _, tt := range []struct {
		f          Flavor
		capability int
		c          Collective
		d          Datatype
		want       bool
	}{
		{FlavorNCCL, 80, AllReduce, Float8E4M3, false}, {FlavorNCCL, 89, Reduce, Float8E5M2, false},
		{FlavorNCCL, 80, ReduceScatter, Float8E5M2, false},
		{FlavorNCCL, 80, AllGather, Float8E4M3, true}, {FlavorNCCL, 80, SendRecv, Float8E4M3, true},
		{FlavorNCCL, 80, AllReduce, BFloat16, true},
		{FlavorNCCL, 90, AllReduce, Float8E4M3, true}, {FlavorNCCL, 0, AllReduce, Float8E4M3, true},
		{FlavorRCCLXDev, 80, AllReduce, Float8E4M3, true},
	} {
		if ok, why := ReductionSupport(tt.f, tt.capability, tt.c, tt.d); ok != tt.want || ok != (why == "") {
			t.Errorf("ReductionSupport(%s, %d, %s, %s) = %v, %q", tt.f, tt.capability, tt.c, tt.d, ok, why)
		}
	}
}
