package ledger

import (
	"context"
	"time"
)

// ReadEntries calls fn with an org's ledger entries in [from, to), oldest first, until fn returns ErrEnough
// or another error; a zero time means no bound.
type ReadEntries func(ctx context.Context, org string, from, to time.Time, fn func(Entry) error) error

// clockSkew is the assumed maximum skew between the clocks of proxies and Redis.
const clockSkew = 10 * time.Minute

// callEntries is how many entries EntriesOf reads at most.
const callEntries = 20_000

// CallAfter is how long after its id was made a call is expected to be settled: a job waits up to a day and then runs.
const CallAfter = 26 * time.Hour

// EntriesAround returns the period in which the entries of a call can be whose id was made then.
func EntriesAround(made time.Time) (from, to time.Time) {
	return made.Add(-clockSkew), made.Add(CallAfter)
}

// EntriesOf returns the ledger entries of a call or a job: the first one and those that correct it. made is when the
// id was made. until is zero, or the time up to which entries were searched if there are too many.
func EntriesOf(
	ctx context.Context, read ReadEntries, org, id string, made time.Time,
) (out []Entry, until time.Time, err error) {
	n := 0
	err = read(ctx, org, made.Add(-time.Minute), made.Add(CallAfter), func(e Entry) error {
		n++
		if n > callEntries {
			until = e.At
			return ErrEnough
		}
		if e.ID == id || e.JobID == id {
			out = append(out, e)
		}
		return nil
	})
	return out, until, err
}

// FindCall returns the call that a correction refers to; found is false if it is not in the ledger.
// made is when the call's id was made.
func FindCall(ctx context.Context, read ReadEntries, org, id string, made time.Time) (one Call, found bool, err error) {
	err = read(ctx, org, made.Add(-clockSkew), time.Time{}, func(e Entry) error {
		if e.ID != id {
			return nil
		}
		one, found = e.Call, true
		return ErrEnough
	})
	return one, found, err
}
