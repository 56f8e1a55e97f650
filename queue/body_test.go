package queue

import (
	"context"
	"testing"

	"github.com/llmguard/llmguard/internal/spool"
)

// TestBodiesOfJobsTakeRoom checks that a job without memory for its body returns to its
// place and runs once there is some; that the body counts while the job runs; and that an
// answer counts for as long as a reader holds it.
func TestBodiesOfJobsTakeRoom(t *testing.T) {
	t.Parallel()
	for _, outside := range []bool{true, false} {
		o := Options{Spool: spool.New(spool.Options{Memory: 1 << 20})}
		if outside {
			o, _ = withBlobs(t, o)
		}
		e := newEnv(t, o, Pool{ID: "p"})
		room := o.Spool.Memory
		body := text("x", 300<<10)
		if !room.Try("acme", 1<<20) {
			t.Fatal("no room to take away")
		}
		j := e.job("p", "acme", "ann", Async, 1)
		if err := e.Put(t.Context(), j, []byte(body)); err != nil {
			t.Fatal(err)
		}
		var while int64
		e.run(func(ctx context.Context, c *Claim) Verdict {
			while = room.Used()
			if got := string(c.Body); got != body {
				t.Errorf("the runner has %d bytes of %d", len(got), len(body))
			}
			return echo(ctx, c)
		}, WorkerOptions{})
		e.until("the job is put back", func() bool { return o.Spool.Memory.Refused() > 0 })
		if e.state(j) != Queued {
			t.Error("a job runs whose body has no room")
		}
		room.Give("acme", 1<<20)
		e.end(j)
		if while < int64(len(body)) {
			t.Errorf("%d bytes count while the job runs, want the body's %d", while, len(body))
		}
		e.until("the body takes no room", func() bool { return room.Used() == 0 })
		if !outside {
			continue
		}
		watch := e.Follow(j)
		for ev := (Event{}); ev.Kind != Bytes; {
			var err error
			if ev, err = watch.Next(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if n := room.Used(); n < int64(len(body)) {
			t.Errorf("an answer that is read counts as %d bytes, want %d", n, len(body))
		}
		watch.Close()
		if n := room.Used(); n != 0 {
			t.Errorf("%d bytes are left", n)
		}
	}
}
