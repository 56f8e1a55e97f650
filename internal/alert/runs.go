package alert

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/llmguard/llmguard/budget"
)

// Run is a run that has no money left for a call.
type Run struct {
	budget.Run
	Use budget.RunUse
	At  time.Time
}

// runMark identifies a run with an amount: one that was added to is reported again.
type runMark struct {
	org, id string
	amount  int64
}

func (m runMark) key() string { return fmt.Sprintf("lg:{%s}:alert:run:%s:%d", m.org, m.id, m.amount) }

// RunReached records that a call of a run was refused because of its amount. It returns immediately.
func (w *Watcher) RunReached(r budget.Run) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.usedUp) < most {
		w.usedUp[runMark{r.Org, r.ID(), int64(r.Amount)}] = r
	}
}

// lookRuns reports the runs that have used up their amounts, each once for an amount.
func (w *Watcher) lookRuns(ctx context.Context) {
	w.mu.Lock()
	usedUp := w.usedUp
	w.usedUp = map[runMark]budget.Run{}
	w.mu.Unlock()
	logged := false
	for mark, r := range usedUp {
		if w.opts.SendRun == nil {
			continue
		}
		period := time.Until(r.Expires) + budget.RunKept
		if period <= 0 {
			continue
		}
		_, err := w.tell(ctx, mark.key(), period, func(ctx context.Context) error {
			uses, err := w.opts.Budget.Runs.Uses(ctx, r.Org, []budget.Run{r})
			if err != nil {
				return err
			}
			return w.opts.SendRun(ctx, Run{Run: r, Use: uses[0], At: time.Now()})
		})
		if err == nil {
			continue
		}
		if !logged && !errors.Is(err, errClaimed) {
			logged = true
			w.opts.Log.WarnContext(ctx, "event of an exhausted run skipped, will retry", "org", r.Org, "run", r.ID(), "err", err)
		}
		w.RunReached(r)
	}
}
