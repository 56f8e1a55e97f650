package budget

import (
	"context"
	"crypto/rand"
)

// epochKey holds a random text that whoever first looks after the store writes.
// When it is gone or another, the store was emptied. On a cluster it tells of
// the one shard it is on.
const epochKey = "lg:epoch"

// emptied reports whether the store has lost everything since this process last
// looked: FLUSHALL, a lost volume, a restart without persistence.
func (s *Store) emptied(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, watchEvery)
	defer cancel()
	pipe := s.rdb.Pipeline()
	pipe.SetNX(ctx, epochKey, rand.Text(), registryLife)
	found := pipe.Get(ctx, epochKey)
	pipe.PExpire(ctx, epochKey, registryLife)
	if _, err := pipe.Exec(ctx); err != nil {
		return false
	}
	before := s.epoch
	s.epoch = found.Val()
	if before == "" || before == s.epoch {
		return false
	}
	s.later.metrics.emptied.Inc()
	s.opts.Log.Error("the store was emptied: it has forgotten limits, holds, ledger and jobs; " +
		"what this process remembers is written again, and limits count from now")
	return true
}
