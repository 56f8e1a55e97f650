package guard

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"path"
	"strings"
	"sync/atomic"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/ownership"
	"github.com/llmguard/llmguard/internal/spool"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/providers"
)

// Passthrough handles requests about objects that providers store for the orgs. They cost
// nothing.
type Passthrough struct {
	policy     *atomic.Pointer[Policy]
	spool      *spool.Store
	answerWait time.Duration // how long an answer waits for memory
	log        *slog.Logger
}

// Fetch is a request about an object that a provider stores for an org.
type Fetch struct {
	Org     *Org
	Note    ownership.Note
	Request providers.Request
	// Seen, if set, is called with a successful answer before anything is written. Its
	// error ends the request and replaces the answer.
	Seen func(status int, answer []byte) error
}

// Relay sends a request to the provider that stores the object, and relays the answer to w.
// It costs nothing but a request of Pool's quota, which the caller must take. status is the
// provider's, 0 if there was none. Errors are *wire.Error, the error of Permit, or a
// *spool.FullError, with nothing written, or ErrGone.
func (pt *Passthrough) Relay(ctx context.Context, w http.ResponseWriter, f Fetch) (status int, err error) {
	p, err := pt.Upstream(f.Org, f.Note.Provider)
	if err != nil {
		return 0, err
	}
	if p == nil {
		return 0, gone()
	}
	resp, err := p.Send(ctx, f.Request)
	if err != nil {
		if ctx.Err() != nil {
			return 0, ErrGone
		}
		if failed, ok := errors.AsType[*providers.SendError](err); ok && failed.Refused {
			return 0, err
		}
		return 0, wire.BadGateway("The provider cannot be reached", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusUnauthorized {
		pt.log.Error("provider rejected our API key", "provider", p.ID, "status", resp.StatusCode)
		return resp.StatusCode, wire.BadGateway("The provider rejected this proxy's API key. Ask the operator to check it",
			nil)
	}
	if !wire.IsAnswer(resp.StatusCode) {
		answer, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorAnswer))
		return relayFailure(w, resp, answer, err)
	}
	if isEventStream(resp.Header) {
		providers.CopyHeaders(w.Header(), resp.Header)
		w.WriteHeader(resp.StatusCode)
		return resp.StatusCode, pt.passEvents(ctx, w, &f, resp)
	}
	kept := pt.spool.Buffer(ctx, f.Org.ID, pt.answerWait)
	defer kept.Close()
	err = fillShown(resp, &kept, &f)
	var public *wire.Error
	var failed *failure
	switch {
	case errors.As(err, &failed):
		return relayFailure(w, resp, []byte(providers.RedactorOf(resp).Redact(string(failed.answer))), nil)
	case errors.As(err, &public), errors.Is(err, budget.ErrUnavailable):
		return resp.StatusCode, err
	case err != nil && ctx.Err() != nil:
		return 0, ErrGone
	case spool.NoRoom(err):
		return 0, err
	case err != nil:
		return 0, wire.BadGateway("The provider's answer was interrupted", err)
	}
	providers.CopyHeaders(w.Header(), resp.Header)
	w.WriteHeader(resp.StatusCode)
	_, err = kept.WriteTo(w)
	return resp.StatusCode, written(0, err)
}

// fillShown reads a whole answer and passes it to f.Seen. An answer that is an error is a *failure.
func fillShown(resp *http.Response, kept *spool.Buffer, f *Fetch) error {
	err := fill(resp, kept)
	if err != nil {
		return err
	}
	body, err := kept.Bytes()
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	failed := kind == "text/html" || kind == "application/json" && wire.IsErrorDocument(body)
	if failed && path.Base(f.Request.Path) != "content" { // of a file, which may be anything
		return &failure{answer: bytes.Clone(body[:min(len(body), maxErrorAnswer)])}
	}
	if err == nil && f.Seen != nil {
		err = f.Seen(resp.StatusCode, body)
	}
	if err != nil {
		return err
	}
	return redactFailure(providers.RedactorOf(resp), kept, body)
}

// Pool returns the pool whose quota a request about a stored object takes: that of the model
// that made it, or else the provider's first. It returns "" for a provider that is no
// longer configured.
func (pt *Passthrough) Pool(o *Org, n ownership.Note) string {
	set := pt.policy.Load().Providers
	t, err := set.Resolve(n.Model, []string{n.Provider})
	if err != nil {
		p := set.Get(n.Provider)
		if p == nil || len(p.Pools) == 0 {
			return ""
		}
		t = providers.Target{Provider: p, Pool: p.Pools[0].ID}
	}
	if own, err := o.owning(t); err == nil {
		return own.Pool
	}
	return t.Pool
}

// relayFailure forwards a provider's error, whose reading may have failed. It returns the status that
// the error names.
func relayFailure(w http.ResponseWriter, resp *http.Response, answer []byte, err error) (int, error) {
	refusal, standard := wire.ParseError(resp.StatusCode, answer)
	if err != nil || !standard {
		return refusal.Status, wire.BadGateway(
			fmt.Sprintf("The provider answered %d without an error this proxy can relay", resp.StatusCode), err)
	}
	providers.CopyHeaders(w.Header(), resp.Header)
	retryHeaders(w.Header(), resp.Header, false)
	w.WriteHeader(refusal.Status)
	return refusal.Status, written(w.Write(answer))
}

// passEvents copies an event stream to the org's caller and flushes after each read. The stream of a
// response that breaks, or ends without its last event, gets an error event.
func (pt *Passthrough) passEvents(ctx context.Context, w http.ResponseWriter, f *Fetch, resp *http.Response) error {
	room := pt.spool.Room(f.Org.ID, pt.answerWait)
	defer room.Close()
	buf := readBuffers.Get().(*[]byte)
	defer readBuffers.Put(buf)
	flush := http.NewResponseController(w).Flush
	redact := providers.RedactorOf(resp)
	var events wire.Events
	var end passedEnd
	for {
		n, err := resp.Body.Read(*buf)
		err = cmp.Or(events.Feed((*buf)[:n]), err) // an event may be too large
		if full := room.Resize(ctx, events.Held()); full != nil {
			err = full
		}
		for event, ok := events.Next(); ok; event, ok = events.Next() {
			end.see(event)
			if err := written(w.Write(redact.Event(event))); err != nil {
				return err
			}
		}
		_ = flush() // the next write reports it
		if err == nil {
			continue
		}
		rest := events.Rest()
		end.see(rest)
		if errors.Is(err, io.EOF) && (end.came || !strings.HasPrefix(f.Request.Path, wire.Responses.Path()+"/")) {
			return written(w.Write(redact.Event(rest)))
		}
		if ctx.Err() != nil {
			return ErrGone
		}
		pt.log.Warn("a stored stream was interrupted", "provider", f.Note.Provider, "err", err)
		return written(w.Write(brokenOff(err).Frame(wire.Responses, end.next)))
	}
}

// passedEnd finds the end of a response in its events.
type passedEnd struct {
	came bool
	next int64 // the number of the next event
}

func (e *passedEnd) see(event []byte) {
	chunk, err := wire.ScanEvent(wire.Responses, wire.EventData(event), nil)
	if err == nil {
		e.came, e.next = e.came || chunk.Finish || chunk.Error, max(e.next, chunk.Sequence+1)
	}
}

// Read sends a request to the provider that stores the object, and returns the answer
// instead of relaying it. status is 0 if there was none.
func (pt *Passthrough) Read(ctx context.Context, f Fetch) (status int, body []byte, err error) {
	w := &inMemory{header: http.Header{}}
	status, err = pt.Relay(ctx, w, f)
	return status, w.Bytes(), err
}

// inMemory is an answer in memory. The documents about objects are small; more than wire.MaxAnswer is an error.
type inMemory struct {
	bytes.Buffer
	header http.Header
}

func (m *inMemory) Header() http.Header { return m.header }
func (m *inMemory) WriteHeader(int)     {}

func (m *inMemory) Write(p []byte) (int, error) {
	if m.Len()+len(p) > wire.MaxAnswer {
		return 0, errAnswerTooLarge
	}
	return m.Buffer.Write(p)
}
