// Package arch holds the tests of what a linter cannot see: which way packages
// import each other, where cgo may be, and what the built program leaves
// undefined.
package arch
