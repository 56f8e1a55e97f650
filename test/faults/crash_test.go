package faults

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/randtest"
	"github.com/llmguard/llmguard/internal/redisconn/driver"
	"github.com/llmguard/llmguard/internal/redistest"
)

// Redis is killed under load. With an append-only file that is always synced, it loses nothing
// that it has confirmed. If it is synced every second, writes are delayed while the disk is
// busy with a sync. A crash then loses them, and the stores write them again.
func TestRedisKilled(t *testing.T) {
	t.Parallel()
	for _, sync := range []string{"always", "everysec"} {
		t.Run(sync, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, redistest.WithAOF(), redistest.WithArgs("--appendfsync", sync))
			open := func() redis.UniversalClient {
				return driver.Open(driver.Single, driver.Options(server.Addr))
			}
			l := newCallers(t, time.Second, 2, open(), open())
			l.forgets = sync != "always"
			l.start(8)
			var killed time.Time
			for range randtest.Rounds(2, 100) {
				l.more(100)
				killed = time.Now()
				server.Kill()
				l.deadCalls(5)
				server.Restart()
				l.again()
			}
			l.refusals()
			l.stop()
			l.log()
			forgotten := l.repaired(killed)
			t.Logf("%d ends were forgotten the last time", forgotten)
			if sync == "always" {
				l.within()
				if forgotten > 0 {
					t.Errorf("%d answered ends were forgotten, want none", forgotten)
				}
			}
			l.check()
		})
	}
}

// With its memory full under load, Redis refuses holds and accepts their ends; once there is
// space, calls continue.
func TestMemoryFullUnderLoad(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := driver.Open(driver.Single, driver.Options(server.Addr))
	ctx := t.Context()
	l := newCallers(t, time.Second, 2, rdb)
	l.start(8)
	l.more(50)
	var holds []*budget.Hold
	for i := range 50 { // open while the memory is full
		c, _ := l.newCall("org0")
		c.User = "patient"
		h, err := l.stores[0].Hold(ctx, budget.Terms{Limits: l.limits(), Call: c, Max: cost(10), Expected: cost(10)})
		if err != nil {
			t.Fatalf("hold %d: %v", i, err)
		}
		l.took(c, 10)
		holds = append(holds, h)
	}
	room := func(bytes string) {
		t.Helper()
		err := rdb.ConfigSet(ctx, "maxmemory", bytes).Err()
		if err != nil {
			t.Fatal(err)
		}
	}
	room("1")
	l.deadCalls(20)
	for _, h := range holds {
		once, cancel := context.WithTimeout(ctx, time.Minute)
		_, err := l.stores[0].Settle(once, h, budget.Settlement{Actual: cost(7)})
		cancel()
		if err != nil {
			t.Fatalf("settle with memory full: %v", err)
		}
		l.took(h.Call, -3)
		l.settled(h, 7)
	}
	room("0")
	l.again()
	l.refusals()
	l.stop()
	l.log()
	l.within()
	l.check()
}

// An operator kills connections, flushes scripts, pauses writes and stops the process under
// load.
func TestOperatorAtWork(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client()
	ctx := t.Context()
	l := newCallers(t, time.Second, 2, driver.Open(driver.Single, driver.Options(server.Addr)))
	l.start(16)
	l.more(50)
	do := func(command ...any) {
		t.Helper()
		err := admin.Do(ctx, command...).Err()
		if err != nil {
			t.Fatalf("%v: %v", command, err)
		}
	}
	signal := func(s syscall.Signal) {
		t.Helper()
		err := server.Signal(s)
		if err != nil {
			t.Fatal(err)
		}
	}
	for range randtest.Rounds(1, 30) {
		do("client", "kill", "type", "normal", "skipme", "yes")
		l.again()
		do("script", "flush")
		l.again()
		do("client", "pause", time.Minute.Milliseconds(), "write")
		l.deadCalls(3)
		do("client", "unpause")
		l.again()
		signal(syscall.SIGSTOP)
		l.deadCalls(3)
		signal(syscall.SIGCONT)
		l.again()
	}
	l.refusals()
	l.stop()
	l.log()
	l.within()
	l.check()
}
