package simulation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/quota"
)

// usedAgain checks that everything released can be used again: limits count no open holds, and
// the pool grants a request within two minutes.
func (w *world) usedAgain() {
	granted := w.pool.ID == ""
	w.do(w.procs[0], func(ctx context.Context, _ dice) {
		for _, o := range w.orgs {
			for _, user := range []string{"ann", "bob"} {
				w.heldNothing(ctx, o, user)
			}
		}
		for n := 0; n < 60 && !granted; n++ {
			g, err := w.procs[0].queue.Quota().Take(ctx, quota.Request{Pool: poolID, ID: fmt.Sprint("last", n), Org: w.orgs[0].id, User: "ann", Tokens: 1})
			if granted = err == nil; granted {
				w.give(ctx, w.procs[0], g)
			}
			w.sleep(w.procs[0], 2*time.Second)
		}
	})
	w.until(time.Now().Add(3 * time.Minute))
	if !granted {
		w.fail("the quota is used again", "no request is granted for two minutes")
	}
}

// heldNothing checks that the limits of a user count no open holds.
func (w *world) heldNothing(ctx context.Context, o *org, user string) {
	list, err := w.procs[0].budget.Peek(ctx, o.limits, ledger.Call{Org: o.id, User: user})
	if err != nil {
		w.fail("harness", "peek: %v", err)
	}
	for _, s := range list {
		if s.Held != 0 {
			w.fail("counts equal what they count", "limit %s of %s holds %d and no hold is open", s.LimitID, o.id, s.Held)
		}
	}
}

var lastingScript = redis.NewScript(`
local out = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  if redis.call('PEXPIRETIME', key) == -1 then out[#out + 1] = key end
end
return out`)

// staying are the keys that may stay: a pool has one of each.
var staying = []string{
	"fair", "size", "quota", "parked", "shut", "probes", "cancels", "due", "present", "ended",
	"users:interactive", "users:async", "users:batch", "orgs:interactive", "orgs:async", "orgs:batch",
}

// leaks looks for keys that would never be deleted.
func (w *world) leaks() error {
	list, err := lastingScript.Run(w.ctx, w.store.rdb, nil).StringSlice()
	if err != nil {
		return fmt.Errorf("keys: %w", err)
	}
	for _, key := range list {
		name, ok := strings.CutPrefix(key, "lg:{"+poolID+"}:")
		if key != budget.Registry && (!ok || !slices.Contains(staying, name)) {
			w.fail("no key leaks", "%s has no lifetime", key)
		}
	}
	return nil
}
