package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// outcome of one request. Latency counts from the moment it was due, so that waiting for a connection is not hidden;
// or, when asked for, from the moment it was sent.
type outcome struct {
	status  int // 0: no answer
	latency time.Duration
}

// Result is what the client prints. Times in seconds.
type Result struct {
	Sent     int            `json:"sent"`
	Statuses map[string]int `json:"statuses"`
	Failed   int            `json:"failed"`
	Seconds  float64        `json:"seconds"`
	P50      float64        `json:"p50"`
	P99      float64        `json:"p99"`
	Longest  float64        `json:"longest"`
	Behind   float64        `json:"behind"` // how late the last request was sent
	CPU      float64        `json:"cpu"`    // seconds that sending took, all threads
}

type plan struct {
	target, path, prefix, headers, stream string
	size, connections                     int
	rate                                  float64
	duration                              time.Duration
	fromSent                              bool
}

func client(arguments []string) {
	var p plan
	flags := flag.NewFlagSet("client", flag.ExitOnError)
	flags.StringVar(&p.target, "target", "", "host:port")
	p.defined(flags)
	flags.Float64Var(&p.rate, "rate", 0, "requests per second; 0: each connection as fast as it is answered")
	flags.BoolVar(&p.fromSent, "from-sent", false, "latency from the moment of sending, not from when it was due")
	flags.DurationVar(&p.duration, "for", time.Second, "how long to send")
	must(flags.Parse(arguments))
	result := p.run()
	var used syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	result.CPU = time.Duration(used.Utime.Nano() + used.Stime.Nano()).Seconds()
	must(json.NewEncoder(os.Stdout).Encode(result))
}

// defined adds the options of what a request is like, and of how many there are at a time.
func (p *plan) defined(flags *flag.FlagSet) {
	flags.StringVar(&p.path, "path", "/v1/chat/completions", "path of every request")
	flags.StringVar(&p.prefix, "prefix", "r", "beginning of every request's id and model")
	flags.StringVar(&p.headers, "headers", "", "more header lines, separated by |; # stands for the request's number")
	flags.StringVar(&p.stream, "stream", "true", "the body's stream field")
	flags.IntVar(&p.size, "size", 2048, "bytes of a body")
	flags.IntVar(&p.connections, "connections", 64, "requests in flight at most")
}

func (p plan) run() Result {
	started := time.Now()
	due := make(chan time.Duration)
	var group sync.WaitGroup
	found := make([][]outcome, p.connections)
	behind := make([]time.Duration, p.connections)
	var numbers counter
	for n := range p.connections {
		group.Add(1)
		go func() {
			defer group.Done()
			at := &connection{target: p.target}
			for when := range due {
				if p.rate == 0 {
					when = time.Since(started)
				}
				behind[n] = time.Since(started) - when
				if p.fromSent {
					when = time.Since(started)
				}
				status := at.ask(p.request(numbers.next()))
				found[n] = append(found[n], outcome{status, time.Since(started) - when})
			}
			at.close()
		}()
	}
	for count := 0; ; count++ {
		when := time.Duration(0)
		if p.rate > 0 {
			when = time.Duration(float64(count) / p.rate * float64(time.Second))
			time.Sleep(when - time.Since(started))
		}
		if max(when, time.Since(started)) >= p.duration {
			break
		}
		due <- when
	}
	close(due)
	group.Wait()
	return summary(slices.Concat(found...), time.Since(started), slices.Max(behind))
}

func (p plan) request(number int) []byte {
	front := fmt.Sprintf(`{"model":"%s%d","stream":%s,"messages":[{"role":"user","content":"`, p.prefix, number, p.stream)
	body := front + strings.Repeat("a", max(0, p.size-len(front)-4)) + `"}]}`
	var raw bytes.Buffer
	fmt.Fprintf(&raw, "POST %s HTTP/1.1\r\nhost: chat.test\r\ncontent-type: application/json\r\nx-request-id: %s%d\r\n", p.path, p.prefix, number)
	if p.headers != "" {
		lines := strings.ReplaceAll(p.headers, "|", "\r\n")
		raw.WriteString(strings.ReplaceAll(lines, "#", fmt.Sprint(number)) + "\r\n")
	}
	fmt.Fprintf(&raw, "content-length: %d\r\n\r\n%s", len(body), body)
	return raw.Bytes()
}

func summary(found []outcome, took, behind time.Duration) Result {
	result := Result{Sent: len(found), Statuses: map[string]int{}, Seconds: took.Seconds(), Behind: behind.Seconds()}
	var times []time.Duration
	for _, each := range found {
		result.Statuses[fmt.Sprint(each.status)]++
		if each.status == 0 || each.status >= 500 {
			result.Failed++
		}
		times = append(times, each.latency)
	}
	if len(times) > 0 {
		slices.Sort(times)
		result.P50 = times[len(times)/2].Seconds()
		result.P99 = times[len(times)*99/100].Seconds()
		result.Longest = times[len(times)-1].Seconds()
	}
	return result
}

type counter struct {
	sync.Mutex
	last int
}

func (c *counter) next() int {
	c.Lock()
	defer c.Unlock()
	c.last++
	return c.last
}

// connection is kept alive; it is made anew after a failure, which is then one failed request.
type connection struct {
	target string
	open   net.Conn
	reader *bufio.Reader
}

func (c *connection) ask(request []byte) int {
	if c.open == nil {
		open, err := net.DialTimeout("tcp", c.target, 10*time.Second)
		if err != nil {
			return 0
		}
		c.open, c.reader = open, bufio.NewReaderSize(open, 64<<10)
	}
	must(c.open.SetDeadline(time.Now().Add(20 * time.Second)))
	if _, err := c.open.Write(request); err != nil {
		c.close()
		return 0
	}
	answer, err := readMessage(c.reader)
	if err != nil {
		c.close()
		return 0
	}
	if answer.closes {
		c.close()
	}
	return statusOf(answer.start)
}

func (c *connection) close() {
	if c.open != nil {
		c.open.Close()
		c.open = nil
	}
}

func statusOf(line []byte) int {
	var status int
	if _, err := fmt.Sscanf(string(line), "HTTP/1.1 %d", &status); err != nil {
		return 0
	}
	return status
}
