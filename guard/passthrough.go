package guard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/ownership"
	"github.com/llmguard/llmguard/internal/spool"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/providers"
)

// Passthrough is requests about what providers keep for the orgs, which cost nothing.
type Passthrough struct {
	policy     *atomic.Pointer[Policy]
	spool      *spool.Store
	answerWait time.Duration // for room for an answer
	log        *slog.Logger
}

// Fetch is a request about a thing that a provider keeps for an org.
type Fetch struct {
	Org     *Org
	Note    ownership.Note
	Request providers.Request
	// Seen, when set, is shown an answer that is no failure before anything is written. Its
	// error ends the request in place of the answer.
	Seen func(status int, answer []byte) error
}

// Relay sends a request to the provider that keeps the thing, and relays the answer to w. It
// costs nothing but a request of Pool's quota, which the caller takes. Status is the
// provider's, 0 when there was none. Errors are *wire.Error, providers.ErrStale or a
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
		if errors.Is(err, providers.ErrStale) {
			return 0, err
		}
		return 0, wire.BadGateway("The provider cannot be reached", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusUnauthorized {
		pt.log.Error("the provider refuses our credential", "provider", p.ID, "status", resp.StatusCode)
		return resp.StatusCode, wire.BadGateway("The provider refuses this proxy's credential; its operator has been told",
			nil)
	}
	if resp.StatusCode >= 300 {
		return resp.StatusCode, relayFailure(w, resp)
	}
	if isEventStream(resp.Header) {
		providers.CopyHeaders(w.Header(), resp.Header)
		w.WriteHeader(resp.StatusCode)
		return resp.StatusCode, pt.passEvents(ctx, w, f.Org.ID, resp)
	}
	kept := pt.spool.Buffer(ctx, f.Org.ID, pt.answerWait)
	defer kept.Close()
	if f.Seen == nil {
		err = fillRedacted(resp, &kept)
	} else {
		err = fillShown(resp, &kept, f.Seen)
	}
	var public *wire.Error
	switch {
	case errors.As(err, &public), errors.Is(err, errRead), errors.Is(err, budget.ErrUnavailable):
		return resp.StatusCode, err
	case err != nil && ctx.Err() != nil:
		return 0, ErrGone
	case spool.NoRoom(err):
		return 0, err
	case err != nil:
		return 0, wire.BadGateway("The provider's answer broke off", err)
	}
	providers.CopyHeaders(w.Header(), resp.Header)
	w.WriteHeader(resp.StatusCode)
	_, err = kept.WriteTo(w)
	return resp.StatusCode, written(0, err)
}

// fillShown reads a whole answer and shows it to seen.
func fillShown(resp *http.Response, kept *spool.Buffer, seen func(int, []byte) error) error {
	err := fill(resp, kept)
	if err != nil {
		return err
	}
	body, err := kept.Bytes()
	if err == nil {
		err = seen(resp.StatusCode, body)
	}
	if err != nil {
		return err
	}
	return redactFailure(resp, kept, body)
}

// Pool is the pool whose quota a request about a thing kept for an org takes: that
// of the model that made it, else the provider's first. It is "" for a provider that is
// no longer configured.
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

// relayFailure hands on a provider's error.
func relayFailure(w http.ResponseWriter, resp *http.Response) error {
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorAnswer))
	if err != nil || resp.StatusCode < 400 || parseError(resp.StatusCode, answer) == nil {
		return wire.BadGateway(fmt.Sprintf("The provider answered %d without an error this proxy can relay", resp.StatusCode),
			err)
	}
	providers.CopyHeaders(w.Header(), resp.Header)
	retryHeaders(w.Header(), resp.Header, false)
	w.WriteHeader(resp.StatusCode)
	return written(w.Write(answer))
}

// passEvents copies a stream of an org's and flushes what has come.
func (pt *Passthrough) passEvents(ctx context.Context, w http.ResponseWriter, org string, resp *http.Response) error {
	room := pt.spool.Room(org, pt.answerWait)
	defer room.Close()
	buf := readBuffers.Get().(*[]byte)
	defer readBuffers.Put(buf)
	flush := http.NewResponseController(w).Flush
	redact := providers.RedactorOf(resp)
	var events wire.Events
	for {
		n, err := resp.Body.Read(*buf)
		tooLarge := events.Feed((*buf)[:n])
		if tooLarge != nil {
			return fmt.Errorf("the provider's answer is no stream: %w", tooLarge)
		}
		if err := room.Resize(ctx, events.Held()); err != nil {
			return fmt.Errorf("an event is not passed on: %w", err)
		}
		for event, ok := events.Next(); ok; event, ok = events.Next() {
			if err := written(w.Write(redact.Event(event))); err != nil {
				return err
			}
		}
		_ = flush() // the next write tells
		if errors.Is(err, io.EOF) {
			return written(w.Write(redact.Event(events.Rest())))
		}
		if err != nil {
			return fmt.Errorf("the provider's answer broke off: %w", err)
		}
	}
}

// Read sends a request to the provider that keeps the thing, and returns the answer instead
// of relaying it. Status is 0 when there was none.
func (pt *Passthrough) Read(ctx context.Context, f Fetch) (status int, body []byte, err error) {
	f.Seen = func(_ int, answer []byte) error {
		body = bytes.Clone(answer)
		return errRead
	}
	status, err = pt.Relay(ctx, &unseen{}, f)
	if errors.Is(err, errRead) {
		err = nil
	}
	return status, body, err
}

var errRead = errors.New("the answer was read")

// unseen takes what is relayed to no one.
type unseen struct{ header http.Header }

func (u *unseen) Header() http.Header {
	if u.header == nil {
		u.header = http.Header{}
	}
	return u.header
}
func (u *unseen) Write(p []byte) (int, error) { return len(p), nil }
func (u *unseen) WriteHeader(int)             {}
