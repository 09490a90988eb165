package report

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// TestAdvice: what is not known is a dash and never zero, and a loss is told as more time.
func TestAdvice(t *testing.T) {
	advice := []v1alpha1.SettingAdvice{
		{Name: "dda.AllReduce/BFloat16", State: v1alpha1.WorthMixed,
			MemoryBytes: ptr.To(int64(32 << 20)), Recommend: "dda.allReduceTreeMaxBytes=1048576",
			Bands: []v1alpha1.GainBand{{MinBytes: 1024, MaxBytes: 1 << 20, Outcome: "Wins", MedianGainPercent: 40},
				{MinBytes: 4 << 20, MaxBytes: 16 << 20, Outcome: "Loses", MedianGainPercent: -10}},
			Message: "Of 8 sizes 6 faster."},
		{Name: "lowPrecision.AllGather/BFloat16", State: v1alpha1.WorthMixed,
			MemoryBytes: ptr.To(int64(2304 << 20)), ErrorPPM: ptr.To(int64(32_300)), Recommend: "off",
			Bands: []v1alpha1.GainBand{{MinBytes: 1024, MaxBytes: 1024, Outcome: "Loses", MedianGainPercent: -66},
				{MinBytes: 4096, MaxBytes: 8192, Outcome: "Even"},
				{MinBytes: 16384, MaxBytes: 16384, Outcome: "Loses", MedianGainPercent: -4},
				{MinBytes: 64 << 20, MaxBytes: 64 << 20, Outcome: "Wins", MedianGainPercent: 20}}},
		{Name: "dda.AllReduce/Float16", State: v1alpha1.WorthUnknown, Message: "Not known."},
	}
	var b bytes.Buffer
	if err := Advice(&b, advice); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"SETTING                          WORTH IT  WINS (LESS TIME)  LOSES (MORE TIME)  ERROR   " +
			"MEMORY/RANK  RECOMMENDED",
		"dda.AllReduce/BFloat16           Mixed     1K-1M 40 %        4M-16M 10 %        -       32M          " +
			"dda.allReduceTreeMaxBytes=1048576",
		"lowPrecision.AllGather/BFloat16  Mixed     64M 20 %          1K 66 %, 16K 4 %   3.23 %  2304M        off",
		"dda.AllReduce/Float16            Unknown   -                 -                  -       -            -",
		"  dda.AllReduce/BFloat16: Of 8 sizes 6 faster.",
		"  dda.AllReduce/Float16: Not known.",
	}
	if diff := cmp.Diff(want, lines(&b)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
