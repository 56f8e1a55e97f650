package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/bench/population"
	"github.com/llmguard/llmguard/internal/redisconn/driver"
)

// populate runs the simulation of docs/scaling.md on its own Redis.
func populate(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	fs := flag.NewFlagSet("bench population", flag.ContinueOnError)
	fs.SetOutput(stderr)
	c := population.Config{Seed: 1}
	fs.IntVar(&c.Users, "users", 100_000, "users")
	fs.IntVar(&c.Orgs, "orgs", 200, "orgs, with as many users each; every run is done with one org, too")
	fs.IntVar(&c.Calls, "calls", 60_000, "calls of each run")
	fs.IntVar(&c.Callers, "callers", 50, "concurrent callers")
	fs.Float64Var(&c.Skew, "skew", 1.1, "Zipf exponent of calls over users, above 1")
	rounds := fs.Int("rounds", 3, "rounds; the run with the median of holds per core is printed")
	users := fs.Float64("for-users", 1e6, "users of the worked example")
	rate := fs.Float64("for-calls", 50_000, "calls per second of the worked example")
	memory := fs.Bool("memory", false, "run Redis without its append-only file")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if c.Users < 2 || c.Orgs < 1 || c.Calls < 1 || c.Callers < 1 || c.Skew <= 1 || *rounds < 1 {
		return fmt.Errorf("bench population: counts must be positive, users above 1, skew above 1")
	}
	dir, err := os.MkdirTemp("", "llmguard-population-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := &bench{dir: dir, memory: *memory, log: stderr}
	server, err := b.startRedis(ctx)
	if err != nil {
		return err
	}
	defer server.Stop()
	rdb := redis.NewClient(driver.Options(server.Addr).Simple())
	defer rdb.Close()

	fmt.Fprintf(stdout, "%d processors shared by callers and Redis; %d users, Zipf %.2f, %d calls, %d callers\n\n",
		runtime.NumCPU(), c.Users, c.Skew, c.Calls, c.Callers)
	var results []population.Result
	for _, limits := range []int{2, 6} {
		for _, orgs := range []int{c.Orgs, 1} {
			for _, pipelined := range []bool{false, true} {
				run := c
				run.Limits = limits
				run.Orgs = orgs
				run.Pipelined = pipelined
				r, err := population.Median(ctx, rdb, run, *rounds)
				if err != nil {
					return err
				}
				results = append(results, r)
			}
		}
	}
	if err := population.Print(stdout, results); err != nil {
		return err
	}
	for _, r := range results {
		if r.Pipelined && r.Orgs > 1 {
			fmt.Fprintf(stdout, "\n%d limits: the busiest user makes %.1f %% of the calls, the busiest org %.1f %%\n",
				r.Limits, r.HotUser*100, r.HotOrg*100)
			if err := r.Extrapolate(*users, *rate).Print(stdout); err != nil {
				return err
			}
		}
	}
	return nil
}
