// Work of many kinds for a judge to step through: goroutines that come, wait and go, stacks that grow and move, channels,
// maps, deferred calls, panics, reflection, the collector, timers.
package main

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"sort"
	"strings"
	"sync"
	"time"
)

type shape interface{ area(depth int) float64 }
type square struct{ side float64 }
type disc struct{ radius float64 }

func (s square) area(depth int) float64 {
	if depth > 0 {
		return s.area(depth-1) + s.side
	}
	return s.side * s.side
}
func (d *disc) area(depth int) float64 { return d.radius * d.radius * 3.14 }

//go:noinline
func deep(n int, more func(int) int) int {
	var room [96]int
	room[n%96] = n
	if n == 0 {
		return more(room[0])
	}
	return deep(n-1, more) + room[(n+1)%96]
}

//go:noinline
func large(n int) byte {
	var room [20000]byte
	for i := range room {
		room[i] = byte(i * n)
	}
	return room[n%len(room)] + room[77]
}

func recovered(n int) (result error) {
	defer func() {
		if what := recover(); what != nil {
			result = fmt.Errorf("recovered: %v", what)
		}
	}()
	defer func() { n++ }()
	var nothing *disc
	if n%2 == 0 {
		return errors.New(fmt.Sprint(nothing.radius))
	}
	panic(n)
}

func text(n int) string {
	words := strings.Fields(strings.Repeat(fmt.Sprintf("%d %x %q ", n, n*n, "word"), 8))
	sort.Strings(words)
	return strings.Join(words, ",")
}

func reflected(n int) int {
	f := reflect.ValueOf(func(a int, b string) int { return a + len(b) })
	return int(f.Call([]reflect.Value{reflect.ValueOf(n), reflect.ValueOf("text")})[0].Int())
}

func maps(n int) int {
	m := map[string]int{}
	for i := 0; i < 50; i++ {
		m[fmt.Sprint(i*n)] += i
	}
	total := 0
	for _, v := range m {
		total += v
	}
	return total
}

func main() {
	fmt.Println("READY")
	var lock sync.Mutex
	total := 0
	for n := 1; ; n++ {
		results := make(chan int)
		var all sync.WaitGroup
		for i := 0; i < 4; i++ {
			all.Add(1)
			go func(i int) {
				defer all.Done()
				v := deep(20*i+n%7, func(x int) int { return x + maps(n) })
				lock.Lock()
				total += v
				lock.Unlock()
				select {
				case results <- reflected(i):
				case <-time.After(time.Second):
				}
			}(i)
		}
		go func() { all.Wait(); close(results) }()
		for v := range results {
			total += v
		}
		for _, s := range []shape{square{float64(n)}, &disc{float64(n)}} {
			total += int(s.area(n % 5))
		}
		if err := recovered(n); err != nil {
			total += len(err.Error())
		}
		total += len(text(n)) + int(large(n))
		if n%10 == 0 {
			runtime.GC()
		}
		if n%3 == 0 {
			time.Sleep(time.Microsecond)
		}
		if total == -1 {
			os.Exit(1)
		}
	}
}
