package ledger

// CostSum is the sum of the ledger's entries of one job or batch: it is increased by the script that
// writes an entry, so that the two are equal at any time.
type CostSum struct {
	Name string // below the place's prefix
	Life any    // in ms, after the last charge
}

// CostName names the sum of a job or a batch.
func CostName(id string) string { return "cost:" + id }

// CostSums returns the sums that what the call is charged is added to, with the lives of those of jobs and of batches.
func (c Call) CostSums(jobLife, batchLife any) (all []CostSum) {
	if c.JobID != "" {
		all = append(all, CostSum{CostName(c.JobID), jobLife})
	}
	if c.Batch != "" {
		all = append(all, CostSum{CostName(c.Batch), batchLife})
	}
	return all
}
