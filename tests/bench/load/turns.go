package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// Turn is what `turns` prints for each line it reads. Times in seconds.
type Turn struct {
	Failed  int       `json:"failed"`
	Seconds float64   `json:"seconds"`
	Times   []float64 `json:"times"` // of each request; from the moment it was due, where there is a rate
}

// turns keeps its connections to several targets open and asks where it is told: a line "target count rate" on its
// input, the first a number from 0, is answered by a Turn. Rate 0: each connection as fast as it is answered.
func turns(arguments []string) {
	var p plan
	var targets string
	flags := flag.NewFlagSet("turns", flag.ExitOnError)
	flags.StringVar(&targets, "targets", "", "host:port, separated by ,")
	p.defined(flags)
	must(flags.Parse(arguments))
	p.prefix = fmt.Sprint(p.prefix, time.Now().UnixNano(), "-") // a request id counts once, whoever asked before
	open := connectionsTo(targets, p.connections)
	encoder, lines := json.NewEncoder(os.Stdout), bufio.NewScanner(os.Stdin)
	var numbers counter
	for lines.Scan() {
		var target, count int
		var rate float64
		_, err := fmt.Sscan(lines.Text(), &target, &count, &rate)
		must(err)
		must(encoder.Encode(p.turn(open[target], &numbers, count, rate)))
	}
	must(lines.Err())
}

func (p plan) turn(connections []*connection, numbers *counter, count int, rate float64) Turn {
	due, started := make(chan time.Duration, count), time.Now()
	var group sync.WaitGroup
	found := make([]Turn, len(connections))
	for n, at := range connections {
		group.Add(1)
		go func() {
			defer group.Done()
			for when := range due {
				if rate == 0 {
					when = time.Since(started)
				}
				status := at.ask(p.request(numbers.next()))
				found[n].Times = append(found[n].Times, (time.Since(started) - when).Seconds())
				if status == 0 || status >= 500 {
					found[n].Failed++
				}
			}
		}()
	}
	for number := range count {
		when := time.Duration(0)
		if rate > 0 {
			when = time.Duration(float64(number) / rate * float64(time.Second))
			time.Sleep(when - time.Since(started))
		}
		due <- when
	}
	close(due)
	group.Wait()
	all := Turn{Seconds: time.Since(started).Seconds(), Times: []float64{}}
	for _, each := range found {
		all.Failed += each.Failed
		all.Times = append(all.Times, each.Times...)
	}
	return all
}

func connectionsTo(targets string, each int) [][]*connection {
	var all [][]*connection
	for _, target := range strings.Split(targets, ",") {
		var to []*connection
		for range each {
			to = append(to, &connection{target: target})
		}
		all = append(all, to)
	}
	return all
}
