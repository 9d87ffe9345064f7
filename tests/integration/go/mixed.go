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

// On each new goroutine's stack, which is too small for it: that is moved while C is below.
//
//go:noinline
func grow(depth int) byte {
	var room [1024]byte
	if depth > 0 {
		room[depth] = grow(depth - 1)
	}
	return room[depth]
}

//export mixedBack
func mixedBack() {
	grow(64)
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
		done := make(chan bool)
		go func() {
			outer(3)
			done <- true
		}()
		<-done
	}
}
