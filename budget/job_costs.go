package budget

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/pricing"
)

// chargedSum is the sum of the ledger's entries of one job or batch: it is increased by the script that
// writes an entry, so that the two are equal at any time.
type chargedSum struct {
	name string // below the place's prefix
	life any    // in ms, after the last charge
}

// costName names the sum of a job or a batch.
func costName(id string) string { return "cost:" + id }

// batchLife is how long the cost of a batch can be read after its last charge, in ms: longer than the batch.
var batchLife any = recordLife.Milliseconds()

// sums returns the sums that what the call is charged is added to.
func (c Call) sums(jobLife any) (all []chargedSum) {
	if c.JobID != "" {
		all = append(all, chargedSum{costName(c.JobID), jobLife})
	}
	if c.Batch != "" {
		all = append(all, chargedSum{costName(c.Batch), batchLife})
	}
	return all
}

// JobCost is a job or a batch of an org, and where its cost is added.
type JobCost struct {
	Org, ID string
	To      *pricing.Nano
}

// AddJobCosts adds what the ledger has charged by now for jobs or batches, with all corrections. It is 0 for
// a job whose last charge is longer ago than Options.JobLife, and for a batch after 32 days.
func AddJobCosts(ctx context.Context, rdb redis.UniversalClient, list []JobCost) error {
	of := map[string][]JobCost{}
	for _, j := range list {
		of[j.Org] = append(of[j.Org], j)
	}
	for org, jobs := range of {
		err := eachPart(ctx, rdb, org, func(place string) error {
			pipe := rdb.Pipeline()
			reads := make([]*redis.StringCmd, len(jobs))
			for i, j := range jobs {
				reads[i] = pipe.Get(ctx, key(place, costName(j.ID)))
			}
			if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
				return storeError("read costs", err)
			}
			for i, read := range reads {
				n, err := read.Int64()
				if err != nil && !errors.Is(err, redis.Nil) {
					return storeError("read costs", err)
				}
				*jobs[i].To += pricing.Nano(n)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// KeepJobCost makes the cost of a job readable for at least `life` from now.
func KeepJobCost(ctx context.Context, rdb redis.UniversalClient, org, id string, life time.Duration) error {
	return eachPart(ctx, rdb, org, func(place string) error {
		if err := rdb.PExpire(ctx, key(place, costName(id)), life).Err(); err != nil {
			return storeError("keep cost", err)
		}
		return nil
	})
}

// eachPart calls fn for each place in which an org may have data.
func eachPart(ctx context.Context, rdb redis.UniversalClient, org string, fn func(place string) error) error {
	used, err := rdb.SMembers(ctx, key(org, partsName)).Result()
	if err != nil {
		return storeError("read parts", err)
	}
	err = fn(org)
	for _, text := range used {
		if part, wrong := strconv.Atoi(text); wrong == nil && part > 1 && err == nil {
			err = fn(placeOf(org, part))
		}
	}
	return err
}
