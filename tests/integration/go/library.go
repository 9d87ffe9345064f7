// Go in a library, for C to call, or in a plugin, for Go to call: both are linked by the system's linker.
package main

/*
#cgo LDFLAGS: -lmixed
void mixed_spin(void);
*/
import "C"

var calls int

//export libraryEnter
func libraryEnter() {
	inner()
	calls++
}

//go:noinline
func inner() {
	C.mixed_spin()
	calls++
}

func Enter() {
	inner()
	calls++
}

func main() {}
