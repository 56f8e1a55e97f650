// Package top samples the current activity of a deployment from the ledger, the limits and the
// queue, and shows it live in a terminal.
package top

import (
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/queue"
)

// Span is the period of current activity: calls that ended within it are counted.
const Span = time.Minute

// SparkStep is the step of Spender.Spark.
const SparkStep = 5 * time.Second

// Snapshot is one sample. Amounts are in nano-USD. Lists are sorted by cost, use or duration,
// highest first.
type Snapshot struct {
	At time.Time `json:"at"`
	// Calls that ended within Span, and their charges.
	Calls int64        `json:"calls_last_minute"`
	Cost  pricing.Nano `json:"cost_last_minute_nano"`
	Today pricing.Nano `json:"cost_today_nano"` // of the UTC day
	// Waiting and Running count jobs and waiting callers in all pools.
	Waiting int64 `json:"waiting"`
	Running int64 `json:"running"`

	Orgs  []Spender `json:"orgs"`
	Users []Spender `json:"users"`
	// Groups are what calls of the last minute with the same value of By spent, by org. Of them and of
	// the orgs and users, Filter selects the calls of the last minute.
	Groups []Spender `json:"groups"`
	By     string    `json:"by"` // one of Dimensions
	Filter string    `json:"filter"`
	// Dimensions are what calls can be grouped by, besides orgs and users.
	Dimensions []string `json:"dimensions"`

	Pools []Pool  `json:"pools"`
	Slow  []Ended `json:"slowest_calls"`
	// Partial means that more calls ended than were read, so the figures of the last minute are
	// too low.
	Partial bool `json:"partial,omitempty"`
	// Stopped are the orgs whose spending is stopped; all: of everybody.
	Stopped []string `json:"stopped,omitempty"`
	// Uncounted are pools with too many waiting jobs to count them by user.
	Uncounted []string `json:"uncounted_pools,omitempty"`
}

// Spender is an org, one of its users, or a group of its calls. Today, Waiting and Refused are not known
// of groups.
type Spender struct {
	Org    string       `json:"org"`
	User   string       `json:"user,omitempty"`  // empty: the org itself, or a group
	Value  string       `json:"value,omitempty"` // of a group; empty for calls without one
	Name   string       `json:"name,omitempty"`  // of a run
	Calls  int64        `json:"calls_last_minute"`
	Failed int64        `json:"failed_last_minute"`
	Cost   pricing.Nano `json:"cost_last_minute_nano"`
	Today  pricing.Nano `json:"cost_today_nano"`
	// Spark is Cost in steps of SparkStep, oldest first.
	Spark []int64 `json:"cost_by_5s_nano"`
	// Waiting counts its waiting jobs and callers, except in pools that are in
	// Snapshot.Uncounted.
	Waiting int64 `json:"waiting"`
	// Refused counts the calls that were refused today (UTC), RefusedBy is the cause of most of them.
	Refused   int64        `json:"refused_today"`
	RefusedBy budget.Cause `json:"refused_by,omitempty"`
	Limits    []Limit      `json:"limits"` // fullest first; only for the users with the highest cost, and the selected one

	call ledger.Call // one of a group
}

// Limit is the state of a limit. Used and Amount are in nano-USD if Metric is cost, otherwise
// tokens or requests.
type Limit struct {
	Name   string `json:"name"`
	Metric string `json:"metric"`
	Mode   string `json:"mode"`
	Used   int64  `json:"used"`
	Held   int64  `json:"held"` // the part of Used that open calls may return
	Amount int64  `json:"amount"`
	// Reset is how long until nothing is used, without further calls; nil means never.
	Reset *time.Duration `json:"reset_ns"`
	// UsedUp is in what time the limit is used up at the recent rate; nil if that is not forecast, or
	// not yet.
	UsedUp *time.Duration `json:"used_up_ns"`
}

// Share returns the used part of the limit; above 1 it is overdrawn.
func (l *Limit) Share() float64 { return float64(l.Used) / float64(max(l.Amount, 1)) }

// Pool is a pool of the queue.
type Pool struct {
	ID      string           `json:"pool"`
	Waiting map[string]int64 `json:"waiting"` // by class
	Running int64            `json:"running"`
	Parked  int64            `json:"parked"`
	Dead    int64            `json:"dead_letters"`
	Rates   queue.Rates      `json:"rates"`
	Pace    float64          `json:"pace"` // fraction of the quota used for pacing, 0.1 to 1
	Blocked time.Duration    `json:"blocked_ns"`
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
	Took    time.Duration `json:"took_ns"` // at the provider, after the wait
	Cost    pricing.Nano  `json:"cost_nano"`
	Run     string        `json:"run,omitempty"` // its path
	Labels  ledger.Labels `json:"labels,omitempty"`
}
