package batch

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/pricing"
)

// shortfall describes a limit that cannot cover a batch within its window.
type shortfall struct {
	certain bool // the input alone costs more
	text    string
}

// shortfall compares what a batch may cost with what every cost limit can admit until it
// expires if nothing else uses it. Limits by labels are compared only if all lines have the same.
// It returns nil if the batch fits.
func (v *validation) shortfall(ctx context.Context, c *check, caller guard.Caller) (*shortfall, error) {
	caller.Labels = c.labels
	statuses, err := v.r.opts.Guard.Status(ctx, caller)
	if err != nil {
		return nil, fmt.Errorf("batch: limits: %w", err)
	}
	left := time.Until(v.turn.b.Expires)
	var worst *shortfall
	for _, l := range c.limits {
		if l.Metric != budget.Cost || l.Mode == budget.Shadow || c.mixed && len(l.Subject.Labels()) > 0 {
			continue
		}
		for _, st := range statuses {
			if st.LimitID != l.ID {
				continue
			}
			room := throughput(l.Shape, st, left)
			if int64(c.most) <= room || worst != nil && worst.certain {
				continue
			}
			worst = &shortfall{certain: int64(c.least) > room, text: fmt.Sprintf(
				"The batch can cost up to %s (%s for its input alone), but limit %q of this %s allows at most %s in the batch's "+
					"window. Lines beyond that would not run.",
				c.most, c.least, l.ID, l.Subject, pricing.Nano(room))}
		}
	}
	return worst, nil
}

// throughput returns the most that a limit admits within d, starting from its current
// state.
func throughput(s budget.Shape, st budget.Status, d time.Duration) int64 {
	switch s.Kind {
	case budget.Bucket:
		if s.Refill <= 0 || s.Per <= 0 {
			return st.Remaining
		}
		return plus(st.Remaining, times(s.Refill, int64(d/s.Per)+1))
	case budget.Window, budget.ExactWindow:
		return plus(st.Remaining, times(s.Amount, int64(d/s.Window)+1))
	case budget.Fixed, budget.Calendar:
		if d < st.Reset {
			return st.Remaining
		}
		return plus(st.Remaining, times(s.Amount, int64((d-st.Reset)/s.ShortestPeriod())+1))
	}
	return math.MaxInt64
}

func plus(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

func times(a, b int64) int64 {
	if b > 0 && a > math.MaxInt64/b {
		return math.MaxInt64
	}
	return a * b
}
