package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/bench/child"
	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/wire"
)

// masters is the number of servers of the cluster that spread measures.
const masters = 3

// spreading measures how the calls of one org load the masters of a cluster.
type spreading struct {
	servers []*child.Process
	rdb     redis.UniversalClient
	calls   int
	callers int
	users   int
	now     atomic.Int64 // parts of the org
}

// spread holds and settles calls of one org with several spreads on a cluster of its own, and prints
// the CPU time of each master per call. Rates would depend on how many cores are free here.
func spread(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	fs := flag.NewFlagSet("bench spread", flag.ContinueOnError)
	fs.SetOutput(stderr)
	s := &spreading{}
	fs.IntVar(&s.calls, "calls", 10_000, "calls of each run")
	fs.IntVar(&s.callers, "callers", 48, "concurrent callers")
	fs.IntVar(&s.users, "users", 1000, "users, each with the same share of the calls")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if s.calls < 1 || s.callers < 1 || s.users < 1 {
		return errors.New("bench spread: counts must be positive")
	}
	dir, err := os.MkdirTemp("", "llmguard-spread-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	defer func() {
		for _, p := range s.servers {
			p.Stop()
		}
	}()
	if err := s.start(ctx, dir); err != nil {
		return err
	}
	defer s.rdb.Close()
	fmt.Fprintf(stdout, "%d processors shared by callers and %d masters; one org with %d users, %d calls, %d callers\n\n",
		runtime.NumCPU(), masters, s.users, s.calls, s.callers)
	table := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "spread\tµs per call by master\t\t\ttogether\tbusiest\tcalls/s of one core\t")
	for _, parts := range []int{1, 4, 16, 64} {
		cpu, err := s.run(ctx, parts)
		if err != nil {
			return err
		}
		sum := 0.0
		fmt.Fprintf(table, "%d\t", parts)
		for _, us := range cpu {
			sum += us
			fmt.Fprintf(table, "%.0f\t", us)
		}
		most := slices.Max(cpu)
		fmt.Fprintf(table, "%.0f\t%.0f %%\t%.0f\t\n", sum, 100*most/sum, 1e6/most)
	}
	return table.Flush()
}

// start runs a cluster of empty masters.
func (s *spreading) start(ctx context.Context, dir string) error {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return err
	}
	const slots = 16384
	var addrs, buses []string
	for i := range masters {
		addr, err := child.FreeAddr(ctx)
		if err != nil {
			return err
		}
		bus, err := child.FreeAddr(ctx)
		if err != nil {
			return err
		}
		_, port, _ := net.SplitHostPort(addr)
		_, busPort, _ := net.SplitHostPort(bus)
		name := "redis" + strconv.Itoa(i)
		p, err := child.Start(ctx, child.Command{Name: name, Path: path, Addr: addr, Dir: dir, Args: []string{
			"--port", port, "--cluster-port", busPort, "--bind", "127.0.0.1", "--dir", dir, "--save", "",
			"--appendonly", "yes", "--appenddirname", name, "--appendfsync", "everysec",
			"--cluster-enabled", "yes", "--cluster-config-file", name + ".conf",
		}})
		if err != nil {
			return err
		}
		s.servers = append(s.servers, p)
		if err := p.WaitFor(ctx, startPatience, child.Dial); err != nil {
			return err
		}
		one := redis.NewClient(redisconn.Options(addr).Simple())
		err = one.ClusterAddSlotsRange(ctx, i*slots/masters, (i+1)*slots/masters-1).Err()
		for n := range addrs {
			_, port, _ := net.SplitHostPort(addrs[n])
			err = errors.Join(err, one.Do(ctx, "cluster", "meet", "127.0.0.1", port, buses[n]).Err())
		}
		if err := errors.Join(err, one.Close()); err != nil {
			return err
		}
		addrs, buses = append(addrs, addr), append(buses, busPort)
	}
	s.rdb = redisconn.Open(redisconn.Cluster, redisconn.Options(addrs...))
	return s.whole(ctx, addrs)
}

// whole waits until every master knows the others.
func (s *spreading) whole(ctx context.Context, addrs []string) error {
	for _, addr := range addrs {
		one := redis.NewClient(redisconn.Options(addr).Simple())
		defer one.Close()
		for {
			text, err := one.ClusterInfo(ctx).Result()
			if err != nil {
				return err
			}
			if strings.Contains(text, "cluster_state:ok") && strings.Contains(text, fmt.Sprint("cluster_known_nodes:", masters)) {
				break
			}
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}

// run makes the calls with so many parts and returns the CPU time of each master in µs per call.
func (s *spreading) run(ctx context.Context, parts int) ([]float64, error) {
	s.now.Store(int64(parts))
	line := redisconn.Joined(s.rdb, budget.Join(s.rdb))
	store := budget.New(s.rdb, budget.Options{
		Lease: time.Hour, Scripts: line,
		Spread: func(string) budget.Spread { return budget.Spread{Parts: int(s.now.Load()), By: budget.User} },
	})
	if err := s.make(ctx, store, s.calls/10); err != nil { // scripts, connections and the registry
		return nil, err
	}
	before, err := s.cpu()
	if err != nil {
		return nil, err
	}
	if err := s.make(ctx, store, s.calls); err != nil {
		return nil, err
	}
	after, err := s.cpu()
	if err != nil {
		return nil, err
	}
	out := make([]float64, masters)
	for i := range out {
		out[i] = float64((after[i] - before[i]).Microseconds()) / float64(s.calls)
	}
	return out, nil
}

func (s *spreading) cpu() (out []time.Duration, err error) {
	for _, p := range s.servers {
		d, err := p.CPU()
		if err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	return out, nil
}

// make holds and settles n calls.
func (s *spreading) make(ctx context.Context, store *budget.Store, n int) error {
	var next atomic.Int64
	var all sync.WaitGroup
	errs := make(chan error, s.callers)
	for range s.callers {
		all.Go(func() {
			for next.Add(1) <= int64(n) {
				if err := s.call(ctx, store); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	all.Wait()
	close(errs)
	return <-errs
}

func (s *spreading) call(ctx context.Context, store *budget.Store) error {
	user := strconv.Itoa(rand.IntN(s.users))
	most := budget.Amounts{Cost: 12_345_678, Tokens: 4000}
	h, err := store.Hold(ctx, budget.Terms{
		Limits: []budget.Limit{
			{
				ID: "hour", Subject: budget.User, Metric: budget.Cost,
				Shape: budget.Shape{Kind: budget.Window, Amount: budget.MaxAmount, Window: time.Hour},
			},
			{
				ID: "minute", Subject: budget.Key, Metric: budget.Requests,
				Shape: budget.Shape{Kind: budget.Window, Amount: 1_000_000, Window: time.Minute},
			},
		},
		Call: budget.Call{
			ID: wire.NewCallID(), Org: "acme", User: "user" + user, Key: "key" + user, Model: "gpt-5", Provider: "openai",
			Endpoint: "chat.completions", PriceVersion: "2026-11-01",
		},
		Max: most, Expected: most,
	})
	if err != nil {
		return err
	}
	_, err = store.Settle(ctx, h, budget.Settlement{
		Actual: budget.Amounts{Cost: 2_345_678, Tokens: 1200}, Outcome: "ok", Status: 200,
	})
	return err
}
