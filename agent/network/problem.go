// Package network chooses, on one node, what the ranks of a communicator over several nodes meet on: the interface and
// its addresses, the RDMA devices, and the ports. It checks each of them before a library sees it, since the library
// takes a name that is not there for no name at all, and a device that is not usable for a reason to go over TCP; and
// it reads from the library's log what carried the data in the end.
package network

import "fmt"

// Problem is why a node cannot take part in a communicator over several nodes.
type Problem struct {
	// Reason is one CamelCase word, one of api/v1alpha1's reasons.
	Reason string
	// Message names the node, what was asked for, what is there, and the next step.
	Message string
}

func (r *Request) problem(reason, format string, args ...any) *Problem {
	return &Problem{Reason: reason, Message: "Node " + r.Node + ": " + fmt.Sprintf(format, args...)}
}
