package units

import "testing"

func TestUnits(t *testing.T) {
	for _, tc := range []struct{ got, want string }{
		{Bytes(1024), "1K"}, {Bytes(16 << 20), "16M"}, {Bytes(1 << 30), "1G"}, {Bytes(1000), "1000"},
		{Bytes(1536), "1536"}, {Bytes(0), "0"},
		{Microseconds(9400), "9.4"}, {Microseconds(1234567), "1235"},
		{GBps(315400), "315.4"}, {GBps(98), "0.10"},
		{Percent(62500), "6.25 %"},
		{Bandwidth(42292), "42.3 GB/s"}, {Bandwidth(980), "0.980 GB/s"}, {Bandwidth(7), "0.007 GB/s"},
		{Bandwidth(0), "0.000 GB/s"}, {Bandwidth(1000), "1.00 GB/s"},
		{Unnamed("node a: slow", "a"), "slow"}, {Unnamed("Node a: slow", "a"), "slow"},
		{Unnamed("a: slow", "a"), "slow"}, {Unnamed("node ab: slow", "a"), "node ab: slow"},
		{Unnamed(": slow", ""), ": slow"},
		{Size(8), "8 B"}, {Size(1024), "1 KiB"}, {Size(1536), "1536 B"}, {Size(16 << 20), "16 MiB"},
		{Size(8 << 30), "8 GiB"},
	} {
		if tc.got != tc.want {
			t.Errorf("got %q, want %q", tc.got, tc.want)
		}
	}
}
