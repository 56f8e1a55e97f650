// Package attack tries to make a gateway sell more than a budget, refuse calls that the budget allows, or
// charge more than was sold. Each attack is a file, and a line of All.
package attack

import (
	"time"

	"github.com/llmguard/llmguard/bench/budget/price"
)

// Attack is one way to break a budget. Run makes the calls and returns when it has made them all; what
// they mean is judged afterwards, for all attacks in the same way.
type Attack struct {
	Name  string // as in manifests
	Title string
	Setup Setup
	Run   func(*Arena) error // an error is the suite's or the machine's, not the gateway's
}

// Setup is what an attack needs.
type Setup struct {
	Users    int // default 1
	Keys     int // of each user; default 1
	Budget   price.Nano
	Window   time.Duration // of the budget; default 24h, longer than any attack
	Parallel int           // calls of a user in parallel; 0: no limit
	Replicas int           // default 1
	Store    bool          // needs a store that can be cut off
	Clock    bool          // needs a store whose clock can be set
}

// All are the attacks in the order of the report.
var All = []Attack{
	burst, hangUps, retries, cachedInput, fallback, dearerAnswer, reasoning, batchFile, rotation, windowEdge,
	terminated, killed, storeGone, storeSlow, replicas, clockStep, providerErrors, brokenStreams, missingUsage,
	lyingUsage, images, audio, concurrency, mixed,
}

// day is the window of budgets that no attack outlasts.
const day = 24 * time.Hour

// Result is what an attack showed.
type Result struct {
	Gateway string `json:"gateway"`
	Version string `json:"version"`
	Attack  string `json:"attack"`
	Title   string `json:"title"`
	NA      string `json:"na,omitempty"`    // why the gateway cannot do it
	Error   string `json:"error,omitempty"` // why the suite could not do it

	Budget        price.Nano `json:"budget_nano"` // of one user
	Sold          price.Nano `json:"sold_nano"`   // to all users
	Overspend     price.Nano `json:"overspend_nano"`
	FalseRefusals int        `json:"false_refusals"`
	Overcharge    price.Nano `json:"overcharge_nano"`
	LedgerOff     price.Nano `json:"ledger_off_nano"` // ledger minus sold
	NoLedger      bool       `json:"no_ledger,omitempty"`
	NoBudgets     bool       `json:"no_budgets,omitempty"`
	AboveParallel int        `json:"above_parallel_limit"` // calls in flight in parallel
	BackAfter     float64    `json:"back_after_s"`         // seconds until capacity was back; -1: never
	Reason        string     `json:"reason,omitempty"`     // documented, from the manifest
	Calls         Counts     `json:"calls"`
	Events        []Event    `json:"events,omitempty"` // of failed attacks
}

// Counts are the outcomes of calls.
type Counts struct {
	Served  int `json:"served"`
	Refused int `json:"refused"`
	HungUp  int `json:"hung_up"`
	Outage  int `json:"outage"` // refused, or without an answer, during an outage of the store or a restart
	Failed  int `json:"failed"`
}

// Failed reports whether a figure is not what it should be.
func (r *Result) Failed() bool {
	return r.Overspend > 0 || r.FalseRefusals > 0 || r.Overcharge > 0 || r.AboveParallel > 0
}

// Documented reports whether the only wrong figure is an overcharge for which the gateway documents the
// reason.
func (r *Result) Documented() bool {
	return r.Overcharge > 0 && r.Reason != "" && r.Overspend == 0 && r.FalseRefusals == 0 && r.AboveParallel == 0
}

// Event is a moment of an attack.
type Event struct {
	At   float64    `json:"at_s"`
	User int        `json:"user"`
	What string     `json:"what"`           // a verdict, sold, or a note
	Nano price.Nano `json:"nano,omitempty"` // sold
}
