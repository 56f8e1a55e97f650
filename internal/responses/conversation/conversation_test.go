package conversation

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/storage/seal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func turn(text string, before ...string) Turn {
	return Turn{Before: before, Input: fmt.Appendf(nil, `[{"t":%q}]`, text), Response: fmt.Appendf(nil, `{"r":"<%s>"}`, text)}
}

func TestStore(t *testing.T) {
	rdb, ctx := redistest.Start(t).Client(), t.Context()
	ring, err := seal.NewRing(seal.Key{ID: "k", Secret: "a-secret-of-16-characters"})
	if err != nil {
		t.Fatal(err)
	}
	s := New(redistest.DB(rdb), Options{Seal: ring, TTL: time.Hour, MaxSize: 100})
	for _, one := range []struct {
		id string
		Turn
	}{{"a", turn("one")}, {"b", turn("two", "a")}, {"c", turn("three", "a", "b")}} {
		if err := s.Put(ctx, "acme", one.id, one.Turn); err != nil {
			t.Fatal(err)
		}
	}
	turns, err := s.Load(ctx, "acme", "c")
	if err != nil || len(turns) != 3 || string(turns[0].Response) != `{"r":"<one>"}` || string(turns[2].Input) != `[{"t":"three"}]` {
		t.Errorf("%v: %+v", err, turns)
	}
	if kept, err := rdb.Get(ctx, key("acme", "a")).Result(); err != nil || strings.Contains(kept, "one") {
		t.Errorf("kept as %q, %v", kept, err)
	}
	if ttl := rdb.TTL(ctx, key("acme", "a")).Val(); ttl <= 0 || ttl > time.Hour {
		t.Errorf("kept for %v", ttl)
	}
	f := func(what string, want error, got error) {
		t.Helper()
		if !errors.Is(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	_, err = s.Get(ctx, "other", "a")
	f("another org's", ErrNotFound, err)
	f("a large one", ErrTooLarge, s.Put(ctx, "acme", "d", turn(strings.Repeat("x", 100))))
	long := turn("x", "a")
	long.Earlier = 32*100 + 1
	if err := s.Put(ctx, "acme", "e", long); err != nil {
		t.Fatal(err)
	}
	_, err = s.Load(ctx, "acme", "e")
	f("a long conversation", ErrTooLarge, err)
	if err := s.Put(ctx, "acme", "f", turn("x", make([]string, MaxTurns)...)); err != nil {
		t.Fatal(err)
	}
	_, err = s.Load(ctx, "acme", "f")
	f("one of too many turns", ErrTooLarge, err)
	for range 2 { // repeating it changes nothing
		f("forgetting", nil, s.Drop(ctx, "acme", "a"))
	}
	_, err = s.Load(ctx, "acme", "c")
	f("one whose first turn is gone", ErrNotFound, err)
	if _, err := s.Get(ctx, "acme", "c"); err != nil {
		t.Error(err)
	}
	// What was stored elsewhere cannot be opened here.
	rdb.Set(ctx, key("acme", "moved"), rdb.Get(ctx, key("acme", "c")).Val(), 0)
	_, err = s.Get(ctx, "acme", "moved")
	f("a moved one", seal.ErrBroken, err)
}
