// Package audience renders advice for those who read it: the user of a CommGroup changes fields of its spec, the user
// of agent bench changes flags, and has neither a pod nor an image.
package audience

// Audience is who reads an advice.
type Audience string

// The audiences. Pod, the zero value, is the user of a CommGroup; Shell that of agent bench on one machine.
const (
	Pod   Audience = ""
	Shell Audience = "Shell"
)

// Advice says what to do, in the words of each audience.
type Advice struct{ Pod, Shell string }

// Same is an advice that holds for every audience.
func Same(text string) Advice { return Advice{Pod: text, Shell: text} }

// For is the advice in the words of one audience.
func (a Advice) For(who Audience) string {
	if who == Shell {
		return a.Shell
	}
	return a.Pod
}

// Map changes the words for both audiences.
func (a Advice) Map(change func(string) string) Advice {
	return Advice{Pod: change(a.Pod), Shell: change(a.Shell)}
}
