package wire_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/wire"
)

// cut feeds parts to an Events and returns the events and the rest.
func cut(t *testing.T, parts ...string) (events []string, rest string) {
	t.Helper()
	var e wire.Events
	for _, part := range parts {
		if err := e.Feed([]byte(part)); err != nil {
			t.Fatal(err)
		}
		for {
			event, ok := e.Next()
			if !ok {
				break
			}
			events = append(events, string(event))
		}
	}
	return events, string(e.Rest())
}

// data returns the data of the events.
func data(events []string) (out []string) {
	for _, event := range events {
		if d := wire.EventData([]byte(event)); d != nil {
			out = append(out, string(d))
		}
	}
	return out
}

// browser reads a stream as the HTML standard specifies, line by line; slow and simple.
func browser(stream string) (out []string) {
	stream = strings.TrimPrefix(stream, "\ufeff")
	stream = strings.ReplaceAll(strings.ReplaceAll(stream, "\r\n", "\n"), "\r", "\n")
	lines := strings.Split(stream, "\n")
	var values []string
	for _, line := range lines[:len(lines)-1] {
		name, value, _ := strings.Cut(line, ":")
		switch {
		case line == "" && values != nil:
			out = append(out, strings.Join(values, "\n"))
			values = nil
		case name == "data":
			values = append(values, strings.TrimPrefix(value, " "))
		}
	}
	return out
}

// streams are streams as vendors send them, and malformed ones.
var streams = map[string]string{
	"OpenAI": "data: {\"id\":\"1\",\"choices\":[{\"delta\":{\"content\":\"Grüße 日本 🙂\"}}]}\n\ndata: {\"choices\":[],\"usage\":{}}\n\ndata: [DONE]\n\n",
	"Responses": "event: response.created\ndata: {\"type\":\"response.created\"}\n\n" +
		"event: response.completed\ndata: {\"type\":\"response.completed\"}\n\n",
	"OpenRouter":    ": OPENROUTER PROCESSING\n\n: OPENROUTER PROCESSING\n\ndata: {}\n\ndata: [DONE]\n\n",
	"CRLF":          "data: a\r\n\r\nevent: x\r\ndata: b\r\nid: 7\r\n\r\n",
	"CR":            "data: a\r\rdata: b\rdata: c\r\r",
	"mixed ends":    "data: a\r\n\rdata: b\n\r\ndata: c\r\n\n\n\r\r\n",
	"several lines": "data: a\ndata:\ndata\ndata:  b\n\n",
	"mark at front": "\ufeffdata: a\n\n",
	"no data":       "event: ping\n\nretry: 10\n\n: only\n\n\n\n",
	"look-alikes":   "database: x\nDATA: y\n data: z\ndata x\ndata: real\n\n",
	"unfinished":    "data: a\n\ndata: b\nda",
	"never any":     "",
}

// TestStreamsAtEveryBoundary: wherever the network splits a stream, its events have the data that a
// browser reads, and no byte is lost.
func TestStreamsAtEveryBoundary(t *testing.T) {
	for name, stream := range streams {
		want := browser(stream)
		check := func(parts ...string) {
			t.Helper()
			events, rest := cut(t, parts...)
			if got := data(events); !slices.Equal(got, want) {
				t.Errorf("%s as %q: %q, want %q", name, parts, got, want)
			}
			if got := strings.Join(events, "") + rest; got != stream {
				t.Errorf("%s as %q: the bytes are now %q", name, parts, got)
			}
		}
		for i := range len(stream) + 1 {
			check(stream[:i], stream[i:])
			check(stream[:i], "", stream[i:])
			for j := i; j <= len(stream); j += 7 {
				check(stream[:i], stream[i:j], stream[j:])
			}
		}
		check(strings.Split(stream, "")...)
		bytewise := make([]string, len(stream))
		for i := range len(stream) {
			bytewise[i] = stream[i : i+1]
		}
		check(bytewise...)
	}
}

// TestEventBytesAreLeftAlone: reading an event's data does not change it, and slices do not extend
// into the next event.
func TestEventBytesAreLeftAlone(t *testing.T) {
	var e wire.Events
	if err := e.Feed([]byte("data: a\ndata: b\n\ndata: c\n\n")); err != nil {
		t.Fatal(err)
	}
	first, _ := e.Next()
	before := bytes.Clone(first)
	joined := wire.EventData(first)
	_ = append(first, "overwritten"...)
	second, _ := e.Next()
	if !bytes.Equal(first, before) || string(joined) != "a\nb" || string(second) != "data: c\n\n" {
		t.Errorf("first %q, its data %q, second %q", first, joined, second)
	}
}

// TestRestIsEmptyBetweenEvents: an event of ours may be inserted exactly where an event of the
// stream has ended.
func TestRestIsEmptyBetweenEvents(t *testing.T) {
	stream := "data: a\n\n: note\ndata: b\r\n\r\n"
	var e wire.Events
	if len(e.Rest()) > 0 {
		t.Error("before the first byte: no boundary")
	}
	boundaries := map[int]bool{9: true, 16: true, len(stream): true, len(stream) - 1: true}
	for i := range len(stream) {
		if err := e.Feed([]byte{stream[i]}); err != nil {
			t.Fatal(err)
		}
		for _, more := e.Next(); more; _, more = e.Next() {
		}
		if got := len(e.Rest()) == 0; got != boundaries[i+1] {
			t.Errorf("after %q: boundary %t, want %t", stream[:i+1], got, boundaries[i+1])
		}
	}
}

// TestTextOfAStream: the text of all chunks together is that of the answer, however it is split.
func TestTextOfAStream(t *testing.T) {
	words := []string{"Grüße", " aus ", "\"日本\"", "\n🙂"}
	var stream strings.Builder
	for _, w := range words {
		stream.WriteString(`data: {"choices":[{"delta":{"content":`)
		stream.Write(wire.AppendQuoted(nil, w))
		stream.WriteString("}}]}\r\n\r\n")
	}
	for i := range stream.Len() {
		events, _ := cut(t, stream.String()[:i], stream.String()[i:])
		var text []byte
		for _, d := range data(events) {
			chunk, err := wire.ScanChunk([]byte(d), text)
			if err != nil {
				t.Fatal(err)
			}
			text = chunk.Text
		}
		if want := strings.Join(words, ""); string(text) != want {
			t.Fatalf("cut at %d: %q, want %q", i, text, want)
		}
	}
}
