package faults

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
)

// until waits for a condition that another goroutine makes true.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); {
		if done() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("waited 3 minutes for %s", what)
}

// more waits for n more replies to holds.
func (l *callers) more(n int) {
	l.t.Helper()
	want := l.count().held + n
	until(l.t, fmt.Sprintf("%d more holds", n), func() bool { return l.count().held >= want })
}

func (l *callers) count() counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts
}

// again waits until every org has a reply to a hold that started after this call.
func (l *callers) again() {
	l.t.Helper()
	since := time.Now()
	until(l.t, "holds of every org to be answered again", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return !slices.ContainsFunc(l.orgs, func(org string) bool { return !l.heldAt[org].After(since) })
	})
	l.t.Logf("holds of every org were answered again after %s", time.Since(since).Round(time.Millisecond))
}

// replay repeats every confirmed settle and void, as from callers' journals, and returns how
// many of them the store did not know.
func (l *callers) replay() (settles, voids int) {
	l.t.Helper()
	s := l.stores[0]
	for _, r := range l.receipts {
		l.insist("replay", func(ctx context.Context) error {
			got, err := s.Settle(ctx, r.hold, budget.Settlement{Actual: cost(r.actual)})
			if err == nil && !got.Replayed {
				settles++
			}
			return err
		})
	}
	for _, c := range l.voided {
		l.insist("replay", func(ctx context.Context) error {
			_, err := s.Hold(ctx, budget.Terms{Call: c, Max: cost(0), Expected: cost(0)}) // refused if the call's end is known
			if errors.Is(err, budget.ErrEnded) {
				return nil
			}
			if err == nil {
				voids++
				err = s.VoidLost(ctx, c)
			}
			return err
		})
	}
	return settles, voids
}

// missing returns the number of confirmed settlements that are not in the ledger, and their
// sum.
func (l *callers) missing() (n int, sum int64) {
	l.t.Helper()
	booked := l.ledger()
	for id, r := range l.receipts {
		got, ok := booked[id]
		if !ok || got != r.actual {
			n++
			sum += r.actual - got
		}
	}
	return n, sum
}

// ledger returns the charge of every call.
func (l *callers) ledger() map[string]int64 {
	l.t.Helper()
	booked := map[string]int64{}
	for _, org := range l.orgs {
		for _, e := range l.entries(org) {
			booked[e.ID] += int64(e.Cost)
		}
	}
	return booked
}

func (l *callers) entries(org string) (list []ledger.Entry) {
	l.t.Helper()
	l.read(func() error {
		list = nil
		return l.stores[0].Ledger.Entries(l.t.Context(), org, time.Time{}, time.Time{}, func(e ledger.Entry) error {
			list = append(list, e)
			return nil
		})
	})
	return list
}

// read repeats a read until the store replies, because a client does not dial for up to a
// second after an outage.
func (l *callers) read(do func() error) {
	l.t.Helper()
	until(l.t, "the store to answer a read", func() bool {
		err := do()
		if err != nil && !errors.Is(err, budget.ErrUnavailable) {
			l.t.Fatal(err)
		}
		return err == nil
	})
}

// over returns the users whose confirmed holds and charges exceeded their budget at some time,
// and the total excess.
func (l *callers) over() (n int, sum int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.people {
		if p.most > userBudget {
			n++
			sum += p.most - userBudget
		}
	}
	return n, sum
}

// within checks that no user ever exceeded the budget.
func (l *callers) within() {
	l.t.Helper()
	n, sum := l.over()
	if n > 0 {
		l.t.Errorf("%d users were over their budget, by %d in all, want none", n, sum)
	}
}

// log logs the results of the callers.
func (l *callers) log() {
	l.t.Helper()
	n := l.count()
	longest := time.Duration(0)
	for _, d := range l.gap {
		longest = max(longest, d)
	}
	l.t.Logf("%d held, %d refused, %d without an answer, %d settled, %d voided, %d flights joined; longest time without an answer %s",
		n.held, n.refused, n.unanswered, len(l.receipts), len(l.voided), l.joined.Load(), longest.Round(time.Millisecond))
}

// check waits until no hold is open, and compares the ledger and the limits exactly with what
// was confirmed.
func (l *callers) check() {
	l.t.Helper()
	for _, p := range l.problems {
		l.t.Error(p)
	}
	if n := l.count(); len(l.receipts) == 0 || n.refused == 0 {
		l.t.Fatalf("%d settled, %d refused, want some of both", len(l.receipts), n.refused)
	}
	until(l.t, "no open hold", func() bool {
		return !slices.ContainsFunc(l.orgs, func(org string) bool {
			list := l.peek(org, "")
			return list[2].Held > 0 || list[3].Used > 0
		})
	})
	l.checkLedger()
	l.checkLimits()
}

func (l *callers) peek(org, user string) (list []budget.Status) {
	l.t.Helper()
	l.read(func() (err error) {
		list, err = l.stores[0].Peek(l.t.Context(), l.limits(), ledger.Call{Org: org, User: user})
		return err
	})
	return list
}

func (l *callers) checkLedger() {
	l.t.Helper()
	wrong := 0
	for id, got := range l.ledger() {
		want := l.receipts[id].actual // 0: never settled
		if got != want && wrong < 5 {
			wrong++
			l.t.Errorf("the ledger has %d for call %s, want %d", got, id, want)
		}
	}
	n, sum := l.missing()
	if n != 0 {
		l.t.Errorf("%d settles over %d are not in the ledger, want none", n, sum)
	}
}

func (l *callers) checkLimits() {
	l.t.Helper()
	charged := map[string]int64{}
	for _, r := range l.receipts {
		charged[r.call.Org] += r.actual
		charged[r.call.Org+"/"+r.call.User] += r.actual
	}
	wrong := 0
	for who := range l.people {
		org, user, _ := strings.Cut(who, "/")
		var got [][2]int64
		for _, s := range l.peek(org, user) {
			got = append(got, [2]int64{s.Used, s.Held})
		}
		want := [][2]int64{{charged[who], 0}, {charged[who], 0}, {charged[org], 0}, {0, 0}}
		if !slices.Equal(got, want) && wrong < 5 {
			wrong++
			l.t.Errorf("%s: used and held %v, want %v", who, got, want)
		}
	}
}

// repairs are the times at which a store has rewritten its recent writes, according to its log.
type repairs struct {
	mu        sync.Mutex
	last      time.Time
	forgotten int64 // ends of calls that were unknown to Redis then
}

func (r *repairs) Enabled(context.Context, slog.Level) bool { return true }
func (r *repairs) WithAttrs([]slog.Attr) slog.Handler       { return r }
func (r *repairs) WithGroup(string) slog.Handler            { return r }

// Handle processes a line of the store's log.
func (r *repairs) Handle(_ context.Context, line slog.Record) error {
	line.Attrs(func(a slog.Attr) bool {
		if a.Key == "forgotten" {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.last, r.forgotten = line.Time, a.Value.Int64()
		}
		return true
	})
	return nil
}

// repaired waits until every store has noticed an outage and rewritten its recent ends, so that
// nothing confirmed is missing. It returns how many of them Redis had lost.
func (l *callers) repaired(since time.Time) (forgotten int64) {
	l.t.Helper()
	for i, r := range l.repairs {
		until(l.t, fmt.Sprintf("store %d to write its last ends again", i), func() bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.last.After(since)
		})
		forgotten += r.forgotten
	}
	until(l.t, "every answered settle to be in the ledger", func() bool {
		n, _ := l.missing()
		return n == 0
	})
	settles, voids := l.replay()
	if settles+voids > 0 {
		l.t.Errorf("%d settles and %d voids were still forgotten, want none", settles, voids)
	}
	return forgotten
}

// refusals waits until limits have refused something, because otherwise they are not contended.
func (l *callers) refusals() {
	l.t.Helper()
	until(l.t, "a refusal", func() bool { return l.count().refused > 0 })
}
