// Package tenants keeps who may use llmguard in Redis, beside the
// configuration file: orgs, users, keys, limits and their overrides, providers'
// credentials of orgs, and administrators. It keeps the audit of every change.
//
// There is one rule of precedence: a record in Redis goes before the file, field
// by field, by id. A field that a record does not set is the file's, and so is
// everything again once the record is removed. The package does not read the
// file and does not merge; it only keeps records.
//
// Every process has all records in memory ([Store.Run]) and hears of changes
// within milliseconds, at the latest within [PollEvery]. While Redis is away the
// last known ones stand.
package tenants

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

var (
	// ErrConflict means that somebody else changed the record meanwhile.
	ErrConflict = errors.New("tenants: the record was changed meanwhile")
	// ErrUnavailable means that Redis did not take or give the records. A change
	// may have been made all the same.
	ErrUnavailable = errors.New("tenants: the store is unavailable")
)

// Kind is what a record is about.
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
)

// AllOrgs is the org of records that are of all orgs: limits that apply to each, over the
// defaults of the file.
const AllOrgs = ""

// Ref names a record. Org is empty for administrators, and AllOrgs.
type Ref struct {
	Kind Kind
	Org  string
	ID   string
}

// String is the record's field in Redis.
func (r Ref) String() string { return string(r.Kind) + " " + r.Org + " " + r.ID }

func parseRef(text string) (Ref, error) {
	parts := strings.SplitN(text, " ", 3)
	if len(parts) != 3 {
		return Ref{}, fmt.Errorf("tenants: %.80q names no record", text)
	}
	return Ref{Kind(parts[0]), parts[1], parts[2]}, nil
}

// ValidID reports whether a text may be the id of an org, a user or a key: 1 to
// 64 of a-z, 0-9, _ and -.
func ValidID(id string) bool {
	if id == "" || len(id) > 64 {
		return false
	}
	return strings.IndexFunc(id, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '_' && r != '-'
	}) < 0
}

// Stamp is when a record was made and last changed.
type Stamp struct {
	Created time.Time `json:"created_at"`
	Updated time.Time `json:"updated_at"`
}

// OrgSpec is what may be set of an org. What is nil is the file's, or the
// default of the configuration.
type OrgSpec struct {
	Name               *string   `json:"name,omitempty"`
	Disabled           *bool     `json:"disabled,omitempty"` // none of its keys works, and its jobs fail
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
}

// Org is the record of an org.
type Org struct {
	OrgSpec
	Stamp
}

// UserSpec is what may be set of a user.
type UserSpec struct {
	Name     *string `json:"name,omitempty"`
	Disabled *bool   `json:"disabled,omitempty"`
	Weight   *int    `json:"weight,omitempty"`
}

// User is the record of a user.
type User struct {
	UserSpec
	Stamp
}

// KeySpec is what may be set of an API key.
type KeySpec struct {
	Name     *string   `json:"name,omitempty"`
	Disabled *bool     `json:"disabled,omitempty"`
	Models   *[]string `json:"models,omitempty"`
	// Scopes are what the key may be used for; nil or empty: everything.
	Scopes *[]string `json:"scopes,omitempty"`
	// Networks are the addresses it may be used from; nil or empty: everywhere.
	Networks *[]string `json:"networks,omitempty"`
	// Concurrency is how many calls may be open at a time; nil: any.
	Concurrency *int64     `json:"concurrency,omitempty"`
	Expires     *time.Time `json:"expires,omitempty"`
}

// Key is the record of an API key.
type Key struct {
	KeySpec
	Stamp
	User string `json:"user"`
	Test bool   `json:"test,omitempty"` // of the class for use outside production
	// Hash is what the key is found by (keys.Hash); empty: the file's.
	Hash  string `json:"hash,omitempty"`
	Last4 string `json:"last4,omitempty"`
	// Previous is the hash of the key before a rotation, good until it ends.
	Previous      string    `json:"previous,omitempty"`
	PreviousUntil time.Time `json:"previous_until,omitzero"`
}

// Limit is the record of a limit of an org, or of one user's. Its fields are
// those of the configuration's limits, as they are written there.
type Limit struct {
	LimitSpec
	Stamp
}

// LimitSpec is what may be set of a limit.
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
	Calendar  *string   `json:"calendar,omitempty"`
	TZ        *string   `json:"tz,omitempty"`
	Bucket    *Bucket   `json:"bucket,omitempty"`
}

// Bucket is the shape of a limit that fills steadily.
type Bucket struct {
	Capacity *string `json:"capacity,omitempty"`
	Refill   *string `json:"refill,omitempty"`
}

// LimitID is the id of a limit's record: of an org's limit its name, of a user's
// own "<user> <name>".
func LimitID(user, name string) string {
	if user == "" {
		return name
	}
	return user + " " + name
}

// SplitLimitID is the inverse of LimitID.
func SplitLimitID(id string) (user, name string) {
	if user, name, own := strings.Cut(id, " "); own {
		return user, name
	}
	return "", id
}

// Override changes the amount of a limit until its end. It is not changed after
// it was made, only removed.
type Override struct {
	Limit string `json:"limit"`
	// Only is the user, key or address it is for; empty: all that the limit
	// counts.
	Only string `json:"only,omitempty"`
	// Add is added to the limit's amount, Amount replaces it: one of them. In the
	// limit's unit; nano-USD for cost.
	Add    int64     `json:"add,omitempty"`
	Amount int64     `json:"amount,omitempty"`
	Unit   string    `json:"unit,omitempty"` // of both, for people
	Until  time.Time `json:"until"`
	Reason string    `json:"reason"`
	By     string    `json:"by"`
	Stamp
}

// SealPlace is what a credential is sealed to.
func SealPlace(org, provider string) []string { return []string{"credential", org, provider} }

// Credential is an org's own credential at a provider.
type Credential struct {
	Stamp
	// Sealed is the secret, sealed to its SealPlace, or in the clear when Clear is
	// set.
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
