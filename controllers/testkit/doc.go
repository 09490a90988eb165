// Package testkit has the objects that the tests of controllers and of the packages below it begin with. Only tests
// import it.
package testkit
