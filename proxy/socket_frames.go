package proxy

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/responses"
	"github.com/llmguard/llmguard/internal/spool"
	"github.com/llmguard/llmguard/internal/wire"
)

// turn is a response that is stored nowhere but on its WebSocket.
type turn struct {
	id    string
	items *spool.Copy // of its conversation, separated by commas
}

func (t *turn) close() {
	if t != nil {
		t.items.Close()
	}
}

// earlier returns the items to send in place of a response's id, or nil if the id is not that of the turn.
func (t *turn) earlier(id string) []byte {
	if t == nil || id == "" || id != t.id {
		return nil
	}
	if items, _ := t.items.Bytes(); items != nil {
		return items[:len(items):len(items)]
	}
	return []byte{}
}

// complete reports whether the next message can continue the turn: it has ended, and there was memory for it.
func (t *turn) complete() bool {
	if t == nil {
		return false
	}
	_, whole := t.items.Bytes()
	return whole && t.id != ""
}

func (t *turn) add(items []byte) {
	if t == nil || len(items) == 0 {
		return
	}
	if before, _ := t.items.Bytes(); len(before) > 0 {
		t.items.Add([]byte{','})
	}
	t.items.Add(items)
}

// frame writes the answer to one message: each event of a stream as a message, and an error as an event.
type frame struct {
	socket *socket
	warms  bool // nothing is to be generated
	header http.Header
	status int
	events wire.Events
	room   spool.Room  // memory for an incomplete event
	plain  *spool.Copy // an answer that is no stream
	turn   *turn       // that the answer completes; nil if it is stored elsewhere
	err    error       // of the connection
}

func (s *socket) frame(event wire.CreateEvent) *frame {
	space := s.handler.opts.Spool
	f := &frame{
		socket: s, warms: event.Warms, header: http.Header{}, room: space.Room(s.org, roomPatience),
		plain: space.Memory.Copy(s.org, wire.MaxAnswer),
	}
	if !event.Stores || event.Warms {
		f.turn = &turn{items: space.Memory.Copy(s.org, s.handler.opts.MaxBody)}
		f.turn.add(s.last.earlier(event.Previous))
		f.turn.add(event.Items())
	}
	return f
}

func (f *frame) close() {
	f.room.Close()
	f.plain.Close()
	f.turn.close()
}

// Header implements http.ResponseWriter.
func (f *frame) Header() http.Header { return f.header }

// WriteHeader implements http.ResponseWriter.
func (f *frame) WriteHeader(status int) { f.status = status }

// FlushError reports the failure of an earlier write. Messages are sent as they are written.
func (f *frame) FlushError() error { return f.err }

func (f *frame) streams() bool {
	return f.status == http.StatusOK && strings.HasPrefix(f.header.Get("Content-Type"), "text/event-stream")
}

// Write implements http.ResponseWriter.
func (f *frame) Write(p []byte) (int, error) {
	switch {
	case f.err != nil:
		return 0, f.err
	case !f.streams():
		f.plain.Add(p)
		return len(p), nil
	}
	f.err = f.events.Feed(p)
	if f.err == nil {
		f.err = f.room.Resize(f.socket.ctx, f.events.Held())
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

// pass sends an event. What only keeps a stream alive becomes a ping.
func (f *frame) pass(data []byte) error {
	e, err := wire.ParseEvent(data, "")
	switch {
	case len(data) == 0:
		return f.socket.ping()
	case err != nil: // the end mark, or what no client could read
		return nil
	case e.Kind == "error":
		return f.socket.send(failure(wire.ParseErrorEvent(data), nil))
	case e.Kind == "response.output_item.done":
		f.turn.add(wire.InputItem(e.Item))
	case f.turn != nil && (e.Kind == "response.completed" || e.Kind == "response.incomplete"):
		f.turn.id = responses.ItemID(e.Response)
	}
	return f.socket.send(data)
}

// finish sends what is not sent yet, and remembers the turn.
func (f *frame) finish() error {
	body, whole := f.plain.Bytes()
	switch {
	case f.err != nil:
		return f.err
	case f.streams() && len(f.events.Rest()) > 0:
		f.err = f.pass(wire.EventData(f.events.Rest()))
	case f.streams():
	case f.status >= http.StatusBadRequest:
		e, _ := wire.ParseError(f.status, body)
		f.err = f.socket.send(failure(e, f.header))
	case f.status == 0:
		return guard.ErrGone
	case whole: // the provider does not stream
		event := slices.Concat([]byte(`{"type":"response.completed","sequence_number":0,"response":`), body, []byte{'}'})
		f.err = f.pass(event)
	default:
		f.err = f.socket.send(failure(wire.BadGateway("The provider's answer is too large for a WebSocket", nil), nil))
	}
	if f.turn.complete() && f.err == nil {
		f.socket.last, f.turn = f.turn, f.socket.last
	}
	return f.err
}

// failure returns an error as OpenAI sends it on a WebSocket: with its status and headers inside.
func failure(e *wire.Error, h http.Header) []byte {
	text := append([]byte(`{"type":"error","status":`), strconv.Itoa(e.Status)...)
	text = append(append(text, `,"error":`...), e.Object()...)
	flat := map[string]string{}
	for name := range h {
		if !strings.HasPrefix(name, "Content-") {
			flat[name] = h.Get(name)
		}
	}
	if list, err := json.Marshal(flat); err == nil && len(flat) > 0 {
		text = append(append(text, `,"headers":`...), list...)
	}
	return append(text, '}')
}

// warm answers a message that generates nothing: its input is remembered under an id, and costs nothing.
func (f *frame) warm(x *request, plan *guard.Plan) error {
	x.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	x.Header().Set("X-Accel-Buffering", "no")
	x.plan, x.asked = nil, planRecord{model: plan.Request.Model, pool: plan.Target.Pool, stream: true} // nothing is held
	response := wire.Named(plan.Request.Body, "resp_"+x.id, time.Now().Unix())
	for i, kind := range []string{"response.created", "response.completed"} {
		text := `data: {"type":"` + kind + `","sequence_number":` + strconv.Itoa(i) + `,"response":`
		if _, err := x.Write(slices.Concat([]byte(text), response, []byte("}\n\n"))); err != nil {
			return guard.ErrGone
		}
	}
	return nil
}
