package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/llmguard/llmguard/internal/auth"
	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/spool"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/queue"
)

// client is the other end of a WebSocket.
type client struct {
	t     *testing.T
	conn  *websocket.Conn
	pings atomic.Int64
}

// dial opens a WebSocket with alice's key; header lists names and values.
func (r *rig) dial(header ...string) (*client, *http.Response) {
	r.t.Helper()
	h := http.Header{"Authorization": {"Bearer " + r.key}, "Openai-Beta": {"responses_websockets=2026-02-06"}}
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	c := &client{t: r.t}
	ctx, cancel := context.WithTimeout(r.t.Context(), redistest.Bound)
	defer cancel()
	conn, resp, err := websocket.Dial(ctx, r.http.URL+"/v1/responses", &websocket.DialOptions{
		HTTPHeader: h, OnPingReceived: func(context.Context, []byte) bool { c.pings.Add(1); return true },
	})
	if err != nil {
		return nil, resp
	}
	conn.SetReadLimit(-1)
	c.conn = conn
	r.t.Cleanup(func() { _ = conn.CloseNow() })
	return c, resp
}

func (r *rig) socket(header ...string) *client {
	r.t.Helper()
	c, resp := r.dial(header...)
	if c == nil {
		r.t.Fatalf("the handshake was answered with %v, want 101", resp)
	}
	return c
}

// socketEvent is what a test reads of an event.
type socketEvent struct {
	Type     string
	Status   int
	Error    struct{ Code, Message, Type string }
	Headers  map[string]string
	Llmguard map[string]string
	Response struct {
		ID    string
		Usage struct {
			Output int `json:"output_tokens"`
		}
	}
}

func (c *client) send(text string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), redistest.Bound)
	defer cancel()
	if err := c.conn.Write(ctx, websocket.MessageText, []byte(text)); err != nil {
		c.t.Fatal(err)
	}
}

// next returns the next event, or the code with which the socket was closed.
func (c *client) next() (m socketEvent, closed websocket.StatusCode) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), redistest.Bound)
	defer cancel()
	_, text, err := c.conn.Read(ctx)
	if err != nil {
		return m, websocket.CloseStatus(err)
	}
	if err := json.Unmarshal(text, &m); err != nil {
		c.t.Fatalf("%v in %s", err, text)
	}
	return m, 0
}

// end reads to the last event of an answer.
func (c *client) end() socketEvent {
	c.t.Helper()
	for {
		m, closed := c.next()
		if closed != 0 || m.Type == "error" || m.Type == "response.completed" || m.Type == "response.incomplete" {
			if closed != 0 {
				c.t.Fatalf("the socket was closed with %d, want an answer", closed)
			}
			return m
		}
	}
}

// closes asserts that nothing but a close comes.
func (c *client) closes(want websocket.StatusCode) {
	c.t.Helper()
	if m, closed := c.next(); closed != want {
		c.t.Errorf("got %+v, closed with %d; want %d", m, closed, want)
	}
}

// create is a message that asks for a response.
func create(input, more string) string {
	return fmt.Sprintf(`{"type":"response.create","model":"gpt-4o","store":false,"max_output_tokens":20,"input":%s%s}`, input, more)
}

// bodies lets the provider answer normally, and returns the bodies that it got.
func (r *rig) bodies() func() []string {
	var mu sync.Mutex
	var list []string
	r.fake.Script(func(q *fakeprovider.Request) fakeprovider.Behaviour {
		mu.Lock()
		defer mu.Unlock()
		list = append(list, string(q.Body))
		if q.Header.Get("Openai-Beta") != "" {
			r.t.Errorf("the provider got the header %v of the handshake", q.Header)
		}
		return fakeprovider.Behaviour{Text: "fine"}
	})
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return list
	}
}

// inputOf returns the input in a body, without white space.
func inputOf(t *testing.T, body string) string {
	t.Helper()
	var q struct {
		Input    []map[string]any
		Stream   bool
		Previous string `json:"previous_response_id"`
	}
	if err := json.Unmarshal([]byte(body), &q); err != nil || !q.Stream || q.Previous != "" {
		t.Fatalf("%v: the provider got %s; want a stream with a list of items", err, body)
	}
	var out []string
	for _, item := range q.Input {
		if item["id"] != nil {
			t.Errorf("the provider got the id of an item: %v", item)
		}
		switch content := item["content"].(type) {
		case string:
			out = append(out, content)
		case []any:
			out = append(out, fmt.Sprint(content[0].(map[string]any)["text"]))
		}
	}
	return strings.Join(out, ", ")
}

// TestSocket: each message is a call, with its price and its record; a message continues the response before it on
// the same socket, and one without a response to generate costs nothing.
func TestSocket(t *testing.T) {
	r := newRig(t, queue.Pool{}, nil, window(roomy, time.Hour))
	bodies := r.bodies()
	c := r.socket("Prefer", "respond-async")
	c.send(create(`[{"role":"user","content":"one"}]`, `,"generate":false`))
	warm := c.end()
	if warm.Type != "response.completed" || warm.Response.ID == "" || len(bodies()) != 0 {
		t.Fatalf("got %+v and %d requests to the provider; want a response that was not generated", warm, len(bodies()))
	}
	c.send(create(`[]`, `,"previous_response_id":"`+warm.Response.ID+`"`))
	first := c.end()
	c.send(`{"type":"response.processed","response_id":"` + first.Response.ID + `"}`)
	c.send(create(`"two"`, `,"previous_response_id":"`+first.Response.ID+`"`))
	second := c.end()
	if first.Response.Usage.Output == 0 || second.Response.Usage.Output == 0 {
		t.Errorf("got %+v and %+v, want two answers with usage", first, second)
	}
	sent := bodies()
	if len(sent) != 2 {
		t.Fatalf("the provider got %q, want two requests", sent)
	}
	for i, want := range []string{"one", "one, fine, two"} {
		if got := inputOf(t, sent[i]); got != want {
			t.Errorf("request %d has the input %q, want %q", i, got, want)
		}
	}
	other := r.socket()
	other.send(create(`"three"`, `,"previous_response_id":"`+second.Response.ID+`"`))
	unknown := r.call("POST", "/v1/responses", `{"model":"gpt-4o","input":"x","previous_response_id":"`+second.Response.ID+`"}`)
	unknown.fails(t, 404, "previous_response_not_found")
	if m := other.end(); m.Status != unknown.status || m.Error.Code != "previous_response_not_found" {
		t.Errorf("got %+v for the response of another socket, want the error of HTTP", m)
	}
	other.send(create(`"four"`, ""))
	if m := other.end(); m.Type != "response.completed" {
		t.Errorf("got %+v after an error, want an answer", m)
	}
	_ = c.conn.Close(websocket.StatusNormalClosure, "")
	calls, opened := 0, 0
	costs := []string{first.Llmguard["X-Llmguard-Cost-Usd"], second.Llmguard["X-Llmguard-Cost-Usd"]}
	for _, m := range r.records(7) {
		if id := m["id"]; id == first.Llmguard["X-Llmguard-Call-Id"] || id == second.Llmguard["X-Llmguard-Call-Id"] {
			cost := pricing.Nano(m["cost_nano_usd"].(float64)).Decimal()
			costs = slices.DeleteFunc(costs, func(c string) bool { return c == cost })
		}
		switch {
		case m["route"] == "responses.socket" && m["status"] == 101.0:
			opened++
		case m["route"] == "responses" && m["outcome"] == "completed" && m["cost_nano_usd"].(float64) > 0:
			calls++
		}
	}
	if calls != 3 || opened != 1 {
		t.Errorf("%d calls and %d ended sockets are recorded, want 3 and 1", calls, opened)
	}
	if len(costs) > 0 || first.Llmguard["X-Request-Id"] == "" || warm.Llmguard["X-Llmguard-Cost-Usd"] != "" {
		t.Errorf("the last events report %v, %v and %v; want the costs of the records", warm.Llmguard, first.Llmguard, second.Llmguard)
	}
	r.until("all holds are settled", func() bool { return r.held() == 0 })
}

// TestSocketRefusals: each message is checked as a request is, and an error is an event with the status and headers
// of HTTP's. The socket stays open.
func TestSocketRefusals(t *testing.T) {
	r := newRig(t, queue.Pool{}, func(o *Options) { o.MaxBody = 10_000 }, window(250_000, time.Hour))
	r.org.OverLimit = "refuse"
	c := r.socket("Prefer", "respond-async", "Idempotency-Key", "same")
	for _, one := range []struct {
		name, text string
		status     int
		code       string
	}{
		{"no JSON", `{"type":`, 400, ""},
		{"another type", `{"type":"session.update"}`, 400, "invalid_value"},
		{"another model", strings.Replace(create(`"x"`, ""), "gpt-4o", "no-such-model", 1), 400, "model_not_priced"},
		{"an unknown item", create(`[{"type":"item_reference","id":"rs_1"}]`, ""), 404, "item_not_found"},
		{"a good one", create(`"x"`, ""), 0, ""},
		{"over the limit", create(`"x"`, ""), 429, "rate_limit_exceeded"},
	} {
		c.send(one.text)
		m := c.end()
		if m.Status != one.status || m.Error.Code != one.code || one.status != 0 && m.Error.Message == "" {
			t.Errorf("%s: got %+v, want status %d and code %q", one.name, m, one.status, one.code)
		}
		if one.status == 429 && m.Headers["Retry-After"] == "" {
			t.Errorf("%s: got the headers %v, want Retry-After", one.name, m.Headers)
		}
	}
	long := create(`"`+strings.Repeat("x", 10_000)+`"`, "")
	c.send(long)
	c.closes(websocket.StatusMessageTooBig)
	c = r.socket()
	if err := c.conn.Write(t.Context(), websocket.MessageBinary, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if m := c.end(); m.Status != 400 {
		t.Errorf("a binary message got %+v, want 400", m)
	}
}

// TestSocketKey: a key that is disabled while its socket is open makes no more calls.
func TestSocketKey(t *testing.T) {
	r := newRig(t, queue.Pool{}, nil)
	r.bodies()
	if _, resp := r.dial("Authorization", "Bearer "+r.key+"x"); resp == nil || resp.StatusCode != 401 {
		t.Errorf("a wrong key got %v, want 401", resp)
	}
	c := r.socket()
	c.send(create(`"x"`, ""))
	if m := c.end(); m.Type != "response.completed" {
		t.Fatalf("got %+v, want an answer", m)
	}
	r.proxy.SetDirectory(&auth.Directory{})
	c.send(create(`"x"`, ""))
	if m := c.end(); m.Status != 401 || m.Error.Code != "invalid_api_key" {
		t.Errorf("got %+v, want 401", m)
	}
	c.closes(websocket.StatusPolicyViolation)
}

// TestSocketWaits: a call that waits gets pings and events until it runs, and messages behind it keep their order, up to
// a number.
func TestSocketWaits(t *testing.T) {
	r := newRig(t, single, func(o *Options) { o.KeepAlive = 20 * time.Millisecond })
	bodies := r.bodies()
	r.worker(nil)
	release := r.occupy()
	c := r.socket()
	c.send(create(`[{"role":"user","content":"one"}]`, ""))
	r.until("the call waits", func() bool { return r.jobs() == 1 })
	c.send(create(`[{"role":"user","content":"two"}]`, ""))
	before := c.pings.Load()
	for range 3 {
		if m, _ := c.next(); m.Type != "keepalive" {
			t.Fatalf("got %+v, want an event that clients ignore", m)
		}
	}
	answered := make(chan [2]socketEvent, 1)
	go func() { answered <- [2]socketEvent{c.end(), c.end()} }()
	r.until("it gets pings", func() bool { return c.pings.Load() > before+2 })
	release()
	for i, m := range redistest.Came(t, answered) {
		if m.Type != "response.completed" || m.Llmguard["X-Llmguard-Cost-Usd"] == "" || (m.Llmguard["X-Llmguard-Waited-Ms"] == "") != (i > 0) {
			t.Errorf("answer %d is %+v, want a response with its cost and its time in the queue", i, m)
		}
	}
	sent := bodies()
	if len(sent) != 2 || inputOf(t, sent[0]) != "one" || inputOf(t, sent[1]) != "two" {
		t.Errorf("the provider got %q, want one and two", sent)
	}
	release = r.occupy()
	defer release()
	for range maxMessages + 2 {
		c.send(create(`"x"`, ""))
	}
	c.closes(websocket.StatusTryAgainLater)
}

// TestSocketLeft: a client that goes away ends its call, as one that closes its connection.
func TestSocketLeft(t *testing.T) {
	r := newRig(t, queue.Pool{}, nil, window(roomy, time.Hour))
	r.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour {
		return fakeprovider.Behaviour{Output: 20, Gap: time.Minute}
	})
	c := r.socket()
	c.send(create(`"x"`, ""))
	if m, _ := c.next(); m.Type != "response.created" {
		t.Fatalf("got %+v, want the first event", m)
	}
	_ = c.conn.CloseNow()
	r.until("the hold is settled", func() bool { return r.held() == 0 })
	if m := r.records(2)[0]; m["route"] != "responses" || m["outcome"] == "completed" {
		t.Errorf("got the record %v, want a call that was cut off", m)
	}
}

// TestSocketDrain: a shutdown closes idle sockets, sends waiting calls away, and waits for those that run.
func TestSocketDrain(t *testing.T) {
	r := newRig(t, queue.Pool{Concurrency: 1}, func(o *Options) { o.KeepAlive = time.Hour })
	began, release := make(chan bool, 1), make(chan bool)
	r.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour {
		began <- true
		redistest.Came(t, release)
		return fakeprovider.Behaviour{Text: "fine"}
	})
	idle, running, waiting := r.socket(), r.socket(), r.socket()
	running.send(create(`"x"`, ""))
	redistest.Came(t, began)
	waiting.send(create(`"x"`, ""))
	r.until("a call waits", func() bool { return r.jobs() == 1 })
	r.proxy.Drain()
	idle.closes(websocket.StatusGoingAway)
	if m := waiting.end(); m.Status != http.StatusServiceUnavailable {
		t.Errorf("the waiting call got %+v, want 503", m)
	}
	waiting.closes(websocket.StatusGoingAway)
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := r.proxy.WaitSockets(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v while a call runs, want to wait", err)
	}
	close(release)
	if m := running.end(); m.Type != "response.completed" {
		t.Errorf("the running call got %+v, want its answer", m)
	}
	running.closes(websocket.StatusGoingAway)
	redistest.Wait(t, func() {
		if err := r.proxy.WaitSockets(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if _, resp := r.dial(); resp == nil || resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a new socket got %v, want 503", resp)
	}
}

// TestSocketBounds: sockets count as streams; an idle one is closed; what it remembers takes memory of the org, and
// without memory nothing is remembered.
func TestSocketBounds(t *testing.T) {
	const memory = 1 << 20
	space := spool.New(spool.Options{Memory: memory})
	r := newRig(t, queue.Pool{}, func(o *Options) { o.Streams, o.Spool = 8, space })
	r.bodies()
	first, second := r.socket(), r.socket()
	if _, resp := r.dial(); resp == nil || resp.StatusCode != http.StatusUpgradeRequired {
		t.Errorf("a third socket of a key got %v, want 426, after which Codex uses HTTP", resp)
	}
	_ = second.conn.Close(websocket.StatusNormalClosure, "")
	first.send(create(`"x"`, ""))
	first.end()
	if space.Memory.Used() == 0 {
		t.Error("what the socket remembers is not counted")
	}
	_ = first.conn.Close(websocket.StatusNormalClosure, "")
	r.until("all memory is returned", func() bool { return space.Memory.Used() == 0 })
	if !space.Memory.Try("other", memory-40_000) { // a message fits, and not what is remembered
		t.Fatal("the other org gets no memory")
	}
	third := r.socket()
	third.send(create(`"x"`, ""))
	m := third.end()
	third.send(create(`"x"`, `,"previous_response_id":"`+m.Response.ID+`"`))
	if again := third.end(); m.Type != "response.completed" || again.Error.Code != "previous_response_not_found" {
		t.Errorf("got %+v, then %+v; want an answer, and that it is unknown", m, again)
	}
	_ = third.conn.Close(websocket.StatusNormalClosure, "")
	r.records(7) // all are closed
	r.proxy.sockets.idle = 10 * time.Millisecond
	r.socket().closes(websocket.StatusNormalClosure)
}

// TestSocketLastEvent: the copy of the last event counts as memory of the org until it is sent, and without memory for it
// the answer is incomplete.
func TestSocketLastEvent(t *testing.T) {
	const size = 200_000
	event := `data: {"type":"response.completed","response":{"id":"resp_1","text":"` + strings.Repeat("x", size) + `"}}` + "\n\n"
	for memory, fits := range map[int64]bool{1 << 20: true, size * 3 / 2: false} {
		space := spool.New(spool.Options{Memory: memory})
		r := newRig(t, queue.Pool{}, func(o *Options) { o.Spool = space })
		s := &socket{socketHandler: r.proxy.sockets, ctx: t.Context(), org: "acme", last: &turn{items: space.Memory.Copy("", 0)}}
		f := s.frame(&wire.CreateEvent{Stores: true})
		f.room = space.Room("acme", 0)
		f.Header().Set("Content-Type", "text/event-stream")
		f.WriteHeader(http.StatusOK)
		_, err := f.Write([]byte(event))
		if err == nil {
			_, err = f.Write([]byte("data: [DONE]\n\n"))
		}
		if used := space.Memory.Used(); (err == nil) != fits || fits && used < size-spool.SmallEvent {
			t.Errorf("with %d bytes of memory: %v, %d in use", memory, err, used)
		}
		if !fits && f.finish() != 0 {
			t.Error("an answer without its last event is complete")
		}
		f.close()
		if used := space.Memory.Used(); used != 0 {
			t.Errorf("%d bytes remain in use", used)
		}
	}
}
