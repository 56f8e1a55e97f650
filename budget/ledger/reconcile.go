package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/llmguard/llmguard/pricing"
)

// MostReconcile is more charges than a list for [Ledger.Reconcile] can hold.
const MostReconcile = 200_000

// Reconcile returns up to n of the org's charges that came too late to be distinguished from
// repetitions, oldest first, as entries without a kind. Resolve removes them from the list.
func (l *Ledger) Reconcile(ctx context.Context, org string, n int) ([]Entry, error) {
	places, err := l.o.Places(ctx, org)
	if err != nil {
		return nil, err
	}
	out := []Entry{}
	for _, place := range places {
		list, err := l.o.Redis.LRange(ctx, Key(place, "reconcile"), 0, int64(n)-1).Result()
		if err != nil {
			return nil, l.o.Fault("read reconciliation list", err)
		}
		for _, text := range list {
			e, err := decodeEntry(text)
			if err != nil {
				return nil, err
			}
			e.listed = text
			_, e.Part = SplitPlace(place)
			out = append(out, e)
		}
	}
	if len(places) > 1 {
		slices.SortStableFunc(out, func(a, b Entry) int { return a.At.Compare(b.At) })
	}
	return out[:min(n, len(out))], nil
}

// Unresolved is a charge that came too late to be booked, with the ledger's last entry of its call.
type Unresolved struct {
	Entry
	Booked *Booked `json:"booked"` // nil if the ledger has none
}

// Booked is the last entry of a call in the ledger.
type Booked struct {
	Kind  string       `json:"kind"`
	Total pricing.Nano `json:"total_nano_usd"`
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
	return fmt.Sprintf("ledger: %d attempts of the call are on the reconciliation list", e.Attempts)
}

// ErrBooked means that the ledger already has the call of a charge.
var ErrBooked = errors.New("ledger: the ledger has this call already")

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
