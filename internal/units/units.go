// Package units writes sizes, times and bandwidths for users, and the turns of phrase that messages share, in one way
// everywhere: in tables without the unit, which stands in the heading, and in messages with it.
package units

import (
	"fmt"
	"strconv"
	"strings"
)

// GBps writes a bandwidth given in 10^6 bytes a second in 10^9 bytes a second, without the unit.
func GBps(megabytesPerSecond int64) string {
	gb := float64(megabytesPerSecond) / 1e3
	if gb < 10 {
		return fmt.Sprintf("%.2f", gb)
	}
	return fmt.Sprintf("%.1f", gb)
}

// Bandwidth writes a bandwidth given in 10^6 bytes a second with its unit, such as 42.3 GB/s (10^9 bytes a second).
// Of less than 1 GB/s each MB/s shows, since a message may hold two such figures against each other.
func Bandwidth(megabytesPerSecond int64) string {
	if megabytesPerSecond < 1000 {
		return fmt.Sprintf("%.3f GB/s", float64(megabytesPerSecond)/1e3)
	}
	return GBps(megabytesPerSecond) + " GB/s"
}

// scale gives the largest binary unit of which sizeBytes is a whole number: 1024 is 1 K, 1536 is 1536 bytes.
func scale(sizeBytes int64) (int64, string) {
	for _, u := range []struct {
		suffix string
		bytes  int64
	}{{"G", 1 << 30}, {"M", 1 << 20}, {"K", 1 << 10}} {
		if sizeBytes >= u.bytes && sizeBytes%u.bytes == 0 {
			return sizeBytes / u.bytes, u.suffix
		}
	}
	return sizeBytes, ""
}

// Bytes writes a message size as engineers write it in tables and flags: 1024 is 1K, 67108864 is 64M; odd sizes in
// bytes.
func Bytes(sizeBytes int64) string {
	n, suffix := scale(sizeBytes)
	return strconv.FormatInt(n, 10) + suffix
}

// Size writes a message size in words: 64 MiB, 8 B.
func Size(sizeBytes int64) string {
	n, suffix := scale(sizeBytes)
	if suffix == "" {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%d %siB", n, suffix)
}

// Microseconds writes a time in microseconds, with enough digits to compare.
func Microseconds(nanoseconds int64) string {
	us := float64(nanoseconds) / 1e3
	if us < 100 {
		return fmt.Sprintf("%.1f", us)
	}
	return fmt.Sprintf("%.0f", us)
}

// Percent writes parts per million as percent.
func Percent(ppm int64) string { return fmt.Sprintf("%.2f %%", float64(ppm)/1e4) }

// Counted is a number with its word: "1 run", "4 runs".
func Counted[N int | int32 | int64](n N, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}

// Unnamed is a node's message without the node's name at its beginning, for where that name stands before it already.
func Unnamed(message, node string) string {
	if node == "" {
		return message
	}
	for _, lead := range []string{"node " + node + ": ", "Node " + node + ": ", node + ": "} {
		if rest, cut := strings.CutPrefix(message, lead); cut {
			return rest
		}
	}
	return message
}
