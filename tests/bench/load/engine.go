package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"strconv"
	"sync"
	"time"
)

const streamHead = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"

const (
	roleEvent   = `{"id":"chatcmpl-7c1f0b","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}`
	tokenEvent  = `{"id":"chatcmpl-7c1f0b","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[{"index":0,"delta":{"content":" token"},"finish_reason":null}]}`
	finishEvent = `{"id":"chatcmpl-7c1f0b","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	usageEvent  = `{"id":"chatcmpl-7c1f0b","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[],"usage":{"prompt_tokens":100,"completion_tokens":%d,"total_tokens":%d}}`
)

// shape says what every answer looks like. Streams have `chunks` content events, `together` of them in one write.
type shape struct {
	first, gap       time.Duration
	chunks, together int
	status           int
	plain            []byte
}

// stamps are the engine's own times to first token in seconds, by the model asked for.
type stamps struct {
	sync.Mutex
	keep bool
	by   map[string]float64
}

func (s *stamps) note(model []byte, took time.Duration) {
	if s.keep {
		s.Lock()
		s.by[string(model)] = took.Seconds()
		s.Unlock()
	}
}

func (s *stamps) taken() []byte {
	s.Lock()
	defer s.Unlock()
	encoded, err := json.Marshal(s.by)
	if err != nil {
		log.Fatal(err)
	}
	s.by = map[string]float64{}
	return encoded
}

func engine(arguments []string) {
	flags := flag.NewFlagSet("engine", flag.ExitOnError)
	listen := flags.String("listen", "127.0.0.1:0", "address")
	first := flags.Duration("first", 20*time.Millisecond, "time to the first content")
	gap := flags.Duration("gap", 0, "time between writes with content")
	chunks := flags.Int("chunks", 50, "content events of a stream")
	together := flags.Int("together", 1, "content events in one write")
	status := flags.Int("status", 200, "status of answers that are not streamed")
	size := flags.Int("answer", 400, "bytes of answers that are not streamed")
	keep := flags.Bool("stamps", false, "keep the time to first content of every stream, by its model; GET takes them")
	must(flags.Parse(arguments))
	listener, err := net.Listen("tcp", *listen)
	must(err)
	answers := shape{*first, *gap, *chunks, *together, *status, plainAnswer(*size)}
	kept := &stamps{keep: *keep, by: map[string]float64{}}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	for {
		connection, err := listener.Accept()
		must(err)
		go serve(connection, answers, kept)
	}
}

func plainAnswer(size int) []byte {
	if size == 0 {
		return nil
	}
	frame := `{"choices":[{"index":0,"message":{"role":"assistant","content":"%s"},"finish_reason":"stop"}],"usage":{"prompt_tokens":100,"completion_tokens":20}}`
	return []byte(fmt.Sprintf(frame, bytes.Repeat([]byte("x"), max(1, size-len(frame)+2))))
}

func serve(connection net.Conn, answers shape, kept *stamps) {
	defer connection.Close()
	reader := bufio.NewReaderSize(connection, 64<<10)
	for {
		request, err := readMessage(reader)
		if err != nil {
			return // the other side is done, or gone
		}
		at := time.Now()
		switch {
		case bytes.HasPrefix(request.start, []byte("GET ")):
			err = writePlain(connection, 200, kept.taken())
		case bytes.Contains(request.body, []byte(`"stream":true`)):
			err = writeStream(connection, answers, kept, modelOf(request.body), at)
		default:
			time.Sleep(time.Until(at.Add(answers.first)))
			err = writePlain(connection, answers.status, answers.plain)
		}
		if err != nil || request.closes {
			return
		}
	}
}

func writePlain(to io.Writer, status int, body []byte) error {
	head := fmt.Sprintf("HTTP/1.1 %d Answer\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n", status, len(body))
	_, err := to.Write(append([]byte(head), body...))
	return err
}

func writeStream(to io.Writer, answers shape, kept *stamps, model []byte, at time.Time) error {
	if _, err := io.WriteString(to, streamHead+chunked(event(roleEvent))); err != nil {
		return err
	}
	token := chunked(event(tokenEvent))
	for written, turn := 0, 0; written < answers.chunks; turn++ {
		time.Sleep(time.Until(at.Add(answers.first + time.Duration(turn)*answers.gap)))
		count := min(answers.together, answers.chunks-written)
		if written == 0 {
			kept.note(model, time.Since(at))
		}
		if _, err := to.Write(bytes.Repeat([]byte(token), count)); err != nil {
			return err
		}
		written += count
	}
	usage := fmt.Sprintf(usageEvent, answers.chunks, 100+answers.chunks)
	_, err := io.WriteString(to, chunked(event(finishEvent)+event(usage)+"data: [DONE]\n\n")+"0\r\n\r\n")
	return err
}

func event(payload string) string   { return "data: " + payload + "\n\n" }
func chunked(payload string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(payload), payload) }

// modelOf finds the model in a body of our own client's making.
func modelOf(body []byte) []byte {
	mark := []byte(`"model":"`)
	from := bytes.Index(body, mark)
	if from < 0 {
		return nil
	}
	rest := body[from+len(mark):]
	return bytes.Clone(rest[:max(0, bytes.IndexByte(rest, '"'))])
}

// message is one request or answer; `start` its first line.
type message struct {
	start, body []byte
	closes      bool
}

func readMessage(reader *bufio.Reader) (message, error) {
	got, length, pieces := message{}, 0, false
	line, err := readLine(reader)
	if err != nil {
		return got, err
	}
	got.start = bytes.Clone(line)
	for {
		if line, err = readLine(reader); err != nil {
			return got, err
		}
		if len(line) == 0 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimSpace(value)
		switch {
		case bytes.EqualFold(name, []byte("content-length")):
			if length, err = strconv.Atoi(string(value)); err != nil {
				return got, err
			}
		case bytes.EqualFold(name, []byte("transfer-encoding")):
			pieces = true
		case bytes.EqualFold(name, []byte("connection")):
			got.closes = bytes.EqualFold(value, []byte("close"))
		}
	}
	if pieces {
		got.body, err = readPieces(reader)
	} else if length > 0 {
		got.body = make([]byte, length)
		_, err = io.ReadFull(reader, got.body)
	}
	return got, err
}

func readPieces(reader *bufio.Reader) ([]byte, error) {
	var body []byte
	for {
		line, err := readLine(reader)
		if err != nil {
			return nil, err
		}
		size, err := strconv.ParseInt(string(line), 16, 64)
		if err != nil {
			return nil, err
		}
		piece := make([]byte, size+2)
		if _, err := io.ReadFull(reader, piece); err != nil {
			return nil, err
		}
		if size == 0 {
			return body, nil
		}
		body = append(body, piece[:size]...)
	}
}

func readLine(reader *bufio.Reader) ([]byte, error) {
	line, err := reader.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return nil, errors.New("a line is too long")
	}
	return bytes.TrimRight(line, "\r\n"), err
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
