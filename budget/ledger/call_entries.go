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

// Bounds of what EntriesOf reads: the number of entries, and the time after the call's id was made.
const (
	callEntries = 20_000
	callAfter   = 26 * time.Hour // a job waits up to a day and then runs
)

// EntriesAround returns the period in which the entries of a call can be whose id was made then.
func EntriesAround(made time.Time) (from, to time.Time) {
	return made.Add(-clockSkew), made.Add(callAfter)
}

// EntriesOf returns a call's ledger entries: the first one and those that correct it. made is when
// the call's id was made.
func EntriesOf(ctx context.Context, read ReadEntries, org, id string, made time.Time) ([]Entry, error) {
	var out []Entry
	n := 0
	err := read(ctx, org, made.Add(-time.Minute), made.Add(callAfter), func(e Entry) error {
		n++
		if n > callEntries {
			return ErrEnough
		}
		if e.ID == id {
			out = append(out, e)
		}
		return nil
	})
	return out, err
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
