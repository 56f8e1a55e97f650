package tenants

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"
)

// Brake is the record of a brake that fired for one subject, or that was released for it. It counts until
// Until.
type Brake struct {
	Stamp
	Brake   string `json:"brake"`   // its name
	Subject string `json:"subject"` // such as run, or user+session
	Value   string `json:"value"`   // the subject's id, as budget.Subject.ID
	// Action is stop, ask, slow or shadow; empty once it is released: until Until the brake does not
	// fire for the subject again.
	Action string    `json:"action,omitempty"`
	Until  time.Time `json:"until"`
	By     string    `json:"by,omitempty"` // who released it
	Reason string    `json:"reason,omitempty"`
	// Evidence is what the brake saw, as budget.BrakeEvidence.
	Evidence json.RawMessage `json:"evidence,omitempty"`
}

// BrakeID returns the id of the record of a brake for a subject.
func BrakeID(brake, value string) string { return brake + " " + value }

// BrakeRef identifies the record of a brake for a subject.
func BrakeRef(org, brake, value string) Ref {
	return Ref{Kind: KindBrake, Org: org, ID: BrakeID(brake, value)}
}

// Counts reports whether the record is still in effect.
func (b *Brake) Counts(now time.Time) bool { return b != nil && now.Before(b.Until) }

// Fired reports whether the brake is in effect for its subject and was not released.
func (b *Brake) Fired(now time.Time) bool { return b.Counts(now) && b.Action != "" }

// MaxBrakes bounds the records of an org, because callers choose the values of labels. Beyond it, brakes
// still refuse calls while their counters are over, but leave no record.
const MaxBrakes = 1000

// FireBrake records that a brake fired, and reports whether it did: it does not if the brake has fired for
// the subject or was released for it in the meantime, or if the org has too many records.
func (s *Store) FireBrake(ctx context.Context, org string, fired Brake, reason string) (bool, error) {
	ref := BrakeRef(org, fired.Brake, fired.Value)
	var before Brake
	old, err := s.Get(ctx, ref, &before)
	if err != nil || before.Counts(fired.Created) || old == "" && len(s.Snapshot().Brakes[org]) >= MaxBrakes {
		return false, err
	}
	after, err := json.Marshal(fired)
	if err != nil {
		return false, err
	}
	err = s.Commit(ctx, AuditEntry{
		At: fired.Created, Actor: "brake", Action: "brake.fire", Org: org, Target: fired.Target(), Reason: reason,
		After: after,
	}, Change{Ref: ref, Old: old, New: fired})
	if errors.Is(err, ErrConflict) { // another process did
		return false, nil
	}
	return err == nil, err
}

// Target names brake and subject in the audit: "wild-run run=abc".
func (b *Brake) Target() string { return b.Brake + " " + b.Subject + "=" + b.Value }

// ExpireBrakes removes records that no longer count, at most 100 at a time, with one entry in the audit.
func (s *Store) ExpireBrakes(ctx context.Context, now time.Time) error {
	var changes []Change
	for org, list := range s.Snapshot().Brakes {
		for _, b := range list {
			if b.Counts(now) || len(changes) == 100 {
				continue
			}
			ref := BrakeRef(org, b.Brake, b.Value)
			var last Brake
			old, err := s.Get(ctx, ref, &last)
			if err != nil {
				return err
			}
			if old != "" && !last.Counts(now) {
				changes = append(changes, Change{Ref: ref, Old: old})
			}
		}
	}
	if len(changes) == 0 {
		return nil
	}
	entry := AuditEntry{
		At: now, Actor: "brake", Action: "brake.expire", Target: strconv.Itoa(len(changes)) + " records",
	}
	if err := s.Commit(ctx, entry, changes...); !errors.Is(err, ErrConflict) { // another process did
		return err
	}
	return nil
}

// Refs returns the records of an org's brakes.
func (b Brakes) Refs(org string) []Ref {
	out := make([]Ref, 0, len(b))
	for id := range b {
		out = append(out, Ref{Kind: KindBrake, Org: org, ID: id})
	}
	return out
}
