package queue

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/llmguard/llmguard/internal/randtest"
	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/lua"
	"github.com/llmguard/llmguard/quota"
)

// twins are a pool on Redis and a Virtual that go through the same events.
type twins struct {
	*env
	p     *pool
	v     *Virtual
	pc    *pacer
	rng   *rand.Rand
	now   time.Duration
	runs  int
	calls []pairedGrant
	jobs  map[string]*VirtualJob // by id, until they end
	idle  []string               // waiting
	busy  []pairedClaim
	trace []string
}

type pairedGrant struct {
	real *quota.Grant
	twin VirtualGrant
}

type pairedClaim struct {
	real    *Claim
	twin    *VirtualJob
	started bool
}

func newTwins(t *testing.T, e *env, run int, rng *rand.Rand) *twins {
	pick := func(list ...int64) int64 { return list[rng.IntN(len(list))] }
	cfg := Pool{
		ID: fmt.Sprintf("p%d", run), RPM: pick(0, 3, 60, 500), TPM: pick(0, 100, 10_000, 1_000_000),
		Concurrency: int(pick(0, 0, 1, 3, 8)), ActualTokens: rng.IntN(3) == 0, MaxJobs: int(pick(-1, 40)),
		MaxAge: time.Duration(pick(60, 3600)) * time.Second,
	}
	o := e.opts
	o.Burst = int(pick(10, 100, 1000))
	p, err := newPool(cfg, o)
	if err != nil {
		t.Fatal(err)
	}
	v, err := NewVirtual(cfg, o)
	if err != nil {
		t.Fatal(err)
	}
	v.quota.life = 1 << 60 // keys expire by Redis's own clock, which is not the test's
	e.add(p)
	return &twins{
		env: e, p: p, v: v, pc: newPacer(e.Queue, p, 1), rng: rng, runs: run,
		now: simStart + time.Duration(rng.Int64N(1e9))*time.Microsecond, jobs: map[string]*VirtualJob{},
	}
}

func (w *twins) us() int64 { return w.now.Microseconds() }

func (w *twins) note(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%d ", w.us())+fmt.Sprintf(format, args...))
}

func (w *twins) flow() Flow {
	return Flow{fmt.Sprintf("o%d", w.rng.IntN(3)), fmt.Sprintf("u%d", w.rng.IntN(3))}
}

// priority returns a random priority, most often normal.
func (w *twins) priority() quota.Priority {
	return quota.Priority(w.rng.IntN(3)-1) * quota.Priority(w.rng.IntN(2))
}

func (w *twins) tokens() int64 {
	return 1 + w.rng.Int64N(max(w.p.TPM, 50)/int64(1+w.rng.IntN(60))+1)
}

func (w *twins) step(ctx context.Context) error {
	switch n := w.rng.IntN(40); {
	case n == 0:
		w.now += 61*time.Second + time.Duration(w.rng.Int64N(30_000_000))*time.Microsecond
		w.at(w.now)
		if err := w.acquire(ctx); err != nil { // else the script would see a clock step
			return err
		}
	case n < 10:
		w.now += time.Duration(w.rng.Int64N(1_500_000)) * time.Microsecond
	default:
		w.now += time.Duration(w.rng.Int64N(30_000)) * time.Microsecond
	}
	w.at(w.now)
	steps := []func(context.Context) error{
		w.take, w.take, w.give, w.put, w.put, w.put, w.put, w.acquire, w.acquire, w.acquire, w.start, w.start, w.release, w.release, w.finish, w.finish, w.expire,
	}
	return steps[w.rng.IntN(len(steps))](ctx)
}

func (w *twins) take(ctx context.Context) error {
	flow, tokens, priority := w.flow(), w.tokens(), w.priority()
	w.note("take %v %d %s", flow, tokens, priority)
	g, err := w.Quota().Take(ctx, quota.Request{
		Pool: w.p.ID, ID: fmt.Sprintf("c%d.%d", w.runs, len(w.trace)), Org: flow.Org, User: flow.User, Tokens: tokens,
		Priority: priority,
	})
	twin, virtual := w.v.Take(w.us(), flow, tokens, priority)
	if fmt.Sprint(err) != fmt.Sprint(virtual) {
		return fmt.Errorf("take: %w, virtually %w", err, virtual)
	}
	if err == nil {
		w.calls = append(w.calls, pairedGrant{g, twin})
	}
	return nil
}

func (w *twins) give(ctx context.Context) error {
	if len(w.calls) == 0 {
		return nil
	}
	i := w.rng.IntN(len(w.calls))
	g := w.calls[i]
	w.calls = slices.Delete(w.calls, i, i+1)
	unused, used := w.rng.IntN(4) == 0, w.rng.Int64N(g.twin.tokens*2+1)-1
	w.note("give %v used %d unused %v", g.twin, used, unused)
	g.real.Used = used
	w.v.Give(w.us(), g.twin, unused, used)
	return w.Give(ctx, g.real, unused)
}

func (w *twins) put(ctx context.Context) error {
	flow, tokens, class := w.flow(), w.tokens(), Class(1+w.rng.IntN(3))
	j := w.job(w.p.ID, flow.Org, flow.User, class, tokens)
	j.Key, j.Model = fmt.Sprintf("k%d", w.rng.IntN(2)), fmt.Sprintf("m%d", w.rng.IntN(2))
	j.Priority, j.ByDeadline = w.priority(), w.rng.IntN(4) == 0
	if j.ByDeadline {
		j.Deadline = time.Now().Add(w.p.MaxAge/2 + time.Duration(w.rng.Int64N(10))*time.Second)
	}
	w.note("put %s %v %s %s %s %d %s %v", j.ID[len(j.ID)-4:], flow, class, j.Key, j.Model, tokens, j.Priority, j.Deadline)
	err := w.Put(ctx, j, nil)
	age := w.p.MaxAge
	if err == nil {
		age = j.Deadline.Sub(j.Created)
	}
	twin := &VirtualJob{
		Class: class, Flow: flow, Key: j.Key, Model: j.Model, Tokens: tokens, Deadline: w.us() + age.Microseconds(), Of: j.ID,
		Priority: j.Priority, ByDeadline: j.ByDeadline,
	}
	virtual := w.v.Put(w.us(), twin, Lane(j.Key, j.Model))
	var full, vfull *FullError
	if errors.As(err, &full) != errors.As(virtual, &vfull) || full != nil && (full.Scope != vfull.Scope || full.Limit != vfull.Limit) {
		return fmt.Errorf("put: %w, virtually %w", err, virtual)
	}
	if full != nil {
		return nil
	}
	w.jobs[j.ID] = twin
	w.idle = append(w.idle, j.ID)
	return err
}

func (w *twins) acquire(ctx context.Context) error {
	n := w.rng.IntN(4) * (1 + w.rng.IntN(4))
	loaded, err := w.reader.snapshot(ctx, w.p)
	if err != nil {
		return err
	}
	got, err := w.pc.acquire(ctx, n)
	if err != nil {
		return err
	}
	jobs, wait, why := w.v.Acquire(w.us(), n)
	var real, virtual []string
	for _, c := range got.claims {
		real = append(real, c.id)
	}
	for _, j := range jobs {
		virtual = append(virtual, j.Of.(string))
	}
	w.note("acquire %d: %v %s %v", n, got.wait, got.why, real)
	if err := loaded.same(w.us(), n, got, real); err != nil {
		return err
	}
	if got.why != why || got.wait != wait && !(got.wait < 0 && wait < 0) || !slices.Equal(real, virtual) {
		return fmt.Errorf("acquire %d: %v %s %v, virtually %v %s %v", n, got.wait, got.why, real, wait, why, virtual)
	}
	w.contents.fetch(ctx, w.p, got.claims)
	for i, c := range got.claims {
		if c.ctx = ctx; c.unread != nil {
			return c.unread
		}
		w.busy = append(w.busy, pairedClaim{c, jobs[i], false})
		w.idle = slices.DeleteFunc(w.idle, func(id string) bool { return id == c.id })
	}
	return nil
}

// same checks that a Virtual that was built from a snapshot acquires the jobs that the script did.
func (s *snapshot) same(now int64, n int, got acquired, real []string) error {
	ids := map[*VirtualJob]string{}
	for id, j := range s.jobs {
		ids[j] = id
	}
	jobs, wait, why := s.v.Acquire(now, n)
	var loaded []string
	for _, j := range jobs {
		loaded = append(loaded, ids[j])
	}
	if why != got.why || wait != got.wait && !(got.wait < 0 && wait < 0) || !slices.Equal(loaded, real) {
		return fmt.Errorf("acquire %d: %v %s %v, from a snapshot %v %s %v", n, got.wait, got.why, real, wait, why, loaded)
	}
	return nil
}

// some takes a claim off the list.
func (w *twins) some(started bool) (pairedClaim, bool) {
	for i, c := range w.busy {
		if c.started == started {
			w.busy = slices.Delete(w.busy, i, i+1)
			return c, true
		}
	}
	return pairedClaim{}, false
}

func (w *twins) start(ctx context.Context) error {
	c, ok := w.some(false)
	if !ok {
		return nil
	}
	w.note("start %s", c.real.id)
	err := c.real.Start(ctx)
	virtual := w.v.Start(w.us(), c.twin)
	if (virtual == nil) != (err == nil) || errors.Is(virtual, errNoQuota) != errors.Is(err, errNoQuota) {
		return fmt.Errorf("start: %w, virtually %w", err, virtual)
	}
	if c.started = err == nil; c.started || errors.Is(err, errNoQuota) {
		w.busy = append(w.busy, c)
	}
	return nil
}

func (w *twins) release(ctx context.Context) error {
	c, ok := w.some(false)
	if !ok {
		return nil
	}
	scope, rest := Scope(w.rng.IntN(7)), time.Duration(w.rng.Int64N(3_000_000))*time.Microsecond
	if w.rng.IntN(6) == 0 {
		rest = 0
	}
	w.note("release %s %d %v", c.real.id, scope, rest)
	w.v.Release(w.us(), c.twin, scope, rest)
	w.idle = append(w.idle, c.real.id)
	return c.real.release(ctx, Verdict{Kind: Park, Scope: scope, Wait: rest, Unused: true}, "0")
}

func (w *twins) finish(ctx context.Context) error {
	c, ok := w.some(true)
	if !ok {
		return nil
	}
	unused, used := w.rng.IntN(6) == 0, w.rng.Int64N(c.twin.Tokens*2+1)
	w.note("finish %s used %d unused %v", c.real.id, used, unused)
	v := Verdict{Unused: unused, Counted: quota.Counted{Used: used}}
	w.v.Finish(w.us(), c.twin, unused, v.used().Used)
	return c.real.finish(ctx, Succeeded, v, "")
}

func (w *twins) expire(ctx context.Context) error {
	if len(w.idle) == 0 {
		return nil
	}
	i := w.rng.IntN(len(w.idle))
	id := w.idle[i]
	w.idle = slices.Delete(w.idle, i, i+1)
	w.note("expire %s", id)
	j := w.jobs[id]
	if !w.v.Expire(w.us(), j) {
		return fmt.Errorf("%s does not wait virtually", id)
	}
	got, err := w.Expire(ctx, j.Flow.Org, id)
	if err == nil && got.State != Expired {
		err = fmt.Errorf("%s is %s", id, got.State)
	}
	return err
}

// runTwins goes through a random history of the given number of steps.
func runTwins(t *testing.T, e *env, run, steps int, rng *rand.Rand) error {
	w := newTwins(t, e, run, rng)
	for range steps {
		if err := w.step(t.Context()); err != nil {
			return fmt.Errorf("%w\n%+v\n%s", err, w.p.Pool, strings.Join(w.trace, "\n"))
		}
	}
	return nil
}

func newTwinEnv(t *testing.T) *env { return newEnv(t, twinOptions(nil), Pool{ID: "a"}) }

func twinOptions(scripts redisconn.Scripter) Options {
	const long = 30 * 24 * time.Hour // processes never die
	return Options{Scripts: scripts, Lease: long, Grace: long, Weights: map[string]int{"o1": 250, "o2 u1": 33, "o0 u0": 700}}
}

// TestVirtualPool checks that a Virtual grants, queues, picks, parks and wakes exactly as
// the scripts do, to the microsecond. LLMGUARD_SEED replays one run.
func TestVirtualPool(t *testing.T) {
	t.Parallel()
	e := newTwinEnv(t)
	seed := randtest.Seed(t)
	histories := 12
	if soak {
		histories = 400
	}
	for i := range histories {
		if err := runTwins(t, e, i, 200, rand.New(rand.NewPCG(seed, uint64(i)))); err != nil {
			t.Fatalf("LLMGUARD_SEED=%d history %d: %v", seed, i, err)
		}
	}
}

// TestVirtualPoolNotices proves that the comparison can fail: a modified script gives other
// answers.
func TestVirtualPoolNotices(t *testing.T) {
	for _, mistake := range []struct{ name, old, new string }{
		{"no share for the backlog", "local aside = who == 'live' and metric.aside or 0", "local aside = 0"},
		{"a reservation that never closes", "if mode < CLOSING and", "if false and"},
		{"a reservation that binds nobody", "if res.mode ~= CLOSING then return 0 end", "if true then return 0 end"},
		{"a ring of 605 slots", "SLOTS = 100000, 606", "SLOTS = 100000, 605"},
		{"weights of users forgotten", "weights[picks.flow] or 100", "100"},
		{"refused picks that count", "if vt then", "if false then"},
		{"a probe lets all in", "if subject_enter(pool, subject, 1) then", "if subject_enter(pool, subject, 200) and false then"},
		{"credit kept for ever", "credit[c] = 0 -- nobody", "-- nobody"},
	} {
		t.Run(mistake.name, func(t *testing.T) {
			srv := redistest.Start(t)
			e := envOn(t, srv, twinOptions(breakScripts(t, srv.DB(), mistake.old, mistake.new)), Pool{ID: "a"})
			for i := range 100 {
				if err := runTwins(t, e, i, 200, rand.New(rand.NewPCG(5, uint64(i)))); err != nil {
					first, _, _ := strings.Cut(err.Error(), "\n")
					if strings.Contains(first, "ERR") {
						t.Fatal(first) // the script does not even run
					}
					t.Logf("history %d: %s", i, first)
					return
				}
			}
			t.Error("not noticed")
		})
	}
}

// brokenScripts runs modified scripts in place of the originals, by their hashes.
type brokenScripts struct {
	redisconn.Scripter
	broken map[string]*redisconn.Script
}

// EvalSha implements redisconn.Scripter.
func (b *brokenScripts) EvalSha(ctx context.Context, sha1 string, keys []string, args ...any) redisconn.Reply {
	if script := b.broken[sha1]; script != nil {
		return script.Run(ctx, b.Scripter, keys, args...)
	}
	return b.Scripter.EvalSha(ctx, sha1, keys, args...)
}

// breakScripts returns the scripts with one piece of their text replaced.
func breakScripts(t *testing.T, to redisconn.Scripter, old, replacement string) *brokenScripts {
	files, found := fstest.MapFS{}, false
	entries, err := fs.ReadDir(lua.Files(), ".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		text, err := fs.ReadFile(lua.Files(), e.Name())
		if err != nil {
			t.Fatal(err)
		}
		found = found || strings.Contains(string(text), old)
		files[e.Name()] = &fstest.MapFile{Data: []byte(strings.ReplaceAll(string(text), old, replacement))}
	}
	if !found {
		t.Fatalf("no script has %q", old)
	}
	b := &brokenScripts{Scripter: to, broken: map[string]*redisconn.Script{}}
	for _, name := range []string{"take", "give", "put", "cancel", "acquire", "start", "release", "finish"} {
		b.broken[lua.Load(name).Hash()] = lua.LoadFrom(files, name)
	}
	return b
}
