// A few milliseconds of the collector and the allocator, which work on the system stack.
package main

import (
	"fmt"
	"runtime"
)

func main() {
	kept := map[int][]byte{}
	for i := 0; i < 4000; i++ {
		kept[i%500] = make([]byte, 1000+i%3000)
	}
	runtime.GC()
	fmt.Println(len(kept))
}
