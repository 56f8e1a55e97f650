package proxy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/llmguard/llmguard/internal/spool"
	"github.com/llmguard/llmguard/internal/wire"
)

// socketHandler serves WebSockets of the Responses API. Each message is a request for a response, and is served as
// a POST with the headers of the handshake: its key, limits and model are checked again.
type socketHandler struct {
	opts        *Options
	connections *connections
	requests    http.Handler
	idle        time.Duration
}

const (
	// socketIdle is how long a WebSocket stays open without a call.
	socketIdle = 15 * time.Minute
	// maxMessages is how many messages wait while a call is in progress.
	maxMessages = 4
)

// opensSocket reports whether a request is the handshake of a WebSocket that is served.
func opensSocket(r *http.Request) bool {
	return r.Method == http.MethodGet && r.ProtoMajor == 1 && plainPath(r.URL.Path) == wire.Responses.Path() &&
		names(r.Header["Upgrade"], "websocket") && names(r.Header["Connection"], "upgrade") &&
		r.Header.Get("Sec-Websocket-Version") == "13" && r.Header.Get("Sec-Websocket-Key") != ""
}

// open accepts a WebSocket and serves it to its end. If there are too many, the status is the one after which Codex
// uses HTTP immediately.
func (sh *socketHandler) open(x *request, r *http.Request, _ string) error {
	done, err := sh.connections.lasting(x)
	if public, ok := errors.AsType[*wire.Error](err); ok {
		public.Status = http.StatusUpgradeRequired
	}
	if err != nil {
		return err
	}
	defer done()
	if !sh.connections.sockets.TryAcquire(1) {
		return wire.ServiceUnavailable("This proxy is shutting down. Retry the request", time.Second, nil)
	}
	defer sh.connections.sockets.Release(1)
	// A page cannot open one in its user's name: it has no key, and cannot set headers.
	conn, err := websocket.Accept(x, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil { // it is answered
		x.err = err
		return nil
	}
	defer conn.CloseNow() //nolint:errcheck // usually it is closed
	conn.SetReadLimit(sh.opts.MaxBody)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	s := &socket{
		handler: sh, conn: conn, ctx: ctx, org: x.caller.Org.ID, handshake: handshake(r),
		messages: make(chan *spool.Buffer, maxMessages),
	}
	defer s.forget()
	go s.read(context.WithoutCancel(ctx), cancel)
	code, reason := s.serve()
	_ = conn.Close(code, reason)
	return nil
}

// handshake returns the request whose copies the messages become. Their answers are streams that are not repeated.
func handshake(r *http.Request) *http.Request {
	post := r.Clone(r.Context())
	post.Method = http.MethodPost
	h := post.Header
	for name := range h {
		if strings.HasPrefix(name, "Sec-Websocket-") {
			h.Del(name)
		}
	}
	for _, name := range []string{"Connection", "Upgrade", "Idempotency-Key", "Prefer", "Te", "Content-Encoding"} {
		h.Del(name)
	}
	if strings.HasPrefix(h.Get("Openai-Beta"), "responses_websockets") { // the provider gets a POST
		h.Del("Openai-Beta")
	}
	h.Set("Content-Type", "application/json")
	return post
}

// socket is one open WebSocket. One goroutine reads it, another makes its calls, one after the other.
type socket struct {
	handler   *socketHandler
	conn      *websocket.Conn
	ctx       context.Context // ends when the client is gone
	org       string
	handshake *http.Request
	messages  chan *spool.Buffer // closed at the end of reading
	last      *turn              // which the next message may continue; nil: none
}

// read receives messages until the connection fails or is closed. It is always reading, because that also answers
// pings and notices that the client is gone.
func (s *socket) read(ctx context.Context, gone context.CancelFunc) {
	defer close(s.messages)
	defer gone()
	for {
		kind, in, err := s.conn.Reader(ctx)
		if err != nil {
			return
		}
		if kind != websocket.MessageText {
			_ = s.conn.Close(websocket.StatusUnsupportedData, "messages have to be text")
			return
		}
		text, err := s.receive(in)
		if err != nil {
			if spool.NoRoom(err) {
				_ = s.conn.Close(websocket.StatusTryAgainLater, "no memory for the message")
			}
			return
		}
		select {
		case s.messages <- text:
		default:
			text.Close()
			_ = s.conn.Close(websocket.StatusPolicyViolation, "too many messages are waiting")
			return
		}
	}
}

// receive reads one message, within the time for a body.
func (s *socket) receive(in io.Reader) (*spool.Buffer, error) {
	late := time.AfterFunc(s.handler.opts.ReadBody, func() { _ = s.conn.CloseNow() })
	defer late.Stop()
	text := s.handler.opts.Spool.Buffer(s.ctx, s.org, roomPatience)
	if err := text.Fill(in); err != nil {
		text.Close()
		return nil, err
	}
	return &text, nil
}

// forget returns the memory of what nobody will ask for.
func (s *socket) forget() {
	_ = s.conn.CloseNow() // so that reading ends
	for text := range s.messages {
		text.Close()
	}
	s.last.close()
}

// serve makes the calls, and returns why the socket is to be closed.
func (s *socket) serve() (websocket.StatusCode, string) {
	idle := time.NewTimer(s.handler.idle)
	defer idle.Stop()
	alive := time.NewTicker(s.handler.opts.KeepAlive)
	defer alive.Stop()
	drained := s.handler.connections.drained
	for {
		if drained.Err() != nil {
			return websocket.StatusGoingAway, "this proxy is shutting down"
		}
		select {
		case <-drained.Done():
		case <-idle.C:
			return websocket.StatusNormalClosure, "no message for " + s.handler.idle.String()
		case <-alive.C:
			if s.ping() != nil {
				return websocket.StatusNormalClosure, ""
			}
		case text, open := <-s.messages:
			if !open {
				return websocket.StatusNormalClosure, ""
			}
			if code, reason := s.answer(text); code != 0 {
				return code, reason
			}
			idle.Reset(s.handler.idle)
		}
	}
}

// answer serves one message. It returns a code if the socket cannot be used any longer.
func (s *socket) answer(text *spool.Buffer) (code websocket.StatusCode, reason string) {
	defer text.Close()
	raw, err := text.Bytes()
	if err != nil {
		return websocket.StatusTryAgainLater, "no memory for the message"
	}
	event, err := wire.ParseCreateEvent(raw)
	body := wire.PlainBody(raw) // is refused as any body that is no JSON
	switch {
	case err != nil:
	case event.Type == "response.create":
		body = event.Body(s.last.earlier(event.Previous))
	case event.Type == "response.processed": // Codex acknowledges answers
		return 0, ""
	default:
		return s.refuse(event.Type)
	}
	f := s.frame(event)
	defer f.close()
	if !s.call(f, body, text) || f.finish() != nil {
		return websocket.StatusInternalError, "the answer is incomplete"
	}
	if f.status == http.StatusUnauthorized {
		return websocket.StatusPolicyViolation, "the API key is not valid any more"
	}
	return 0, ""
}

// refuse answers a message of another type.
func (s *socket) refuse(kind string) (websocket.StatusCode, string) {
	e := wire.BadRequest("type", "invalid_value", "Unknown message type %.100q. Send response.create", kind)
	if s.send(failure(e, nil)) != nil {
		return websocket.StatusInternalError, ""
	}
	return 0, ""
}

// call serves a message as a request. It reports whether the answer is complete.
func (s *socket) call(f *frame, body wire.Body, text *spool.Buffer) (complete bool) {
	defer func() {
		cut := recover()
		if err, ok := cut.(error); cut != nil && (!ok || !errors.Is(err, http.ErrAbortHandler)) {
			panic(cut)
		}
	}()
	r := s.handshake.Clone(s.ctx)
	r.ContentLength = body.Len()
	r.Body = io.NopCloser(&onceRead{body.Reader(), text})
	s.handler.requests.ServeHTTP(f, r)
	return true
}

// onceRead frees a message when its reader has all of it.
type onceRead struct {
	io.Reader
	text *spool.Buffer
}

// Read implements io.Reader.
func (o *onceRead) Read(p []byte) (int, error) {
	n, err := o.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		o.text.Close()
	}
	return n, err
}

// send writes a message. It is not cut off by a shutdown, which still reports the end of calls.
func (s *socket) send(text []byte) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), s.handler.opts.Write)
	defer cancel()
	return s.conn.Write(ctx, websocket.MessageText, text)
}

// ping keeps the connection alive. The client has as much time as for taking bytes.
func (s *socket) ping() error {
	ctx, cancel := context.WithTimeout(s.ctx, s.handler.opts.Write)
	defer cancel()
	return s.conn.Ping(ctx)
}
