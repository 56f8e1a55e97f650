package budget

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/pricing"
)

// Run is an amount of money that a key, or another run, gave away. It is used up by the calls of the run and of
// the runs inside it, until it expires or is ended.
type Run struct {
	Path   ledger.RunPath `json:"-"`
	Org    string         `json:"-"`
	Amount pricing.Nano   `json:"-"` // with what was added to it

	User string `json:"user,omitempty"`
	Key  string `json:"key,omitempty"` // whose limits, models and labels its calls have
	// Born distinguishes the key from others that had its id at other times; empty: of earlier versions.
	Born string `json:"born,omitempty"`
	// Parent is the path of the run that gave the amount; "" if the key did.
	Parent ledger.RunPath `json:"parent,omitempty"`
	Name   string         `json:"name,omitempty"`
	// Given is the amount at its creation.
	Given pricing.Nano `json:"given"`
	// Labels are values of labels for its calls.
	Labels map[string]string `json:"labels,omitempty"`
	// Models are patterns of the models it may use, within those of its parents; empty means all.
	Models []string `json:"models,omitempty"`
	// Concurrency is how many of its calls may be open; 0: any number.
	Concurrency int64 `json:"concurrency,omitempty"`
	// Last4 are the last characters of its own key; "" if it has none.
	Last4 string `json:"last4,omitempty"`

	Created, Expires time.Time `json:"-"`
	Ended            time.Time `json:"-"` // zero if it was not ended before it expires
}

// ID returns the run's id.
func (r *Run) ID() string { return r.Path.ID() }

// Of reports whether the amount of the run is from a key of a user.
func (r *Run) Of(user, key, born string) bool {
	return r.User == user && r.Key == key && r.Born == born
}

// Giver names a key among all that ever had its id.
func Giver(key, born string) string {
	if born == "" {
		return key
	}
	return key + "@" + born
}

// Open reports whether calls of the run may begin at a time.
func (r *Run) Open(at time.Time) bool { return r.Ended.IsZero() && at.Before(r.Expires) }

// RunKept is how long a run can be read after its end. Then nothing of it is left in Redis.
const RunKept = time.Hour

// Limits returns the limits that count the calls of the run. Their ids depend on the depth of the run
// only, so that metrics have few of them.
func (r *Run) Limits() []Limit {
	name := "run"
	if depth := len(r.Path.IDs()); depth > 1 {
		name += "-" + strconv.Itoa(depth)
	}
	// Calls that are open when it expires still count.
	until := r.Expires.Add(RunKept)
	out := []Limit{{
		ID: name, Subject: RunBudget, Only: r.ID(), Metric: Cost, Mode: Enforce,
		Shape: Shape{Kind: Once, Amount: int64(r.Amount), Window: until.Sub(r.Created), Until: until},
	}}
	if r.Concurrency > 0 {
		out = append(out, Limit{
			ID: name, Subject: RunBudget, Only: r.ID(), Metric: Concurrency, Mode: Enforce,
			Shape: Shape{Kind: Concurrent, Amount: r.Concurrency},
		})
	}
	return out
}

// oncePrefix begins the parameter of the state of a Once shape.
const oncePrefix = "once "

// onceWindow is the length of the windows after the end of a Once shape. Charges that come so late
// are counted in states that vanish soon.
const onceWindow = time.Hour

// onceAround lists the boundaries of the periods of a Once shape around now: one until its end, and
// short ones afterwards.
func onceAround(until string, now time.Time) (string, error) {
	end, err := strconv.ParseInt(until, 10, 64)
	if err != nil {
		return "", fmt.Errorf("budget: end %q of an amount for once: %w", until, err)
	}
	step := onceWindow.Microseconds()
	after := max((now.UnixMicro()-end)/step-1, 0) // windows to leave out
	out := "0"
	for i := range int64(4) {
		if at := end + (after+i)*step; at < math.MaxInt64-step {
			out += "," + strconv.FormatInt(at, 10)
		}
	}
	return out, nil
}

// Status returns whether a run is "open", "used_up", "expired" or "ended".
func (r *Run) Status(use RunUse, at time.Time) string {
	switch {
	case !r.Ended.IsZero():
		return "ended"
	case !at.Before(r.Expires):
		return "expired"
	case use.Remaining+use.Held <= 0:
		return "used_up"
	}
	return "open"
}
