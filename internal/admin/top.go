package admin

import (
	"context"
	"time"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/top"
	"github.com/llmguard/llmguard/internal/wire"
)

// live is what samples of the present are made with.
type live struct {
	turn    chan struct{} // has room for who samples
	sampler *top.Sampler  // nil: nobody has looked for a while
	idle    *time.Timer   // forgets the sampler, and with it the calls that it remembers
}

// enter waits for the turn to sample.
func (l *live) enter(ctx context.Context) error {
	select {
	case l.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *live) leave() { <-l.turn }

// forget drops what the sampler remembers: the next one reads the last minute again.
func (l *live) forget() {
	l.turn <- struct{}{}
	l.sampler = nil
	l.leave()
}

// top samples what happens now.
func (c *call) top() (any, error) {
	q, err := c.queue()
	if err != nil {
		return nil, err
	}
	ids, err := c.wantedOrgs()
	if err != nil {
		return nil, err
	}
	from := top.Source{Queue: q, Orgs: map[string]*guard.Org{}}
	inForce := c.o.Policy().Orgs
	for _, id := range ids {
		if inForce[id] != nil {
			from.Orgs[id] = inForce[id]
		}
	}
	if err := c.live.enter(c.r.Context()); err != nil {
		return nil, wire.ServiceUnavailable("Others read the same. Ask again", time.Second, err)
	}
	defer c.live.leave()
	if c.live.sampler == nil {
		c.live.sampler = top.NewSampler(c.o.Budget)
	}
	if c.live.idle != nil {
		c.live.idle.Stop()
	}
	c.live.idle = time.AfterFunc(top.Span, c.live.forget)
	return c.live.sampler.Sample(c.r.Context(), from, c.r.URL.Query().Get("user"))
}
