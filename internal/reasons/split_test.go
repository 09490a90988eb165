package reasons

import "testing"

// TestSplit: what to do first stands under the next step, in messages as the controller and the agents write them.
func TestSplit(t *testing.T) {
	for message, want := range map[string][2]string{
		"slow; check the cable":                              {"slow", "Check the cable"},
		"Bad (2 pairs). Look at that NIC. See the cable.":    {"Bad (2 pairs)", "Look at that NIC. See the cable."},
		"checks ran; it looked fine":                         {"checks ran; it looked fine", ""},
		"check the cable":                                    {"check the cable", ""},
		"saw 3; expected 4; drain the node, then look at it": {"saw 3; expected 4", "Drain the node, then look at it"},
		"a use of the link. It was slow":                     {"a use of the link. It was slow", ""},
		"no way.look":                                        {"no way.look", ""},
		"":                                                   {"", ""},
		"The driver states no xGMI link between a and b. The link is down: look for XGMI in the kernel log. " +
			"Power-cycle the node.": {
			"The driver states no xGMI link between a and b. The link is down",
			"Look for XGMI in the kernel log. Power-cycle the node."},
		"Run pod x on node y was deleted before the agent reported. Look for evictions and preemption, " +
			"then ask for a new run.": {
			"Run pod x on node y was deleted before the agent reported",
			"Look for evictions and preemption, then ask for a new run."},
		"It ended early. Run pod x on node y was deleted. " +
			"Look for evictions.": {"It ended early. Run pod x on node y was deleted", "Look for evictions."},
		"Run 1-1: Fail. Run 1-2: Pass": {"Run 1-1: Fail. Run 1-2: Pass", ""},
		"rank 3: read error 4; it was: use 4": {"rank 3: read error 4; it was: use 4",
			""},
		"Node sim-node-2: drain it": {"Node sim-node-2", "Drain it"},
	} {
		if seen, next := Split(message); seen != want[0] || next != want[1] {
			t.Errorf("%q: seen %q, next %q; expected %q", message, seen, next, want)
		}
	}
}

func TestSentence(t *testing.T) {
	for in, want := range map[string]string{"": "", "a b": "A b",
		"network.requireTransport is": "network.requireTransport is", "slow.": "Slow.", "\u00e9": "\u00c9"} {
		if got := Sentence(in); got != want {
			t.Errorf("%q: %q, expected %q", in, got, want)
		}
	}
}
