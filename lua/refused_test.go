package lua_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/lua"
)

// TestFullIsMemoryOrDisk: a Redis that cannot persist its data counts as full, like one without
// free memory; one that lacks replicas does not.
func TestFullIsMemoryOrDisk(t *testing.T) {
	s := redistest.Start(t)
	rdb, ctx := s.Client(), t.Context()
	script := redis.NewScript(`return redis.call('SET', KEYS[1], 'v')`)
	look := func(what string, want bool) {
		t.Helper()
		for how, err := range map[string]error{
			"a command": rdb.Set(ctx, "k", "v", 0).Err(),
			"a script":  script.Run(ctx, rdb, []string{"k"}).Err(),
		} {
			if lua.Full(err) != want || err == nil {
				t.Errorf("%s, refused by %s: %v", how, what, err)
			}
		}
	}
	set := func(name, value string) {
		t.Helper()
		if err := rdb.ConfigSet(ctx, name, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	set("maxmemory", "1")
	look("memory", true)
	set("maxmemory", "0")
	s.FillDisk()
	look("disk", true)
	s.FreeDisk()
	set("min-replicas-to-write", "1")
	look("replicas", false)
}

// TestUnavailable: a Redis that cannot be reached or refuses writes is unavailable; one that answers
// with another error is not, and neither is an HTTP server.
func TestUnavailable(t *testing.T) {
	s := redistest.Start(t)
	rdb, ctx := s.Client(), t.Context()
	is := func(what string, want bool, err error) {
		t.Helper()
		if err = fmt.Errorf("queue: acquire: %w", err); lua.Unavailable(err) != want {
			t.Errorf("%s: got %v, want %v for %v", what, !want, want, err)
		}
	}
	is("an unknown command", false, rdb.Do(ctx, "NOSUCH").Err())
	is("a missing key", false, rdb.Get(ctx, "none").Err())
	if err := rdb.ConfigSet(ctx, "min-replicas-to-write", "1").Err(); err != nil {
		t.Fatal(err)
	}
	is("missing replicas", true, rdb.Set(ctx, "k", "v", 0).Err())
	gone, cancel := context.WithCancel(ctx)
	cancel()
	is("a caller that left", false, rdb.Get(gone, "k").Err())
	s.Kill()
	is("a dead server", true, rdb.Get(ctx, "k").Err())
	_, err := (&http.Client{Timeout: redistest.Bound}).Get("http://127.0.0.1:1/")
	is("an object store", false, err)
	if lua.Unavailable(nil) {
		t.Error("no error counts as unavailable")
	}
}
