// Package sharing says who else uses the nodes of a group: other groups' runs, by their pods and by the nodes that
// their stages claim, and whose turn it is. It reads nothing itself, and knows neither the run of the nodes nor the
// group's stage.
package sharing
