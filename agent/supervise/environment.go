package supervise

import (
	"slices"
	"strings"

	"rcclx.io/commgroup-operator/rcclx"
)

// inherited are the variables that a rank takes over from its pod; all else would make two nodes differ unseen. Device
// masks are not among them: with RCCLX's DDA each rank must see every GPU. The last three are settings of AMD's guides
// for AINIC and MSCCL++ that runtime.env does not take, so that the image's ENV can have them.
var inherited = []string{"PATH", "LD_LIBRARY_PATH", "HOME", "TMPDIR", "IONIC_LOCKFREE", "NET_OPTIONAL_RECV_COMPLETION",
	"MSCCLPP_READ_ALLRED"}

const inheritedPrefix = "SIMROCM_"

// hostIDVariable makes the library see all ranks of a node as one host whatever the pod's hostname is
// (rccl src/misc/utils.cc getHostHash).
const hostIDVariable = "NCCL_HOSTID"

// RankEnvironment is the whole environment of a rank process as NAME=VALUE, sorted: what it inherits from the pod's
// environ, the variant's variables, and over all the host id that ties the node's ranks together.
func RankEnvironment(environ []string, vars []rcclx.EnvVar, node string) []string {
	env := map[string]string{}
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		if slices.Contains(inherited, name) || strings.HasPrefix(name, inheritedPrefix) {
			env[name] = value
		}
	}
	for _, e := range vars {
		env[e.Name] = e.Value
	}
	env[hostIDVariable] = node
	out := make([]string, 0, len(env))
	for name, value := range env {
		out = append(out, name+"="+value)
	}
	slices.Sort(out)
	return out
}
