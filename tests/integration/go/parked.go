// Threads that have had work, and wait for more: each returns from a long system call when no processor is free.
package main

import (
	"fmt"
	_ "net" // links C code, where there is a C compiler
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"
)

func main() {
	seconds, _ := strconv.ParseFloat(os.Args[1], 64)
	var all sync.WaitGroup
	for i := 0; i < 12; i++ {
		all.Add(1)
		go func() {
			call := syscall.NsecToTimespec(200_000_000)
			syscall.Nanosleep(&call, nil)
			all.Done()
		}()
	}
	all.Wait()
	fmt.Println("parked")
	time.Sleep(time.Duration(seconds * float64(time.Second)))
}
