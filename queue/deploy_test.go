package queue

import (
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/redistest"
)

// The same code runs on Redis Cluster and on the in-process store.
func TestOtherStores(t *testing.T) {
	t.Parallel()
	for name, connect := range map[string]func(*testing.T) redis.UniversalClient{
		"cluster": func(t *testing.T) redis.UniversalClient {
			srv := redistest.Start(t, redistest.WithArgs("--cluster-enabled", "yes"))
			rdb := srv.Client()
			host, port, _ := net.SplitHostPort(srv.Addr)
			for _, cmd := range [][]any{
				{"config", "set", "cluster-announce-ip", host},
				{"config", "set", "cluster-announce-port", port},
				{"cluster", "addslotsrange", 0, 16383},
			} {
				if err := rdb.Do(t.Context(), cmd...).Err(); err != nil {
					t.Fatal(err)
				}
			}
			redistest.Eventually(t, "cluster up", func() bool {
				return rdb.Set(t.Context(), "x", 1, time.Second).Err() == nil
			})
			return redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{srv.Addr}})
		},
		"in process": func(t *testing.T) redis.UniversalClient {
			return redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
		},
	} {
		t.Run(name, func(t *testing.T) {
			rdb := connect(t)
			t.Cleanup(func() { _ = rdb.Close() })
			q, err := New(redistest.DB(rdb), []Pool{{ID: "p", RPM: 6000, TPM: 1e6, Concurrency: 8}}, Options{Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			e := &env{Queue: q, t: t}
			stop := e.run(noop, WorkerOptions{})
			defer stop()
			g, err := e.Take(t.Context(), "p", "c1", Flow{"acme", "ann"}, 10)
			if err != nil {
				t.Fatal(err)
			}
			if err := e.Give(t.Context(), g, true); err != nil {
				t.Fatal(err)
			}
			var jobs []*Job
			for i := range 30 {
				jobs = append(jobs, e.put(e.job("p", "acme", "ann", Class(i%3+1), 10)))
			}
			w := e.Watch(t.Context(), jobs[0])
			defer w.Close()
			if got := script(t, w); got == "" {
				t.Error("watched nothing")
			}
			for _, j := range jobs {
				redistest.Eventually(t, "job succeeded", func() bool { return e.state(j) == Succeeded })
			}
			e.expect(jobs[0])
			// without those of batches
			if page, err := e.List(t.Context(), "acme", Filter{}, "", 50); err != nil || len(page.Jobs) != 20 {
				t.Errorf("listed %d, %v", len(page.Jobs), err)
			}
			stop()
			reserved := e.put(e.job("p", "acme", "ann", Interactive, 10))
			if state, err := e.Places().Reserve(t.Context(), "acme", reserved.ID, time.Minute); err != nil || state != Queued {
				t.Errorf("reserved: %s, %v", state, err)
			}
			e.endings.endOverdue(t.Context())
			if got := e.next(); got != "" {
				t.Errorf("claimed %s without its caller", got)
			}
			if _, err := e.Places().Return(t.Context(), "acme", reserved.ID, time.Minute, time.Minute); err != nil {
				t.Error(err)
			}
			if err := e.claimOne("p", reserved).Start(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// When Redis is full, jobs are refused, but running ones can end and free memory.
func TestFullRedisCanDrain(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p"})
	ctx := t.Context()
	var claims []*Claim
	for range 3 {
		c := e.claimOne("p", e.put(e.job("p", "acme", "ann", Async, 10)))
		if err := c.Start(ctx); err != nil {
			t.Fatal(err)
		}
		claims = append(claims, c)
	}
	g, err := e.Take(ctx, "p", "c1", Flow{"acme", "ann"}, 10)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.rdb.ConfigSet(ctx, "maxmemory", "1mb").Err(); err != nil {
		t.Fatal(err)
	}
	if err := e.Put(ctx, e.job("p", "acme", "ann", Async, 10), []byte("x")); err == nil {
		t.Error("a full Redis took a job")
	}
	if err := claims[0].finish(ctx, Succeeded, Verdict{Unused: true}, ""); err != nil {
		t.Errorf("finish: %v", err)
	}
	if err := claims[1].release(ctx, Verdict{Kind: Requeue, Unused: true}, "0"); err != nil {
		t.Errorf("release: %v", err)
	}
	if err := e.Give(ctx, g, true); err != nil {
		t.Errorf("give: %v", err)
	}
	if d, _ := e.Depth(ctx, "p"); d.Jobs != 2 || d.Claims != 1 {
		t.Errorf("depth %+v", d)
	}
}
