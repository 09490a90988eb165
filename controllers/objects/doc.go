// Package objects says what the operator's objects of a group have in common: labels, owner, and names that fit. It
// imports only the API.
package objects
