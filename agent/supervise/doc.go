// Package supervise starts rank processes, watches them to their end and says what became of them: who died, who
// missed a deadline, and who is to blame among the node's ranks. It knows nothing of the API, and does not judge.
package supervise
