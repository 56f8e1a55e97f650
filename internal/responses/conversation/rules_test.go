package conversation_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/responses/conversation"
	"github.com/llmguard/llmguard/internal/storage/seal"
)

func turnOf(size int, before ...string) conversation.Turn {
	const input = `[]`
	return conversation.Turn{Before: before, Input: json.RawMessage(input), Response: json.RawMessage(`"` +
		strings.Repeat("x", size-len(input)-2) + `"`)}
}

func ringOf(t *testing.T, secrets ...string) *seal.Ring {
	t.Helper()
	var keys []seal.Key
	for _, s := range secrets {
		keys = append(keys, seal.Key{ID: s, Secret: s + "-of-16-characters-and-more"})
	}
	ring, err := seal.NewRing(keys...)
	if err != nil {
		t.Fatal(err)
	}
	return ring
}

// TestRules shares one Redis; each part has its own org.
func TestRules(t *testing.T) {
	rdb := redistest.Start(t).Client()
	t.Run("bounds", func(t *testing.T) { testBounds(t, rdb) })
	t.Run("turns", func(t *testing.T) { testTurns(t, rdb) })
	t.Run("replacing", func(t *testing.T) { testReplacing(t, rdb) })
	t.Run("configure", func(t *testing.T) { testConfigure(t, rdb) })
	t.Run("keys", func(t *testing.T) { testKeys(t, rdb) })
	t.Run("bytes", func(t *testing.T) { testBytes(t, rdb) })
	t.Run("unavailable", testUnavailable)
}

// A turn may be as large as the limit, input and response together.
func testBounds(t *testing.T, rdb redis.UniversalClient) {
	for _, c := range []struct {
		most, size int
		want       error
	}{
		{100, 100, nil}, {100, 101, conversation.ErrTooLarge}, {0, 1_000_000, nil}, {
			0, 1_000_001,
			conversation.ErrTooLarge,
		},
	} {
		s := conversation.New(redistest.DB(rdb), conversation.Options{MaxSize: c.most})
		err := s.Put(t.Context(), "bounds", "a", turnOf(c.size))
		if !errors.Is(err, c.want) {
			t.Errorf("%d bytes of %d: got %v, want %v", c.size, c.most, err, c.want)
		}
	}
	s := conversation.New(redistest.DB(rdb), conversation.Options{MaxSize: 100})
	for earlier, want := range map[int]error{3200: nil, 3201: conversation.ErrTooLarge} {
		last := turnOf(10, "a")
		last.Earlier = earlier
		for id, turn := range map[string]conversation.Turn{"a": turnOf(10), "b": last} {
			err := s.Put(t.Context(), "bounds", id, turn)
			if err != nil {
				t.Fatal(err)
			}
		}
		_, err := s.Load(t.Context(), "bounds", "b")
		if !errors.Is(err, want) {
			t.Errorf("%d bytes before: got %v, want %v", earlier, err, want)
		}
	}
}

// A conversation is read oldest first, and may have fewer than 1,000 turns before the last.
func testTurns(t *testing.T, rdb redis.UniversalClient) {
	s := conversation.New(redistest.DB(rdb), conversation.Options{})
	var ids []string
	for i := range conversation.MaxTurns {
		id := fmt.Sprintf("r%d", i)
		turn := conversation.Turn{Input: json.RawMessage(fmt.Sprint(i)), Response: json.RawMessage("{}")}
		if i >= conversation.MaxTurns-2 {
			turn.Before = ids
		}
		err := s.Put(t.Context(), "turns", id, turn)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	turns, err := s.Load(t.Context(), "turns", ids[len(ids)-1])
	if err != nil || len(turns) != conversation.MaxTurns {
		t.Fatalf("got %d turns, %v, want %d", len(turns), err, conversation.MaxTurns)
	}
	for i, turn := range turns {
		if string(turn.Input) != fmt.Sprint(i) {
			t.Fatalf("turn %d: got %s, want %d", i, turn.Input, i)
		}
	}
	one, err := s.Load(t.Context(), "turns", "r0")
	if err != nil || len(one) != 1 {
		t.Errorf("one without turns before: got %d, %v, want itself", len(one), err)
	}
}

// Storing an id again replaces the previous turn.
func testReplacing(t *testing.T, rdb redis.UniversalClient) {
	s := conversation.New(redistest.DB(rdb), conversation.Options{})
	for _, size := range []int{10, 20} {
		err := s.Put(t.Context(), "replacing", "a", turnOf(size))
		if err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.Get(t.Context(), "replacing", "a")
	if err != nil || got.Size() != 20 {
		t.Errorf("got %d bytes, %v, want 20", got.Size(), err)
	}
	for _, org := range []string{"replacing", "other"} {
		err := s.Drop(t.Context(), org, "b")
		if err != nil {
			t.Errorf("dropping what is not there: got %v", err)
		}
	}
	err = s.Drop(t.Context(), "other", "a") // another org's id is a different one
	_, errGet := s.Get(t.Context(), "replacing", "a")
	if err != nil || errGet != nil {
		t.Errorf("after another org dropped its own: got %v, %v, want it kept", err, errGet)
	}
}

// Options apply to calls that start after the change, not to what is stored.
func testConfigure(t *testing.T, rdb redis.UniversalClient) {
	s := conversation.New(redistest.DB(rdb), conversation.Options{TTL: time.Hour, MaxSize: 100})
	err := s.Put(t.Context(), "configure", "old", turnOf(100))
	if err != nil {
		t.Fatal(err)
	}
	s.Configure(conversation.Options{MaxSize: 50})
	err = s.Put(t.Context(), "configure", "new", turnOf(51))
	if !errors.Is(err, conversation.ErrTooLarge) {
		t.Errorf("got %v, want the new bound", err)
	}
	err = s.Put(t.Context(), "configure", "new", turnOf(50))
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Get(t.Context(), "configure", "old")
	if err != nil || got.Size() != 100 {
		t.Errorf("what was kept: got %d bytes, %v, want 100", got.Size(), err)
	}
	for id, want := range map[string]time.Duration{"old": time.Hour, "new": 7 * 24 * time.Hour} {
		ttl := rdb.TTL(t.Context(), "lg:{configure}:response:"+id).Val()
		if ttl > want || ttl < want-time.Minute {
			t.Errorf("%s: got kept for %s, want %s", id, ttl, want)
		}
	}
}

// The first key encrypts and all decrypt. Without its key, a response yields an error other
// than ErrNotFound.
func testKeys(t *testing.T, rdb redis.UniversalClient) {
	s := conversation.New(redistest.DB(rdb), conversation.Options{Seal: ringOf(t, "one")})
	err := s.Put(t.Context(), "keys", "a", turnOf(10))
	if err != nil {
		t.Fatal(err)
	}
	s.Configure(conversation.Options{Seal: ringOf(t, "two", "one")})
	_, err = s.Get(t.Context(), "keys", "a")
	if err != nil {
		t.Errorf("with the old key behind: got %v", err)
	}
	s.Configure(conversation.Options{Seal: ringOf(t, "two")})
	_, err = s.Get(t.Context(), "keys", "a")
	if err == nil || errors.Is(err, conversation.ErrNotFound) || !strings.Contains(err.Error(),
		"conversation: response a: ") {
		t.Errorf("without its key: got %v, want an error about it", err)
	}
}

// Text is returned byte for byte, including characters that JSON encoders like to escape.
func testBytes(t *testing.T, rdb redis.UniversalClient) {
	s := conversation.New(redistest.DB(rdb), conversation.Options{})
	const text = `{"a":"<b> & \u00e9 ` + "\u2028" + ` 日本","n":1e-10}`
	err := s.Put(t.Context(), "bytes", "a", conversation.Turn{Input: json.RawMessage("[" + text + "]"), Response: json.RawMessage(text)})
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Get(t.Context(), "bytes", "a")
	if err != nil || string(got.Input) != "["+text+"]" || string(got.Response) != text {
		t.Errorf("got %s and %s, %v, want %s", got.Input, got.Response, err, text)
	}
}

// If Redis is unavailable, the error is not ErrNotFound.
func testUnavailable(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{})
	err := rdb.Close()
	if err != nil {
		t.Fatal(err)
	}
	s := conversation.New(redistest.DB(rdb), conversation.Options{})
	_, errGet := s.Get(t.Context(), "a", "a")
	_, errLoad := s.Load(t.Context(), "a", "a")
	for what, err := range map[string]error{
		"conversation: read: ": errGet, "conversation: keep: ": s.Put(t.Context(), "a", "a",
			turnOf(10)), "conversation: forget: ": s.Drop(t.Context(), "a", "a"),
	} {
		if err == nil || errors.Is(err, conversation.ErrNotFound) || !strings.HasPrefix(err.Error(), what) {
			t.Errorf("got %v, want %s", err, what)
		}
	}
	if errLoad == nil || errors.Is(errLoad, conversation.ErrNotFound) {
		t.Errorf("Load: got %v, want the error of Redis", errLoad)
	}
}
