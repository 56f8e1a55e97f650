package ledger

import (
	"strconv"
	"strings"
	"time"
)

// Call is one paid call and its caller.
type Call struct {
	ID      string `json:"id"`                // begins with 48 bits of Unix milliseconds in base32
	Attempt int    `json:"attempt,omitempty"` // each attempt has its own hold

	Org          string `json:"org"` // without braces and #
	User         string `json:"user,omitempty"`
	Key          string `json:"key,omitempty"`
	IP           string `json:"ip,omitempty"`
	Model        string `json:"model,omitempty"`
	Provider     string `json:"provider,omitempty"`
	Endpoint     string `json:"endpoint,omitempty"`
	PriceVersion string `json:"price,omitempty"`
	JobID        string `json:"job,omitempty"`
	Batch        string `json:"batch,omitempty"` // that the call is a line of
	Labels       Labels `json:"labels,omitempty"`
	// Request identifies equal requests, for brakes on repetitions; empty if there are none.
	Request string `json:"request,omitempty"`
	// Run is the run that the call belongs to, if any.
	Run RunPath `json:"run,omitempty"`

	// Part is the part of the org in which the call is held, from 1; 0: not chosen yet (Store.Place).
	Part int `json:"-"`
}

// HoldID keeps attempts of one call apart.
func (c Call) HoldID() string { return c.ID + "/" + strconv.Itoa(c.Attempt) }

const idDigits = "0123456789abcdefghjkmnpqrstvwxyz"

// IDTime reads the time in a call id's first ten characters.
func IDTime(id string) (time.Time, bool) {
	if len(id) < 10 || id[0] > '7' || strings.ContainsAny(id, "|,;") {
		return time.Time{}, false
	}
	var ms int64
	for i := range 10 {
		v := strings.IndexByte(idDigits, id[i])
		if v < 0 {
			return time.Time{}, false
		}
		ms = ms<<5 | int64(v)
	}
	return time.UnixMilli(ms), true
}

// ValidID reports whether a text can be the id of a limit, a user or a correction: 1 to 64 letters,
// digits, dots, dashes and underscores.
func ValidID(id string) bool {
	if id == "" || len(id) > 64 {
		return false
	}
	return strings.IndexFunc(id, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
	}) < 0
}
