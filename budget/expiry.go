package budget

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/redisconn"
)

const (
	// Registry is the ZSET of orgs, their parts and spend caps, scored by the Unix ms at which their
	// leases are next due for checking. It is the only key that belongs to no org.
	Registry     = "lg:orgs"
	registryLife = recordLife
	sweepBatch   = 100
)

// Expiry ends holds whose lease has expired because their process died.
type Expiry struct {
	rdb     redisconn.DB
	runner  *runner
	clock   *clock
	places  *places
	leases  *leases
	settler *settler
	metrics *metrics
	log     *slog.Logger

	charge  string        // Options.ExpiredCharge
	horizon time.Duration // Options.Horizon
}

// orphans lists the places of the registry that are overdue: no running process has checked their leases.
func (x *Expiry) orphans(ctx context.Context) ([]redisconn.Z, error) {
	found, err := x.rdb.ZRangeByScoreWithScores(ctx, Registry, redisconn.Between{
		Min: "-inf", Max: strconv.FormatInt(x.clock.now().UnixMilli(), 10), Count: sweepBatch,
	}).Result()
	if err != nil {
		return nil, storeError("sweep", err)
	}
	return found, nil
}

// sweepDue is one round of Run: it sweeps the places that this process tracks, and those that no
// running process does.
func (x *Expiry) sweepDue(ctx context.Context) error {
	if err := x.sees(ctx); err != nil {
		return err
	}
	orphans, err := x.orphans(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, place := range x.leases.duePlaces(time.Now(), x.clock.now()) {
		_, err := x.sweep(ctx, place, x.leases.blind)
		errs = append(errs, err)
	}
	for _, o := range orphans {
		errs = append(errs, x.sweepOrphan(ctx, o))
	}
	return errors.Join(errs...)
}

// seenKey holds since when processes have continuously reached the store, and when one last did.
const seenKey = "lg:seen"

// sees records that this process reaches the store. After a period in which none did, leases are
// not judged until the store was reachable for the length of a lease, so that every living holder
// can renew its own first. Gaps shorter than a third of a lease need no such grace, because
// renewals happen every third of a lease.
func (x *Expiry) sees(ctx context.Context) error {
	gap := x.leases.life / 3
	reply, err := x.runner.run(ctx, x.runner.scripts.seen, []string{seenKey},
		[]any{x.clock.given(), gap.Microseconds(), registryLife.Milliseconds()})
	if err != nil {
		return err
	}
	n, err := integers(reply)
	if err != nil || len(n) != 2 {
		return fmt.Errorf("budget: seen: reply %.80q is not understood", reply)
	}
	x.clock.seen(time.UnixMicro(n[0]))
	x.leases.mu.Lock()
	defer x.leases.mu.Unlock()
	x.leases.judge = n[0]-n[1] >= x.leases.life.Microseconds()
	return nil
}

// Sweep expires the org's holds whose lease has run out and returns how many it expired. Run does
// this automatically, once the store was reachable for long enough that every living holder could
// have renewed its leases.
func (x *Expiry) Sweep(ctx context.Context, org string) (int, error) {
	expired := 0
	err := x.places.each(ctx, org, func(place string) error {
		n, err := x.sweep(ctx, place, func(string) bool { return false })
		expired += n
		return err
	})
	return expired, err
}

// sweep is Sweep of one place, except that it ends nothing while blind returns true.
func (x *Expiry) sweep(ctx context.Context, place string, blind func(place string) bool) (int, error) {
	expired := 0
	for {
		due, err := x.overdue(ctx, place)
		if err != nil || len(due) == 0 || blind(place) {
			return expired, err
		}
		n, err := x.expire(ctx, place, due)
		expired += n
		if err != nil || n == 0 {
			return expired, err
		}
	}
}

// overdue returns the place's first holds whose lease has run out, and records when the earliest
// lease ends. It starts with a write, so that an answer proves that its server accepts the writes of
// renewals.
func (x *Expiry) overdue(ctx context.Context, place string) ([]redisconn.Z, error) {
	now := x.clock.now()
	pipe := x.rdb.Pipeline()
	taken := pipe.PExpire(ctx, ledger.Key(place, "leases"), recordLife)
	first := pipe.ZRangeWithScores(ctx, ledger.Key(place, "leases"), 0, sweepBatch-1)
	_ = pipe.Exec(ctx) // each command has its own error
	if err := cmp.Or(taken.Err(), first.Err()); err != nil {
		x.leases.unseen(place)
		return nil, storeError("sweep", err)
	}
	x.leases.due(place, first.Val())
	return slices.DeleteFunc(first.Val(), func(z redisconn.Z) bool { return int64(z.Score) > now.UnixMicro() }), nil
}

// Overdue returns how many of the org's holds should have expired more than by ago but have not. A
// nonzero result means that no running process sweeps the org.
func (x *Expiry) Overdue(ctx context.Context, org string, by time.Duration) (int, error) {
	before := x.clock.now().Add(-by).UnixMicro()
	overdue := 0
	err := x.places.each(ctx, org, func(place string) error {
		n, err := x.rdb.ZCount(ctx, ledger.Key(place, "leases"), "-inf", strconv.FormatInt(before, 10)).Result()
		overdue += int(n)
		if err != nil {
			return storeError("overdue", err)
		}
		return nil
	})
	return overdue, err
}

// expire ends holds whose lease has run out, one script each, with all keys declared.
func (x *Expiry) expire(ctx context.Context, place string, due []redisconn.Z) (int, error) {
	ids := make([]string, len(due))
	for i, z := range due {
		ids[i] = z.Member
	}
	records, err := x.rdb.HMGet(ctx, ledger.Key(place, "holds"), ids...).Result()
	if err != nil {
		return 0, storeError("sweep", err)
	}
	n := 0
	for i, id := range ids {
		text, _ := records[i].(string)
		h, ok := decodeRecord(place, id, text)
		if !ok { // a lease without a record holds nothing
			if err := x.rdb.ZRem(ctx, ledger.Key(place, "leases"), id).Err(); err != nil {
				return n, storeError("sweep", err)
			}
			continue
		}
		expired, err := x.expireOne(ctx, h, int64(due[i].Score))
		if err != nil {
			return n, err
		}
		if expired {
			n++
		}
	}
	return n, nil
}

// chargeNone is the charge for a hold that its caps have not admitted.
const chargeNone = "none"

func (x *Expiry) expireOne(ctx context.Context, h *Hold, leaseEnd int64) (bool, error) {
	charge := x.charge
	admitted, err := x.admitted(ctx, h, leaseEnd)
	if err != nil {
		return false, err
	}
	if !admitted {
		charge = chargeNone
	}
	a, err := x.settler.end(ctx, x.runner.scripts.expire, settleArgs{
		call: h.Call, id: h.ID, states: h.states, cost: charge,
		details: ledger.Details{Estimated: true, Outcome: "expired"},
		want: func(st *state) any {
			if st.counter() { // nobody knows how it ended, and a job runs again
				return ""
			}
			return string(st.Metric)
		},
	})
	if err != nil {
		return false, err
	}
	switch a.verdict {
	case "voided":
		return true, x.neverAdmitted(ctx, h)
	case "expired":
		if !unlisted(h.Call.Org) {
			x.metrics.expire(a.head[1])
		}
		x.log.Warn("hold expired, charged as an estimate", "org", h.Call.Org, "call", h.Call.ID,
			"attempt", h.Call.Attempt, "charged_nano", a.head[1])
		return true, nil
	default:
		return false, nil
	}
}

// sweepOrphan sweeps a registered place, then removes it from the registry or records when its next
// lease ends, unless it was announced again in the meantime.
func (x *Expiry) sweepOrphan(ctx context.Context, o redisconn.Z) error {
	if _, err := x.sweep(ctx, o.Member, x.leases.blind); err != nil {
		return err
	}
	x.leases.mu.Lock()
	due, next := x.leases.in(o.Member).due, ""
	x.leases.mu.Unlock()
	if due > 0 && due <= x.clock.now().UnixMicro() {
		return nil // not judged yet
	}
	if due > 0 {
		next = strconv.FormatInt(time.UnixMicro(due).UnixMilli(), 10)
	}
	_, err := x.runner.run(ctx, x.runner.scripts.relinquish, []string{Registry},
		[]any{o.Member, strconv.FormatFloat(o.Score, 'f', -1, 64), next})
	return err
}

// admitted reports whether all caps in a hold's record have the call. Caps forget calls after the
// horizon, so a hold that is found later counts as admitted.
func (x *Expiry) admitted(ctx context.Context, h *Hold, leaseEnd int64) (bool, error) {
	if len(h.scopes) == 0 || x.clock.now().UnixMicro()-leaseEnd > x.horizon.Microseconds() {
		return true, nil
	}
	pipe := x.rdb.Pipeline()
	var open []redisconn.Cmd[bool]
	var done []redisconn.Text
	for _, scope := range h.scopes {
		open = append(open, pipe.HExists(ctx, ledger.Key(scope, "holds"), h.ID))
		done = append(done, pipe.HGet(ctx, ledger.Key(scope, chunkOf(h.Call)), h.ID))
	}
	_ = pipe.Exec(ctx) // each command has its own error
	all := true
	for i := range h.scopes {
		has, err := open[i].Result()
		tomb, failed := done[i].Result()
		if redisconn.IsNil(failed) {
			failed = nil
		}
		if err := cmp.Or(err, failed); err != nil {
			return false, storeError("sweep", err)
		}
		all = all && (has || tomb != "" && tomb != voidTomb)
	}
	return all, nil
}

// voidTomb is the tombstone of a voided hold.
const voidTomb = "V"

// neverAdmitted voids the call in all of its caps: those that hold it return it, and the others
// cannot admit it later.
func (x *Expiry) neverAdmitted(ctx context.Context, h *Hold) error {
	var parts []Settle
	for _, scope := range h.scopes {
		c := h.Call
		c.Org, c.Part = scope, 1
		parts = append(parts, Settle{Hold: Lost(c)})
	}
	for _, done := range x.settler.flight(ctx, parts) {
		if done.Err != nil {
			return done.Err
		}
	}
	x.log.Info("hold expired before its spend caps admitted the call, returned",
		"org", h.Call.Org, "call", h.Call.ID, "attempt", h.Call.Attempt)
	return nil
}
