// Package session is a node's part in the group's stage of a run: it keeps the node's GPUs, and carries out one task after
// the other as the CommNode asks, each with its ranks in communicators over several nodes.
package session
