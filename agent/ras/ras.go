// Package ras reads what the library's own RAS service knows of a job: which ranks belong to a communicator, how far
// each has come, who does not answer. NCCL has it since 2.24, RCCL in builds from 2.27 on; AMD's RCCL 2.21.5 does not.
//
// Every process with a communicator runs a RAS thread that listens on NCCL_RAS_ADDR (localhost:28028 unless set) with
// SO_REUSEPORT, so all processes of a host share one port and the kernel picks which of them answers (nccl
// src/ras/client_support.cc rasClientInitSocket). Each answers for all peers that it knows through its communicators,
// not for other jobs: with several jobs on one host the answer may be about somebody else's, so give each job an
// address of its own (Reserve).
//
// What it cannot see: operations that do not pass the library's kernel plans. DDA never shows, low precision only as
// its sends and receives, and those are not counted (NCCL_NUM_FUNCTIONS is 5: Broadcast, Reduce, AllGather,
// ReduceScatter, AllReduce; src/plugin/profiler.cc counts where a plan is launched). A rank that has not come through
// the bootstrap of ncclCommInitRank serves nothing yet, and a communicator shows only once all ranks have exchanged
// their peer data (src/ras/collectives.cc rasCollCommsInit, peerInfoValid).
package ras

// Report is what one answer to VERBOSE STATUS says. Fields that the answer does not have are zero.
type Report struct {
	// Library as it calls itself, for example "NCCL 2.28.9" or "RCCL 2.28.3".
	Library string
	// Simulated is set where hack/simrocm answered.
	Simulated bool
	// Nodes, Processes and GPUs of the job, as far as the process that answered knows them.
	Nodes, Processes, GPUs int
	// Collected is set where the processes' data on communicators were gathered; Complete where the answer came to its
	// end.
	Collected, Complete bool
	// Groups of communicators of the same size and state.
	Groups []Group
	// Missing are processes that did not answer in time, Dead those that were given up (unreachable for 60 s).
	Missing, Dead Processes
	// Timeouts of the gathering between processes.
	Timeouts int
	// Communicators that something was found about.
	Communicators []Communicator
}

// Group is a row of the table of communicators.
type Group struct {
	Number, Communicators, RanksPerCommunicator int
	// Status is the furthest of its ranks: NOCOMM, INIT, RUNNING, FINALIZE or ABORT.
	Status string
	// Errors are MISMATCH, ERROR and INCOMPLETE; empty where the table says OK.
	Errors []string
}

// Processes are some of the job's processes.
type Processes struct {
	Count int
	// Listed are those that the answer names.
	Listed []Process
}

// Process is one process of the job.
type Process struct {
	PID  int
	Node string
	// GPUs is a list of ordinals, as the library prints it.
	GPUs string
}

// Communicator is what was found about one communicator.
type Communicator struct {
	Group, Number int
	// Hash is the library's name for it, 16 hexadecimal digits.
	Hash string
	// MissingRanks did not answer; Missing names those of them that the answer lists.
	MissingRanks int
	Missing      []Rank
	// Statuses where its ranks differ in status.
	Statuses []Class
	// Operations where its ranks have launched different numbers of a collective.
	Operations []Operations
	// Errors that ranks reported.
	Errors []RankErrors
}

// Rank is one rank of a communicator.
type Rank struct {
	Rank int
	// GPU is its ordinal as the library prints it, PID its process; empty and zero where the answer has neither.
	GPU string
	PID int
}

// Class is a set of ranks that have something in common.
type Class struct {
	Count int
	// Status they have, or the number of operations they have launched, or the error they reported.
	Status   string
	Launched int64
	// Ranks of the class, as far as the answer names them.
	Ranks []Rank
}

// Operations are the different counts of one collective, the commonest first.
type Operations struct {
	// Collective as the library prints it; see Report.collective.
	Collective string
	Classes    []Class
}

// RankErrors are errors of one kind.
type RankErrors struct {
	// Asynchronous errors came after initialisation.
	Asynchronous bool
	// Count of ranks with any such error.
	Count   int
	Classes []Class
}
