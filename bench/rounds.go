package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/llmguard/llmguard/bench/child"
	"github.com/llmguard/llmguard/bench/load"
	"github.com/llmguard/llmguard/bench/report"
)

// bench is a complete benchmark run.
type bench struct {
	rounds, connections     int
	jobs, handlers          int
	duration, warmup, delay time.Duration
	rate                    float64
	noOpen, memory          bool
	only, guard, dir        string
	profile                 string // where llmguard writes its profile; empty: none
	prompts                 []load.Prompt
	log                     io.Writer
	redis, upstream         *child.Process
	protocol                string // of the upstream, one of protocolNames
	cert                    string // file with its certificate and key; "": no TLS
	targets                 []*target
}

// run measures every target with every prompt in every round. Rounds are the outermost loop, so
// that all targets share the machine's good and bad minutes.
func (b *bench) run(ctx context.Context) (*report.Table, error) {
	defer b.stop()
	if err := b.start(ctx); err != nil {
		return nil, err
	}
	open := b.openPrompts()
	runs := b.rounds * len(b.targets) * (len(b.prompts) + len(open))
	fmt.Fprintf(b.log, "%d runs of %v and %v warm-up, upstream %s: about %v\n",
		runs, b.duration, b.warmup, b.protocol, (time.Duration(runs) * (b.duration + b.warmup)).Round(time.Second))
	table := &report.Table{Reference: reverseRedis}
	slowest := make(map[load.Prompt]float64)
	for round := range b.rounds {
		for _, p := range b.prompts {
			if err := b.cell(ctx, table, p, round, 0, slowest); err != nil {
				return table, err
			}
		}
	}
	for round := range b.rounds {
		for _, p := range open {
			rate := b.rate
			if rate == 0 {
				rate = 0.4 * slowest[p]
			}
			if err := b.cell(ctx, table, p, round, rate, nil); err != nil {
				return table, err
			}
		}
	}
	return table, nil
}

// openPrompts returns the prompts whose latency is also measured in an open loop.
func (b *bench) openPrompts() []load.Prompt {
	if b.noOpen {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(b.prompts), func(p load.Prompt) bool { return p.Repeat || p.Stream })
}

// cell measures all targets with one prompt, in a new order each time. It records the rate of
// the slowest target.
func (b *bench) cell(ctx context.Context, table *report.Table, p load.Prompt, round int, rate float64,
	slowest map[load.Prompt]float64,
) error {
	rng := rand.New(rand.NewPCG(uint64(round), uint64(p.Size)))
	samples := make([]report.Sample, len(b.targets))
	for _, i := range rng.Perm(len(b.targets)) {
		s, err := b.measure(ctx, b.targets[i], p, round, rate)
		if err != nil {
			return err
		}
		samples[i] = s
		if slowest != nil && s.PerSecond > 0 && (slowest[p] == 0 || s.PerSecond < slowest[p]) {
			slowest[p] = s.PerSecond
		}
	}
	for _, s := range samples {
		table.Add(s)
	}
	return nil
}

// measure loads one target and reads CPU times before and after.
func (b *bench) measure(ctx context.Context, t *target, p load.Prompt, round int, rate float64) (report.Sample, error) {
	var marks []usage
	var cpuErr error
	plan := load.Plan{
		Addr: t.proc.Addr, Key: t.key, Prompt: p, Connections: b.connections, Rate: rate,
		Warmup: b.warmup, Duration: b.duration, Seed: rand.Uint64(),
		Mark: func() {
			u, err := b.usage(t)
			marks = append(marks, u)
			if err != nil {
				cpuErr = err
			}
		},
	}
	if rate > 0 {
		plan.Connections = 4 * b.connections
	}
	res, err := load.Run(ctx, plan)
	switch {
	case err != nil:
		return report.Sample{}, err
	case ctx.Err() != nil:
		return report.Sample{}, ctx.Err()
	case cpuErr != nil:
		return report.Sample{}, fmt.Errorf("%s died: %w\n%s", t.name, cpuErr, t.proc.Tail())
	}
	s := b.sample(t, p, round, rate, res, marks)
	b.say(s, res.FirstErr)
	return s, nil
}

// usage is the CPU time of a target and of Redis so far.
type usage struct{ target, redis time.Duration }

func (b *bench) usage(t *target) (u usage, err error) {
	u.redis, err = b.redis.CPU()
	if err != nil {
		return u, err
	}
	u.target, err = t.proc.CPU()
	return u, err
}

func (b *bench) sample(t *target, p load.Prompt, round int, rate float64, res *load.Result,
	marks []usage,
) report.Sample {
	s := report.Sample{
		Cell: p.String(), Target: t.name, Round: round, Calls: res.Calls, Errors: res.Errors, Dropped: res.Dropped,
		PerSecond: res.Rate(), P50: res.Quantile(0.5), P99: res.Quantile(0.99), P999: res.Quantile(0.999),
	}
	if rate > 0 {
		s.Cell += ", open loop"
	}
	if calls := time.Duration(res.Calls + res.Errors); calls > 0 {
		s.CPU = (marks[1].target - marks[0].target) / calls
		s.Redis = (marks[1].redis - marks[0].redis) / calls
	}
	return s
}

// say prints a line of progress.
func (b *bench) say(s report.Sample, firstErr error) {
	fmt.Fprintf(b.log, "round %d  %-24s %-15s %7.0f calls/s  %4d µs CPU  %3d µs Redis",
		s.Round+1, s.Cell, s.Target, s.PerSecond, s.CPU.Microseconds(), s.Redis.Microseconds())
	if s.Errors > 0 {
		fmt.Fprintf(b.log, "  %d failed: %.300v", s.Errors, firstErr)
	}
	fmt.Fprintln(b.log)
}
