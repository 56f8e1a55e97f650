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

// OrgSpec holds the settings of an org. Nil fields have the file's value, or the
// configuration's default.
type OrgSpec struct {
	Name               *string   `json:"name,omitempty"`
	Disabled           *bool     `json:"disabled,omitempty"` // its keys are rejected and its jobs fail
	Models             *[]string `json:"models,omitempty"`
	Providers          *[]string `json:"providers,omitempty"`
	DefaultOutputLimit *int64    `json:"default_output_limit,omitempty"`
	Hold               *string   `json:"hold,omitempty"`
	OverLimit          *string   `json:"over_limit,omitempty"`
	MaxWait            *string   `json:"max_wait,omitempty"`
	OnDisconnect       *string   `json:"on_disconnect,omitempty"`
	OnStoreFailure     *string   `json:"on_store_failure,omitempty"`
	AllowBuiltinTools  *bool     `json:"allow_builtin_tools,omitempty"`
	RetryStartedJobs   *bool     `json:"retry_started_jobs,omitempty"`
	Weight             *int      `json:"weight,omitempty"`
	Spread             *int      `json:"spread,omitempty"`       // over how many parts its money is spread
	MaxPriority        *string   `json:"max_priority,omitempty"` // high, normal or low
	Plan               *string   `json:"plan,omitempty"`         // of users without one
	// Labels are the values of labels for calls with the org's keys.
	Labels *map[string]string `json:"labels,omitempty"`
	Cache  *Cache             `json:"cache,omitempty"`
	Runs   *Runs              `json:"runs,omitempty"`
}

// Runs bound the budgets that keys of an org give to runs.
type Runs struct {
	MaxDepth  *int    `json:"max_depth,omitempty"`
	MaxOpen   *int    `json:"max_open,omitempty"`
	MaxAmount *string `json:"max_amount,omitempty"` // such as $50; 0: any amount
	MaxLife   *string `json:"max_life,omitempty"`   // such as 7d
}

// Cache holds the settings of an org's response cache.
type Cache struct {
	MaxAge   *string `json:"max_age,omitempty"` // such as 1h; 0s turns the cache off
	Cost     *string `json:"cost,omitempty"`    // of a hit, as a share of the original call's, such as 25%
	Always   *bool   `json:"always,omitempty"`
	MaxBytes *string `json:"max_bytes,omitempty"` // such as 64MB; 0: no bound of its own
}

// Org is the record of an org.
type Org struct {
	OrgSpec
	Stamp
}

// UserSpec holds the settings of a user.
type UserSpec struct {
	Name     *string `json:"name,omitempty"`
	Disabled *bool   `json:"disabled,omitempty"`
	Weight   *int    `json:"weight,omitempty"`
	Priority *string `json:"priority,omitempty"` // high, normal or low; nil: none of its own
	Group    *string `json:"group,omitempty"`    // the id of its group
	Plan     *string `json:"plan,omitempty"`     // the id of its plan; nil: the org's
	// Labels are the values of labels for calls with the user's keys.
	Labels *map[string]string `json:"labels,omitempty"`
}

// User is the record of a user.
type User struct {
	UserSpec
	Stamp
	// Born distinguishes the user from an earlier one with its id.
	Born string `json:"born,omitempty"`
}

// KeySpec holds the settings of an API key.
type KeySpec struct {
	Name     *string   `json:"name,omitempty"`
	Disabled *bool     `json:"disabled,omitempty"`
	Models   *[]string `json:"models,omitempty"`
	// Scopes are what the key may be used for; nil or empty: everything.
	Scopes *[]string `json:"scopes,omitempty"`
	// Networks are the addresses from which it may be used; nil or empty: all.
	Networks *[]string `json:"networks,omitempty"`
	// Concurrency is the maximum number of open calls; nil: no limit.
	Concurrency *int64  `json:"concurrency,omitempty"`
	Priority    *string `json:"priority,omitempty"` // high, normal or low; nil: the user's
	Plan        *string `json:"plan,omitempty"`     // the id of its plan; nil: the user's
	// Labels are the values of labels for its calls.
	Labels  *map[string]string `json:"labels,omitempty"`
	Expires *time.Time         `json:"expires,omitempty"`
}

// Key is the record of an API key.
type Key struct {
	KeySpec
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

// Limit is the record of a limit of an org, or of one user. Its fields are those of limits in
// the configuration, in the same notation.
type Limit struct {
	LimitSpec
	Stamp
}

// LimitSpec holds the settings of a limit.
type LimitSpec struct {
	Subject   *string   `json:"subject,omitempty"`
	Only      *string   `json:"only,omitempty"`
	Models    *[]string `json:"models,omitempty"`
	Endpoints *[]string `json:"endpoints,omitempty"`
	Metric    *string   `json:"metric,omitempty"`
	Mode      *string   `json:"mode,omitempty"`
	Amount    *string   `json:"amount,omitempty"`
	Window    *string   `json:"window,omitempty"`
	Exact     *bool     `json:"exact,omitempty"`
	Fixed     *bool     `json:"fixed,omitempty"`
	Calendar  *string   `json:"calendar,omitempty"`
	Starts    *string   `json:"starts,omitempty"`
	TZ        *string   `json:"tz,omitempty"`
	Bucket    *Bucket   `json:"bucket,omitempty"`
}

// Bucket is the shape of a token bucket.
type Bucket struct {
	Capacity *string `json:"capacity,omitempty"`
	Refill   *string `json:"refill,omitempty"`
}

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
