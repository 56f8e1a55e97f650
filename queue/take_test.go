package queue

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/tasks"
	"github.com/llmguard/llmguard/lua"
	"github.com/llmguard/llmguard/quota"
)

// takeByLibrary returns the script of Take without its short path.
func takeByLibrary(t *testing.T) *redisconn.Script {
	t.Helper()
	read := func(name string) string {
		text, err := fs.ReadFile(lua.Files(), name+".lua")
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	take := read("take")
	long := strings.Replace(take, "local ok = granted()", "local ok = nil", 1)
	if long == take {
		t.Fatal("take.lua has no short way any more")
	}
	return redisconn.NewScript(read("time") + strings.Replace(long, "--+ quota\n", read("quota"), 1))
}

// TestTakeIsAsTheLibrary compares the short path of take.lua with the library on the same
// calls at the same times: every reply and the remaining state must be the same.
func TestTakeIsAsTheLibrary(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "a"})
	long := takeByLibrary(t)
	runs := 0
	rapid.Check(t, func(rt *rapid.T) {
		runs++
		cfg := Pool{
			MaxJobs: -1, Concurrency: rapid.SampledFrom([]int{0, 3, 1000}).Draw(rt, "concurrency"),
			RPM: rapid.SampledFrom([]int64{0, 60, 5000, 1_000_000}).Draw(rt, "rpm"),
			TPM: rapid.SampledFrom([]int64{0, 10_000, 1_000_000, 3_000_000_000_000}).Draw(rt, "tpm"),
		}
		opts := Options{Burst: rapid.SampledFrom([]int{0, 10, 1000}).Draw(rt, "burst")}.withDefaults()
		var pools [2]*pool
		for i := range pools {
			cfg.ID = fmt.Sprintf("p%d-%d", runs, i)
			p, err := newPool(cfg, opts)
			if err != nil {
				rt.Fatal(err)
			}
			pools[i], e.settings.pools()[p.ID], e.settings.codes()[p.code] = p, p, p
		}
		both := func(what string, do func(p *pool, script *redisconn.Script) string) {
			a, b := do(pools[0], takeScript), do(pools[1], long)
			if strings.ReplaceAll(a, pools[0].ID, "") != strings.ReplaceAll(b, pools[1].ID, "") {
				rt.Fatalf("%s: the short way says %q, the library %q", what, a, b)
			}
		}
		eval := func(script *redisconn.Script, keys []string, args ...any) string {
			reply, err := e.scripts.eval(t.Context(), "test", script, keys, args...)
			if err != nil {
				rt.Fatal(err)
			}
			return reply
		}
		now := simStart
		for i := range rapid.IntRange(1, 60).Draw(rt, "calls") {
			now += time.Duration(rapid.SampledFrom([]int{-200, 0, 3, 900, 20_000, 70_000, 3_000_000, 70_000_000}).Draw(rt, "us")) * time.Microsecond
			e.at(now)
			id := fmt.Sprintf("c%d", rapid.SampledFrom([]int{i, i, i, i / 2}).Draw(rt, "id"))
			tokens := rapid.Int64Range(0, 20_000).Draw(rt, "tokens")
			both("take", func(p *pool, script *redisconn.Script) string {
				keys := []string{p.keys[0], p.keys[1], p.keys[11], p.keys[2]}
				return eval(script, keys, append([]any{id, "o", "u", tokens, 30_000_000}, p.limits...)...)
			})
			switch rapid.IntRange(0, 9).Draw(rt, "then") {
			case 0, 1, 2:
				how := rapid.SampledFrom([]string{"unused", quota.AsBooked, "17"}).Draw(rt, "how")
				at := fmt.Sprint(now.Microseconds())
				both("give", func(p *pool, _ *redisconn.Script) string {
					return eval(giveScript, p.keys[:2], append([]any{id, at, tokens, how}, p.limits...)...)
				})
			case 3:
				user := rapid.SampledFrom([]string{"u", "v"}).Draw(rt, "user")
				both("put", func(p *pool, _ *redisconn.Script) string {
					job := e.job(p.ID, "o", user, Interactive, 100)
					return fmt.Sprint(e.Put(t.Context(), job, nil) == nil)
				})
			case 4:
				both("observe", func(p *pool, _ *redisconn.Script) string {
					return eval(observeScript, p.keys[:1], append([]any{"m", 1000, flag(i%9 == 0), -1, 900_000, 800_000, 1_000_000, -1, -1, -1, -1, -1, -1}, append(slices.Clone(p.limits), "", 300_000_000, "all", "aaa")...)...)
				})
			}
			both("depth", func(p *pool, _ *redisconn.Script) string { return eval(depthScript, p.with(tasks.PausedKey(p.ID))) })
		}
	})
}

// TestTakeTakesTheShortWay checks that a call that fits does not run the library. The sign
// of that is that the short path leaves the newest slot out of the ring.
func TestTakeTakesTheShortWay(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p", RPM: 5000}, Pool{ID: "q", RPM: 5000})
	e.at(simStart)
	ring := func(pool string, script *redisconn.Script) string {
		p := e.settings.pools()[pool]
		keys := []string{p.keys[0], p.keys[1], p.keys[11], p.keys[2]}
		for _, id := range []string{"c1", "c2"} {
			args := append([]any{id, "o", "u", 1, 30_000_000}, p.limits...)
			if _, err := e.scripts.eval(t.Context(), "test", script, keys, args...); err != nil {
				t.Fatal(err)
			}
		}
		return e.rdb.HGet(t.Context(), p.keys[0], "_").Val()
	}
	if short, long := ring("p", takeScript), ring("q", takeByLibrary(t)); short == long {
		t.Errorf("the ring is %q after the short way and after the library", short)
	}
}
