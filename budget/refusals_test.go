package budget

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/redistest"
)

// TestRefusalsAreCounted: calls that limits refuse or delay are in the sums of the hour and the
// day, per user and limit, with the first and the last time.
func TestRefusalsAreCounted(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		ctx := t.Context()
		f := newFixture(t, rdb, Options{})
		first := time.Date(2026, 11, 18, 22, 30, 0, 0, time.UTC)
		f.now.Store(first.UnixMicro())
		f.refuse("ann", nil)
		f.refuse("ann", nil)
		f.refuse("ann", func(c *RefusedCall) { c.Waited = true })
		f.refuse("bob", func(c *RefusedCall) { c.Cause = "cap:all" })
		f.pass(20 * time.Minute)
		f.refuse("ann", func(c *RefusedCall) { c.Waited = true })
		if err := f.Refusals.Write(ctx); err != nil {
			t.Fatal(err)
		}
		f.pass(time.Hour)
		f.refuse("ann", nil)
		if err := f.Refusals.Write(ctx); err != nil {
			t.Fatal(err)
		}
		hour, last := first.Truncate(time.Hour), first.Add(80*time.Minute)
		ann := Refused{
			Begin: hour, Hour: true, User: "ann", Key: "k", Cause: "limit:daily", Refused: 2, Waited: 2, First: first, Last: first.Add(20 * time.Minute),
		}
		bob := Refused{Begin: hour, Hour: true, User: "bob", Key: "k", Cause: "cap:all", Refused: 1, First: first, Last: first}
		later := Refused{Begin: hour.Add(time.Hour), Hour: true, User: "ann", Key: "k", Cause: "limit:daily", Refused: 1, First: last, Last: last}
		check := func(from time.Time, want ...Refused) {
			t.Helper()
			got, err := f.Refusals.List(ctx, f.org, RefusalFilter{From: from, To: last.Add(time.Minute)})
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("since %s: %+v, want %+v, error %v", from, got, want, err)
			}
		}
		check(first, ann, bob, later)
		check(first.Add(time.Hour), later)
		f.pass(15 * 24 * time.Hour)
		day := first.Truncate(24 * time.Hour)
		check(day, Refused{Begin: day, User: "ann", Key: "k", Cause: "limit:daily", Refused: 3, Waited: 2, First: first, Last: last},
			Refused{Begin: day, User: "bob", Key: "k", Cause: "cap:all", Refused: 1, First: first, Last: first})
	})
}

// TestRefusalsAreCountedOnce: a write whose answer was lost is repeated and counts once.
func TestRefusalsAreCountedOnce(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		ctx := t.Context()
		f := newFixture(t, rdb, Options{})
		f.refuse("ann", nil)
		f.Refusals.gather()
		lost := f.Refusals.unsent[0]
		if err := f.Refusals.send(ctx, lost); err != nil {
			t.Fatal(err)
		}
		if err := f.Refusals.Write(ctx); err != nil {
			t.Fatal(err)
		}
		got, err := f.Refusals.List(ctx, f.org, RefusalFilter{From: start, To: start.Add(time.Hour)})
		if err != nil || len(got) != 1 || got[0].Refused != 1 {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// TestRefusalsAreBounded: a full day counts new lines in one line and loses no count.
func TestRefusalsAreBounded(t *testing.T) {
	ctx := t.Context()
	f := newFixture(t, shared(t), Options{})
	for i := range refusalDayLines + 5 {
		f.refuse(fmt.Sprint("u", i), nil)
	}
	if err := f.Refusals.Write(ctx); err != nil {
		t.Fatal(err)
	}
	day := ledger.DayText(start.Unix() / 86400)
	lines, err := f.rdb.HLen(ctx, ledger.Key(f.org, "refusals:"+day)).Result()
	if err != nil || lines != refusalDayLines+1 {
		t.Errorf("%d lines, %v", lines, err)
	}
	rest, err := f.rdb.HGet(ctx, ledger.Key(f.org, "refusals:"+day), "*|*").Result()
	if n, _ := integers(rest); err != nil || len(n) != 4 || n[0] != 5 {
		t.Errorf("the rest is %q, %v", rest, err)
	}
	for _, name := range []string{"refusals:", "refusals-by-hour:"} {
		if ttl := f.rdb.TTL(ctx, ledger.Key(f.org, name+day)).Val(); ttl <= 0 {
			t.Errorf("%s never ends", name)
		}
	}
}

// TestRefusalsAreWrittenAtTheEnd: the last counts are written when the process ends.
func TestRefusalsAreWrittenAtTheEnd(t *testing.T) {
	f := newFixture(t, shared(t), Options{})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- f.Run(ctx) }()
	f.refuse("ann", func(c *RefusedCall) { c.Waited = true })
	stop()
	redistest.Came(t, done)
	got, err := f.Refusals.List(t.Context(), f.org, RefusalFilter{From: start, To: start.Add(time.Hour)})
	if err != nil || len(got) != 1 || got[0].Waited != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}
