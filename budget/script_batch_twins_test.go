package budget

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/budget/outage"
	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/pricing"
)

// twins run the same scripts on two servers: on one joined into batches, on the other one by one,
// in the order in which they counted on the first.
type twins struct {
	*fixture
	joined, single *redis.Client
	seed           uint64
	rng            *rand.Rand
	most           int // maximum number of calls in a batch
	limits         []Limit
	orgs           []string
	open, ended    []*Hold
	together       map[string]int // number of scripts executed by joined runs, by name
	trace          []string
}

func newTwins(t *testing.T, joined, single *redis.Client, seed uint64) *twins {
	w := &twins{
		fixture: newFixture(t, joined, Options{}), joined: joined, single: single, seed: seed, rng: rand.New(rand.NewPCG(seed, 5)),
		most: 40, together: map[string]int{},
	}
	w.orgs = []string{w.org, w.org + "b", w.org + "c"}
	berlin, _ := time.LoadLocation("Europe/Berlin")
	window := []time.Duration{time.Minute, time.Second, 7 * time.Millisecond}[w.rng.IntN(3)]
	w.limits = []Limit{
		{ID: "win", Subject: User, Metric: Cost, Shape: Shape{Kind: Window, Amount: 1000, Window: window}},
		{ID: "cal", Subject: Org, Metric: Tokens, Shape: []Shape{
			{Kind: Calendar, Amount: 2500, Calendar: "minute", Location: berlin},
			{Kind: Calendar, Amount: 2500, Calendar: "week", Starts: "sunday", Location: berlin},
			{Kind: Fixed, Amount: 2500, Window: 90 * time.Second},
		}[w.rng.IntN(3)]},
		{ID: "rpm", Subject: Key, Metric: Requests, Shape: Shape{Kind: Window, Amount: 9, Window: time.Minute}},
		{ID: "par", Subject: Org, Metric: Concurrency, Shape: Shape{Kind: Concurrent, Amount: 40}},
		{ID: "exact", Subject: User, Metric: Tokens, Shape: Shape{Kind: ExactWindow, Amount: 3000, Window: window}},
		{ID: "org", Subject: Org, Metric: Cost, Shape: Shape{
			Kind: Bucket, Amount: 9000, Refill: []int64{0, 7, 100_003, 999_999_999_989}[w.rng.IntN(4)],
			Per: []time.Duration{time.Second, time.Minute, 24 * time.Hour}[w.rng.IntN(3)],
		}},
		{ID: "shadow", Subject: Org, Metric: Cost, Mode: Shadow, Shape: Shape{Kind: Window, Amount: 3000, Window: time.Minute}},
	}
	for _, rdb := range []*redis.Client{joined, single} {
		rdb.ScriptFlush(t.Context())
		for _, org := range w.orgs {
			rdb.Set(t.Context(), ledger.Key(org, outage.MarkName), 0, outage.MarkLife)
		}
	}
	return w
}

// newCall returns a new call of a random org, user and key.
func (w *twins) newCall() ledger.Call {
	c := w.call()
	c.Org = w.orgs[w.rng.IntN(1+w.rng.IntN(len(w.orgs)))]
	c.User = []string{"ann", "bob", "cat"}[w.rng.IntN(3)]
	c.Key = []string{"k1", "k2"}[w.rng.IntN(2)]
	c.Model = []string{"gpt-x", "gpt-y"}[w.rng.IntN(2)]
	return c
}

func (w *twins) amounts() Amounts {
	scale := []int{1, 60, 400, 1100}[w.rng.IntN(4)]
	return Amounts{Cost: pricing.Nano(w.rng.IntN(scale + 1)), Tokens: int64(w.rng.IntN(scale + 1))}
}

// someLimits returns mostly all limits, in random order.
func (w *twins) someLimits() []Limit {
	out := slices.Clone(w.limits)
	w.rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	if w.rng.IntN(4) == 0 {
		out = out[:w.rng.IntN(len(out)+1)]
	}
	return out
}

// made returns the request, and fails the test on an error.
func (w *twins) made(r *request, err error) *request {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

func (w *twins) ctx() context.Context { return w.t.(*testing.T).Context() }

func (w *twins) holdRequestOf(h *Hold) *request {
	w.t.Helper()
	return w.made(w.holdRequest(w.ctx(), h, 0, w.Store.clock.now()))
}

// holds requests several holds in one batch: new ones, and repetitions of old ones and of those in
// the same batch.
func (w *twins) holds() {
	var cmds []redisconn.Reply
	var list []*Hold
	for range 1 + w.rng.IntN(w.most) {
		var h *Hold
		switch n := w.rng.IntN(12); {
		case n == 0 && len(w.open) > 0:
			h = w.open[w.rng.IntN(len(w.open))]
		case n == 1 && len(w.ended) > 0:
			h = w.ended[w.rng.IntN(len(w.ended))]
		case n == 2 && len(list) > 0:
			h = list[w.rng.IntN(len(list))]
		default:
			most := w.amounts()
			var err error
			terms := &Terms{
				Limits: w.someLimits(), Call: w.newCall(), Max: most, Expected: Amounts{Cost: most.Cost / 2, Tokens: most.Tokens / 3},
			}
			if h, err = w.binder.prepare(terms); err != nil {
				w.t.Fatal(err)
			}
		}
		list, cmds = append(list, h), append(cmds, w.holdRequestOf(h))
	}
	w.fly(cmds)
	for i, h := range list {
		a, err := decode(answerOf(cmds[i]))
		if err != nil {
			w.t.Fatal(err)
		}
		if a.verdict == "held" {
			h.At = a.at()
			w.open = append(w.open, h)
		}
	}
}

// settles ends several open holds in one batch, and repeats some that have ended.
func (w *twins) settles() {
	var cmds []redisconn.Reply
	for range 1 + w.rng.IntN(w.most) {
		list := w.open
		if w.rng.IntN(8) == 0 {
			list = w.ended
		}
		if len(list) == 0 {
			continue
		}
		i := w.rng.IntN(len(list))
		h := list[i]
		actual := w.amounts()
		if w.rng.IntN(3) == 0 {
			actual = h.Max
		}
		cmds = append(cmds, w.settleRequestOf(h, actual))
		if at := slices.Index(w.open, h); at >= 0 && w.rng.IntN(10) > 0 { // else it may be settled twice in the batch
			w.open, w.ended = slices.Delete(w.open, at, at+1), append(w.ended, h)
		}
	}
	if len(cmds) > 0 {
		w.fly(cmds)
	}
}

func (w *twins) settleRequestOf(h *Hold, actual Amounts) *request {
	st := Settlement{Actual: actual, Outcome: "completed", Status: 200, Estimated: w.rng.IntN(4) == 0}
	if w.rng.IntN(2) == 0 {
		st.Usage = pricing.Usage{Input: int64(w.rng.IntN(500)), Output: int64(w.rng.IntN(500)), CachedInput: int64(w.rng.IntN(9))}
		st.Split = pricing.Split{Input: actual.Cost / 3, Output: actual.Cost - actual.Cost/3}
	}
	return w.made(w.settler.request(w.ctx(), w.runner.scripts.settle, settling(h, &st), w.Store.clock.now()))
}

// others does what joined runs do not cover: a hold is extended, voided or expires.
func (w *twins) others() {
	for range w.rng.IntN(4) {
		if len(w.open) == 0 {
			return
		}
		i := w.rng.IntN(len(w.open))
		h := w.open[i]
		var cmd redisconn.Reply
		switch w.rng.IntN(3) {
		case 0:
			more := w.amounts()
			most := h.Max.add(more)
			args, err := h.limitArgs([]any{w.clock.given(), h.ID, amountsText(most, h.Expected), recordLifeArg}, w.Store.clock.now(), most)
			if err != nil {
				w.t.Fatal(err)
			}
			cmd = w.extendCommand(h.keys("holds"), args)
		case 1:
			cmd = w.made(w.settler.request(w.ctx(), w.runner.scripts.void, voiding(h), w.Store.clock.now()))
		default:
			cmd = w.made(w.settler.request(w.ctx(), w.runner.scripts.expire, settleArgs{
				call: h.Call, id: h.ID, states: h.states, cost: ChargeExpected, details: ledger.Details{Estimated: true, Outcome: "expired"},
				want: func(st *state) any { return string(st.Metric) },
			}, w.Store.clock.now()))
		}
		w.fly([]redisconn.Reply{cmd})
	}
}

// extendCommand returns an extension for a server that may not know the script.
func (w *twins) extendCommand(keys []string, args []any) redisconn.Reply {
	all := []any{"eval", w.runner.scripts.extend.Text(), len(keys)}
	for _, k := range keys {
		all = append(all, k)
	}
	return redistest.DB(w.joined).Command(w.ctx(), append(all, args...)...)
}

// answerOf returns the reply to a request.
func answerOf(cmd redisconn.Reply) string {
	text, _ := requestOf(cmd).answer()
	return text
}

// reply returns what a command's caller gets.
func reply(cmd redisconn.Reply) string {
	if r := requestOf(cmd); r != nil {
		text, err := r.answer()
		return fmt.Sprint(text, err)
	}
	return fmt.Sprint(cmd.Result())
}

// asTaken reports whether the hold of a request is open and was never extended.
func (w *twins) asTaken(r *request) bool {
	record := w.joined.HGet(w.ctx(), ledger.Key(r.place, "holds"), r.id).Val()
	parts := strings.Split(record, "|")
	if len(parts) < 3 {
		return false
	}
	for part := range strings.SplitSeq(parts[1], ";") {
		had, places, _ := strings.Cut(part, " ")
		if part != "" && (strings.Contains(places, " ") || !strings.HasSuffix(places, ":"+had)) {
			return false
		}
	}
	return true
}

// orderOf returns the order in which a run executes calls: an org's calls that are within their
// limits, and its open holds as they were taken, come before its others.
func orderOf(u *run, taken map[*request]bool) (order []redisconn.Reply, together int) {
	for _, g := range u.groups {
		var others []redisconn.Reply
		for _, r := range g.requests {
			text := reply(r)
			if first := strings.HasPrefix(text, "held") && !strings.Contains(text, ";=") || taken[r]; first {
				order, together = append(order, r), together+1
				continue
			}
			others = append(others, r)
		}
		order = append(order, others...)
	}
	return order, together
}

// fly executes commands on both servers and compares the replies.
func (w *twins) fly(cmds []redisconn.Reply) {
	w.t.Helper()
	rdb := redistest.DB(w.joined)
	f, taken := &joined{rdb: rdb}, map[*request]bool{}
	f.sort(cmds)
	for _, g := range f.groups {
		for _, r := range g.requests {
			taken[r] = g.script.name == "settle" && w.asTaken(r)
		}
	}
	order := slices.Clone(f.others)
	for again := true; again; {
		pipe := rdb.Pipeline()
		again = f.step(w.ctx(), pipe)
		_ = pipe.Exec(w.ctx())
		for _, u := range f.sent {
			if u.cmd.Err() != nil && u.n > 1 || redis.HasErrorPrefix(u.cmd.Err(), "NOSCRIPT") {
				continue // it is sent again
			}
			u.answer()
			some, together := orderOf(u, taken)
			order = append(order, some...)
			if u.n > 1 {
				w.together[u.groups[0].script.name] += together
			}
		}
	}
	if len(order) != len(cmds) {
		w.fail("%d commands were carried out, of %d", len(order), len(cmds))
	}
	for _, cmd := range order {
		got := w.alone(cmd)
		w.note("%v -> %s", cmd.Args()[3:], reply(cmd))
		if got != reply(cmd) {
			w.fail("joined %s\nsingle %s", reply(cmd), got)
		}
	}
}

// alone executes a command on the server that gets them one by one.
func (w *twins) alone(cmd redisconn.Reply) string {
	r := requestOf(cmd)
	if r == nil {
		return fmt.Sprint(w.single.Do(w.ctx(), cmd.Args()...).Result())
	}
	single := redistest.DB(w.single)
	own := newRequest(w.ctx(), single, r.common, r.id, r.limits)
	own.hold, own.ending, own.text = r.hold, r.ending, true
	_ = single.Process(w.ctx(), own.Late)
	return reply(own)
}

func (w *twins) note(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf(format, args...))
}

func (w *twins) fail(format string, args ...any) {
	w.t.Helper()
	for _, line := range w.trace[max(0, len(w.trace)-60):] {
		w.t.Log(line)
	}
	w.t.Fatalf(format, args...)
}

// compare compares every key of the two servers.
func (w *twins) compare() {
	w.t.Helper()
	a, b := w.everything(w.joined), w.everything(w.single)
	for name := range a {
		if a[name] != b[name] {
			w.fail("%s\njoined %s\nsingle %s", name, a[name], b[name])
		}
	}
	if len(a) != len(b) {
		w.fail("%d keys joined, %d one by one", len(a), len(b))
	}
}

// everything returns the contents of the keys of the fixture's orgs, and whether they never expire.
func (w *twins) everything(rdb *redis.Client) map[string]string {
	w.t.Helper()
	ctx, out := w.ctx(), map[string]string{}
	keys, err := rdb.Keys(ctx, "lg:{"+w.org+"*").Result()
	if err != nil {
		w.t.Fatal(err)
	}
	slices.Sort(keys)
	kinds, life := rdb.Pipeline(), make([]*redis.DurationCmd, len(keys))
	kind := make([]*redis.StatusCmd, len(keys))
	for i, name := range keys {
		kind[i], life[i] = kinds.Type(ctx, name), kinds.PTTL(ctx, name)
	}
	_, _ = kinds.Exec(ctx)
	reads, value := rdb.Pipeline(), make([]redis.Cmder, len(keys))
	for i, name := range keys {
		switch kind[i].Val() {
		case "hash":
			value[i] = reads.HGetAll(ctx, name) // a map prints in the order of its fields
		case "zset":
			value[i] = reads.ZRangeWithScores(ctx, name, 0, -1)
		case "stream":
			value[i] = reads.XRange(ctx, name, "-", "+")
		case "list":
			value[i] = reads.LRange(ctx, name, 0, -1)
		default:
			value[i] = reads.Get(ctx, name)
		}
	}
	if _, err := reads.Exec(ctx); err != nil {
		w.t.Fatal(err)
	}
	for i, name := range keys {
		out[name] = valueOf(value[i]) + fmt.Sprint(" expires ", life[i].Val() > 0)
	}
	return out
}
