// Package explain turns typed evidence into sentences for users: what was seen, what was expected, and what to do next.
// Agents and controllers store evidence; conditions, commands, reports and logs render it here, so that one thing is
// said in one way. Nothing reads a sentence back.
package explain
