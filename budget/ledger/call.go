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

// RunPath is a run and the runs it belongs to: their ids from the outermost to its own, joined with
// "/". "" is no run.
type RunPath string

const runSep = "/"

// ID returns the id of the run itself.
func (p RunPath) ID() string { return string(p[strings.LastIndex(string(p), runSep)+1:]) }

// IDs returns the ids from the outermost run to the run itself; nil for no run.
func (p RunPath) IDs() []string {
	if p == "" {
		return nil
	}
	return strings.Split(string(p), runSep)
}

// Outermost returns the id of the outermost run; "" for no run.
func (p RunPath) Outermost() string {
	id, _, _ := strings.Cut(string(p), runSep)
	return id
}

// Below returns the path of a run inside p.
func (p RunPath) Below(id string) RunPath {
	if p == "" {
		return RunPath(id)
	}
	return p + runSep + RunPath(id)
}

// Within reports whether the run is outer or inside it. Every run, and none, is within "".
func (p RunPath) Within(outer RunPath) bool {
	return outer == "" || p == outer || strings.HasPrefix(string(p), string(outer)+runSep)
}

// Parent returns the path without its last run.
func (p RunPath) Parent() RunPath { return p[:max(strings.LastIndex(string(p), runSep), 0)] }

// CostSum is the sum of the ledger's entries of one job or batch: it is increased by the script that
// writes an entry, so that the two are equal at any time.
type CostSum struct {
	Name string // below the place's prefix
	Life any    // in ms, after the last charge
}

// CostName names the sum of a job or a batch.
func CostName(id string) string { return "cost:" + id }

// CostSums returns the sums that what the call is charged is added to, with the lives of those of jobs and of batches.
func (c Call) CostSums(jobLife, batchLife any) (all []CostSum) {
	if c.JobID != "" {
		all = append(all, CostSum{CostName(c.JobID), jobLife})
	}
	if c.Batch != "" {
		all = append(all, CostSum{CostName(c.Batch), batchLife})
	}
	return all
}
