package budget

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/llmguard/llmguard/pricing"
)

// Unresolved is a charge that came too late to be booked, and what the ledger has of its call.
type Unresolved struct {
	Entry
	Booked *Booked // nil: nothing
}

// Booked is the last entry of a call in the ledger.
type Booked struct {
	Kind  string
	Total pricing.Nano
}

// JoinLedger finds what a ledger has of the calls of an org's reconciliation list. It reads the
// ledger from the oldest call on; made returns when an id of a call was made.
func JoinLedger(
	ctx context.Context, read ReadEntries, org string, list []Entry, made func(id string) (time.Time, bool),
) ([]Unresolved, error) {
	if len(list) == 0 {
		return nil, nil
	}
	type attempt struct {
		id string
		n  int
	}
	out := make([]Unresolved, len(list))
	at, first := map[attempt][]int{}, time.Now()
	for i, e := range list {
		out[i].Entry = e
		a := attempt{e.ID, e.Attempt}
		at[a] = append(at[a], i)
		if t, ok := made(e.ID); ok && t.Before(first) {
			first = t
		}
	}
	err := read(ctx, org, first.Add(-clockSkew), time.Time{}, func(e Entry) error {
		for _, i := range at[attempt{e.ID, e.Attempt}] {
			out[i].Booked = &Booked{e.Kind, e.Total}
		}
		return nil
	})
	return out, err
}

// AttemptsError refuses a choice among several attempts of one call.
type AttemptsError struct{ Attempts int }

func (e *AttemptsError) Error() string {
	return fmt.Sprintf("budget: %d attempts of the call are on the reconciliation list", e.Attempts)
}

// ErrBooked means that the ledger has the call of a charge already.
var ErrBooked = errors.New("budget: the ledger has this call already")

// FindUnresolved returns the charge of a call that is on the list; a nil attempt is its only one.
// The error is ErrNotListed or an AttemptsError.
func FindUnresolved(list []Unresolved, call string, attempt *int) (*Unresolved, error) {
	var found []*Unresolved
	for i := range list {
		if u := &list[i]; u.ID == call && (attempt == nil || u.Attempt == *attempt) {
			found = append(found, u)
		}
	}
	switch {
	case len(found) == 0:
		return nil, ErrNotListed
	case len(found) > 1 && attempt == nil && found[0].Attempt != found[1].Attempt:
		return nil, &AttemptsError{len(found)}
	}
	return found[0], nil
}

// CheckCharge refuses to book the charge when the ledger has its call already.
func (u *Unresolved) CheckCharge() error {
	if u.Booked != nil {
		return ErrBooked
	}
	return nil
}
