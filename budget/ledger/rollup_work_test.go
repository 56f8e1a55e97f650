package ledger_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/redistest"
)

// scans records what scans of hashes return and how many run concurrently.
type scans struct {
	redis.Hook
	now, together, most atomic.Int64
}

func (s *scans) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *scans) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (s *scans) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		scan, ok := cmd.(*redis.ScanCmd)
		if !ok {
			return next(ctx, cmd)
		}
		raise(&s.together, s.now.Add(1))
		defer s.now.Add(-1)
		err := next(ctx, cmd)
		page, _ := scan.Val()
		raise(&s.most, int64(len(page)/2))
		return err
	}
}

func raise(most *atomic.Int64, n int64) {
	for {
		was := most.Load()
		if n <= was || most.CompareAndSwap(was, n) {
			return
		}
	}
}

// TestUsageIsReadInPages bounds what one command reads of a large day, and how many such commands
// Redis gets at a time, however many users request them.
func TestUsageIsReadInPages(t *testing.T) {
	f := newStill(t, shared(t), budget.Options{})
	ctx, lines := t.Context(), map[string]any{}
	for i := range 5000 {
		lines[fmt.Sprintf("ann|k1|openai|chat.completions|m%d", i)] = "1,1,0,0,0,0,0,0,0,0,0,0,0,0"
	}
	day := ledger.Key(f.org, ledger.RollupKey(start.Unix()/86400))
	if err := f.rdb.HSet(ctx, day, lines).Err(); err != nil {
		t.Fatal(err)
	}
	var seen scans
	f.rdb.AddHook(&seen)
	var asking sync.WaitGroup
	for range 8 {
		asking.Go(func() {
			list, err := f.Ledger.UserRollups(ctx, f.org, "ann", start, start.Add(1))
			if err != nil || len(list) != 5000 {
				t.Errorf("%d lines, error %v", len(list), err)
			}
		})
	}
	redistest.Wait(t, asking.Wait)
	if n := seen.most.Load(); n == 0 || n > 2*ledger.ScanPage {
		t.Errorf("one command read %d lines, want about %d at most", n, ledger.ScanPage)
	}
	if n := seen.together.Load(); n != 1 {
		t.Errorf("%d scans at once", n)
	}
	none, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := f.Ledger.UserRollups(none, f.org, "ann", start, start.Add(1)); err == nil {
		t.Error("read for a caller who is gone")
	}
}
