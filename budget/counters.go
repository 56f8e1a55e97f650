package budget

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/llmguard/llmguard/budget/ledger"
)

// Counter is the usage of a limit by one subject.
type Counter struct {
	Limit *Limit
	ID    string // the user, key or address; empty if the limit counts the org
	Used  int64
	Held  int64 // the part of Used that open holds may still give back; a reset keeps it

	places []string // that have it: more than one after a change of the org's spread
}

const (
	counterPage = 1000 // keys that one SCAN reads
	peekMost    = 50   // counters that one script reads
	resetAtOnce = 16   // resets in flight, each a script on one counter
)

// Counters returns the counters of an org under these limits that a reset would change. concerns
// chooses them by what the limit counts by, and the subject's id. It scans the keys of the store in
// pages, so that an org with many users delays no call.
func (s *Store) Counters(
	ctx context.Context, org string, limits []Limit, concerns func(Subject, string) bool,
) ([]Counter, error) {
	if !ledger.ValidOrg(org) {
		return nil, fmt.Errorf("budget: org id %q is empty or has braces or #", org)
	}
	known := map[string]*Limit{} // by the names of their states without the subject, except a group
	for i := range limits {
		if err := limits[i].Validate(); err != nil {
			return nil, err
		}
		known[limits[i].stateFor(ledger.Call{}, s.binder.lease).Key] = &limits[i]
	}
	type counted struct {
		limit *Limit
		id    string
	}
	var out []Counter
	at := map[counted]int{} // in out
	err := s.places.each(ctx, org, func(place string) error {
		found, err := s.countersIn(ctx, place, func(name, id string) *Limit {
			l := known[name+id] // of a group
			if l == nil {
				l = known[name]
			}
			if l != nil && concerns(l.Subject, id) {
				return l
			}
			return nil
		})
		for _, c := range found {
			i, elsewhere := at[counted{c.Limit, c.ID}]
			if !elsewhere {
				at[counted{c.Limit, c.ID}] = len(out)
				out = append(out, c)
				continue
			}
			out[i].Used, out[i].Held = out[i].Used+c.Used, out[i].Held+c.Held
			out[i].places = append(out[i].places, place)
		}
		return err
	})
	return out, err
}

// countersIn returns the counters in one place; limitOf returns nil for those that are not wanted.
func (s *Store) countersIn(
	ctx context.Context, place string, limitOf func(name, id string) *Limit,
) (out []Counter, err error) {
	tag := ledger.Key(place, "")
	seen := map[string]bool{} // SCAN may return a key twice
	err = s.places.scan(ctx, tag+"l:*", func(keys []string) error {
		var found []Counter
		for _, k := range keys {
			name, id := splitState(strings.TrimPrefix(k, tag))
			l := limitOf(name, id)
			if l == nil || seen[k] {
				continue
			}
			seen[k] = true
			found = append(found, Counter{Limit: l, ID: id, places: []string{place}})
		}
		for page := range slices.Chunk(found, peekMost) {
			if err := s.peekCounters(ctx, place, page); err != nil {
				return err
			}
		}
		out = append(out, slices.DeleteFunc(found, func(c Counter) bool { return c.Used <= c.Held })...)
		return nil
	})
	return out, err
}

// splitState splits the name of a state into that of the limit and the subject, which may be an
// address with colons.
func splitState(name string) (limit, subject string) {
	parts := strings.SplitAfterN(name, ":", 4) // l:<id>:<shape>:<subject>
	if len(parts) < 4 {
		return "", ""
	}
	return parts[0] + parts[1] + parts[2], parts[3]
}

// scan calls fn with pages of the keys that match; all of them must be in the slot of the pattern's
// hash tag.
func (p *places) scan(ctx context.Context, match string, fn func(keys []string) error) error {
	node, err := p.rdb.PrimaryOf(ctx, match)
	if err != nil {
		return storeError("scan", err)
	}
	var cursor uint64
	for {
		keys, next, err := node.Scan(ctx, cursor, match, counterPage).Result()
		if err != nil {
			return storeError("scan", err)
		}
		if err := fn(keys); err != nil {
			return err
		}
		cursor = next
		if cursor == 0 {
			return nil
		}
	}
}

// boundTo returns counters of a place in the form in which scripts are prepared.
func (b binder) boundTo(place string, counters []Counter) *Hold {
	h := &Hold{}
	h.Call.Org, h.Call.Part = ledger.SplitPlace(place)
	for _, c := range counters {
		st := c.Limit.stateFor(ledger.Call{}, b.lease)
		if c.Limit.Subject != UserGroup { // names its group itself
			st.Key += c.ID
		}
		l := *c.Limit
		l.Raises = nil
		h.limits, h.states = append(h.limits, l), append(h.states, st)
	}
	return h
}

// peekCounters sets the usage of counters.
func (s *Store) peekCounters(ctx context.Context, place string, counters []Counter) error {
	h := s.binder.boundTo(place, counters)
	a, err := s.runner.askEach(ctx, s.runner.scripts.peek, h, func(int, time.Time) []any { return []any{wantsNothing} })
	if err != nil {
		return err
	}
	statuses, err := s.binder.statuses(h, a, func(*Limit) int64 { return 0 })
	for i := range statuses {
		counters[i].Used, counters[i].Held = statuses[i].Used, statuses[i].Held
	}
	return err
}

// ResetCounters sets the usage of counters to zero, as Reset does. After an error some are not
// reset, and it can be called again.
func (s *Store) ResetCounters(ctx context.Context, counters []Counter) error {
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(resetAtOnce)
	for i := range counters {
		for _, place := range counters[i].places {
			if ctx.Err() == nil {
				work.Go(func() error { return s.reset(ctx, s.binder.boundTo(place, counters[i:i+1])) })
			}
		}
	}
	return work.Wait()
}

// Reset sets the usage of the limit to zero for the call's subject. Open holds stay counted,
// because their calls may still cost that much.
func (s *Store) Reset(ctx context.Context, limit Limit, c ledger.Call) error {
	h, err := s.binder.unheld([]Limit{limit}, c)
	if err != nil || len(h.states) == 0 {
		return err
	}
	spread := s.places.of(c.Org)
	if spread.whole(&limit, c) {
		return s.reset(ctx, h)
	}
	for _, h.Call.Part = range spread.numbers() {
		err = errors.Join(err, s.reset(ctx, h))
	}
	return err
}

// reset sets the usage of a limit's state to what is held.
func (s *Store) reset(ctx context.Context, h *Hold) error {
	_, err := s.runner.askEach(ctx, s.runner.scripts.reset, h, noMore)
	return err
}
