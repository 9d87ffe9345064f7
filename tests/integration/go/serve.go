// A server of HTTP and its clients, which load it for some seconds.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sort"
	"strconv"
	"sync/atomic"
	"time"
)

func answer(w http.ResponseWriter, r *http.Request) {
	squares := map[string]int{}
	for i := 0; i < 60; i++ {
		squares[fmt.Sprintf("key%d", i)] = i * i
	}
	keys := []string{}
	for key := range squares {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	json.NewEncoder(w).Encode(map[string]interface{}{"keys": keys, "squares": squares})
}

func main() {
	seconds, _ := strconv.ParseFloat(os.Args[1], 64)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go http.Serve(listener, http.HandlerFunc(answer))
	var answers int64
	for i := 0; i < 8; i++ {
		go func() {
			for {
				response, err := http.Get("http://" + listener.Addr().String() + "/")
				if err != nil {
					continue
				}
				io.Copy(io.Discard, response.Body)
				response.Body.Close()
				atomic.AddInt64(&answers, 1)
			}
		}()
	}
	time.Sleep(time.Duration(seconds * float64(time.Second)))
	fmt.Println(atomic.LoadInt64(&answers), "answers")
}
