// Package runpod makes the pods of a run: of a node alone, and of the group's stage, on the network that the group asks
// for.
package runpod
