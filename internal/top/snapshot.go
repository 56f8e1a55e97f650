// Package top samples what a deployment does at the moment, from the ledger, the
// limits and the queue, and shows it live in a terminal.
package top

import (
	"time"

	"github.com/llmguard/llmguard/pricing"
)

// Span is what "now" means: calls that ended within it are counted.
const Span = time.Minute

// SparkStep is a step of Spender.Spark.
const SparkStep = 5 * time.Second

// Snapshot is one sample. Amounts are nano-USD. Every list is sorted the most
// expensive, the fullest or the slowest first.
type Snapshot struct {
	At time.Time `json:"at"`
	// Calls that ended within Span, and what they were charged.
	Calls int64        `json:"calls_last_minute"`
	Cost  pricing.Nano `json:"cost_last_minute_nano"`
	Today pricing.Nano `json:"cost_today_nano"` // of the UTC day
	// Waiting and Running are jobs and waiting callers of all pools.
	Waiting int64 `json:"waiting"`
	Running int64 `json:"running"`

	Orgs  []Spender `json:"orgs"`
	Users []Spender `json:"users"`
	Pools []Pool    `json:"pools"`
	Slow  []Ended   `json:"slowest_calls"`
	// Partial says that more calls ended than are looked at: the figures of the
	// last minute are then too small.
	Partial bool `json:"partial,omitempty"`
	// Uncounted are pools with so many waiting jobs that they are not counted by user.
	Uncounted []string `json:"uncounted_pools,omitempty"`
}

// Spender is an org, or a user of one.
type Spender struct {
	Org    string       `json:"org"`
	User   string       `json:"user,omitempty"` // none: the org itself
	Calls  int64        `json:"calls_last_minute"`
	Failed int64        `json:"failed_last_minute"`
	Cost   pricing.Nano `json:"cost_last_minute_nano"`
	Today  pricing.Nano `json:"cost_today_nano"`
	// Spark is Cost by steps of SparkStep, the oldest first.
	Spark []int64 `json:"cost_by_5s_nano"`
	// Waiting are its jobs and callers that wait, in pools of which all are counted; see
	// Snapshot.Uncounted.
	Waiting int64 `json:"waiting"`
	// Refused are the calls that limits refused today (UTC).
	Refused int64   `json:"refused_today"`
	Limits  []Limit `json:"limits"` // the fullest first; of users those who spend most, and the one looked at
}

// Limit is where a limit stands. Used and Amount are nano-USD when Metric is
// cost, else tokens or requests.
type Limit struct {
	Name   string `json:"name"`
	Metric string `json:"metric"`
	Mode   string `json:"mode"`
	Used   int64  `json:"used"`
	Held   int64  `json:"held"` // the part of Used that open calls may give back
	Amount int64  `json:"amount"`
	// Reset is how long until nothing is used, if no more is; nil when that is never.
	Reset *time.Duration `json:"reset_ns"`
}

// Share is the part of the limit in use; above 1 it is overdrawn.
func (l *Limit) Share() float64 { return float64(l.Used) / float64(max(l.Amount, 1)) }

// Pool is a pool of the queue.
type Pool struct {
	ID       string           `json:"pool"`
	Waiting  map[string]int64 `json:"waiting"` // by class
	Running  int64            `json:"running"`
	Parked   int64            `json:"parked"`
	Dead     int64            `json:"dead_letters"`
	Requests int64            `json:"rpm_used"`
	RPM      int64            `json:"rpm"` // in force, configured or learned; 0: none
	Tokens   int64            `json:"tpm_used"`
	TPM      int64            `json:"tpm"`
	Pace     float64          `json:"pace"` // the part of the quota it goes at, 0.1 to 1
	Blocked  time.Duration    `json:"blocked_ns"`
}

func (p *Pool) waiting() (n int64) {
	for _, one := range p.Waiting {
		n += one
	}
	return n
}

// Ended is a call that ended within Span.
type Ended struct {
	Call    string        `json:"call"`
	At      time.Time     `json:"at"`
	Org     string        `json:"org"`
	User    string        `json:"user"`
	Model   string        `json:"model"`
	Outcome string        `json:"outcome,omitempty"`
	Status  int           `json:"status,omitempty"`
	Waited  time.Duration `json:"waited_ns"`
	Took    time.Duration `json:"took_ns"` // of the provider, after the wait
	Cost    pricing.Nano  `json:"cost_nano"`
}
