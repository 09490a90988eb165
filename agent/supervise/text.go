package supervise

import (
	"fmt"
	"strings"
	"syscall"

	"rcclx.io/commgroup-operator/agent/rank"
	"rcclx.io/commgroup-operator/internal/audience"
)

// caughtSignal finds the signal that the Go runtime caught and turned into exit code 2: a library that calls abort()
// ends that way. The runtime's first words are "SIGABRT: abort", or "[signal SIGSEGV: segmentation violation code=…]".
func caughtSignal(stderr string) (name, what string) {
	for line := range strings.Lines(stderr) {
		line, bracket := strings.CutPrefix(strings.TrimSpace(line), "[signal ")
		name, what, ok := strings.Cut(line, ": ")
		if !ok || !strings.HasPrefix(name, "SIG") || strings.Contains(name, " ") {
			continue
		}
		if bracket {
			what, _, _ = strings.Cut(what, " code=")
		}
		return name, what
	}
	return "", ""
}

// signalName names the signals that afterSignal knows.
func signalName(s syscall.Signal) string {
	return map[syscall.Signal]string{syscall.SIGABRT: "SIGABRT", syscall.SIGBUS: "SIGBUS", syscall.SIGSEGV: "SIGSEGV",
		syscall.SIGILL: "SIGILL", syscall.SIGKILL: "SIGKILL", syscall.SIGTERM: "SIGTERM"}[s]
}

// afterSignal says what to look at after such a death; any other name stands for no signal.
func afterSignal(name string) audience.Advice {
	switch name {
	case "SIGKILL":
		const dmesg = "it was not the agent that killed it: look for the kernel's OOM killer in dmesg and "
		return audience.Advice{Pod: dmesg + "raise the pod's memory limit",
			Shell: dmesg + "free memory, or raise the limit of the session's cgroup"}
	case "SIGBUS":
		const small = "a /dev/shm that is too small ends a process so when the library touches memory that " +
			"it was promised: "
		return audience.Advice{
			Pod: small +
				"give the pod an emptyDir of medium Memory at /dev/shm (docker: --shm-size), and look at the log tail",
			Shell: small + "remove what is left in it, or make it larger with mount -o remount,size=... (docker: " +
				"--shm-size), and look at the log tail",
		}
	case "SIGABRT":
		return audience.Same("the library or a driver library gave up: its last words are in the log tail")
	case "SIGSEGV", "SIGILL":
		return audience.Same("the library or a driver library crashed: the log tail names the place, and versions " +
			"that do not fit one another are the usual cause")
	case "SIGTERM":
		return audience.Advice{
			Pod:   "it was not the agent that ended it: somebody or the container runtime did",
			Shell: "it was not the agent that ended it: somebody else did",
		}
	}
	return audience.Same("the log tail says more, and dmesg may")
}

var (
	noProcess = audience.Advice{
		Pod:   "check the pod's limits on processes and memory",
		Shell: "check the limits on processes and memory (ulimit -a)",
	}
	otherBinary = audience.Advice{
		Pod:   "the agent binary in the pod may be of another version than the operator",
		Shell: "the rank binary may be of another version than the agent: give --rank-binary",
	}
	// errorAdvice is what to do after a rank's error, where its code alone tells.
	errorAdvice = map[string]audience.Advice{
		rank.CodeLibraryMissing: {
			Pod:   "put it in the image's library path or set spec.runtime.libraryPath",
			Shell: "give --library and --runtime with the paths of the two libraries, or set LD_LIBRARY_PATH",
		},
		rank.CodeLibraryTooOld: {Pod: "use a newer runtime image",
			Shell: "give --library with the path of a newer one"},
	}
)

// join writes numbers with commas between them.
func join(numbers []int) string {
	return strings.Trim(strings.Join(strings.Fields(fmt.Sprint(numbers)), ","), "[]")
}
