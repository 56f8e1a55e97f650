package simulation

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/pricing"
)

const (
	lease     = time.Minute
	keepEvery = 5 * time.Second

	tailAtLeast = 50 * time.Second // how long a process remembers the ends of its calls
)

// money is the run's own knowledge of calls and limits.
type money struct {
	orgs  []*org
	calls []*call
	byID  map[string]*call
	caps  []budget.Cap
	lost  time.Time         // the store may have lost what it had before this time
	read  map[string]string // last ledger entry read, by org
	rates []rate            // bucket refills that were in effect
}

// org is a tenant.
type org struct {
	id     string
	limits []budget.Limit
}

// call is the true state of a paid call.
type call struct {
	ledger.Call
	p       *process
	org     *org
	limits  []budget.Limit
	caps    []budget.Cap
	max     int64
	most    int64 // maximum charge: max, plus growth whose reply was lost
	actual  int64 // what the provider charges
	held    bool  // the caller got this reply
	at      time.Time
	days    time.Duration // of a hold that no process renews
	capped  bool          // the store has admitted it under its caps
	sent    bool          // the provider has received it
	sending *send
	live    bool // its process is working on it
	ended   bool // its end was settled, or kept for later
	endedAt time.Time
	kept    bool // kept for later by its process
	void    bool // it ended without a charge
	booked  int64
	lines   []string // ledger entries
	listed  bool     // on the reconciliation list
	apart   bool     // its process was disconnected for too long
}

// newCall returns a call of a process.
func (w *world) newCall(p *process, o *org, d dice) *call {
	c := &call{p: p, org: o, limits: o.limits, live: true}
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(w.calls)
	c.Call = ledger.Call{
		ID: callID(time.Now(), n), Org: o.id, User: []string{"ann", "bob"}[d.IntN(2)], Key: "k1",
		Model: "m1", Provider: "openai", Endpoint: "chat",
	}
	if d.chance(w.fam.capped) {
		c.caps = w.caps
	}
	c.max = 1 + int64(d.IntN(100))
	c.most, c.actual = c.max, int64(d.IntN(int(c.max)+1))
	if d.chance(30) {
		c.actual = c.max + int64(d.IntN(20)) // the provider counts more than was held
	}
	w.calls = append(w.calls, c)
	w.byID[c.ID] = c
	return c
}

// callID returns an id that starts with the time, like real ones.
func callID(at time.Time, n int) string {
	const digits = "0123456789abcdefghjkmnpqrstvwxyz"
	ms := at.UnixMilli()
	var text [10]byte
	for i := 9; i >= 0; i-- {
		text[i] = digits[ms&31]
		ms >>= 5
	}
	return fmt.Sprintf("%s%016d", text[:], n)
}

func amounts(n int64) budget.Amounts { return budget.Amounts{Cost: pricing.Nano(n), Tokens: n} }

// busy reports whether any call is in progress.
func (w *world) busy() bool {
	return slices.ContainsFunc(w.calls, func(c *call) bool { return c.live && !c.p.isDead() })
}

// forgot reports whether the store may have lost what it knew of a call.
func (w *world) forgot(c *call) bool { return !w.lost.IsZero() && c.made().Before(w.lost) }

// made returns when the call was created, by the true clock.
func (c *call) made() time.Time {
	var ms int64
	for _, b := range []byte(c.ID[:10]) {
		ms = ms<<5 | int64(strings.IndexByte("0123456789abcdefghjkmnpqrstvwxyz", b))
	}
	return time.UnixMilli(ms)
}

// checkMoney reads new ledger entries and compares them with the true state.
func (w *world) checkMoney() error {
	open, err := w.readLedgers()
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, ids := range open {
		for _, id := range ids {
			there[id] = true
		}
	}
	for _, c := range w.calls {
		if c.held && c.live && !c.p.isDead() && !c.apart && !w.forgot(c) && !there[c.ID+"/0"] {
			w.fail("a running call keeps its hold", "the hold of call %s is gone while its process works on it: %v",
				c.ID[20:], c.lines)
		}
	}
	return w.checkHolds()
}

// readLedgers adds new entries of all orgs to their calls, and returns the ids of the open
// holds of each org.
func (w *world) readLedgers() ([][]string, error) {
	pipe := w.store.rdb.Pipeline()
	entries, holds := make([]*redis.XMessageSliceCmd, len(w.orgs)), make([]*redis.StringSliceCmd, len(w.orgs))
	for i, o := range w.orgs {
		from := "-"
		if last := w.read[o.id]; last != "" {
			from = "(" + last
		}
		entries[i] = pipe.XRange(w.ctx, "lg:{"+o.id+"}:ledger", from, "+")
		holds[i] = pipe.HKeys(w.ctx, "lg:{"+o.id+"}:holds")
	}
	if _, err := pipe.Exec(w.ctx); err != nil {
		return nil, fmt.Errorf("read ledgers: %w", err)
	}
	open := make([][]string, len(w.orgs))
	for i, o := range w.orgs {
		open[i] = holds[i].Val()
		for _, m := range entries[i].Val() {
			w.read[o.id] = m.ID
			text, _ := m.Values["e"].(string)
			e, err := entryOf(text)
			if err != nil {
				return nil, err
			}
			if c := w.byID[e.ID]; c != nil {
				w.booked(c, e)
			}
		}
	}
	return open, nil
}

// booked checks one ledger entry.
func (w *world) booked(c *call, e entry) {
	c.booked += e.Cost
	c.lines = append(c.lines, fmt.Sprintf("%s %d", e.Kind, e.Cost))
	w.note("ledger %s: %s %d, in all %d", c.ID[20:], e.Kind, e.Cost, c.booked)
	if most := max(c.most, c.actual); c.booked > most && !w.forgot(c) {
		w.fail("charged once", "call %s of at most %d has %v", c.ID[20:], most, c.lines)
	}
	if c.booked < 0 {
		w.fail("never negative", "call %s has %v", c.ID[20:], c.lines)
	}
	if e.Kind == ledger.KindExpire && c.live && c.held && !c.apart && !c.p.isDead() && !w.forgot(c) {
		w.fail("a running call keeps its hold", "the hold of call %s expired while its process works on it", c.ID[20:])
	}
}

// checkHolds looks for leases that expired long ago.
func (w *world) checkHolds() error {
	if !w.sweepable() {
		return nil
	}
	scopes := []string{"cap:deployment"}
	for _, o := range w.orgs {
		scopes = append(scopes, o.id)
	}
	pipe := w.store.rdb.Pipeline()
	first := make([]*redis.ZSliceCmd, len(scopes))
	for i, scope := range scopes {
		first[i] = pipe.ZRangeWithScores(w.ctx, "lg:{"+scope+"}:leases", 0, 0)
	}
	if _, err := pipe.Exec(w.ctx); err != nil {
		return fmt.Errorf("read leases: %w", err)
	}
	for i, scope := range scopes {
		for _, z := range first[i].Val() {
			over := w.store.now().Sub(time.UnixMicro(int64(z.Score)))
			if over > 4*max(lease, w.fam.keep) {
				w.fail("dead holds expire", "hold %v of %s is open %s after its lease", z.Member, scope, over)
			}
		}
	}
	return nil
}

// learned derives from a reply that a cap has admitted calls.
func (w *world) learned(cmd redis.Cmder) {
	args := values(cmd.Args())
	replies, ok := cmd.(interface{ StringSlice() ([]string, error) })
	if !ok || len(args) < 5 || !strings.HasPrefix(cmd.Name(), "eval") || !strings.HasPrefix(keyOf(cmd), "lg:{cap:") {
		return
	}
	said, err := replies.StringSlice()
	if err != nil {
		return // of a different script
	}
	argv := args[3+args[2].(int):]
	for i, text := range said {
		if strings.HasPrefix(text, "held,") || strings.HasPrefix(text, "again,") {
			limits := argv[5].(int) // see lua/hold.lua
			w.cappedCall(fmt.Sprint(argv[7+3*limits+i]))
		}
	}
}

// cappedCall records that a cap holds an attempt.
func (w *world) cappedCall(attempt string) {
	id, _, _ := strings.Cut(attempt, "/")
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.byID[id]; c != nil {
		c.capped = true
	}
}

// settled checks the ledgers when everything has ended.
func (w *world) settled() error {
	for _, o := range w.orgs {
		if err := w.readReconciled(o); err != nil {
			return err
		}
		n, err := w.store.rdb.HLen(w.ctx, "lg:{"+o.id+"}:holds").Result()
		if err != nil {
			return fmt.Errorf("holds of %s: %w", o.id, err)
		}
		if n > 0 {
			w.fail("no hold is left", "%d holds of %s are open at the end", n, o.id)
		}
	}
	for _, c := range w.calls {
		w.checkBill(c)
	}
	return nil
}

// checkBill compares a call's charge with its true cost.
func (w *world) checkBill(c *call) {
	switch {
	case w.forgot(c):
		d := w.lost.Sub(c.endedAt)
		remembered := c.ended && !c.void && !c.kept && !c.p.isDead() && d > 0 && d < tailAtLeast
		if remembered && c.booked != c.actual {
			w.fail("ends outlive the store", "call %s ended %s before the store lost it, and has %v", c.ID[20:], d, c.lines)
		}
	case c.listed || c.kept && c.p.isDead():
	case c.void && c.ended:
		if c.booked != 0 {
			w.fail("no charge without a call", "call %s was not sent, or refused, and has %v", c.ID[20:], c.lines)
		}
	case c.ended:
		if c.booked != c.actual {
			w.fail("the bill is exact", "call %s cost %d and has %v", c.ID[20:], c.actual, c.lines)
		}
	case len(c.caps) > 0 && !c.capped:
		if c.booked != 0 {
			w.fail("no charge without a call", "call %s died before its caps admitted it and has %v", c.ID[20:], c.lines)
		}
	}
}
