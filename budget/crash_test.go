package budget

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/redistest"
)

// Redis is killed every second under load. With an append-only file that is
// synced always it forgets nothing that it answered. Synced every second, it
// keeps what it has not written while the disk is busy with a sync, for up to 2 s:
// a death in that time forgets as much, and the stores write it again.
func TestRedisKilled(t *testing.T) {
	for _, sync := range []string{"always", "everysec"} {
		t.Run(sync, func(t *testing.T) {
			server := redistest.Start(t, redistest.WithAOF(), redistest.WithArgs("--appendfsync", sync))
			open := func() redis.UniversalClient {
				return redisconn.Open(redisconn.Single, redisconn.Options(server.Addr))
			}
			l := newCallers(t, time.Second, 2, open(), open())
			l.forgets = sync != "always"
			l.start(8)
			var kills []time.Time
			for end := time.Now().Add(forLong(1700*time.Millisecond, 2*time.Minute)); time.Now().Before(end); {
				time.Sleep(900 * time.Millisecond)
				kills = append(kills, time.Now())
				server.Restart()
			}
			l.again(time.Now())
			l.stop()
			l.tell()
			last := kills[len(kills)-1]
			l.mended(last)
			n, oldest := l.forgotten(last)
			t.Logf("killed %d times; %d ends were forgotten the last time, the oldest answered %s before", len(kills), n, oldest.Round(time.Millisecond))
			if sync == "always" && n > 0 || oldest > 3*time.Second && l.judged() {
				t.Error("forgot too much")
			}
			if sync == "always" {
				l.within()
			}
			l.check()
		})
	}
}

// With its memory full under load, Redis refuses holds and takes their ends;
// when there is room again, all goes on.
func TestMemoryFullUnderLoad(t *testing.T) {
	server := redistest.Start(t)
	rdb := redisconn.Open(redisconn.Single, redisconn.Options(server.Addr))
	t.Cleanup(func() { _ = rdb.Close() })
	ctx := t.Context()
	l := newCallers(t, time.Second, 2, rdb)
	l.start(8)
	time.Sleep(300 * time.Millisecond)
	var holds []*Hold
	for i := range 50 { // open while the memory fills
		c, _ := l.newCall("org0")
		c.User = "patient"
		h, err := l.stores[0].Hold(ctx, l.limits(), c, cost(10), cost(10))
		if err != nil {
			t.Fatalf("hold %d: %v", i, err)
		}
		l.took(c, 10)
		holds = append(holds, h)
	}
	room := func(bytes string) {
		t.Helper()
		if err := rdb.ConfigSet(ctx, "maxmemory", bytes).Err(); err != nil {
			t.Fatal(err)
		}
	}
	room("1")
	time.Sleep(300 * time.Millisecond)
	for range 20 {
		c, _ := l.newCall("org1")
		_, err := l.stores[0].Hold(ctx, l.limits(), c, cost(1), cost(1))
		if !errors.Is(err, ErrUnavailable) {
			t.Fatalf("hold with memory full: %v", err)
		}
	}
	for _, h := range holds { // their ends are taken all the same
		once, cancel := context.WithTimeout(ctx, time.Minute)
		if _, err := l.stores[0].Settle(once, h, Settlement{Actual: cost(7)}); err != nil {
			t.Fatalf("settle with memory full: %v", err)
		}
		cancel()
		l.took(h.Call, -3)
		l.mu.Lock()
		l.told[h.Call.ID] = receipt{h.Call, h, 7, time.Now()}
		l.mu.Unlock()
	}
	if n := rdb.HLen(ctx, key("org0", "holds")).Val(); n > 8 { // those of the callers
		t.Errorf("%d holds are still open", n)
	}
	room("0")
	l.again(time.Now())
	l.stop()
	l.tell()
	l.within()
	l.check()
}

// An operator kills connections, pauses the server and flushes its scripts
// under load.
func TestOperatorAtWork(t *testing.T) {
	server := redistest.Start(t)
	admin := server.Client()
	ctx := t.Context()
	l := newCallers(t, time.Second, 2, redisconn.Open(redisconn.Single, redisconn.Options(server.Addr)))
	l.start(16)
	for end := time.Now().Add(forLong(1500*time.Millisecond, time.Minute)); time.Now().Before(end); {
		for _, command := range [][]any{
			{"client", "kill", "type", "normal", "skipme", "yes"},
			{"script", "flush"},
			{"client", "pause", 350, "all"},
			{"client", "pause", 350, "write"},
		} {
			if err := admin.Do(ctx, command...).Err(); err != nil {
				t.Fatalf("%v: %v", command, err)
			}
			time.Sleep(450 * time.Millisecond)
		}
	}
	l.again(time.Now())
	l.stop()
	l.tell()
	if l.unknown == 0 {
		t.Error("no call noticed")
	}
	l.within()
	l.check()
}
