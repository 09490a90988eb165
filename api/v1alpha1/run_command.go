package v1alpha1

import "fmt"

// AskRun is what a message says where only a user can start the next run; without a command where the group is not
// known.
func AskRun(namespace, name string) string {
	if name == "" {
		return "ask for a new run"
	}
	return fmt.Sprintf("ask for a new run: kubectl commgroup run %s -n %s", name, namespace)
}
