package outage

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/llmguard/llmguard/internal/redisconn"
)

// Health distinguishes an unavailable store from a slow process. When a decision has waited
// for its deadline, a ping checks whether the store answers at all; if so, the decision
// keeps waiting. It is safe for concurrent use.
type Health struct {
	ping func(ctx context.Context, tag string) error

	mu    sync.Mutex
	pings map[string]*pinging // in progress, by hash tag
}

// NewHealth returns a Health that pings the server of a hash tag with ping.
func NewHealth(ping func(ctx context.Context, tag string) error) *Health {
	return &Health{ping: ping, pings: map[string]*pinging{}}
}

// pinging is a ping in progress.
type pinging struct {
	done chan struct{}
	err  error
}

// Why a Bound context ended.
var (
	ErrSilent = fmt.Errorf("%w: it does not answer a ping", ErrUnavailable)
	ErrLate   = fmt.Errorf("%w: it answers, but this process is overloaded", ErrUnavailable)
)

const (
	lateMost = 10 * time.Second // how long a decision waits for a store that answers pings
	pingMost = 2 * time.Second
	// pingStep is the unit of the time that a ping may take. A step counts once however
	// late it comes, so that a process without CPU time does not blame the store.
	pingStep  = 25 * time.Millisecond
	pingSteps = 10
)

// answers checks whether the store answers, sharing a ping with concurrent checks of the
// tag.
func (h *Health) answers(ctx context.Context, tag string) error {
	h.mu.Lock()
	p := h.pings[tag]
	if p == nil {
		p = &pinging{done: make(chan struct{})}
		h.pings[tag] = p
		go h.run(context.WithoutCancel(ctx), tag, p)
	}
	h.mu.Unlock()
	for range pingSteps {
		select {
		case <-p.done:
			return p.err
		case <-time.After(pingStep):
		}
	}
	return ErrSilent
}

func (h *Health) run(ctx context.Context, tag string, p *pinging) {
	ctx, cancel := context.WithTimeout(ctx, pingMost)
	defer cancel()
	if err := h.ping(ctx, tag); err != nil {
		p.err = fmt.Errorf("%w: %w", ErrSilent, err)
	}
	h.mu.Lock()
	delete(h.pings, tag)
	h.mu.Unlock()
	close(p.done)
}

// Answer checks whether the servers of all tags answer.
func (h *Health) Answer(ctx context.Context, tags []string) error {
	for _, tag := range tags {
		if err := h.answers(ctx, tag); err != nil {
			return err
		}
	}
	return nil
}

// Bound returns a context for one decision. It ends when the store has not answered within
// the deadline and then fails a ping of one of the tags. The tags are those of the keys
// involved (an org's, a pool's, a spend cap's), which may be on different servers.
func (h *Health) Bound(ctx context.Context, deadline time.Duration,
	tags ...string,
) (context.Context, context.CancelFunc) {
	inner, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(deadline, func() { cancel(h.doubt(inner, tags)) })
	return bounded{inner}, func() {
		timer.Stop()
		cancel(nil)
	}
}

// doubt waits until the store is silent, or until the decision has taken too long anyway.
// It returns nil if ctx ends first.
func (h *Health) doubt(ctx context.Context, tags []string) error {
	for late := time.Now().Add(lateMost); time.Now().Before(late); {
		if err := h.Answer(ctx, tags); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pingStep * pingSteps):
		}
	}
	return ErrLate
}

// bounded is a context that reports an exceeded deadline if its cause is the store's
// silence.
type bounded struct{ context.Context }

func (c bounded) Err() error {
	err := c.Context.Err()
	if err != nil && errors.Is(context.Cause(c.Context), ErrUnavailable) {
		return context.DeadlineExceeded
	}
	return err
}

// Judge returns what an error of the store means for the circuit: nil if the store answers,
// even if late or full, and ErrSilent if it does not.
func (h *Health) Judge(ctx context.Context, err error, tags ...string) error {
	if !errors.Is(err, ErrUnavailable) {
		return err
	}
	if errors.Is(err, ErrFull) {
		return nil
	}
	var slow net.Error
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, ErrSilent):
		return cause
	case errors.Is(cause, ErrLate):
		return nil
	case errors.As(err, &slow) && slow.Timeout(), redisconn.PoolTimeout(err):
		return h.Answer(ctx, tags)
	}
	return err
}
