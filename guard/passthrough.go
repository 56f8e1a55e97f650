package guard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/ownership"
	"github.com/llmguard/llmguard/internal/spool"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/providers"
)

// Fetch sends a request about a thing kept for an org to the provider that keeps it, and
// relays the answer to w. It costs nothing but a request of FetchPool's quota, which the
// caller takes. Status is the provider's, 0 when there was none. Errors are *wire.Error,
// providers.ErrStale or a *spool.FullError, with nothing written, or ErrGone.
func (g *Guard) Fetch(ctx context.Context, w http.ResponseWriter, o *Org, n ownership.Note,
	r providers.Request,
) (status int, err error) {
	return g.fetch(ctx, w, o, n, r, nil)
}

// FetchSeen is Fetch that shows an answer that is no failure to seen before anything is
// written. Its error ends the request in place of the answer.
func (g *Guard) FetchSeen(
	ctx context.Context, w http.ResponseWriter, o *Org, n ownership.Note, r providers.Request,
	seen func(status int, answer []byte) error,
) (status int, err error) {
	return g.fetch(ctx, w, o, n, r, seen)
}

func (g *Guard) fetch(
	ctx context.Context, w http.ResponseWriter, o *Org, n ownership.Note, r providers.Request,
	seen func(int, []byte) error,
) (status int, err error) {
	p, err := g.Upstream(o, n.Provider)
	if err != nil {
		return 0, err
	}
	if p == nil {
		return 0, gone()
	}
	resp, err := p.Send(ctx, r)
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
		g.log.Error("the provider refuses our credential", "provider", p.ID, "status", resp.StatusCode)
		return resp.StatusCode, wire.BadGateway("The provider refuses this proxy's credential; its operator has been told",
			nil)
	}
	if resp.StatusCode >= 300 {
		return resp.StatusCode, relayFailure(w, resp)
	}
	if isEventStream(resp.Header) {
		providers.CopyHeaders(w.Header(), resp.Header)
		w.WriteHeader(resp.StatusCode)
		return resp.StatusCode, g.passEvents(ctx, w, o.ID, resp)
	}
	kept := g.spool.Buffer(ctx, o.ID, g.answerWait)
	defer kept.Close()
	if seen == nil {
		err = fillRedacted(resp, &kept)
	} else {
		err = fillShown(resp, &kept, seen)
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

// FetchPool is the pool whose quota a request about a thing kept for an org takes: that
// of the model that made it, else the provider's first. It is "" for a provider that is
// no longer configured.
func (g *Guard) FetchPool(o *Org, n ownership.Note) string {
	set := g.Policy().Providers
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
func (g *Guard) passEvents(ctx context.Context, w http.ResponseWriter, org string, resp *http.Response) error {
	room := g.spool.Room(org, g.answerWait)
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

// Disown forgets a response that the provider keeps no more, or that is kept
// here.
func (g *Guard) Disown(ctx context.Context, c Caller, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	var err error
	if g.turns != nil { // the text first: without its note it could not be found
		err = g.turns.Drop(ctx, c.Org.ID, id)
	}
	if g.ownership == nil {
		return err
	}
	return errors.Join(err, g.ownership.Drop(ctx, c.Org.ID, id))
}
