package lua_test

import (
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
