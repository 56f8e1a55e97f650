package cache

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/storage/seal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func ringOf(t *testing.T, secret string) *seal.Ring {
	t.Helper()
	ring, err := seal.NewRing(seal.Key{ID: secret, Secret: secret + "-of-16-characters-and-more"})
	if err != nil {
		t.Fatal(err)
	}
	return ring
}

func answerOf(body string) Answer {
	return Answer{Status: 200, Header: http.Header{"Content-Type": {"application/json"}}, Cost: 12345, Body: []byte(body)}
}

// TestStore checks what is read back, by whom, and that nothing readable is in Redis.
func TestStore(t *testing.T) {
	rdb, ctx := redistest.Start(t).Client(), t.Context()
	s := New(redistest.DB(rdb), Options{Seal: ringOf(t, "old")})
	const body = "{\"a\":\n\"secret answer\"}\n"
	for range 2 { // a repetition changes nothing
		if err := s.Put(ctx, "acme", "1f", answerOf(body), Bound{Life: time.Hour, MaxBytes: 1 << 20}); err != nil {
			t.Fatal(err)
		}
	}
	a, err := s.Get(ctx, "acme", "1f")
	if err != nil || a == nil || string(a.Body) != body || a.Status != 200 || a.Cost != 12345 || a.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("got %+v, %v; want the answer", a, err)
	}
	if a.Age < 0 || a.Age > time.Hour {
		t.Errorf("got age %v, want less than the test has run", a.Age)
	}
	kept := rdb.Get(ctx, "lg:{acme}:cache:1f").Val()
	if kept == "" || strings.Contains(kept, "secret") || strings.Contains(kept, "12345") {
		t.Errorf("got %q in Redis, want it encrypted", kept)
	}
	none := func(what, org, id string) {
		t.Helper()
		if a, err := s.Get(ctx, org, id); a != nil || err != nil {
			t.Errorf("%s: got %+v, %v; want nothing", what, a, err)
		}
	}
	none("another org's", "other", "1f")
	rdb.Set(ctx, "lg:{other}:cache:1f", kept, time.Hour)
	none("an answer moved to another org", "other", "1f")
	rdb.Set(ctx, "lg:{acme}:cache:2f", kept, time.Hour)
	none("an answer moved to another request", "acme", "2f")
	s.Seal(ringOf(t, "new"))
	none("an answer whose key is gone", "acme", "1f")
	s.Seal(nil)
	rdb.Set(ctx, "lg:{acme}:cache:3f", "not ours", time.Hour)
	none("something else", "acme", "3f")
}

// TestBounds checks that no org stores more than its bound, or evicts answers of another one.
func TestBounds(t *testing.T) {
	rdb, ctx := redistest.Start(t).Client(), t.Context()
	s := New(redistest.DB(rdb), Options{})
	in := Bound{Life: time.Hour, MaxBytes: 3000}
	big := answerOf(strings.Repeat("x", 1000))
	put := func(org, id string, a Answer, in Bound) error { return s.Put(ctx, org, id, a, in) }
	for _, id := range []string{"1", "2", "2", "3"} {
		if err := put("acme", id, big, in); err != nil {
			t.Fatal(err)
		}
	}
	if err := put("acme", "huge", answerOf(strings.Repeat("x", 3000)), in); !capacity.IsFull(err) {
		t.Errorf("got %v, want that there is no room", err)
	}
	if err := put("other", "3", big, in); err != nil {
		t.Errorf("got %v for another org, want it stored", err)
	}
	for id, want := range map[string]bool{"1": false, "2": true, "3": true, "huge": false} {
		if a, err := s.Get(ctx, "acme", id); (a != nil) != want || err != nil {
			t.Errorf("%s: got %+v, %v; want it stored: %v", id, a, err, want)
		}
	}
	if err := put("acme", "4", big, Bound{Life: time.Hour}); err != nil {
		t.Errorf("got %v without a bound, want it stored", err)
	}
	if err := put("other", "5", answerOf(strings.Repeat("x", MaxBody+1)), Bound{Life: time.Hour}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("got %v, want ErrTooLarge", err)
	}
}

// TestMemory checks that an org stores only what Redis has room for, and leaves room for others.
func TestMemory(t *testing.T) {
	rdb, ctx := redistest.Start(t).Client(), t.Context()
	used, _, err := capacity.Usage(ctx, redistest.DB(rdb))
	if err != nil {
		t.Fatal(err)
	}
	rdb.ConfigSet(ctx, "maxmemory", "64mb")
	share := (64<<20*80/100 - used) / 2
	s := New(redistest.DB(rdb), Options{})
	var stored int64
	body := strings.Repeat("x", MaxBody)
	for i := range 64 {
		err := s.Put(ctx, "acme", strings.Repeat("a", i+1), answerOf(body), Bound{Life: time.Hour})
		if capacity.IsFull(err) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		stored += MaxBody
	}
	if stored == 0 || stored > share {
		t.Errorf("one org stored %d bytes, want some and at most its share, %d", stored, share)
	}
	if err := s.Put(ctx, "other", "1", answerOf(body), Bound{Life: time.Hour}); err != nil {
		t.Errorf("got %v for another org, want it stored", err)
	}
}

// TestUnavailable checks the errors without Redis.
func TestUnavailable(t *testing.T) {
	rdb, ctx := redistest.Start(t).Client(), t.Context()
	s := New(redistest.DB(rdb), Options{})
	_ = rdb.Close()
	if a, err := s.Get(ctx, "acme", "1"); a != nil || err == nil {
		t.Errorf("got %+v, %v; want an error", a, err)
	}
	if err := s.Put(ctx, "acme", "1", answerOf("x"), Bound{Life: time.Hour}); err == nil || capacity.IsFull(err) {
		t.Errorf("got %v, want an error of Redis", err)
	}
}
