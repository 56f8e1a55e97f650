package batch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/pricing"
)

// Filter selects batches of several orgs for operators.
type Filter struct {
	Orgs []string
	User string // only this user's; empty: all
	Open bool   // only unfinished ones
}

// listed is a batch on one of its org's lists.
type listed struct {
	id   string
	open bool
	made float64 // Unix seconds
}

// All returns the newest batches of some orgs, unfinished ones first, and whether there are
// more. It reads two lists of each org, and the records of the batches that it returns.
func (s *Store) All(ctx context.Context, f Filter, limit int) ([]*Batch, bool, error) {
	list, err := s.listed(ctx, f, limit)
	if err != nil {
		return nil, false, err
	}
	slices.SortStableFunc(list, func(a, b listed) int {
		if a.open != b.open {
			return map[bool]int{true: -1, false: 1}[a.open]
		}
		return cmp.Compare(b.made, a.made)
	})
	cut := len(list) > limit+slack
	all, err := s.records(ctx, list[:min(len(list), limit+slack)])
	if err != nil {
		return nil, false, err
	}
	all = slices.DeleteFunc(all, func(b *Batch) bool {
		return f.User != "" && b.User != f.User || f.Open && b.Status.Terminal()
	})
	slices.SortStableFunc(all, func(a, b *Batch) int {
		return cmp.Compare(map[bool]int{true: 1}[a.Status.Terminal()], map[bool]int{true: 1}[b.Status.Terminal()])
	})
	return all[:min(limit, len(all))], cut || len(all) > limit, nil
}

// slack is how many more batches than requested are read, because some may be listed twice,
// be forgotten, or have just ended.
const slack = 50

// listed reads the lists of unfinished and of ended batches: the newest of each, and one
// more.
func (s *Store) listed(ctx context.Context, f Filter, limit int) ([]listed, error) {
	pipe := s.rdb.Pipeline()
	open, ended := make([]redisconn.Cmd[[]redisconn.Z], len(f.Orgs)), make([]redisconn.Cmd[[]redisconn.Z], len(f.Orgs))
	for i, org := range f.Orgs {
		key := openKeys(org, f.User)[min(len(f.User), 1)]
		open[i] = pipe.ZRevRangeWithScores(ctx, key, 0, int64(limit))
		if !f.Open {
			ended[i] = pipe.ZRevRangeWithScores(ctx, endedKey(org, f.User), 0, int64(limit))
		}
	}
	if pipe.Len() == 0 {
		return nil, nil
	}
	if err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("batch: list: %w", err)
	}
	var out []listed
	for i := range f.Orgs {
		for _, z := range open[i].Val() {
			id := z.Member
			out = append(out, listed{id, true, z.Score})
		}
		if ended[i] == nil {
			continue
		}
		for _, z := range ended[i].Val() {
			id := z.Member
			if f.User != "" { // microseconds
				z.Score /= 1e6
			}
			out = append(out, listed{id[strings.LastIndex(id, " ")+1:], false, z.Score})
		}
	}
	return out, nil
}

// endedKey returns the list of an org's ended batches, or of all batches of one user.
func endedKey(org, user string) string {
	if user != "" {
		return indexKey(org, user)
	}
	return keptKey(org)
}

// records reads batches, omitting those that are forgotten or listed twice.
func (s *Store) records(ctx context.Context, list []listed) ([]*Batch, error) {
	pipe := s.rdb.Pipeline()
	reads := map[string]redisconn.Cmd[map[string]string]{}
	var ids []string
	for _, l := range list {
		if reads[l.id] == nil {
			reads[l.id] = pipe.HGetAll(ctx, recordKey(l.id))
			ids = append(ids, l.id)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	if err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("batch: list: %w", err)
	}
	var out []*Batch
	for _, id := range ids {
		b, err := decode(id, reads[id].Val())
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return out, s.addCosts(ctx, out...)
}

// addCosts adds to batches what the ledger has charged for them.
func (s *Store) addCosts(ctx context.Context, batches ...*Batch) error {
	list := make([]budget.JobCost, len(batches))
	for i, b := range batches {
		list[i] = budget.JobCost{Org: b.Org, ID: b.ID, To: (*pricing.Nano)(&b.Charged)}
	}
	if err := budget.AddJobCosts(ctx, s.rdb, list); err != nil {
		return fmt.Errorf("batch: read: %w", err)
	}
	return nil
}

// Find returns a batch of any owner, for operators.
func (s *Store) Find(ctx context.Context, id string) (*Batch, error) { return s.load(ctx, id) }
