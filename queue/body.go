package queue

import (
	"context"
	"time"

	"github.com/llmguard/llmguard/quota"
)

// bodyPatience is how long a body, or an answer being read back, waits for memory. It is
// shorter than the life of a quota grant.
const bodyPatience = quota.GrantLife / 4

// readBody reserves memory for the body and, if the body is a blob, reads it on the run's
// own goroutine.
func (c *Claim) readBody(ctx context.Context) {
	if c.unread != nil || c.Recovered != nil {
		return
	}
	size := int64(len(c.Body))
	if c.away {
		size = c.ref.Size
	}
	room := c.q.opts.Spool.Pricing(size)
	c.unread = c.q.opts.Spool.Memory.Take(ctx, c.Job.Org, room, bodyPatience)
	if c.unread != nil {
		c.Body = nil
		return
	}
	c.room = room
	if !c.away {
		return
	}
	c.Body = c.q.slow.take(c.id)
	if c.Body != nil {
		return
	}
	began := time.Now()
	c.Body, c.unread = c.q.contents.getBlob(ctx, bodyBlob(c.id), c.ref)
	if c.unread == nil && time.Since(began) > quota.GrantLife/2 {
		c.q.slow.keep(c.id, c.Body)
	}
}

// priced returns the memory that was needed only for pricing the body.
func (c *Claim) priced() {
	if more := c.room - int64(len(c.Body)); more > 0 {
		c.q.opts.Spool.Memory.Give(c.Job.Org, more)
		c.room -= more
	}
}

// dropBody releases the body and its memory.
func (c *Claim) dropBody() {
	if c.room > 0 {
		c.q.opts.Spool.Memory.Give(c.Job.Org, c.room)
	}
	c.Body, c.room = nil, 0
}
