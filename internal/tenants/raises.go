package tenants

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// RaiseStatus is the state of a request for more of a limit.
type RaiseStatus string

// The states of a request. All but RaisePending are final.
const (
	RaisePending   RaiseStatus = "pending"
	RaiseApproved  RaiseStatus = "approved"
	RaiseDenied    RaiseStatus = "denied"
	RaiseWithdrawn RaiseStatus = "withdrawn"
	RaiseExpired   RaiseStatus = "expired"
)

// RaiseRequest is a caller's request for more of a cost limit.
type RaiseRequest struct {
	ID   string `json:"id"`
	Org  string `json:"org"`
	User string `json:"user"`
	Key  string `json:"key"` // with which it was made
	// Limit is the limit's name, Subject what it counts by, and Only the user or key whose amount
	// is raised; empty: the org's.
	Limit   string `json:"limit"`
	Subject string `json:"subject"`
	Only    string `json:"only,omitempty"`
	// Amount is what the limit would have in addition, in nano-USD, until Until.
	Amount  int64       `json:"amount"`
	Until   time.Time   `json:"until"`
	Reason  string      `json:"reason"`
	Created time.Time   `json:"created_at"`
	State   RaiseStatus `json:"status"` // as recorded; see Status
	// Decision is set once State is final.
	Decision *RaiseDecision `json:"decision,omitempty"`
}

// RaiseDecision is who ended a request, and how.
type RaiseDecision struct {
	At     time.Time `json:"at"`
	By     string    `json:"by"` // as the actor of the audit
	Reason string    `json:"reason,omitempty"`
	// Amount and Until are what was approved, and Override is the id of the override.
	Amount   int64     `json:"amount,omitempty"`
	Until    time.Time `json:"until,omitzero"`
	Override string    `json:"override,omitempty"`
}

// Status returns the state at a time: a pending request whose end has passed is expired, whether or
// not that is recorded.
func (r *RaiseRequest) Status(now time.Time) RaiseStatus {
	if r.State == RaisePending && !now.Before(r.Until) {
		return RaiseExpired
	}
	return r.State
}

// End returns the request as it is after a decision. The request itself does not change.
func (r RaiseRequest) End(state RaiseStatus, d RaiseDecision) RaiseRequest {
	r.State, r.Decision = state, &d
	return r
}

// forgettable reports whether the request is no longer shown.
func (r *RaiseRequest) forgettable(now time.Time) bool {
	end := r.Until
	if r.Decision != nil && r.Decision.Until.After(end) {
		end = r.Decision.Until
	}
	return r.State != RaisePending && now.Sub(end) > KeepRaises
}

// Bounds on requests. KeepRaises is how long they are shown after the end of what was requested. Those of an org
// are read from this process's copy, so requests of several users in the same milliseconds may exceed them.
const (
	KeepRaises    = 7 * 24 * time.Hour // after the end of what was requested
	mostRaises    = 50                 // kept per user
	userRaises    = 10                 // per user and day
	orgRaises     = 200                // per org and day
	openOrgRaises = 100                // pending per org
	raiseAttempts = 5                  // of a change of a record that others change, too
)

// RaiseClock is the actor of expired requests.
const RaiseClock = "expiry"

// RaiseActor returns the actor of what a caller does with own requests.
func RaiseActor(user string) string { return "user:" + user }

// RaiseEntry returns the audit entry of a change of a request; before is nil for a new one.
func RaiseEntry(action string, before, after *RaiseRequest) (AuditEntry, error) {
	e := AuditEntry{Action: action, Org: after.Org, Target: after.ID, At: after.Created, Actor: RaiseActor(after.User)}
	e.Reason = after.Reason
	if d := after.Decision; d != nil {
		e.At, e.Actor, e.Reason = d.At, d.By, d.Reason
	}
	var err error
	e.After, err = json.Marshal(after)
	if err == nil && before != nil {
		e.Before, err = json.Marshal(before)
	}
	return e, err
}

// RaiseOwner identifies who made requests.
type RaiseOwner struct{ Org, User string }

// UserRaises are the requests of one user, oldest first. A record holds all of them, so that one
// change can check that the user has no other pending request for a limit.
type UserRaises struct {
	Requests []RaiseRequest `json:"requests"`
}

// Of returns the request with this id, or nil.
func (u *UserRaises) Of(id string) *RaiseRequest {
	if i := slices.IndexFunc(u.Requests, func(r RaiseRequest) bool { return r.ID == id }); i >= 0 {
		return &u.Requests[i]
	}
	return nil
}

// RaiseRef identifies the record of a user's requests.
func RaiseRef(org, user string) Ref { return Ref{Kind: KindRaise, Org: org, ID: user} }

// RaiseRefs returns the records of the requests of an org.
func (s *Snapshot) RaiseRefs(org string) (out []Ref) {
	for owner := range s.Raises {
		if owner.Org == org {
			out = append(out, RaiseRef(org, owner.User))
		}
	}
	return out
}

// RaiseRequests returns the requests of an org, or of all for "", newest first.
func (s *Snapshot) RaiseRequests(org string) (out []RaiseRequest) {
	for owner, u := range s.Raises {
		if org == "" || owner.Org == org {
			out = append(out, u.Requests...)
		}
	}
	slices.SortFunc(out, func(a, b RaiseRequest) int {
		return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// RaiseRequest returns the request with this id, or nil.
func (s *Snapshot) RaiseRequest(id string) *RaiseRequest {
	for _, u := range s.Raises {
		if r := u.Of(id); r != nil {
			return r
		}
	}
	return nil
}

// ErrRaiseOpen means that the user has a pending request for the limit, which is returned with it.
var ErrRaiseOpen = errors.New("tenants: a request for this limit is pending")

// RaiseBoundError reports too many requests.
type RaiseBoundError struct {
	What string        // such as "10 requests a day of one user"
	Wait time.Duration // until another may be made
}

// Error names the bound.
func (e *RaiseBoundError) Error() string { return "tenants: more than " + e.What }

// RequestRaise records a request with its audit entry. If the same request is pending it returns
// that one, so it may be repeated; another one for the same limit is ErrRaiseOpen. The error may be
// a *RaiseBoundError.
func (s *Store) RequestRaise(ctx context.Context, r RaiseRequest, e AuditEntry) (RaiseRequest, error) {
	now := r.Created
	if err := s.boundRaises(r.Org, now); err != nil {
		return r, err
	}
	for range raiseAttempts {
		var u UserRaises
		old, err := s.Get(ctx, RaiseRef(r.Org, r.User), &u)
		if err != nil {
			return r, err
		}
		var made []time.Time
		for i := range u.Requests {
			one := &u.Requests[i]
			if one.Limit == r.Limit && one.Status(now) == RaisePending {
				if one.Amount == r.Amount && one.Reason == r.Reason {
					return *one, nil
				}
				return *one, ErrRaiseOpen
			}
			if now.Sub(one.Created) < 24*time.Hour {
				made = append(made, one.Created)
			}
		}
		if len(made) >= userRaises {
			return r, &RaiseBoundError{
				fmt.Sprintf("%d requests a day of one user", userRaises), made[0].Add(24 * time.Hour).Sub(now),
			}
		}
		u.Requests = slices.DeleteFunc(u.Requests, func(one RaiseRequest) bool { return one.forgettable(now) })
		u.Requests = append(u.Requests, r)
		u.Requests = u.Requests[max(0, len(u.Requests)-mostRaises):]
		changes, err := s.forgetRaises(ctx, r.Org, r.User, now)
		if err != nil {
			return r, err
		}
		changes = append(changes, Change{Ref: RaiseRef(r.Org, r.User), Old: old, New: u})
		if err := s.Commit(ctx, e, changes...); !errors.Is(err, ErrConflict) {
			return r, err
		}
	}
	return r, ErrConflict
}

// boundRaises refuses a request if the org has too many.
func (s *Store) boundRaises(org string, now time.Time) error {
	open, today := 0, 0
	for _, r := range s.Snapshot().RaiseRequests(org) {
		if r.Status(now) == RaisePending {
			open++
		}
		if now.Sub(r.Created) < 24*time.Hour {
			today++
		}
	}
	switch {
	case open >= openOrgRaises:
		return &RaiseBoundError{fmt.Sprintf("%d pending requests of one organization", openOrgRaises), time.Hour}
	case today >= orgRaises:
		return &RaiseBoundError{fmt.Sprintf("%d requests a day of one organization", orgRaises), time.Hour}
	}
	return nil
}

// forgetRaises returns changes that remove the records of other users of the org whose requests
// ended long ago, a few at a time.
func (s *Store) forgetRaises(ctx context.Context, org, except string, now time.Time) (out []Change, err error) {
	for owner, u := range s.Snapshot().Raises {
		shown := slices.ContainsFunc(u.Requests, func(r RaiseRequest) bool { return !r.forgettable(now) })
		if owner.Org != org || owner.User == except || shown || len(out) == 5 {
			continue
		}
		var gone UserRaises
		old, err := s.Get(ctx, RaiseRef(org, owner.User), &gone)
		if err != nil {
			return nil, err
		}
		out = append(out, Change{Ref: RaiseRef(org, owner.User), Old: old})
	}
	return out, nil
}

// EndRaise ends a pending request: end returns how, with its audit entry and further changes to make
// in the same step. Of several ends at the same time one is made. It returns the request as it is
// afterwards, and whether this call ended it; nil if there is none with this id.
func (s *Store) EndRaise(ctx context.Context, id string,
	end func(RaiseRequest) (RaiseRequest, AuditEntry, []Change, error),
) (r *RaiseRequest, ended bool, err error) {
	if err := s.Refresh(ctx); err != nil {
		return nil, false, err
	}
	known := s.Snapshot().RaiseRequest(id)
	if known == nil {
		return nil, false, nil
	}
	ref := RaiseRef(known.Org, known.User)
	for range raiseAttempts {
		var u UserRaises
		old, err := s.Get(ctx, ref, &u)
		if err != nil {
			return nil, false, err
		}
		r := u.Of(id)
		if r == nil || r.State != RaisePending {
			return r, false, nil
		}
		next, entry, changes, err := end(*r)
		if err != nil {
			return r, false, err
		}
		*r = next
		changes = append([]Change{{Ref: ref, Old: old, New: u}}, changes...)
		if err := s.Commit(ctx, entry, changes...); !errors.Is(err, ErrConflict) {
			return r, err == nil, err
		}
	}
	return nil, false, ErrConflict
}

// ExpireRaises ends the pending requests whose time has passed at an instant, and returns those
// that this call ended.
func (s *Store) ExpireRaises(ctx context.Context, now time.Time) (out []RaiseRequest, err error) {
	for _, r := range s.Snapshot().RaiseRequests("") {
		if r.State != RaisePending || now.Before(r.Until) {
			continue
		}
		end := func(r RaiseRequest) (RaiseRequest, AuditEntry, []Change, error) {
			next := r.End(RaiseExpired, RaiseDecision{At: now.UTC(), By: RaiseClock})
			e, err := RaiseEntry("limit_request.expire", &r, &next)
			return next, e, nil, err
		}
		ended, mine, failed := s.EndRaise(ctx, r.ID, end)
		err = errors.Join(err, failed)
		if mine {
			out = append(out, *ended)
		}
	}
	return out, err
}
