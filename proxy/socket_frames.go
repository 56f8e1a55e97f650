package proxy

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/neutral"
	"github.com/llmguard/llmguard/internal/responses"
	"github.com/llmguard/llmguard/internal/spool"
	"github.com/llmguard/llmguard/internal/wire"
)

// turn is a response that is remembered on its WebSocket only.
type turn struct {
	id    string
	items *spool.Copy // of the conversation up to its end, separated by commas
}

// earlier returns the items to send in place of a response's id; nil if that is another response.
func (t *turn) earlier(id string) []byte {
	if id == "" || id != t.id {
		return nil
	}
	if items, _ := t.items.Bytes(); items != nil {
		return items
	}
	return []byte{}
}

func (t *turn) add(items []byte) {
	if before, _ := t.items.Bytes(); len(before) > 0 && len(items) > 0 {
		t.items.Add([]byte{','})
	}
	t.items.Add(items)
}

// frame writes the answer to one message: each event of a stream as a message, and an error as an event.
type frame struct {
	*socket
	warms  bool
	header http.Header
	status int
	events wire.Events
	room   spool.Room  // memory for an incomplete event, and the last one
	plain  *spool.Copy // an answer that is no stream
	turn   *turn       // that the answer completes
	end    []byte      // last event of the answer, sent when its cost is known
	alive  time.Time   // when the last event was sent that only keeps the stream alive
	err    error       // of the connection
}

func (s *socket) frame(event *wire.CreateEvent) *frame {
	space := s.opts.Spool
	f := &frame{
		socket: s, warms: event.Warms, header: http.Header{}, room: space.Room(s.org, roomPatience),
		plain: space.Memory.Copy(s.org, wire.MaxAnswer), turn: &turn{items: space.Memory.Copy(s.org, s.opts.MaxBody)},
	}
	if event.Stores && !event.Warms {
		f.turn.items.Close() // it takes no more
	}
	f.turn.add(s.last.earlier(event.Previous))
	f.turn.add(event.Items())
	return f
}

func (f *frame) close() {
	f.room.Close()
	f.plain.Close()
	f.turn.items.Close()
}

func (f *frame) Header() http.Header { return f.header }

func (f *frame) WriteHeader(status int) { f.status = status }

// FlushError is for http.ResponseController. Messages are sent as they are written.
func (f *frame) FlushError() error { return f.err }

func (f *frame) streams() bool {
	return f.status == http.StatusOK && strings.HasPrefix(f.header.Get("Content-Type"), "text/event-stream")
}

func (f *frame) Write(p []byte) (int, error) {
	if !f.streams() {
		f.plain.Add(p)
		return len(p), nil
	}
	if f.err == nil {
		f.err = f.events.Feed(p)
	}
	if f.err == nil {
		f.err = f.room.Resize(f.ctx, f.events.Held()+len(f.end))
	}
	for f.err == nil {
		event, ok := f.events.Next()
		if !ok {
			return len(p), nil
		}
		f.err = f.pass(wire.EventData(event))
	}
	return 0, f.err
}

// pass sends an event. The last one is sent by finish.
func (f *frame) pass(data []byte) error {
	e, err := wire.ParseEvent(data, "")
	switch {
	case len(data) == 0:
		return f.keepAlive()
	case err != nil: // no client could read it
		return nil
	case e.Kind == "error":
		return f.send(failure(wire.ParseErrorEvent(data), nil))
	case e.Kind == "response.output_item.done":
		f.turn.add(wire.InputItem(e.Item))
	case e.Kind == "response.completed", e.Kind == "response.incomplete":
		f.turn.id = responses.ItemID(e.Response)
		return f.keep(data)
	case e.Kind == "response.failed":
		return f.keep(data)
	}
	return f.send(data)
}

// keep copies the last event, which finish sends.
func (f *frame) keep(data []byte) error {
	err := f.room.Resize(f.ctx, f.events.Held()+len(data))
	if err == nil {
		f.end = bytes.Clone(data)
	}
	return err
}

// keepAlive pings the client, and sends it an event of no meaning, because Codex gives a call up that gets no event
// for five minutes, whatever pings come. A provider may keep its stream alive more often than that needs.
func (f *frame) keepAlive() error {
	err := f.ping()
	if err != nil || time.Since(f.alive) < f.opts.KeepAlive/2 {
		return err
	}
	f.alive = time.Now()
	return f.send([]byte(`{"type":"keepalive"}`))
}

// finish sends what is not sent yet, and remembers the turn. It returns the status of the answer, 0 if that is
// incomplete.
func (f *frame) finish() int {
	body, whole := f.plain.Bytes()
	rest := f.events.Rest()
	switch {
	case f.err != nil || f.status == 0:
		return 0
	case len(rest) > 0:
		f.err = f.pass(wire.EventData(rest))
	case f.streams():
	case whole && f.status < http.StatusBadRequest: // the provider does not stream
		f.err = f.pass(slices.Concat([]byte(`{"type":"response.completed","response":`), body, []byte{'}'}))
	default:
		e, _ := wire.ParseError(f.status, body)
		f.err = f.send(failure(e, f.header))
	}
	if f.end != nil && f.err == nil {
		f.err = f.send(reporting(f.end, f.header))
	}
	if f.err != nil {
		return 0
	}
	if _, whole := f.turn.items.Bytes(); whole && f.turn.id != "" {
		f.last, f.turn = f.turn, f.last
	}
	return f.status
}

// failure returns an error as OpenAI sends it on a WebSocket: with the status and headers of the answer.
func failure(e *wire.Error, h http.Header) []byte {
	flat := map[string]string{}
	for name := range h {
		if !strings.HasPrefix(name, "Content-") {
			flat[name] = h.Get(name)
		}
	}
	text, err := json.Marshal(struct {
		Type    string            `json:"type"`
		Status  int               `json:"status"`
		Error   json.RawMessage   `json:"error"`
		Headers map[string]string `json:"headers,omitempty"`
	}{"error", e.Status, e.Object(), flat})
	if err != nil {
		panic("proxy: encoding an error: " + err.Error())
	}
	return text
}

// reporting returns an event with what headers and trailers of HTTP's answer say about the call.
func reporting(event []byte, h http.Header) []byte {
	report := map[string]string{}
	for name := range h {
		own := strings.TrimPrefix(name, http.TrailerPrefix)
		if len(h[name]) > 0 && (strings.HasPrefix(own, "X-Llmguard-") || own == "X-Request-Id") {
			report[own] = h[name][0]
		}
	}
	text, err := json.Marshal(report)
	if err != nil {
		panic("proxy: encoding headers: " + err.Error())
	}
	return neutral.With(bytes.TrimSpace(event), "llmguard", text)
}

// warm answers a message that generates nothing: its input gets an id, and costs nothing.
func (f *frame) warm(x *request, plan *guard.Plan) error {
	x.plan, x.asked = nil, planRecord{model: plan.Request.Model, pool: plan.Target.Pool, stream: true}
	x.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	response := wire.Warmed(plan.Request.Body, "resp_"+x.id, time.Now().Unix())
	for i, kind := range []string{"response.created", "response.completed"} {
		text := `data: {"type":"` + kind + `","sequence_number":` + strconv.Itoa(i) + `,"response":`
		if _, err := x.Write(slices.Concat([]byte(text), response, []byte("}\n\n"))); err != nil {
			return guard.ErrGone
		}
	}
	return nil
}
