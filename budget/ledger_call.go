package budget

import (
	"context"
	"errors"
	"time"
)

// ReadEntries calls fn with an org's ledger entries of [from, to), the oldest first; a zero time
// is no bound.
type ReadEntries func(ctx context.Context, org string, from, to time.Time, fn func(Entry) error) error

// clockSkew is how far the clocks of proxies and Redis may be apart.
const clockSkew = 10 * time.Minute

// What EntriesOf reads: so many entries after the call's id was made.
const (
	callEntries = 20_000
	callAfter   = 26 * time.Hour // a job waits a day, and then runs
)

// errEnough ends a reading of the ledger.
var errEnough = errors.New("budget: enough")

// EntriesOf returns what a ledger has of a call: its first entry and those that correct it. Made
// is when its id was made.
func EntriesOf(ctx context.Context, read ReadEntries, org, id string, made time.Time) ([]Entry, error) {
	var out []Entry
	n := 0
	err := read(ctx, org, made.Add(-time.Minute), made.Add(callAfter), func(e Entry) error {
		n++
		if n > callEntries {
			return errEnough
		}
		if e.ID == id {
			out = append(out, e)
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return out, err
}

// FindCall returns the call of a ledger that a correction corrects; found is false when the
// ledger does not have it. Made is when its id was made.
func FindCall(ctx context.Context, read ReadEntries, org, id string, made time.Time) (one Call, found bool, err error) {
	err = read(ctx, org, made.Add(-clockSkew), time.Time{}, func(e Entry) error {
		if e.ID != id {
			return nil
		}
		one, found = e.Call, true
		return errEnough
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return one, found, err
}
