// Opens a plugin and calls it: for as many seconds as the second argument says.
package main

import (
	"os"
	"plugin"
	"strconv"
	"time"
)

func main() {
	opened, err := plugin.Open(os.Args[1])
	if err != nil {
		panic(err)
	}
	enter, err := opened.Lookup("Enter")
	if err != nil {
		panic(err)
	}
	seconds, _ := strconv.ParseFloat(os.Args[2], 64)
	for start := time.Now(); time.Since(start).Seconds() < seconds; {
		enter.(func())()
	}
}
