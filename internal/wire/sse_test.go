package wire

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// cutStream feeds the stream in pieces of the given sizes (the last one repeats) and returns the
// result.
func cutStream(t testing.TB, stream string, sizes ...int) (events []string, rest string) {
	t.Helper()
	var e Events
	for i := 0; len(stream) > 0; i++ {
		n := min(sizes[min(i, len(sizes)-1)], len(stream))
		if err := e.Feed([]byte(stream[:n])); err != nil {
			t.Fatal(err)
		}
		stream = stream[n:]
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

// payloads returns the data of all events.
func payloads(events []string, rest string) (list []string) {
	for _, event := range append(events, rest) {
		raw := []byte(event)
		if data := EventData(raw); data != nil {
			list = append(list, string(data))
		}
		if string(raw) != event {
			panic("EventData wrote into the event")
		}
	}
	return list
}

func TestEvents(t *testing.T) {
	for _, c := range []struct {
		stream string
		events []string
		rest   string
		data   []string
	}{
		{"data: a\n\ndata: b\n\n", []string{"data: a\n\n", "data: b\n\n"}, "", []string{"a", "b"}},
		{"data: a\r\n\r\ndata:b\r\n\r\n", []string{"data: a\r\n\r\n", "data:b\r\n\r\n"}, "", []string{"a", "b"}},
		{"data: a\r\rdata: b\r\r", []string{"data: a\r\r", "data: b\r\r"}, "", []string{"a", "b"}},
		{"data: a\r\n\rdata: b\n\r\n", []string{"data: a\r\n\r", "data: b\n\r\n"}, "", []string{"a", "b"}},
		{"data: a\n\ndata: b", []string{"data: a\n\n"}, "data: b", []string{"a", "b"}},
		{"data: a\n\ndata: b\n", []string{"data: a\n\n"}, "data: b\n", []string{"a", "b"}},
		{": ping\n\n\ndata: a\n\n", []string{": ping\n", "\n", "\n", "data: a\n\n"}, "", []string{"a"}},
		{"\n\n", []string{"\n", "\n"}, "", nil},
		{"id: 1\nevent: x\nretry: 5\n: c\ndata: a\n\n", []string{"id: 1\nevent: x\nretry: 5\n: c\ndata: a\n\n"}, "", []string{"a"}},
		{"data: a\ndata\ndata: \ndata:  b\n\n", []string{"data: a\ndata\ndata: \ndata:  b\n\n"}, "", []string{"a\n\n\n b"}},
		{"data:\n\n", []string{"data:\n\n"}, "", []string{""}},
		{"database: x\n\n", []string{"database: x\n\n"}, "", nil},
		{"\xEF\xBB\xBFdata: a\n\n", []string{"\xEF\xBB\xBFdata: a\n\n"}, "", []string{"a"}},
		{"data: [DONE]\n\n", []string{"data: [DONE]\n\n"}, "", []string{"[DONE]"}},
	} {
		events, rest := cutStream(t, c.stream, len(c.stream))
		if fmt.Sprintf("%q", events) != fmt.Sprintf("%q", c.events) || rest != c.rest {
			t.Errorf("%q: %q and %q, want %q and %q", c.stream, events, rest, c.events, c.rest)
		}
		if got := payloads(events, rest); fmt.Sprintf("%q", got) != fmt.Sprintf("%q", c.data) {
			t.Errorf("%q: data %q, want %q", c.stream, got, c.data)
		}
		for size := 1; size < len(c.stream); size++ {
			checkCut(t, c.stream, size)
		}
	}
}

// checkCut checks that a stream is read the same however it is split.
func checkCut(t testing.TB, stream string, sizes ...int) {
	t.Helper()
	whole, wholeRest := cutStream(t, stream, max(len(stream), 1))
	events, rest := cutStream(t, stream, sizes...)
	if got := strings.Join(events, "") + rest; got != stream {
		t.Errorf("%q cut at %v came out as %q", stream, sizes, got)
	}
	want, got := payloads(whole, wholeRest), payloads(events, rest)
	if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		t.Errorf("%q cut at %v: data %q, want %q", stream, sizes, got, want)
	}
}

func TestEventsKeepAliveIsNotHeldBack(t *testing.T) {
	var e Events
	for _, alive := range []string{": OPENROUTER PROCESSING\n", "\n", "\r", "\n"} {
		if err := e.Feed([]byte(alive)); err != nil {
			t.Fatal(err)
		}
		if event, ok := e.Next(); !ok || string(event) != alive {
			t.Errorf("%q came out as %q, %v", alive, event, ok)
		}
	}
}

func TestEventsTooLarge(t *testing.T) {
	var e Events
	piece := bytes.Repeat([]byte("x"), 1<<20)
	fed := 0
	var err error
	for err == nil && fed < 2*MaxAnswer {
		if err = e.Feed(piece); err == nil {
			fed += len(piece)
			if _, ok := e.Next(); ok {
				t.Fatal("an event out of nothing")
			}
		}
	}
	if !errors.Is(err, ErrEventTooLarge) || fed < MaxAnswer || fed > MaxAnswer+2<<20 {
		t.Errorf("after %d bytes: %v", fed, err)
	}
	if len(e.Rest()) != fed {
		t.Errorf("rest of %d bytes, fed %d", len(e.Rest()), fed)
	}
}

func TestEventsLargeEventPasses(t *testing.T) {
	stream := "data: " + strings.Repeat("x", 10<<20) + "\n\ndata: y\n\n"
	events, rest := cutStream(t, stream, 1000)
	if len(events) != 2 || rest != "" || len(EventData([]byte(events[0]))) != 10<<20 {
		t.Errorf("%d events, rest of %d bytes", len(events), len(rest))
	}
}

// TestEventsStayLinear would run for minutes if any line were searched more than once.
func TestEventsStayLinear(t *testing.T) {
	for _, stream := range []string{
		strings.Repeat("\r", 4<<20),
		strings.Repeat("a\r", 4<<20),
		strings.Repeat("\n", 4<<20),
		strings.Repeat("\r\n", 2<<20),
		strings.Repeat("data:\r", 1<<20),
	} {
		events, rest := cutStream(t, stream, len(stream))
		EventData([]byte(stream))
		if n := len(strings.Join(events, "")) + len(rest); n != len(stream) {
			t.Errorf("%q...: %d of %d bytes came out", stream[:6], n, len(stream))
		}
	}
}

func FuzzEvents(f *testing.F) {
	f.Add("data: a\r\n\r\n: c\n\ndata: b\ndata: c\r\rdata", uint8(3), uint8(1))
	f.Add("\r\n\r\n\r\r\n\n", uint8(1), uint8(2))
	f.Fuzz(func(t *testing.T, stream string, a, b uint8) {
		checkCut(t, stream, int(a)+1, int(b)+1)
		checkCut(t, stream, 1)
	})
}
