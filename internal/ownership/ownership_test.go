package ownership

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/wire"
)

func find(t *testing.T, s *Store, org string, ids ...string) map[string]Note {
	t.Helper()
	found, err := s.Find(context.Background(), org, ids...)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestNotes(t *testing.T) {
	ctx := context.Background()
	rdb := redistest.Start(t).Client()
	one, two := New(redistest.DB(rdb), nil, nil), New(redistest.DB(rdb), nil, nil)
	n := Note{ID: "resp_1", User: "alice", Provider: "openai", Model: "m", Total: 30, Output: 10}
	one.Put(ctx, "acme", n, Note{ID: "msg_1", Provider: "openai", Response: "resp_1", Output: 10})
	for _, s := range []*Store{one, two} { // the other process needs two lookups at most
		if got := find(t, s, "acme", "resp_1", "msg_1"); len(got) != 2 || got["resp_1"] != n || got["msg_1"].Response != "resp_1" {
			t.Errorf("got %+v, want both notes", got)
		}
		if got := find(t, s, "other", "resp_1", "msg_1", ""); len(got) != 0 {
			t.Errorf("another org has %+v", got)
		}
	}
	n.Total = 20 // its usage is known now
	one.Put(ctx, "acme", n)
	if err := one.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if got := find(t, two, "acme", "resp_1")["resp_1"]; got != n || got.At() != "resp_1" {
		t.Errorf("got %+v, want %+v", got, n)
	}
	if ttl := rdb.TTL(ctx, key("acme", "resp_1")).Val(); ttl <= TTL-time.Minute || ttl > TTL {
		t.Errorf("kept for %v", ttl)
	}
	if err := two.Forget(ctx, "acme", n); err != nil || len(find(t, one, "acme", "resp_1")) != 0 {
		t.Errorf("dropped and still there: %v", err)
	}
}

// TestManyNotes writes more than fits into one write, from many callers.
func TestManyNotes(t *testing.T) {
	ctx := context.Background()
	s := New(redistest.Start(t).DB(), nil, nil)
	ids := make([]string, 1000)
	for i := range ids {
		ids[i] = fmt.Sprint("resp_", i)
		go s.Put(ctx, "acme", Note{ID: ids[i], Provider: "p"})
	}
	redistest.Eventually(t, "all notes are found", func() bool { return len(find(t, s, "acme", ids...)) == len(ids) })
	if err := s.Close(ctx); err != nil || len(s.pending) != 0 {
		t.Errorf("%v, %d pending", err, len(s.pending))
	}
}

// TestStoreAway: notes that cannot be written are dropped, and lookups return an error.
func TestStoreAway(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	defer rdb.Close()
	s := New(redistest.DB(rdb), nil, nil)
	s.Put(context.Background(), "acme", Note{ID: "resp_1"})
	if _, err := s.Find(context.Background(), "acme", "resp_2"); err == nil {
		t.Error("an absent store has answered")
	}
	if err := s.Close(context.Background()); err != nil || len(s.pending) != 0 {
		t.Errorf("%v, %d pending", err, len(s.pending))
	}
}

// TestNotesKeepToTheShareOfTheirOrg: the notes of one org leave room for another's.
func TestNotesKeepToTheShareOfTheirOrg(t *testing.T) {
	ctx := context.Background()
	rdb := redistest.Start(t).Client()
	const room = 1 << 20
	used := memory(t, rdb)
	if err := rdb.ConfigSet(ctx, "maxmemory", strconv.FormatInt((used+room)*100/80, 10)).Err(); err != nil {
		t.Fatal(err)
	}
	s := New(redistest.DB(rdb), nil, nil)
	const notes, longest = 8000, 200
	for i := range notes {
		s.Put(ctx, "greedy", Note{ID: fmt.Sprintf("resp_%0*d", longest, i), Provider: "p"})
	}
	if err := s.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if grown := memory(t, rdb) - used; grown > room {
		t.Errorf("the notes of one org take %d bytes of %d", grown, room)
	}
	s.Put(ctx, "modest", Note{ID: "resp_1", Provider: "p"})
	if err := s.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if got := find(t, New(redistest.DB(rdb), nil, nil), "modest", "resp_1"); len(got) != 1 {
		t.Error("another org's note finds no room")
	}
}

func memory(t *testing.T, rdb *redis.Client) int64 {
	t.Helper()
	info, err := rdb.InfoMap(context.Background(), "memory").Result()
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseInt(info["Memory"]["used_memory"], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestThingsKeepToTheShareOfTheirOrg: an org without room cannot create anything, another can,
// and deleting something frees its bytes.
func TestThingsKeepToTheShareOfTheirOrg(t *testing.T) {
	ctx := context.Background()
	rdb := redistest.Start(t).Client()
	if err := rdb.ConfigSet(ctx, "maxmemory", strconv.FormatInt((memory(t, rdb)+2<<20)*100/80, 10)).Err(); err != nil {
		t.Fatal(err)
	}
	s := New(redistest.DB(rdb), nil, nil)
	kept := 0
	for err := s.Room(ctx, "greedy", "ann", wire.ObjectVectorStore); err == nil; err = s.Room(ctx, "greedy", "ann", wire.ObjectVectorStore) {
		if kept++; kept > 10_000 {
			t.Fatal("it has no bound")
		}
		if err := s.Keep(ctx, "greedy", Note{ID: fmt.Sprintf("vs_%d", kept), Kind: wire.ObjectVectorStore, User: "ann"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Room(ctx, "greedy", "ann", wire.ObjectFile); !errors.Is(err, ErrNoRoom) {
		t.Errorf("a file after %d stores: got %v, want %v", kept, err, ErrNoRoom)
	}
	if err := s.Room(ctx, "modest", "bob", wire.ObjectVectorStore); err != nil {
		t.Errorf("another org: %v", err)
	}
	for i := range 200 {
		if err := s.Forget(ctx, "greedy", Note{ID: fmt.Sprintf("vs_%d", i+1), Kind: wire.ObjectVectorStore, User: "ann"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Room(ctx, "greedy", "ann", wire.ObjectVectorStore); err != nil {
		t.Errorf("after some were forgotten: %v", err)
	}
}
