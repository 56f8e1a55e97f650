package ledger

import "time"

// CostSum is the sum of the ledger's entries of one job or batch: it is increased by the script that
// writes an entry, so that the two are equal at any time.
type CostSum struct {
	Name string // below the place's prefix
	Life any    // in ms, after the last charge
}

// CostName names the sum of a job or a batch.
func CostName(id string) string { return "cost:" + id }

// batchLife is how long the cost of a batch can be read after its last charge, in ms: longer than the batch.
var batchLife any = (32 * 24 * time.Hour).Milliseconds()

// CostSums returns the sums that what the call is charged is added to.
func (c Call) CostSums(jobLife any) (all []CostSum) {
	if c.JobID != "" {
		all = append(all, CostSum{CostName(c.JobID), jobLife})
	}
	if c.Batch != "" {
		all = append(all, CostSum{CostName(c.Batch), batchLife})
	}
	return all
}
