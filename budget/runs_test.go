package budget

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/pricing"
)

// newRun creates a run of amount inside a parent.
func (f *fixture) newRun(t *testing.T, parent ledger.RunPath, id string, amount pricing.Nano) Run {
	t.Helper()
	run, made, err := f.Runs.Create(t.Context(), NewRun{
		Run:  Run{Path: parent.Below(id), Org: f.call().Org, Amount: amount, Key: "k1", User: "u1", Models: []string{"gpt-*"}},
		Life: time.Hour, Most: 100,
	})
	if err != nil || !made {
		t.Fatalf("create run %s: got made %t, error %v", id, made, err)
	}
	return run
}

// in returns terms of a call of a run.
func (f *fixture) in(n int64, runs ...Run) Terms {
	c := f.call()
	var limits []Limit
	for i := range runs {
		c.Run = runs[i].Path
		limits = append(limits, runs[i].Limits()...)
	}
	return Terms{Limits: limits, Call: c, Max: cost(n), Expected: cost(n)}
}

// A top-up is repeated without effect whatever came after it, and its id does not keep a run from ending.
func TestRepeatedTopUps(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		ctx := t.Context()
		f := newFixture(t, rdb, Options{})
		run := f.newRun(t, "", "run_root", 1000)
		for i, id := range []string{"a", "b", "a", "end", "b", "a"} {
			want := []pricing.Nano{1100, 1200, 1200, 1300, 1300, 1300}[i]
			got, err := f.Runs.TopUp(ctx, run, id, 100, 0)
			if err != nil || got.Amount != want {
				t.Fatalf("top-up %d, %s: got %d, error %v, want %d", i, id, got.Amount, err, want)
			}
		}
		for i := 3; i < 500; i++ { // beside a, b and end
			if _, err := f.Runs.TopUp(ctx, run, fmt.Sprint("other-", i), 1, 0); err != nil {
				t.Fatalf("top-up %d: %v", i, err)
			}
		}
		if _, err := f.Runs.TopUp(ctx, run, "one more", 1, 0); !errors.Is(err, ErrRunChanges) {
			t.Errorf("top-up 501: got %v, want too many", err)
		}
		if got, err := f.Runs.TopUp(ctx, run, "a", 100, 0); err != nil || got.Amount != 1300+497 {
			t.Errorf("the first top-up again: got %d, error %v, want %d", got.Amount, err, 1300+497)
		}
		for range 2 {
			run, err := f.Runs.End(ctx, run)
			if err != nil || run.Ended.IsZero() {
				t.Fatalf("got ended %v, error %v, want an ended run", run.Ended, err)
			}
		}
	})
}

// A call of a run takes from the run and from those it is inside of, or from none; what they spent never returns.
func TestRunsAreUsedUp(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		ctx := t.Context()
		f := newFixture(t, rdb, Options{})
		org := f.call().Org
		root := f.newRun(t, "", "run_root", 1000)
		child := f.newRun(t, root.Path, "run_child", 900)
		if child.Path != "run_root/run_child" {
			t.Fatalf("got the path %q, want run_root/run_child", child.Path)
		}
		uses := func(want ...RunUse) {
			t.Helper()
			got, err := f.Runs.Uses(ctx, org, []Run{root, child})
			if err != nil || !slices.Equal(got, want) {
				t.Fatalf("got uses %v, error %v, want %v", got, err, want)
			}
		}
		h, err := f.Hold(ctx, f.in(600, root, child))
		if err != nil {
			t.Fatal(err)
		}
		uses(RunUse{0, 600, 400}, RunUse{0, 600, 300})

		var e *ExceededError
		if _, err := f.Hold(ctx, f.in(350, root, child)); !errors.As(err, &e) || !e.Soon || e.Binding.Never {
			t.Fatalf("while a call is open: got %v, want a refusal that open calls may end", err)
		}
		f.settle(ctx, h, 600)
		if _, err := f.Hold(ctx, f.in(350, root, child)); !errors.As(err, &e) || !e.Binding.Never || e.Binding.LimitID != "run-2" {
			t.Fatalf("after it: got %v, want the child's final refusal", err)
		}
		if _, err := f.Hold(ctx, f.in(450, root)); !errors.As(err, &e) || !e.Binding.Never || e.Binding.LimitID != "run" {
			t.Fatalf("on the root: got %v, want the root's final refusal", err)
		}
		uses(RunUse{600, 0, 400}, RunUse{600, 0, 300})

		for range 2 { // a repetition adds nothing
			child, err = f.Runs.TopUp(ctx, child, "t1", 100, 0)
			if err != nil || child.Amount != 1000 {
				t.Fatalf("top-up: got %d, error %v, want 1000", child.Amount, err)
			}
		}
		if _, err := f.Runs.TopUp(ctx, child, "t2", 1, 1000); !errors.Is(err, ErrRunLarge) {
			t.Errorf("top-up beyond the maximum: got %v, want %v", err, ErrRunLarge)
		}
		h, err = f.Hold(ctx, f.in(350, root, child))
		if err != nil {
			t.Fatalf("after a top-up: %v", err)
		}
		f.settle(ctx, h, 351) // an overrun
		uses(RunUse{951, 0, 49}, RunUse{951, 0, 49})

		child, err = f.Runs.End(ctx, child)
		if err != nil || child.Open(f.clock.now()) {
			t.Errorf("end: got %+v, error %v", child, err)
		}
		if _, err := f.Runs.TopUp(ctx, child, "t3", 1, 0); !errors.Is(err, ErrRunEnded) {
			t.Errorf("top-up of an ended run: got %v, want %v", err, ErrRunEnded)
		}
	})
}

// A key has at most Most open runs; ended ones make room.
func TestOpenRunsAreBounded(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		ctx := t.Context()
		f := newFixture(t, rdb, Options{})
		var runs []Run
		create := func(id string) error {
			run, _, err := f.Runs.Create(ctx, NewRun{
				Run: Run{Path: ledger.RunPath(id), Org: f.call().Org, Amount: 1, Key: "k1"}, Life: time.Minute, Most: 2,
			})
			runs = append(runs, run)
			return err
		}
		if err := errors.Join(create("run_a"), create("run_b"), create("run_b")); err != nil {
			t.Fatal(err)
		}
		if err := create("run_c"); !errors.Is(err, ErrRunsFull) {
			t.Fatalf("a third run: got %v, want %v", err, ErrRunsFull)
		}
		if _, err := f.Runs.End(ctx, runs[0]); err != nil {
			t.Fatal(err)
		}
		if err := create("run_c"); err != nil {
			t.Fatalf("after the end of one: %v", err)
		}
		if err := create("run_d"); !errors.Is(err, ErrRunsFull) {
			t.Fatalf("a fourth run: got %v, want %v", err, ErrRunsFull)
		}
		f.pass(2 * time.Minute)
		if err := create("run_d"); err != nil {
			t.Fatalf("after all expired: %v", err)
		}
		list, _, err := f.Runs.List(ctx, f.call().Org, "k1", "", RunPage{Ending: f.clock.now(), Limit: 9})
		if err != nil || len(list) != 1 || list[0].ID() != "run_d" {
			t.Errorf("open runs: got %v, error %v, want run_d", list, err)
		}
	})
}

// Every key of a run has a time to live that ends soon after the run does.
func TestRunsVanish(t *testing.T) {
	rdb := redistest.Start(t).Client()
	ctx := t.Context()
	s := New(redistest.DB(rdb), Options{})
	for i := range 20 {
		run, _, err := s.Runs.Create(ctx, NewRun{
			Run:  Run{Path: ledger.RunPath(fmt.Sprintf("run_%d", i)), Org: "acme", Amount: 1000, Key: "k1", Concurrency: 3},
			Life: time.Minute, Most: 100,
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Runs.PutKey(ctx, run.ID(), RunOwner{Org: "acme", Key: "k1", Run: run.Path}, time.Minute); err != nil {
			t.Fatal(err)
		}
		h, err := s.Hold(ctx, Terms{
			Limits: run.Limits(), Call: ledger.Call{ID: idAt(time.Now(), i), Attempt: 1, Org: "acme", Run: run.Path}, Max: cost(7),
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Settle(ctx, h, Settlement{Actual: cost(5)}); err != nil {
			t.Fatal(err)
		}
	}
	keys, err := rdb.Keys(ctx, "*run*").Result()
	if err != nil || len(keys) < 60 {
		t.Fatalf("got %d keys, error %v, want 20 each of runs, keys and states", len(keys), err)
	}
	for _, key := range keys {
		ttl, err := rdb.PTTL(ctx, key).Result()
		most := time.Minute + RunKept + time.Hour
		if strings.Contains(key, "concurrency") {
			most = 25 * time.Hour
		}
		if err != nil || ttl <= 0 || ttl > most {
			t.Errorf("%s: got the time to live %s, error %v, want at most %s", key, ttl, err, most)
		}
	}
}

// Parallel calls of nested runs through several stores: no run spends above its amount, and what the runs spent
// is what the ledger has for them.
func TestRunsUnderRace(t *testing.T) {
	server := redistest.Start(t)
	ctx := t.Context()
	stores := []*Store{New(server.DB(), Options{}), New(server.DB(), Options{}), New(server.DB(), Options{})}
	create := func(parent ledger.RunPath, id string, amount pricing.Nano) Run {
		run, _, err := stores[0].Runs.Create(ctx, NewRun{
			Run: Run{Path: parent.Below(id), Org: "acme", Amount: amount, Key: "k1"}, Life: time.Hour, Most: 100,
		})
		if err != nil {
			t.Fatal(err)
		}
		return run
	}
	root := create("", "run_root", 10_007)
	leaves := []Run{create(root.Path, "run_a", 5_003), create(root.Path, "run_b", 5_003), create(root.Path, "run_c", 5_003)}
	var work sync.WaitGroup
	for w := range 9 {
		work.Go(func() {
			leaf, s := leaves[w%3], stores[w/3]
			for i := range 60 {
				h, err := s.Hold(ctx, Terms{
					Limits: slices.Concat(root.Limits(), leaf.Limits()), Max: cost(101),
					Call: ledger.Call{ID: idAt(time.Now(), w*1000+i), Attempt: 1, Org: "acme", Run: leaf.Path},
				})
				var e *ExceededError
				if errors.As(err, &e) {
					continue
				}
				if err == nil && i%7 == 3 {
					err = s.Void(ctx, h)
				} else if err == nil {
					_, err = s.Settle(ctx, h, Settlement{Actual: cost(int64(60 + i%42))})
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	redistest.Wait(t, work.Wait)
	booked := map[string]pricing.Nano{}
	err := stores[1].Ledger.Entries(ctx, "acme", time.Time{}, time.Time{}, func(e ledger.Entry) error {
		for _, id := range e.Run.IDs() {
			booked[id] += e.Cost
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	runs := append([]Run{root}, leaves...)
	uses, err := stores[2].Runs.Uses(ctx, "acme", runs)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range runs {
		if uses[i].Spent != booked[r.ID()] || uses[i].Held != 0 || uses[i].Spent > r.Amount || uses[i].Spent == 0 {
			t.Errorf("%s of %d: got %+v, and %d in the ledger", r.ID(), r.Amount, uses[i], booked[r.ID()])
		}
	}
}

// The record of a hold names its run, for the process that has to expire it.
func TestRecordsHaveTheirRun(t *testing.T) {
	for _, c := range []ledger.Call{{Run: "run_a/run_b"}, {Run: "run_a", Labels: "project=x", JobID: "job_1"}, {Labels: "a=b"}} {
		h := &Hold{Call: c}
		got, ok := decodeRecord("acme", "0123456789/1", "1,2,3,4,5||"+h.about())
		if !ok || got.Call.Run != c.Run || got.Call.Labels != c.Labels || got.Call.JobID != c.JobID {
			t.Errorf("got %+v, want %+v", got.Call, c)
		}
	}
}

// Late charges are in short windows after the end, so that their states vanish.
func TestBoundariesOfARun(t *testing.T) {
	end := time.UnixMicro(1_000_000_000_000_000)
	for after, want := range map[time.Duration]string{
		-time.Hour:      "0,1000000000000000,1000003600000000,1000007200000000,1000010800000000",
		5 * time.Hour:   "0,1000014400000000,1000018000000000,1000021600000000,1000025200000000",
		time.Nanosecond: "0,1000000000000000,1000003600000000,1000007200000000,1000010800000000",
	} {
		if got, err := onceAround("1000000000000000", end.Add(after)); err != nil || got != want {
			t.Errorf("%s after the end: got %s, error %v, want %s", after, got, err, want)
		}
	}
}
