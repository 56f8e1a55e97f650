package budget

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/redistest"
)

// Of 20,000 runs nothing is left: every key of a run ends within an hour after it, and the lists of runs are
// trimmed by the next run.
func TestManyRunsLeaveNoKeys(t *testing.T) {
	ctx := t.Context()
	f := newFixture(t, shared(t), Options{})
	const runs, writers = 20_000, 8
	var work sync.WaitGroup
	for w := range writers {
		work.Go(func() {
			for i := w; i < runs; i += writers {
				n := NewRun{
					Run:  Run{Path: ledger.RunPath(fmt.Sprintf("run_%d", i)), Org: f.org, Amount: 100, Key: fmt.Sprintf("k%d", i%10)},
					Life: time.Minute, Most: runs,
				}
				run, made, err := f.Runs.Create(ctx, n)
				if err != nil || !made {
					t.Errorf("run %d: got made %t, error %v", i, made, err)
					return
				}
				if i%100 != 0 {
					continue
				}
				h, err := f.Hold(ctx, f.in(60, run))
				if err == nil {
					_, err = f.Settle(ctx, h, Settlement{Actual: cost(60)})
				}
				if err == nil && i%200 == 0 {
					_, err = f.Runs.End(ctx, run)
				}
				if err == nil {
					err = f.Runs.PutKey(ctx, fmt.Sprint("hash", i), RunOwner{Org: f.org, Run: run.Path}, time.Minute)
				}
				if err != nil {
					t.Errorf("run %d: %v", i, err)
					return
				}
			}
		})
	}
	redistest.Wait(t, work.Wait)
	kinds := map[string]int{}
	for name, ttl := range lifetimes(ctx, t, f.rdb) {
		if !strings.Contains(name, "run") {
			continue
		}
		_, rest, _ := strings.Cut(name, "}:")
		kind, _, _ := strings.Cut(rest, ":")
		kinds[kind]++
		if ttl <= 0 || ttl > time.Minute+RunKept+graceOfPeriods {
			t.Fatalf("%s: got a lifetime of %s, want at most an hour after the run", name, ttl)
		}
	}
	if kinds["run"] != runs+runs/100 || kinds["l"] != runs/100 || kinds["runs"] != 1 || kinds["runs-of"] != 10 {
		t.Errorf("got the keys %v, want those of all runs", kinds)
	}
	f.pass(time.Minute + RunKept + time.Second)
	f.newRun(t, "", "run_last", 1)
	for _, list := range []string{"runs", "runs-of:key:k1"} {
		if got := f.rdb.ZRange(ctx, ledger.Key(f.org, list), 0, -1).Val(); !slices.Equal(got, []string{"run_last"}) {
			t.Errorf("%s: got %d runs, want the last one alone", list, len(got))
		}
	}
}

// graceOfPeriods is how much longer than its period the state of a limit is kept: see lua/shapes.lua.
const graceOfPeriods = time.Minute

// lifetimes returns the time to live of every key.
func lifetimes(ctx context.Context, t *testing.T, rdb *redis.Client) map[string]time.Duration {
	t.Helper()
	out := map[string]time.Duration{}
	for cursor := uint64(0); ; {
		names, next, err := rdb.Scan(ctx, cursor, "lg:*", 1000).Result()
		if err != nil {
			t.Fatal(err)
		}
		p := rdb.Pipeline()
		ttls := make([]*redis.DurationCmd, len(names))
		for i, name := range names {
			ttls[i] = p.PTTL(ctx, name)
		}
		if _, err := p.Exec(ctx); len(names) > 0 && err != nil {
			t.Fatal(err)
		}
		for i, name := range names {
			out[name] = ttls[i].Val()
		}
		if cursor = next; cursor == 0 {
			return out
		}
	}
}

// On a Redis Cluster, every request about runs is in the slot of its org, or of the hash of a key.
func TestRunsOnACluster(t *testing.T) {
	t.Parallel()
	group := redistest.StartCluster(t, 3, 0)
	rdb, ctx := group.Client(), t.Context()
	nodes := map[*redistest.Server]bool{}
	s := New(redistest.DB(rdb), Options{})
	for i := range 8 {
		org := fmt.Sprintf("org%d", i)
		nodes[group.Owner(ledger.Key(org, ""))] = true
		must := func(what string, err error) {
			t.Helper()
			if err != nil {
				t.Fatalf("%s of %s: %v", what, org, err)
			}
		}
		create := func(path ledger.RunPath, amount int64) Run {
			t.Helper()
			run, _, err := s.Runs.Create(ctx, NewRun{
				Run: Run{Path: path, Org: org, Amount: 0, Key: "k1"}, Life: time.Hour, Most: 9,
			})
			must("create", err)
			run, err = s.Runs.TopUp(ctx, run, "first", cost(amount).Cost, 0)
			must("top up", err)
			return run
		}
		root := create("run_a", 1000)
		child := create("run_a/run_b", 500)
		call := ledger.Call{ID: idAt(time.Now(), i), Org: org, User: "ann", Key: "k1", Run: child.Path}
		terms := Terms{Limits: slices.Concat(root.Limits(), child.Limits()), Call: call, Max: cost(400), Expected: cost(400)}
		h, err := s.Hold(ctx, terms)
		must("hold", err)
		_, err = s.Settle(ctx, h, Settlement{Actual: cost(300)})
		must("settle", err)
		_, err = s.Adjust(ctx, ledger.Adjustment{ID: "back", Call: call, Amount: -50, By: "carla", Reason: "r"}, nil)
		must("adjust", err)
		must("put a key", s.Runs.PutKey(ctx, "hash"+org, RunOwner{Org: org, Run: child.Path}, time.Hour))
		owner, err := s.Runs.FindKey(ctx, "other", "hash"+org)
		must("find a key", err)
		_, err = s.Runs.End(ctx, child)
		must("end", err)
		list, _, err := s.Runs.List(ctx, org, "", "", RunPage{Limit: 9})
		must("list", err)
		uses, err := s.Runs.Uses(ctx, org, []Run{root, child})
		must("uses", err)
		if want := []RunUse{{250, 0, 750}, {250, 0, 250}}; !slices.Equal(uses, want) || len(list) != 2 || owner.Org != org {
			t.Errorf("%s: got uses %v, %d runs, owner %+v, want %v, 2 runs and the org", org, uses, len(list), owner, want)
		}
	}
	if len(nodes) < 2 {
		t.Fatal("all orgs are on one node")
	}
}
