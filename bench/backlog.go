package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/fakeprovider"
)

// backlog measures how fast one worker process drains jobs that were submitted before it
// started, and how many of its attempts end unsent because the process was too busy.
type backlog struct {
	*bench
	pool   string
	answer time.Duration
	out    io.Writer
}

// backlogPatience limits the duration of the drain.
const backlogPatience = 3 * time.Minute

// drainBacklog runs "bench backlog".
func drainBacklog(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	fs := flag.NewFlagSet("bench backlog", flag.ContinueOnError)
	fs.SetOutput(stderr)
	l := &backlog{bench: &bench{log: stderr}, out: stdout}
	fs.IntVar(&l.jobs, "jobs", 8000, "jobs that wait when the worker starts")
	fs.IntVar(&l.handlers, "handlers", 256, "jobs that the worker runs at a time, worker_concurrency in the configuration")
	fs.StringVar(&l.pool, "pool", "", `the pool's quota, such as "rpm: 1000000, tpm: 1000M"; empty: none`)
	fs.DurationVar(&l.answer, "delay", 0, "how long the provider takes to answer")
	fs.StringVar(&l.guard, "llmguard", "", "llmguard binary to measure; default builds ./cmd/llmguard")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if l.jobs < 1 || l.jobs > 100_000 || l.handlers < 1 {
		return errors.New("bench backlog: 1 to 100,000 jobs, and a handler or more")
	}
	if l.pool != "" {
		l.pool = ", " + l.pool
	}
	provider := fakeprovider.New(fakeprovider.Options{Cadence: fakeprovider.Cadence{First: l.answer}})
	return l.deploy(ctx, provider, func() error { return l.run(ctx, provider) })
}

func (l *backlog) run(ctx context.Context, provider *fakeprovider.Server) error {
	key := keys.New(keys.Live)
	config := l.onePool(provider, key, fmt.Sprintf("id: main, worker_concurrency: %d%s", l.handlers, l.pool))
	proxy, _, err := l.startRole(ctx, "serve", "serve", config)
	if err != nil {
		return err
	}
	defer proxy.Stop()
	if err := l.put(ctx, "http://"+proxy.Addr, key); err != nil {
		return err
	}
	start := time.Now()
	worker, admin, err := l.startRole(ctx, "worker", "worker", config)
	if err != nil {
		return err
	}
	defer worker.Stop()
	var first time.Time
	for {
		text, err := get(ctx, "http://"+admin+"/metrics")
		if err != nil {
			return err
		}
		ended := sumOf(text, "llmguard_queue_jobs_ended_total")
		if first.IsZero() && ended > 0 {
			first = time.Now()
		}
		if ended >= l.jobs {
			l.report(text, provider, start, first)
			return nil
		}
		if time.Since(start) > backlogPatience {
			l.report(text, provider, start, first)
			return fmt.Errorf("only %d of %d jobs have ended\n%s", ended, l.jobs, worker.Tail())
		}
		time.Sleep(250 * time.Millisecond)
	}
}

// put submits the jobs.
func (l *backlog) put(ctx context.Context, url, key string) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(putters)
	for i := range l.jobs {
		g.Go(func() error {
			body := fmt.Sprintf(`{"model":"gpt-4o-mini","max_tokens":50,"messages":[{"role":"user","content":"[fake: output=10] job %d"}]}`, i)
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/completions", strings.NewReader(body))
			if err != nil {
				return err
			}
			req.Header = http.Header{
				"Authorization": {"Bearer " + key}, "Content-Type": {"application/json"},
				"Prefer": {"respond-async"},
			}
			_, err = do(clients, req, http.StatusAccepted)
			return err
		})
	}
	return g.Wait()
}

// report prints figures from the worker's metrics.
func (l *backlog) report(text string, provider *fakeprovider.Server, start, first time.Time) {
	took := time.Since(start)
	fmt.Fprintf(l.out, "%d jobs in %v from the start of the worker, %.0f a minute; the first ended after %v\n",
		l.jobs, took.Round(10*time.Millisecond), float64(l.jobs)/took.Minutes(), first.Sub(start).Round(10*time.Millisecond))
	fmt.Fprintf(l.out, "%d requests reached the provider; grants that grew old: %d\n",
		provider.Totals().Requests, sumOf(text, "llmguard_queue_stale_grants_total"))
	for line := range strings.Lines(text) {
		for _, name := range []string{
			"llmguard_queue_jobs_ended_total", "llmguard_guard_calls_total",
			"llmguard_queue_retries_total",
		} {
			if strings.HasPrefix(line, name+"{") {
				fmt.Fprint(l.out, line)
			}
		}
	}
}

// sumOf adds up all series of a counter.
func sumOf(text, name string) (sum int) {
	for line := range strings.Lines(text) {
		at := strings.LastIndexByte(line, ' ')
		if at < 0 || !strings.HasPrefix(line, name+"{") {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(line[at:]), 64)
		if err == nil {
			sum += int(n)
		}
	}
	return sum
}
