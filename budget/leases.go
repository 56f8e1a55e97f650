package budget

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	renewBatch   = 200 // holds in one script
	renewFlight  = 64  // scripts sent together
	renewFlights = 8   // under way at once
)

// openHolds is what this process knows of one org.
type openHolds struct {
	holds     map[string]*Hold
	due       int64     // us: when the org's earliest lease ends, 0: not known
	announced time.Time // in the registry
	renewed   time.Time // all of them, as the store said
	blind     time.Time // until when no lease is judged, because the store was not seen
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

// Run renews the open holds of this process every third of a lease, expires
// those of dead ones, writes the endings that Later keeps, and again those that
// a failover made the store forget, until ctx ends.
// Every process that holds must run it.
func (s *Store) Run(ctx context.Context) error {
	var work sync.WaitGroup
	work.Go(func() { s.keepWriting(ctx) })
	work.Go(func() { s.watch(ctx) })
	work.Go(func() { s.keepRefusals(ctx) })
	work.Go(func() { s.every(ctx, "sweep of expired holds", s.sweepDue) })
	s.every(ctx, "renewal of holds", s.renewDue)
	work.Wait()
	return ctx.Err()
}

// every runs a part of Run each twentieth of a lease, until ctx ends.
func (s *Store) every(ctx context.Context, what string, part func(context.Context) error) {
	tick := time.NewTicker(max(s.opts.Lease/20, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		once, cancel := context.WithTimeout(ctx, max(s.opts.Lease/4, 50*time.Millisecond))
		err := part(once)
		cancel()
		if err != nil && ctx.Err() == nil {
			s.opts.Log.Warn("holds not kept, will retry", "what", what, "err", err)
		}
	}
}

// renewal is one run of the renew script: some holds of one org.
type renewal struct {
	org   string
	holds []*Hold
}

// renewDue renews the holds of all orgs that are due, in as many round trips as
// there are flights and not as there are orgs. An org that the store did not
// answer for stays due.
func (s *Store) renewDue(ctx context.Context) error {
	began := time.Now()
	list := s.dueRenewals(began)
	if len(list) == 0 {
		return nil
	}
	errs := make([]error, len(list))
	free := make(chan struct{}, renewFlights)
	var work sync.WaitGroup
	for from := 0; from < len(list); from += renewFlight {
		till := min(from+renewFlight, len(list))
		free <- struct{}{}
		work.Go(func() {
			s.renewTogether(ctx, list[from:till], errs[from:till])
			<-free
		})
	}
	work.Wait()
	renewed := s.renewalsDone(list, errs, began)
	if len(renewed) > 0 {
		errs = append(errs, s.register(ctx, registerSet, s.now().Add(s.opts.Lease), renewed...))
	}
	return errors.Join(errs...)
}

// dueRenewals lists the holds that were not renewed for a third of a lease.
func (s *Store) dueRenewals(now time.Time) []renewal {
	var list []renewal
	s.mu.Lock()
	defer s.mu.Unlock()
	for org, o := range s.orgs {
		if len(o.holds) == 0 || now.Sub(o.renewed) < s.opts.Lease/3 {
			continue
		}
		for holds := range slices.Chunk(slices.Collect(maps.Values(o.holds)), renewBatch) {
			list = append(list, renewal{org, holds})
		}
	}
	slices.SortStableFunc(list, func(a, b renewal) int { return strings.Compare(a.org, b.org) })
	return list
}

// renewalsDone notes the orgs all of whose renewals the store has answered, and
// returns them.
func (s *Store) renewalsDone(list []renewal, errs []error, began time.Time) []string {
	failed := map[string]bool{}
	for i, r := range list {
		failed[r.org] = failed[r.org] || errs[i] != nil
	}
	var done []string
	s.mu.Lock()
	defer s.mu.Unlock()
	for org, f := range failed {
		if !f {
			o := s.orgOf(org)
			o.renewed, o.announced = began, began
			done = append(done, org)
		}
	}
	slices.Sort(done)
	return done
}

// renewTogether sends renewals in one round trip, and in a second one those whose
// server does not have the script.
func (s *Store) renewTogether(ctx context.Context, list []renewal, errs []error) {
	for i := range errs {
		errs[i] = errNotSent
	}
	for _, send := range []func(context.Context, redis.Scripter, []string, ...any) *redis.Cmd{
		s.scripts.renew.EvalSha, s.scripts.renew.Eval,
	} {
		pipe, sent := s.rdb.Pipeline(), make([]*redis.Cmd, len(list))
		for i, r := range list {
			if errors.Is(errs[i], errNotSent) {
				keys, args := s.renewArgs(r)
				sent[i] = send(ctx, pipe, keys, args...)
			}
		}
		if pipe.Len() == 0 {
			return
		}
		began := time.Now()
		_, _ = pipe.Exec(ctx) // each command has its own error
		s.metrics.took(s.scripts.renew.name, time.Since(began).Seconds())
		for i, cmd := range sent {
			if cmd != nil && !redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
				errs[i] = s.renewAnswered(list[i], cmd)
			}
		}
	}
}

// errNotSent stands for a renewal that no server has carried out yet.
var errNotSent = errors.New("budget: renew: the script is not loaded")

// renewArgs builds the KEYS and ARGV that lua/renew.lua lists.
func (s *Store) renewArgs(r renewal) (keys []string, args []any) {
	keys = []string{key(r.org, "holds"), key(r.org, "leases")}
	args = []any{s.given(), s.lease, recordLifeArg}
	for _, h := range r.holds {
		n := 0
		for _, st := range h.states {
			if st.Metric == Concurrency {
				keys = append(keys, key(r.org, st.Key))
				n++
			}
		}
		args = append(args, h.ID, n)
	}
	return keys, args
}

// renewAnswered takes the answer of renew: Redis's time, the earliest lease end,
// and for each hold whether it lives.
func (s *Store) renewAnswered(r renewal, cmd *redis.Cmd) error {
	reply, err := cmd.Text()
	if err != nil {
		return storeError(s.scripts.renew.name, err)
	}
	n, err := integers(reply)
	if err != nil || len(n) != len(r.holds)+2 {
		return fmt.Errorf("budget: renew: reply %.80q is not understood", reply)
	}
	s.seen(time.UnixMicro(n[0]))
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.orgOf(r.org)
	o.due = n[1]
	for i, h := range r.holds {
		if n[i+2] == 1 {
			continue
		}
		if _, open := o.holds[h.ID]; open { // else it ended meanwhile
			delete(o.holds, h.ID)
			s.metrics.lost.Inc()
			s.opts.Log.Warn("hold was expired before it could be renewed", "org", r.org, "call", h.Call.ID)
		}
	}
	return nil
}
