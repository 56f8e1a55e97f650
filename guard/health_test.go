package guard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/redisconn/driver"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/wire"
)

// late delays scripts, like a process without CPU time.
type late struct {
	budget.Scripts
	by time.Duration
}

func (l late) Process(ctx context.Context, cmd redisconn.Reply) error {
	time.Sleep(l.by)
	return l.Scripts.Process(ctx, cmd)
}

// impatient returns a guard on the rig's Redis with a short deadline.
func (r *rig) impatient(scripts func(redis.UniversalClient) budget.Scripts) *Guard {
	r.t.Helper()
	rdb := driver.Open(driver.Single, driver.Options(r.redis.Addr))
	r.t.Cleanup(func() { _ = rdb.Close() })
	g := New(Options{Budget: budget.New(redistest.DB(rdb), budget.Options{Scripts: scripts(rdb)}), Policy: r.guard.Policy(), StoreDeadline: 20 * time.Millisecond})
	r.t.Cleanup(func() { _ = g.Close(context.Background()) })
	return g
}

// A slow process refuses no call because of it: while Redis answers pings, every hold is
// decided and the circuit stays closed.
func TestLateProcessIsNoOutage(t *testing.T) {
	const most, callers = 5, 40
	limit := budget.Limit{ID: "n", Subject: budget.Org, Metric: budget.Requests, Shape: budget.Shape{Kind: budget.Window, Amount: most, Window: time.Hour}}
	r := newRig(t, limit)
	g := r.impatient(func(rdb redis.UniversalClient) budget.Scripts { return late{redistest.DB(rdb), 150 * time.Millisecond} })
	plan := r.plan(prompt("gpt-4o", "hi", `"max_tokens":5`))
	var wg sync.WaitGroup
	var mu sync.Mutex
	held, refused := 0, 0
	for range callers {
		wg.Go(func() {
			call, err := g.admission.begin(t.Context(), plan, &Attempt{ID: wire.NewCallID(), Number: 1})
			mu.Lock()
			defer mu.Unlock()
			var over *Refusal
			switch {
			case err == nil:
				held++
				call.End(t.Context())
			case errors.As(err, &over):
				refused++
			default:
				t.Error(err)
			}
		})
	}
	redistest.Wait(t, wg.Wait)
	if held < most || held+refused != callers || len(g.Outage.Away()) != 0 {
		t.Errorf("%d of %d callers were held and %d refused; away for %v orgs", held, callers, refused, g.Outage.Away())
	}
}

// TestOutageEndsWithoutCalls: a store that refused an org's calls counts as available again once
// it accepts writes, even if the org makes no further call.
func TestOutageEndsWithoutCalls(t *testing.T) {
	r := newRig(t, budget.Limit{ID: "n", Subject: budget.Org, Metric: budget.Requests, Shape: budget.Shape{Kind: budget.Window, Amount: 5, Window: time.Hour}})
	reg := prometheus.NewPedanticRegistry()
	g := New(Options{Budget: r.store, Policy: r.guard.Policy(), Metrics: reg})
	t.Cleanup(func() { _ = g.Close(context.Background()) })
	replicas := func(n string) {
		if err := r.redis.Client().ConfigSet(t.Context(), "min-replicas-to-write", n).Err(); err != nil {
			t.Fatal(err)
		}
	}
	reports := func(mode StoreFailure, orgs int) {
		t.Helper()
		want := "# HELP llmguard_guard_store_away_orgs Orgs for which this process treats the store as unavailable, by what " +
			"happens to their calls (on_store_failure): deny (refused), local (admitted within local shares of the limits), " +
			"allow (admitted unchecked).\n# TYPE llmguard_guard_store_away_orgs gauge\n"
		for _, m := range []StoreFailure{Allow, Deny, Local} {
			n := 0
			if m == mode {
				n = orgs
			}
			want += fmt.Sprintf("llmguard_guard_store_away_orgs{mode=%q} %d\n", m, n)
		}
		if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "llmguard_guard_store_away_orgs"); err != nil {
			t.Error(err)
		}
	}
	for _, mode := range []StoreFailure{Deny, Local, Allow} {
		r.org.OnStoreFailure = mode
		reports(mode, 0)
		replicas("1") // Redis answers, and refuses every write
		for range 3 { // as many failures open the circuit
			_, err := g.admission.begin(t.Context(), r.plan(prompt("gpt-4o", "hi", `"max_tokens":5`)), &Attempt{ID: wire.NewCallID(), Number: 1})
			if err == nil { // without a journal on disk, no mode admits calls
				t.Errorf("%s: a call was admitted", mode)
			}
		}
		reports(mode, 1)
		reports(mode, 1)
		replicas("0")
		reports(mode, 0)
	}
}

// A store that does not answer a ping either is known to be unavailable after a single
// hold.
func TestSilentStoreFailsClosed(t *testing.T) {
	r := newRig(t, budget.Limit{ID: "n", Subject: budget.Org, Metric: budget.Requests, Shape: budget.Shape{Kind: budget.Window, Amount: 5, Window: time.Hour}})
	g := r.impatient(func(rdb redis.UniversalClient) budget.Scripts { return redisconn.Pipelined(redistest.DB(rdb)) })
	plan := r.plan(prompt("gpt-4o", "hi", `"max_tokens":5`))
	call, err := g.admission.begin(t.Context(), plan, &Attempt{ID: wire.NewCallID(), Number: 1})
	if err != nil {
		t.Fatal(err)
	}
	call.End(t.Context())
	if err := r.redis.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	_, err = g.admission.begin(t.Context(), plan, &Attempt{ID: wire.NewCallID(), Number: 1})
	if !errors.Is(err, budget.ErrUnavailable) || g.Outage.Away()[Deny] != 1 {
		t.Errorf("got %v, away for %v orgs; want it unavailable for 1", err, g.Outage.Away())
	}
	if err := r.redis.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for range 6000 {
		if call, err = g.admission.begin(t.Context(), plan, &Attempt{ID: wire.NewCallID(), Number: 1}); err == nil {
			call.End(t.Context())
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("after it answers again: %v", err)
}
