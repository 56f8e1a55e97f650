package budget

import (
	"context"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/pricing"
)

// JobCost is a job or a batch of an org, and where its cost is added.
type JobCost struct {
	Org, ID string
	To      *pricing.Nano
}

// AddJobCosts adds what the ledger has charged by now for jobs or batches, with all corrections. It is 0 for
// a job whose last charge is longer ago than Options.JobLife, and for a batch after 32 days.
func AddJobCosts(ctx context.Context, rdb redisconn.DB, list []JobCost) error {
	of := map[string][]JobCost{}
	for _, j := range list {
		of[j.Org] = append(of[j.Org], j)
	}
	for org, jobs := range of {
		places, err := Places(ctx, rdb, org)
		for _, place := range places {
			pipe := rdb.Pipeline()
			reads := make([]redisconn.Text, len(jobs))
			for i, j := range jobs {
				reads[i] = pipe.Get(ctx, ledger.Key(place, ledger.CostName(j.ID)))
			}
			if err := pipe.Exec(ctx); err != nil && !redisconn.IsNil(err) {
				return storeError("read costs", err)
			}
			for i, read := range reads {
				n, err := read.Int64()
				if err != nil && !redisconn.IsNil(err) {
					return storeError("read costs", err)
				}
				*jobs[i].To += pricing.Nano(n)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// KeepJobCost makes the cost of a job readable for at least `life` from now.
func KeepJobCost(ctx context.Context, rdb redisconn.DB, org, id string, life time.Duration) error {
	places, err := Places(ctx, rdb, org)
	for _, place := range places {
		if err := rdb.PExpire(ctx, ledger.Key(place, ledger.CostName(id)), life).Err(); err != nil {
			return storeError("keep cost", err)
		}
	}
	return err
}
