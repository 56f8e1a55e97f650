package queue

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/wire"
)

func zMember(id string, at time.Duration) redis.Z {
	return redis.Z{Score: float64(at.Microseconds()), Member: id}
}

// A job that kills every worker is quarantined after its attempts, can be inspected, and
// can be replayed once, as a new job.
func TestPoisonJobIsQuarantinedAndReplayed(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{MaxAttempts: 2, Lease: time.Minute}, Pool{ID: "p"})
	ctx, now := t.Context(), simStart
	e.at(now)
	j := e.put(e.job("p", "acme", "ann", Interactive, 10))
	for attempt := 1; ; attempt++ {
		c := e.claimOne("p", j)
		err := c.Start(ctx)
		e.at(now)
		if errors.Is(err, ErrGone) && attempt == 3 {
			break
		}
		if err != nil {
			t.Fatalf("attempt %d: %v", attempt, err)
		}
		now += 2 * time.Minute // its worker died
		e.lapse("p", now)
		// its caller stayed
		if err := e.rdb.ZAdd(ctx, e.settings.pools()["p"].keys[8], zMember(j.ID, now+time.Hour)).Err(); err != nil {
			t.Fatal(err)
		}
	}
	dead, more, err := e.DeadLetters(ctx, "p", "", 10)
	if err != nil || more || len(dead) != 1 || dead[0].ID != j.ID || dead[0].Code != "attempts_exhausted" {
		t.Fatalf("dead letters %+v, %t, %v", dead, more, err)
	}
	next, err := e.Replay(ctx, j.ID)
	if err != nil {
		t.Fatal(err)
	}
	again, err := e.Replay(ctx, j.ID)
	if err != nil || again.ID != next.ID {
		t.Errorf("a second replay is %+v, %v", again, err)
	}
	c := e.claimOne("p", next)
	if string(c.Body) != `{"n":1}` || c.Job.Tries != 0 || c.Job.Class != Async || c.Job.User != "ann" || c.Job.Model != j.Model || c.Job.Origin != j.ID {
		t.Errorf("replayed as %+v with %q", c.Job, c.Body)
	}
	if got := e.claim("p", 5); len(got) != 0 {
		t.Errorf("replayed %d times more", len(got))
	}
	old, err := e.Job(ctx, "acme", j.ID)
	if err != nil || old.State != Failed || old.Replay != next.ID || next.Origin != j.ID {
		t.Errorf("the dead job is %+v, %v", old, err)
	}
	if dead, _, _ := e.DeadLetters(ctx, "p", "", 10); len(dead) != 0 {
		t.Errorf("%d dead letters after the replay", len(dead))
	}
}

// The list holds jobs that may be worth another try, and is bounded.
func TestDeadLettersAreBounded(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{DeadLetters: 2}, Pool{ID: "p"})
	ctx := t.Context()
	var ids []string
	for _, status := range []int{502, 400, 500, 500} {
		j := e.put(e.job("p", "acme", "ann", Async, 10))
		ids = append(ids, j.ID)
		c := e.claimOne("p", j)
		if err := c.finish(ctx, Failed, Verdict{Error: &wire.Error{Status: status, Code: "x"}}, ""); err != nil {
			t.Fatal(err)
		}
	}
	dead, _, err := e.DeadLetters(ctx, "p", "", 10)
	if err != nil || len(dead) != 2 || dead[0].ID != ids[3] || dead[1].ID != ids[2] {
		t.Errorf("dead letters %+v, %v; want the last two", dead, err)
	}
	for _, id := range ids[:2] {
		if _, err := e.Replay(ctx, id); !errors.Is(err, ErrNotDead) {
			t.Errorf("replay of one that is not listed: %v", err)
		}
	}
	if ttl := e.rdb.PTTL(ctx, bodyKey(ids[3])).Val(); ttl < 6*24*time.Hour {
		t.Errorf("the body of a dead letter lives %s", ttl)
	}
}

// A job of a newer version is refused and left to newer workers.
func TestNewerRecordsAreLeft(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p"})
	ctx := t.Context()
	newer := e.put(e.job("p", "acme", "ann", Async, 10))
	if err := e.rdb.HSet(ctx, jobKey("p", newer.ID), "v", schemaVersion+1).Err(); err != nil {
		t.Fatal(err)
	}
	mine := e.put(e.job("p", "acme", "bob", Async, 10))
	stop := e.run(noop, WorkerOptions{})
	redistest.Eventually(t, "the own job to succeed", func() bool { return e.state(mine) == Succeeded })
	stop()
	if _, err := e.Job(ctx, "acme", newer.ID); !errors.Is(err, ErrNewer) {
		t.Errorf("read a newer record: %v", err)
	}
	if page, err := e.List(ctx, "acme", Filter{}, "", 10); err != nil || len(page.Jobs) != 1 {
		t.Errorf("listed %d, %v", len(page.Jobs), err)
	}
	record := e.rdb.HMGet(ctx, jobKey("p", newer.ID), "state", "attempt", "tries").Val()
	if record[0] != "queued" || record[1] != "0" || record[2] != "0" {
		t.Errorf("the newer job is %v", record)
	}
	if err := e.rdb.HSet(ctx, jobKey("p", newer.ID), "v", schemaVersion).Err(); err != nil { // as newer workers see it
		t.Fatal(err)
	}
	e.run(noop, WorkerOptions{})
	redistest.Eventually(t, "the newer job to succeed", func() bool { return e.state(newer) == Succeeded })
}

// No job is accepted when Redis is nearly full.
func TestNearlyFullRedisTakesNoJobs(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p"})
	ctx := t.Context()
	put := func() error {
		e.memory.Configure(capacity.Options{}) // makes it read Redis's memory again
		return e.Put(ctx, e.job("p", "acme", "ann", Async, 10), []byte("{}"))
	}
	if err := put(); err != nil {
		t.Fatal(err)
	}
	if err := e.rdb.ConfigSet(ctx, "maxmemory", "100mb").Err(); err != nil {
		t.Fatal(err)
	}
	if err := put(); err != nil {
		t.Fatal(err)
	}
	if err := e.rdb.ConfigSet(ctx, "maxmemory", "1mb").Err(); err != nil {
		t.Fatal(err)
	}
	var full *FullError
	if err := put(); !errors.As(err, &full) || full.Scope != "memory" || full.RetryAfter <= 0 {
		t.Errorf("put into a nearly full Redis: %v", err)
	}
}

// A flow has a bound of its own.
func TestFlowBound(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{OrgShare: 100, FlowShare: 50}, Pool{ID: "p", MaxJobs: 4, RPM: 60})
	ctx := t.Context()
	for range 2 {
		e.put(e.job("p", "acme", "ann", Async, 10))
	}
	var full *FullError
	if err := e.Put(ctx, e.job("p", "acme", "ann", Async, 10), nil); !errors.As(err, &full) || full.Scope != "flow_jobs" || full.RetryAfter != 2*time.Second {
		t.Errorf("a third job of the flow: %v; want flow_jobs and 2 jobs at one a second", err)
	}
	e.put(e.job("p", "acme", "bob", Async, 10))
}
