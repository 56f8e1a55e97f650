package budget

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// Registry is the ZSET of orgs by the Unix ms at which their leases have to be
	// looked at; it is the one key that belongs to no org.
	Registry     = "lg:orgs"
	registryLife = recordLife
	sweepBatch   = 100
)

// announce enters the org in the registry once per third of a lease, in parallel
// with the hold, so that its holds expire even when every process dies. It never
// puts off when the org is looked at: callers may announce and be refused for ever.
// The function it returns waits for that; a failure leaves the org to the next hold.
func (s *Store) announce(ctx context.Context, org string) (wait func()) {
	now := time.Now()
	s.mu.Lock()
	o := s.orgOf(org)
	fresh := now.Sub(o.announced) < s.opts.Lease/3
	if !fresh {
		o.announced = now
	}
	s.mu.Unlock()
	if fresh {
		return func() {}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.register(ctx, registerSoonest, s.now().Add(s.opts.Lease), org); err != nil {
			s.opts.Log.Warn("org not registered for expiry", "org", org, "err", err)
			s.mu.Lock()
			o.announced = time.Time{}
			s.mu.Unlock()
		}
	}()
	return func() { <-done }
}

// What lua/register.lua does to an org that is in the registry already.
const (
	registerSet     = "set"     // this process looks after the org until then
	registerSoonest = "soonest" // an earlier instant stays
)

func (s *Store) register(ctx context.Context, how string, until time.Time, orgs ...string) error {
	args := []any{registryLife.Milliseconds(), how, until.UnixMilli()}
	for _, org := range orgs {
		args = append(args, org)
	}
	_, err := s.run(ctx, s.scripts.register, []string{Registry}, args)
	if err != nil {
		return err
	}
	pipe := s.rdb.Pipeline()
	for _, org := range orgs {
		pipe.PExpire(ctx, key(org, markName), epochLife)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return storeError("register", err)
	}
	return nil
}

// orphan is an org of the registry that no living process has looked after.
type orphan struct {
	org   string
	score float64
}

// orphans lists the orgs of the registry that are due.
func (s *Store) orphans(ctx context.Context) ([]orphan, error) {
	found, err := s.rdb.ZRangeArgsWithScores(ctx, redis.ZRangeArgs{
		Key: Registry, Start: "-inf", Stop: strconv.FormatInt(s.now().UnixMilli(), 10), ByScore: true, Count: sweepBatch,
	}).Result()
	if err != nil {
		return nil, storeError("sweep", err)
	}
	out := make([]orphan, len(found))
	for i, z := range found {
		out[i] = orphan{z.Member.(string), z.Score}
	}
	return out, nil
}

// sweepDue is a round of Run: it sweeps the orgs that this process looks after, and
// those that no living process does.
func (s *Store) sweepDue(ctx context.Context) error {
	if err := s.sees(ctx); err != nil {
		return err
	}
	orphans, err := s.orphans(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, org := range s.dueOrgs(time.Now(), s.now()) {
		_, err := s.sweep(ctx, org, s.blind)
		errs = append(errs, err)
	}
	for _, o := range orphans {
		errs = append(errs, s.sweepOrphan(ctx, o))
	}
	return errors.Join(errs...)
}

// seenKey holds since when processes have seen the store, and when one last did.
const seenKey = "lg:seen"

// sees notes that this process sees the store. After a time in which none did, leases
// are judged only when processes have seen it for as long as a lease lasts: meanwhile
// every living holder renews its own. A shorter silence needs no such grace, because
// what is renewed every third of a lease outlasts it.
func (s *Store) sees(ctx context.Context) error {
	gap := s.opts.Lease / 3
	reply, err := s.run(ctx, s.scripts.seen, []string{seenKey}, []any{s.given(), gap.Microseconds(), registryLife.Milliseconds()})
	if err != nil {
		return err
	}
	n, err := integers(reply)
	if err != nil || len(n) != 2 {
		return fmt.Errorf("budget: seen: reply %.80q is not understood", reply)
	}
	s.seen(time.UnixMicro(n[0]))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.judge = n[0]-n[1] >= s.opts.Lease.Microseconds()
	return nil
}

// blind reports whether the leases of the org are not judged now.
func (s *Store) blind(org string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.judge || time.Now().Before(s.orgOf(org).blind)
}

// unseen notes that the store did not answer for the org, whose server on a cluster
// may be away alone.
func (s *Store) unseen(org string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.orgOf(org).blind = time.Now().Add(s.opts.Lease)
}

// dueOrgs lists the orgs whose earliest lease has run out, and forgets idle ones.
func (s *Store) dueOrgs(local, now time.Time) (due []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for org, o := range s.orgs {
		if o.due > 0 && o.due <= now.UnixMicro() {
			due = append(due, org)
		}
		if len(o.holds) == 0 && o.due == 0 && local.Sub(o.announced) > s.opts.Lease && local.After(o.blind) {
			delete(s.orgs, org)
		}
	}
	slices.Sort(due)
	return due
}

// Sweep expires the org's holds whose lease has run out and returns how many
// it expired. Run does it by itself, once the store was seen for long enough that
// every living holder could have renewed them.
func (s *Store) Sweep(ctx context.Context, org string) (int, error) {
	return s.sweep(ctx, org, func(string) bool { return false })
}

// sweep is Sweep, which looks and ends nothing while blind says so.
func (s *Store) sweep(ctx context.Context, org string, blind func(org string) bool) (int, error) {
	expired := 0
	for {
		due, err := s.overdue(ctx, org)
		if err != nil || len(due) == 0 || blind(org) {
			return expired, err
		}
		n, err := s.expire(ctx, org, due)
		expired += n
		if err != nil || n == 0 {
			return expired, err
		}
	}
}

// overdue returns the first holds of the org whose lease has run out, and notes when
// the earliest lease ends. It begins with a write, so that an answer shows that the
// org's server takes what renewals write.
func (s *Store) overdue(ctx context.Context, org string) ([]redis.Z, error) {
	now := s.now()
	pipe := s.rdb.Pipeline()
	taken := pipe.PExpire(ctx, key(org, "leases"), recordLife)
	first := pipe.ZRangeWithScores(ctx, key(org, "leases"), 0, sweepBatch-1)
	_, _ = pipe.Exec(ctx) // each command has its own error
	if err := cmp.Or(taken.Err(), first.Err()); err != nil {
		s.unseen(org)
		return nil, storeError("sweep", err)
	}
	s.due(org, first.Val())
	return slices.DeleteFunc(first.Val(), func(z redis.Z) bool { return int64(z.Score) > now.UnixMicro() }), nil
}

// Overdue is how many of the org's holds should have been expired longer ago than
// by, and are not: then no process runs that sweeps the org.
func (s *Store) Overdue(ctx context.Context, org string, by time.Duration) (int, error) {
	before := s.now().Add(-by).UnixMicro()
	n, err := s.rdb.ZCount(ctx, key(org, "leases"), "-inf", strconv.FormatInt(before, 10)).Result()
	if err != nil {
		return 0, storeError("overdue", err)
	}
	return int(n), nil
}

// due notes when the org's earliest lease ends.
func (s *Store) due(org string, first []redis.Z) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.orgOf(org)
	o.due = 0
	if len(first) > 0 {
		o.due = int64(first[0].Score)
	}
}

// expire ends holds whose lease has run out, each with all its keys declared.
func (s *Store) expire(ctx context.Context, org string, due []redis.Z) (int, error) {
	ids := make([]string, len(due))
	for i, z := range due {
		ids[i] = z.Member.(string)
	}
	records, err := s.rdb.HMGet(ctx, key(org, "holds"), ids...).Result()
	if err != nil {
		return 0, storeError("sweep", err)
	}
	n := 0
	for i, id := range ids {
		text, _ := records[i].(string)
		h, ok := decodeRecord(org, id, text)
		if !ok { // a lease without a record holds nothing
			if err := s.rdb.ZRem(ctx, key(org, "leases"), id).Err(); err != nil {
				return n, storeError("sweep", err)
			}
			continue
		}
		expired, err := s.expireOne(ctx, h, int64(due[i].Score))
		if err != nil {
			return n, err
		}
		if expired {
			n++
		}
	}
	return n, nil
}

// chargeNone is what a hold is charged that its caps have not admitted.
const chargeNone = "none"

func (s *Store) expireOne(ctx context.Context, h *Hold, leaseEnd int64) (bool, error) {
	charge := s.opts.ExpiredCharge
	admitted, err := s.admitted(ctx, h, leaseEnd)
	if err != nil {
		return false, err
	}
	if !admitted {
		charge = chargeNone
	}
	a, err := s.end(ctx, s.scripts.expire, settleArgs{
		call: h.Call, id: h.ID, states: h.states, cost: charge,
		details: Details{Estimated: true, Outcome: "expired"},
		want:    func(m Metric) any { return string(m) },
	})
	if err != nil {
		return false, err
	}
	switch a.verdict {
	case "voided":
		return true, s.neverAdmitted(ctx, h)
	case "expired":
		if !isCap(h.Call.Org) {
			s.metrics.expire(a.head[1])
		}
		s.opts.Log.Warn("hold expired and is charged as an estimate", "org", h.Call.Org, "call", h.Call.ID,
			"attempt", h.Call.Attempt, "charged_nano", a.head[1])
		return true, nil
	default:
		return false, nil
	}
}

// sweepOrphan sweeps an org of the registry, and takes it off or enters when its
// next lease ends; not when somebody has announced it since.
func (s *Store) sweepOrphan(ctx context.Context, o orphan) error {
	if _, err := s.sweep(ctx, o.org, s.blind); err != nil {
		return err
	}
	s.mu.Lock()
	due, next := s.orgOf(o.org).due, ""
	s.mu.Unlock()
	if due > 0 && due <= s.now().UnixMicro() {
		return nil // not judged yet
	}
	if due > 0 {
		next = strconv.FormatInt(time.UnixMicro(due).UnixMilli(), 10)
	}
	_, err := s.run(ctx, s.scripts.relinquish, []string{Registry}, []any{o.org, strconv.FormatFloat(o.score, 'f', -1, 64), next})
	return err
}
