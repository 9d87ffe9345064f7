// Go that calls C, which calls Go, which calls C: for as many seconds as the argument says.
package main

/*
#cgo LDFLAGS: -lmixed
void mixed_spin(void);
void mixed_enter(void (*back)(void));
void mixedBack(void);
static void enter(void) { mixed_enter(mixedBack); }
*/
import "C"

import (
	"os"
	"strconv"
	"time"
)

var calls int

//export mixedBack
func mixedBack() {
	inner()
	calls++
}

//go:noinline
func inner() {
	C.mixed_spin()
	calls++
}

//go:noinline
func outer(depth int) {
	if depth > 0 {
		outer(depth - 1)
	} else {
		C.enter()
	}
	calls++
}

func main() {
	seconds, _ := strconv.ParseFloat(os.Args[1], 64)
	for start := time.Now(); time.Since(start).Seconds() < seconds; {
		outer(3)
	}
}
