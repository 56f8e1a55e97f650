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

// socketHandler serves WebSockets of the Responses API. Each message is served as a POST with the headers of the
// handshake, so that its key, limits and model are checked again.
type socketHandler struct {
	opts        *Options
	connections *connections
	requests    http.Handler
	idle        time.Duration // after which a WebSocket is closed
}

const (
	socketIdle  = 15 * time.Minute
	maxMessages = 4 // that wait while a call is in progress
)

// opensSocket reports whether a request is a handshake for a WebSocket.
func opensSocket(r *http.Request) bool {
	return r.Method == http.MethodGet && r.ProtoMajor == 1 && plainPath(r.URL.Path) == wire.Responses.Path() &&
		names(r.Header["Upgrade"], "websocket") && names(r.Header["Connection"], "upgrade") &&
		r.Header.Get("Sec-Websocket-Version") == "13" && r.Header.Get("Sec-Websocket-Key") != ""
}

// open serves a WebSocket to its end. If there are too many, the status is the one after which Codex uses HTTP
// immediately.
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
		return shuttingDown()
	}
	defer sh.connections.sockets.Release(1)
	// Any origin may: a page can neither set headers nor make its user's browser send a key.
	conn, err := websocket.Accept(x, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil { // it is answered
		x.err = err
		return nil
	}
	conn.SetReadLimit(sh.opts.MaxBody)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	s := &socket{
		socketHandler: sh, conn: conn, ctx: ctx, org: x.caller.Org.ID, post: postOf(r),
		messages: make(chan *spool.Buffer, maxMessages), last: &turn{items: sh.opts.Spool.Memory.Copy("", 0)},
	}
	go s.read(context.WithoutCancel(ctx), cancel)
	_ = conn.Close(s.serve())
	_ = conn.CloseNow() // which ends reading
	for text := range s.messages {
		text.Close()
	}
	s.last.items.Close()
	return nil
}

// postOf returns the request whose copies the messages become: one with a stream as its answer, which ends with its
// cost, and not repeatable.
func postOf(handshake *http.Request) *http.Request {
	r := handshake.Clone(handshake.Context())
	r.Method = http.MethodPost
	for _, name := range []string{"Upgrade", "Idempotency-Key", "Prefer", "Te", "Content-Encoding"} {
		r.Header.Del(name)
	}
	r.Header.Set("Te", "trailers")
	if strings.HasPrefix(r.Header.Get("Openai-Beta"), "responses_websockets") {
		r.Header.Del("Openai-Beta")
	}
	return r
}

// socket is an open WebSocket. One goroutine reads it, another makes its calls, one after the other.
type socket struct {
	*socketHandler
	conn     *websocket.Conn
	ctx      context.Context // ends when the client is gone
	org      string
	post     *http.Request
	messages chan *spool.Buffer // closed at the end of reading
	last     *turn
}

// read receives messages until the connection ends. It never waits for a call, because reading also answers pings and
// notices that the client is gone.
func (s *socket) read(ctx context.Context, gone context.CancelFunc) {
	defer close(s.messages)
	defer gone()
	for {
		_, in, err := s.conn.Reader(ctx)
		if err != nil {
			return
		}
		late := time.AfterFunc(s.opts.ReadBody, func() { _ = s.conn.CloseNow() })
		text := s.opts.Spool.Buffer(ctx, s.org, roomPatience)
		err = text.Fill(in)
		late.Stop()
		if err == nil && len(s.messages) < maxMessages {
			s.messages <- &text
			continue
		}
		text.Close()
		_ = s.conn.Close(websocket.StatusTryAgainLater, "too many messages are waiting, or there is no memory for this one")
		return
	}
}

// serve makes the calls, and returns why the socket is to be closed.
func (s *socket) serve() (websocket.StatusCode, string) {
	idle := time.NewTimer(s.idle)
	defer idle.Stop()
	alive := time.NewTicker(s.opts.KeepAlive)
	defer alive.Stop()
	for s.connections.drained.Err() == nil {
		select {
		case <-s.connections.drained.Done():
		case <-idle.C:
			return websocket.StatusNormalClosure, "no message for " + s.idle.String()
		case <-alive.C:
			if s.ping() != nil {
				return websocket.StatusNormalClosure, ""
			}
		case text, open := <-s.messages:
			if !open {
				return websocket.StatusNormalClosure, ""
			}
			switch status := s.answer(text); status {
			case 0:
				return websocket.StatusInternalError, "the answer is incomplete"
			case http.StatusUnauthorized:
				return websocket.StatusPolicyViolation, "the API key is no longer valid"
			}
			idle.Reset(s.idle)
		}
	}
	return websocket.StatusGoingAway, "this proxy is shutting down"
}

// answer serves one message and returns the status of its answer, 0 if that is incomplete.
func (s *socket) answer(text *spool.Buffer) (status int) {
	defer text.Close()
	raw, err := text.Bytes()
	if err != nil {
		return 0
	}
	event, err := wire.ParseCreateEvent(raw)
	body := event.Body(s.last.earlier(event.Previous))
	switch {
	case err != nil: // it is refused as such a body of a POST is
		body = wire.PlainBody(raw)
	case event.Type == "response.processed": // Codex acknowledges answers
		return http.StatusOK
	case event.Type != "response.create":
		e := wire.BadRequest("type", "invalid_value", "Unknown message type %.100q. Send response.create", event.Type)
		_ = s.send(failure(e, nil))
		return e.Status
	}
	f := s.frame(&event)
	defer f.close()
	defer func() {
		cut := recover()
		if err, ok := cut.(error); cut != nil && (!ok || !errors.Is(err, http.ErrAbortHandler)) {
			panic(cut)
		}
	}()
	r := s.post.Clone(s.ctx)
	r.Body, r.ContentLength = io.NopCloser(&onceRead{body.Reader(), text}), body.Len()
	s.requests.ServeHTTP(f, r)
	return f.finish()
}

// onceRead frees a message when it has been read, because its call may wait for long.
type onceRead struct {
	io.Reader
	text *spool.Buffer
}

func (o *onceRead) Read(p []byte) (int, error) {
	n, err := o.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		o.text.Close()
	}
	return n, err
}

func (s *socket) send(text []byte) error {
	ctx, cancel := context.WithTimeout(s.ctx, s.opts.Write)
	defer cancel()
	return s.conn.Write(ctx, websocket.MessageText, text)
}

// ping keeps the connection alive. The client has as long to answer as to take bytes.
func (s *socket) ping() error {
	ctx, cancel := context.WithTimeout(s.ctx, s.opts.Write)
	defer cancel()
	return s.conn.Ping(ctx)
}
