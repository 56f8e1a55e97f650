package queue

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/providers"
)

// ownPools is the key of the set of orgs' own pools that ever had a job. It lets processes
// that start later drain a pool whose credential has been removed.
const ownPools = "lg:pools"

// ownedPools manages the pools of orgs with credentials of their own.
type ownedPools struct {
	rdb      redisconn.DB
	log      *slog.Logger
	settings *settings
}

// own returns the pool of an org that uses its own account at the same provider. Its quota
// is learned from that account's answers.
func (p Pool) own(org string) Pool {
	p.ID = providers.OwnPool(p.ID, org)
	p.RPM = 0
	p.TPM = 0
	p.OTPM = 0
	p.Concurrency = 0
	p.FixedQuota = false
	return p
}

func (o *ownedPools) add(ids ...string) error {
	return o.settings.change(func(before *workerSetup) (*workerSetup, error) {
		own := slices.Clone(before.own)
		for _, id := range ids {
			if !slices.Contains(own, id) {
				own = append(own, id)
			}
		}
		if len(own) == len(before.own) {
			return before, nil
		}
		return newSetup(before.configured, own, before.opts, before)
	})
}

func (o *ownedPools) recall(ctx context.Context) error {
	ids, err := o.rdb.SMembers(ctx, ownPools).Result()
	if err != nil {
		return fmt.Errorf("queue: pools of orgs' own: %w", err)
	}
	return o.add(ids...)
}

// keepRecalling calls recall until it succeeds or ctx is done.
func (o *ownedPools) keepRecalling(ctx context.Context) {
	for {
		err := o.recall(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		o.log.WarnContext(ctx, "pools of org credentials not loaded, will retry", "err", err)
		select {
		case <-ctx.Done():
		case <-time.After(recallRest):
		}
	}
}

const recallRest = 5 * time.Second

// rememberEvery is the interval at which an own pool is recorded again: another process may
// have removed its org and created it again in the meantime.
const rememberEvery = time.Minute

// announceOwn records an own pool in Redis before its first job.
func (o *ownedPools) announceOwn(ctx context.Context, p *pool) error {
	_, org := providers.SplitPool(p.ID)
	now := time.Now().Unix()
	if org == "" || now-p.announced.Load() < int64(rememberEvery/time.Second) {
		return nil
	}
	if err := o.rdb.SAdd(ctx, ownPools, p.ID).Err(); err != nil {
		return fmt.Errorf("queue: remember the pool %s: %w", p.ID, err)
	}
	p.announced.Store(now)
	return nil
}

// ForgetOwn removes the pools of a deleted org from the recorded ones.
func ForgetOwn(ctx context.Context, rdb redisconn.DB, org string) error {
	ids, err := rdb.SMembers(ctx, ownPools).Result()
	if err != nil {
		return fmt.Errorf("queue: pools of orgs' own: %w", err)
	}
	for _, id := range ids {
		if _, owner := providers.SplitPool(id); owner != org {
			continue
		}
		if err := rdb.SRem(ctx, ownPools, id).Err(); err != nil {
			return fmt.Errorf("queue: forget the pool %s: %w", id, err)
		}
	}
	return nil
}

// poolOf returns the pool of an org's job, or nil if there is none. Another process may
// have used one of the org's own pools before this one learned of it.
func (o *ownedPools) poolOf(ctx context.Context, org, id string) *pool {
	code := idCode(id)
	if p := o.settings.codes()[code]; p != nil || len(code) != ownCodeLen || org == "" {
		return p
	}
	for _, base := range o.settings.now().configured {
		name := providers.OwnPool(base.ID, org)
		if poolCode(name) != code {
			continue
		}
		if used, err := o.rdb.SIsMember(ctx, ownPools, name).Result(); err != nil || !used {
			return nil
		}
		if err := o.add(name); err != nil {
			o.log.ErrorContext(ctx, "pool of an org credential not added", "pool", name, "err", err)
		}
	}
	return o.settings.codes()[code]
}

// AddOwn adds orgs' own pools by their ids; see providers.OwnPool. They stay until the
// process ends and follow Configure. One whose configured pool does not exist takes effect
// once Configure adds that pool.
func (q *Queue) AddOwn(ids ...string) error { return q.own.add(ids...) }

// RecallOwn adds the own pools of orgs that have had jobs before.
func (q *Queue) RecallOwn(ctx context.Context) error { return q.own.recall(ctx) }
