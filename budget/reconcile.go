package budget

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/llmguard/llmguard/pricing"
)

// Unresolved is a charge that came too late to be booked, with the ledger's last entry of its call.
type Unresolved struct {
	Entry
	Booked *Booked // nil if the ledger has none
}

// Booked is the last entry of a call in the ledger.
type Booked struct {
	Kind  string
	Total pricing.Nano
}

// JoinLedger looks up the calls of an org's reconciliation list in the ledger. It reads the ledger
// from the oldest call on; made returns when a call's id was made.
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

// AttemptsError means that several attempts of one call are on the list, and none was selected.
type AttemptsError struct{ Attempts int }

func (e *AttemptsError) Error() string {
	return fmt.Sprintf("budget: %d attempts of the call are on the reconciliation list", e.Attempts)
}

// ErrBooked means that the ledger already has the call of a charge.
var ErrBooked = errors.New("budget: the ledger has this call already")

// FindUnresolved returns the charge of a call on the list. A nil attempt means the only one. The
// error is ErrNotListed or an AttemptsError.
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

// CheckCharge returns ErrBooked if the ledger already has the charge's call.
func (u *Unresolved) CheckCharge() error {
	if u.Booked != nil {
		return ErrBooked
	}
	return nil
}
