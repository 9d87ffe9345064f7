// Goroutines with labels. Each of two spins so many ms of CPU time with route=/a, in that twice as long with route=/b
// and user=GOROUTINE, and as long as the first without labels. Each prints its CPU times: VALUE NS.
package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"strconv"
	"sync"
	"syscall"
	"unsafe"
)

func cpu() int64 {
	const threadClock = 3
	var now syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, threadClock, uintptr(unsafe.Pointer(&now)), 0)
	return now.Nano()
}

//go:noinline
func spin(ns int64) int64 {
	begin := cpu()
	for cpu() < begin+ns {
	}
	return cpu() - begin
}

func run(user string, ns int64) {
	runtime.LockOSThread() // the clock is the thread's
	pprof.Do(context.Background(), pprof.Labels("route", "/a"), func(a context.Context) {
		inA := spin(ns / 2)
		pprof.Do(a, pprof.Labels("user", user, "route", "/b"), func(context.Context) {
			inB := spin(2 * ns)
			fmt.Println("/b", inB)
			fmt.Println(user, inB)
		})
		inA += spin(ns / 2)
		fmt.Println("/a", inA)
	})
	fmt.Println("-", spin(ns))
}

func main() {
	ms, _ := strconv.ParseInt(os.Args[1], 10, 64)
	var all sync.WaitGroup
	for _, user := range []string{"ann", "bob"} {
		all.Add(1)
		go func(user string) {
			run(user, ms*1000000)
			all.Done()
		}(user)
	}
	all.Wait()
}
