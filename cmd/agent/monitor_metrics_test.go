package main

import "testing"

func TestMetricsPort(t *testing.T) {
	for _, tc := range []struct {
		flag     int
		variable string
		want     int
		wantErr  bool
	}{
		{-1, "", 0, false},
		{-1, "8443", 8443, false},
		{0, "8443", 0, false}, // the flag counts
		{9000, "8443", 9000, false},
		{9000, "nonsense", 9000, false},
		{-1, "nonsense", 0, true},
		{-1, "-5", 0, false},
		{-1, "70000", 0, true},
		{70000, "", 0, true},
	} {
		got, err := metricsPortOf(tc.flag, tc.variable)
		if got != tc.want && !tc.wantErr || (err != nil) != tc.wantErr {
			t.Errorf("--metrics-port %d, $METRICS_PORT %q: %d, %v; want %d, error: %v",
				tc.flag, tc.variable, got, err, tc.want, tc.wantErr)
		}
	}
}
