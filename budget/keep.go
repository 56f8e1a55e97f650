package budget

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// Registry is the ZSET of orgs by the Unix ms until which some process
	// looks after their holds; it is the one key that belongs to no org.
	Registry     = "lg:orgs"
	registryLife = recordLife
	renewBatch   = 200
	sweepBatch   = 100
)

// openHolds is what this process knows of one org.
type openHolds struct {
	holds     map[string]*Hold
	due       int64     // us: when the org's earliest lease ends, 0: not known
	announced time.Time // in the registry
	renewed   time.Time
}

// orgOf returns the org's record; s.mu is held.
func (s *Store) orgOf(org string) *openHolds {
	o := s.orgs[org]
	if o == nil {
		o = &openHolds{holds: map[string]*Hold{}}
		s.orgs[org] = o
	}
	return o
}

// track has the hold renewed until it ends.
func (s *Store) track(h *Hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.orgOf(h.Call.Org)
	o.holds[h.ID] = h
	if o.due == 0 {
		o.due = h.At.Add(s.opts.Lease).UnixMicro()
	}
}

func (s *Store) untrack(org, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.orgs[org]; o != nil {
		delete(o.holds, id)
	}
}

// announce enters the org in the registry once per third of a lease, beside the
// hold, so that its holds expire even when every process dies. The function it
// returns waits for that; a failure leaves the org to the next hold.
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
		if err := s.register(ctx, s.now().Add(s.opts.Lease), org); err != nil {
			s.opts.Log.Warn("org not registered for expiry", "org", org, "error", err)
			s.mu.Lock()
			o.announced = time.Time{}
			s.mu.Unlock()
		}
	}()
	return func() { <-done }
}

func (s *Store) register(ctx context.Context, until time.Time, orgs ...string) error {
	members := make([]redis.Z, len(orgs))
	for i, org := range orgs {
		members[i] = redis.Z{Score: float64(until.UnixMilli()), Member: org}
	}
	pipe := s.rdb.Pipeline()
	pipe.ZAdd(ctx, Registry, members...)
	pipe.PExpire(ctx, Registry, registryLife)
	if _, err := pipe.Exec(ctx); err != nil {
		return storeError("register", err)
	}
	return nil
}

// Run renews the open holds of this process every third of a lease, expires
// those of dead ones, writes the endings that Later keeps, and again those that
// a failover made the store forget, until ctx ends.
// Every process that holds must run it.
func (s *Store) Run(ctx context.Context) error {
	var work sync.WaitGroup
	work.Go(func() { s.keepWriting(ctx) })
	work.Go(func() { s.watch(ctx) })
	defer work.Wait()
	tick := time.NewTicker(max(s.opts.Lease/20, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		if err := s.keep(ctx); err != nil && ctx.Err() == nil {
			s.opts.Log.Warn("holds not kept, trying again", "error", err)
		}
	}
}

// keep is one round of Run: it renews what is due, then sweeps.
func (s *Store) keep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, max(s.opts.Lease/4, 50*time.Millisecond))
	defer cancel()
	renew, sweep := s.plan(time.Now(), s.now())
	var errs []error
	for org, holds := range renew {
		for len(holds) > 0 {
			n := min(len(holds), renewBatch)
			errs = append(errs, s.renew(ctx, org, holds[:n]))
			holds = holds[n:]
		}
	}
	for _, org := range sweep {
		_, err := s.Sweep(ctx, org)
		errs = append(errs, err)
	}
	errs = append(errs, s.sweepOrphans(ctx))
	return errors.Join(errs...)
}

// plan lists the holds to renew and the orgs to sweep, and forgets idle orgs.
func (s *Store) plan(local, now time.Time) (renew map[string][]*Hold, sweep []string) {
	renew = map[string][]*Hold{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for org, o := range s.orgs {
		if len(o.holds) > 0 && local.Sub(o.renewed) >= s.opts.Lease/3 {
			o.renewed = local
			for _, h := range o.holds {
				renew[org] = append(renew[org], h)
			}
		}
		if o.due > 0 && o.due <= now.UnixMicro() {
			sweep = append(sweep, org)
		}
		if len(o.holds) == 0 && o.due == 0 && local.Sub(o.announced) > s.opts.Lease {
			delete(s.orgs, org)
		}
	}
	return renew, sweep
}

// renew moves the lease ends of holds of one org.
func (s *Store) renew(ctx context.Context, org string, holds []*Hold) error {
	keys := []string{key(org, "holds"), key(org, "leases")}
	args := []any{s.given(), s.opts.Lease.Microseconds(), recordLife.Milliseconds()}
	for _, h := range holds {
		n := 0
		for _, st := range h.states {
			if st.Metric == Concurrency {
				keys = append(keys, key(org, st.Key))
				n++
			}
		}
		args = append(args, h.ID, n)
	}
	reply, err := s.run(ctx, s.scripts.renew, keys, args)
	if err != nil {
		return err
	}
	n, err := integers(reply)
	if err != nil || len(n) != len(holds)+2 {
		return fmt.Errorf("budget: renew: reply %.80q is not understood", reply)
	}
	s.seen(time.UnixMicro(n[0]))
	s.renewed(org, holds, n)
	return s.register(ctx, s.now().Add(s.opts.Lease), org)
}

// renewed takes the answer of renew: Redis's time, the earliest lease end, and
// for each hold whether it lives.
func (s *Store) renewed(org string, holds []*Hold, n []int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.orgOf(org)
	o.due, o.announced = n[1], time.Now()
	for i, h := range holds {
		if n[i+2] == 1 {
			continue
		}
		if _, open := o.holds[h.ID]; open { // else it ended meanwhile
			delete(o.holds, h.ID)
			s.metrics.lost.Inc()
			s.opts.Log.Warn("hold was not renewed in time and expires", "org", org, "call", h.Call.ID)
		}
	}
}

// Sweep expires the org's holds whose lease has run out and returns how many
// it expired. Run does it by itself.
func (s *Store) Sweep(ctx context.Context, org string) (int, error) {
	expired := 0
	for {
		now := s.now()
		due, err := s.rdb.ZRangeWithScores(ctx, key(org, "leases"), 0, sweepBatch-1).Result()
		if err != nil {
			return expired, storeError("sweep", err)
		}
		s.due(org, due)
		ids := make([]string, 0, len(due))
		for _, z := range due {
			if int64(z.Score) <= now.UnixMicro() {
				ids = append(ids, z.Member.(string))
			}
		}
		if len(ids) == 0 {
			return expired, nil
		}
		n, err := s.expire(ctx, org, ids)
		expired += n
		if err != nil || n == 0 {
			return expired, err
		}
	}
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
func (s *Store) expire(ctx context.Context, org string, ids []string) (int, error) {
	records, err := s.rdb.HMGet(ctx, key(org, "holds"), ids...).Result()
	if err != nil {
		return 0, storeError("sweep", err)
	}
	n := 0
	for i, id := range ids {
		text, _ := records[i].(string)
		c, states, ok := decodeRecord(org, id, text)
		if !ok { // a lease without a record holds nothing
			if err := s.rdb.ZRem(ctx, key(org, "leases"), id).Err(); err != nil {
				return n, storeError("sweep", err)
			}
			continue
		}
		a, err := s.end(ctx, s.scripts.expire.of, ending{
			call: c, id: id, states: states, cost: s.opts.ExpiredCharge,
			details: Details{Estimated: true, Outcome: "expired"},
			want:    func(m Metric) any { return string(m) },
		})
		if err != nil {
			return n, err
		}
		if a.verdict == "expired" {
			n++
			if !isCap(org) {
				s.metrics.expire(a.head[1])
			}
			s.opts.Log.Warn("hold expired and is charged as an estimate", "org", org, "call", c.ID,
				"attempt", c.Attempt, "charged_nano", a.head[1])
		}
	}
	return n, nil
}

// sweepOrphans sweeps the orgs that no living process looks after.
func (s *Store) sweepOrphans(ctx context.Context) error {
	now := s.now()
	orgs, err := s.rdb.ZRangeArgs(ctx, redis.ZRangeArgs{
		Key: Registry, Start: "-inf", Stop: strconv.FormatInt(now.UnixMilli(), 10), ByScore: true, Count: sweepBatch,
	}).Result()
	if err != nil {
		return storeError("sweep", err)
	}
	for _, org := range orgs {
		if _, err := s.Sweep(ctx, org); err != nil {
			return err
		}
		if err := s.relinquish(ctx, org); err != nil {
			return err
		}
	}
	return nil
}

// relinquish takes a swept org off the registry, or enters when its next lease
// ends.
func (s *Store) relinquish(ctx context.Context, org string) error {
	s.mu.Lock()
	due := s.orgOf(org).due
	s.mu.Unlock()
	if due > 0 {
		return s.register(ctx, time.UnixMicro(due), org)
	}
	if err := s.rdb.ZRem(ctx, Registry, org).Err(); err != nil {
		return storeError("sweep", err)
	}
	return nil
}
