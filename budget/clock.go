package budget

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/llmguard/llmguard/internal/redisconn"
)

// clock is Redis's time as known to this process.
type clock struct {
	// fake is the tests' time in microseconds; nil: Redis TIME.
	fake func() int64
	// ahead is how far Redis's clock was ahead of the local one at the last answer.
	ahead atomic.Int64
}

// now estimates Redis's time. Scripts tolerate some skew and report when it is larger.
func (c *clock) now() time.Time {
	if c.fake != nil {
		return time.UnixMicro(c.fake())
	}
	return time.Now().Add(time.Duration(c.ahead.Load()))
}

// seen records Redis's time from an answer.
func (c *clock) seen(at time.Time) {
	if c.fake == nil {
		c.ahead.Store(int64(time.Until(at)))
	}
}

// given is the time passed to scripts; empty except in tests.
func (c *clock) given() any {
	if c.fake != nil {
		return c.fake()
	}
	return ""
}

// ask returns Redis's time.
func (c *clock) ask(ctx context.Context, rdb redisconn.DB) (time.Time, error) {
	if c.fake != nil {
		return c.now(), nil
	}
	return rdb.Time(ctx).Result()
}
