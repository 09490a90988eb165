// Package membership selects the nodes of a CommGroup, in rank order.
package membership
