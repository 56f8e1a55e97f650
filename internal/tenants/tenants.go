// Package tenants stores in Redis what is set at runtime, in addition to the configuration
// file: orgs, users, keys, limits and their overrides, orgs' provider credentials, and
// administrators. It records every change in the audit.
//
// There is one rule of precedence: a record in Redis overrides the file, field by field, by id.
// Fields that a record does not set have the file's value, and so do all fields once the record
// is deleted. The package neither reads the file nor merges; it only stores records.
//
// Every process has all records in memory ([Store.Run]) and receives changes within
// milliseconds, at the latest within [PollEvery]. While Redis is unavailable, the last known
// records apply. Those that Redis loses are written again by a process that has them.
package tenants

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/internal/tenants/settings"
)

var (
	// ErrConflict means that the record was changed concurrently.
	ErrConflict = errors.New("tenants: the record was changed meanwhile")
	// ErrUnavailable means that Redis failed to read or write the records. A change may have
	// been made nevertheless.
	ErrUnavailable = errors.New("tenants: the store is unavailable")
)

// Kind is the kind of a record.
type Kind string

// The kinds of records.
const (
	KindOrg        Kind = "org"
	KindUser       Kind = "user"
	KindKey        Kind = "key"
	KindLimit      Kind = "limit"
	KindOverride   Kind = "override"
	KindCredential Kind = "credential"
	KindAdmin      Kind = "admin"
	KindStop       Kind = "stop"
	KindBrake      Kind = "brake"
	KindRaise      Kind = "raise"
)

// AllOrgs is the org of records that apply to all orgs: limits on top of the file's defaults, and
// the stop of all spending.
const AllOrgs = ""

// Ref identifies a record. Org is empty for administrators, and for AllOrgs.
type Ref struct {
	Kind Kind
	Org  string
	ID   string
}

// String returns the record's field in Redis.
func (r Ref) String() string { return string(r.Kind) + " " + r.Org + " " + r.ID }

func parseRef(text string) (Ref, error) {
	parts := strings.SplitN(text, " ", 3)
	if len(parts) != 3 {
		return Ref{}, fmt.Errorf("tenants: %.80q names no record", text)
	}
	return Ref{Kind(parts[0]), parts[1], parts[2]}, nil
}

// ValidID reports whether a text is a valid id of an org, a user or a key: 1 to 64 of a-z, 0-9,
// _ and -.
func ValidID(id string) bool {
	if id == "" || len(id) > 64 {
		return false
	}
	return strings.IndexFunc(id, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '_' && r != '-'
	}) < 0
}

// Stamp is when a record was created and last changed.
type Stamp struct {
	Created time.Time `json:"created_at"`
	Updated time.Time `json:"updated_at"`
}

// Touch notes a change at a time.
func (s *Stamp) Touch(at time.Time) {
	if s.Created.IsZero() {
		s.Created = at
	}
	s.Updated = at
}

// Org is the record of an org. Fields that it does not set have the file's value, or the
// configuration's default.
type Org struct {
	Fields settings.Fields[settings.Org]
	Stamp
}

// User is the record of a user.
type User struct {
	Fields settings.Fields[settings.User]
	Stamp
	// Born distinguishes the user from an earlier one with its id.
	Born string `json:"born,omitempty"`
}

// Key is the record of an API key.
type Key struct {
	Fields settings.Fields[settings.Key]
	Stamp
	User string `json:"user"`
	Test bool   `json:"test,omitempty"` // it has the prefix for test keys
	// Hash identifies the key (keys.Hash); empty: the file's.
	Hash  string `json:"hash,omitempty"`
	Last4 string `json:"last4,omitempty"`
	// Previous is the hash of the key before a rotation, valid until PreviousUntil.
	Previous      string    `json:"previous,omitempty"`
	PreviousUntil time.Time `json:"previous_until,omitzero"`
	// Born distinguishes the key from an earlier one with its id.
	Born string `json:"born,omitempty"`
	// Lineage is that of its child keys if it is not that of its hash (auth.LineageOf), and
	// PreviousLineage the one before a rotation.
	Lineage         string `json:"lineage,omitempty"`
	PreviousLineage string `json:"previous_lineage,omitempty"`
}

// Limit is the record of a limit of an org, or of one user.
type Limit struct {
	Fields settings.Fields[settings.Limit]
	Stamp
}

// MarshalJSON writes the fields among the other members.
func (o Org) MarshalJSON() ([]byte, error) { return settings.Marshal(o) }

// UnmarshalJSON is its inverse. It ignores fields of a newer version.
func (o *Org) UnmarshalJSON(raw []byte) error { return settings.Unmarshal(raw, o) }

// MarshalJSON writes the fields among the other members.
func (u User) MarshalJSON() ([]byte, error) { return settings.Marshal(u) }

// UnmarshalJSON is its inverse. It ignores fields of a newer version.
func (u *User) UnmarshalJSON(raw []byte) error { return settings.Unmarshal(raw, u) }

// MarshalJSON writes the fields among the other members.
func (k Key) MarshalJSON() ([]byte, error) { return settings.Marshal(k) }

// UnmarshalJSON is its inverse. It ignores fields of a newer version.
func (k *Key) UnmarshalJSON(raw []byte) error { return settings.Unmarshal(raw, k) }

// MarshalJSON writes the fields among the other members.
func (l Limit) MarshalJSON() ([]byte, error) { return settings.Marshal(l) }

// UnmarshalJSON is its inverse. It ignores fields of a newer version.
func (l *Limit) UnmarshalJSON(raw []byte) error { return settings.Unmarshal(raw, l) }

// LimitID returns the id of a limit's record: the name of an org's limit, or "<owner> <name>"
// for that of a user, a group or a plan (settings.Owner).
func LimitID(owner, name string) string {
	if owner == "" {
		return name
	}
	return owner + " " + name
}

// SplitLimitID is the inverse of LimitID.
func SplitLimitID(id string) (owner, name string) {
	if owner, name, own := strings.Cut(id, " "); own {
		return owner, name
	}
	return "", id
}

// Override changes the amount of a limit until it expires. It is never modified, only removed.
type Override struct {
	Limit string `json:"limit"`
	// Only is the user, key or address that it applies to; empty: all that the limit counts.
	Only string `json:"only,omitempty"`
	// Either Add is added to the limit's amount, or Amount replaces it. In the limit's unit;
	// nano-USD for cost.
	Add    int64     `json:"add,omitempty"`
	Amount int64     `json:"amount,omitempty"`
	Unit   string    `json:"unit,omitempty"` // of both, for display
	Until  time.Time `json:"until"`
	Reason string    `json:"reason"`
	By     string    `json:"by"`
	Stamp
}

// StopRef identifies the stop of an org's spending, or of all spending for AllOrgs.
func StopRef(org string) Ref { return Ref{Kind: KindStop, Org: org, ID: org} }

// Stop is the record of stopped spending. It exists until spending is resumed.
type Stop struct {
	Stamp
	By     string `json:"by"`
	Reason string `json:"reason,omitempty"`
}

// Text describes the stop of an org, or of AllOrgs, in a line.
func (s *Stop) Text(org string) string {
	text := "org " + org
	if org == AllOrgs {
		text = "all orgs"
	}
	text += " since " + figures.Second(s.Created) + " by " + s.By
	if s.Reason != "" {
		text += ": " + s.Reason
	}
	return text
}

// SealPlace returns the context that a credential's encryption is bound to.
func SealPlace(org, provider string) []string { return []string{"credential", org, provider} }

// Credential is an org's own credential at a provider.
type Credential struct {
	Stamp
	// Sealed is the secret, encrypted for its SealPlace, or in plain text if Clear is set.
	Sealed []byte `json:"sealed"`
	Clear  bool   `json:"clear,omitempty"`
	Last4  string `json:"last4,omitempty"`
}

// Admin is an administrator's key.
type Admin struct {
	Stamp
	Name     string    `json:"name,omitempty"`
	Hash     string    `json:"hash"`
	Last4    string    `json:"last4,omitempty"`
	ReadOnly bool      `json:"read_only,omitempty"`
	Disabled bool      `json:"disabled,omitempty"`
	Expires  time.Time `json:"expires_at,omitzero"`
}
