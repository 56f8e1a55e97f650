package budget

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/internal/redisconn"
)

// RefusedCallLife is how long a refused call is recorded.
const RefusedCallLife = 24 * time.Hour

const (
	// refusedCallBytes is the most that the records of an org take in Redis. When they are full, the oldest of the user
	// and cause with the most records are dropped first.
	refusedCallBytes = 1 << 20
	// refusedCallsAtOnce is how many calls of an org are recorded in one write, refusedCallsOfLine how many of them are
	// counted together, so that a caller that retries in a loop leaves room for others. The newest of these is always
	// recorded.
	refusedCallsAtOnce = 300
	refusedCallsOfLine = 20
	refusedCallText    = 100 // bytes of each text that a caller chose
	// refusedCallOverhead is about what Redis needs for a record in addition to its text.
	refusedCallOverhead = 250
	refusedCallPage     = 200
	refusedCalls        = "refused"
	refusedTimes        = "refused-at"
	// warnEvery is how often it is logged that there is no memory for records.
	warnEvery = time.Minute
)

// RefusedCall is one call that was refused or had to wait.
type RefusedCall struct {
	Cause Cause `json:"cause"` // first, where lua/refusals.lua reads it
	// Call has the id that the caller got, and of the rest what was known when the call was refused.
	ledger.Call
	// At is when it was refused or began to wait; zero means now.
	At time.Time `json:"at"`
	// Waited means that the call had to wait and was not refused later. Status is the answer's, 0 if it waited.
	Waited bool `json:"waited,omitempty"`
	Status int  `json:"status,omitempty"`
	// Needed and Left are what the call needed and what the cause had left, in the unit of Metric; the metric is
	// empty if the cause has none.
	Metric Metric `json:"metric,omitempty"`
	Needed int64  `json:"needed,omitempty"`
	Left   int64  `json:"left,omitempty"`
	// Wait is when it could have run, counted from At; 0 if that is not known.
	Wait time.Duration `json:"wait_ns,omitempty"`

	// Before is, for a refused call, the cause as which its wait was counted at Since. The call is then no longer
	// counted as waited.
	Before Cause     `json:"-"`
	Since  time.Time `json:"-"`
}

// encode returns the record, with texts of bounded length.
func (c RefusedCall) encode() string {
	for _, text := range []*string{&c.Model, &c.Endpoint} {
		*text = strings.ToValidUTF8((*text)[:min(len(*text), refusedCallText)], "")
	}
	text, _ := json.Marshal(c) // nothing in it can fail
	return string(text)
}

// RefusalFilter selects refused calls. Empty fields select all.
type RefusalFilter struct {
	User, Key string
	Cause     string    // see Cause.Matches
	From, To  time.Time // in [From, To)
	// Calls selects among recorded calls. Counts do not have what it compares.
	Calls ledger.Filter
}

// matches reports whether the filter selects calls of a key with a cause.
func (f RefusalFilter) matches(user, key string, c Cause) bool {
	return (f.User == "" || f.User == user) && (f.Key == "" || f.Key == key) && c.Matches(f.Cause)
}

// fits reports whether the filter selects a recorded call.
func (f RefusalFilter) fits(c *RefusedCall) bool {
	e := ledger.Entry{Call: c.Call, Details: ledger.Details{Status: c.Status}}
	return f.matches(c.User, c.Key, c.Cause) && f.Calls.Fits(&e)
}

// record adds a call to the records of its line. Of a flood it has the first ones and the newest.
func (r *Refusals) record(n *refusalCount, c RefusedCall) {
	had := len(n.calls)
	if had == refusedCallsOfLine || had > 0 && r.recorded[c.Org] >= refusedCallsAtOnce {
		n.calls[had-1] = c
		return
	}
	n.calls = append(n.calls, c)
	r.recorded[c.Org]++
}

// admitted returns the arguments of the script for calls: none if there is no memory for them.
func (r *Refusals) admitted(ctx context.Context, org string, calls []RefusedCall) []any {
	args := make([]any, 0, 3*len(calls))
	bytes := r.sizes[org]
	for _, c := range calls {
		text := c.encode()
		bytes += int64(len(text)) + refusedCallOverhead
		args = append(args, c.ID, c.At.UnixMicro(), text)
	}
	if r.memory == nil || len(calls) == 0 {
		return args
	}
	all := capacity.Bytes{Written: min(bytes, refusedCallBytes)}
	err := r.memory.TryReserve(ctx, org, org+" "+refusedCalls, all, RefusedCallLife)
	if err == nil {
		return args
	}
	if time.Since(r.warned) > warnEvery {
		r.warned = time.Now()
		r.log.Warn("refused calls counted but not recorded", "org", org, "calls", len(calls), "err", err)
	}
	return nil
}

// Calls returns at most n of the org's calls that were refused or waited and match the filter, which must have a To,
// newest first. They are recorded for a day, as far as there is memory; of very many in a second only some are.
func (r *Refusals) Calls(ctx context.Context, org string, f RefusalFilter, n int) ([]RefusedCall, error) {
	ids, err := r.rdb.ZRangeByScore(ctx, ledger.Key(org, refusedTimes), redisconn.Between{
		Min: strconv.FormatInt(f.From.UnixMicro(), 10), Max: "(" + strconv.FormatInt(f.To.UnixMicro(), 10),
	}).Result()
	if err != nil {
		return nil, storeError("read refused calls", err)
	}
	slices.Reverse(ids)
	var out []RefusedCall
	for page := range slices.Chunk(ids, refusedCallPage) {
		calls, err := r.read(ctx, org, page)
		if err != nil {
			return nil, err
		}
		out = append(out, slices.DeleteFunc(calls, func(c RefusedCall) bool { return !f.fits(&c) })...)
		if len(out) >= n {
			return out[:n], nil
		}
	}
	return out, nil
}

// countCalls returns a count for each recorded call.
func (r *Refusals) countCalls(ctx context.Context, org string, f RefusalFilter) (out []Refused, err error) {
	calls, err := r.Calls(ctx, org, f, refusedCallBytes)
	for _, c := range calls {
		n := Refused{User: c.User, Key: c.Key, Cause: c.Cause, Refused: 1, First: c.At, Last: c.At}
		n.Begin, n.Hour = c.At.UTC().Truncate(time.Hour), true
		if c.Waited {
			n.Refused, n.Waited = 0, 1
		}
		out = append(out, n)
	}
	return out, err
}

// Call returns the org's call with an id, or with a job with that id; nil if none is recorded.
func (r *Refusals) Call(ctx context.Context, org, id string) (*RefusedCall, error) {
	calls, err := r.read(ctx, org, []string{id})
	if err == nil && len(calls) == 0 && strings.HasPrefix(id, "job_") {
		calls, err = r.Calls(ctx, org, RefusalFilter{To: r.clock.now().Add(time.Hour)}, refusedCallBytes)
	}
	at := slices.IndexFunc(calls, func(c RefusedCall) bool { return c.ID == id || c.JobID == id })
	if err != nil || at < 0 {
		return nil, err
	}
	return &calls[at], nil
}

// read returns the recorded calls with these ids.
func (r *Refusals) read(ctx context.Context, org string, ids []string) ([]RefusedCall, error) {
	texts, err := r.rdb.HMGet(ctx, ledger.Key(org, refusedCalls), ids...).Result()
	if err != nil {
		return nil, storeError("read refused calls", err)
	}
	var out []RefusedCall
	for i, one := range texts {
		text, ok := one.(string)
		if !ok || ids[i] == "" {
			continue
		}
		c := RefusedCall{}
		if err := json.Unmarshal([]byte(text), &c); err != nil {
			return nil, fmt.Errorf("budget: refused call %s: %w", ids[i], err)
		}
		out = append(out, c)
	}
	return out, nil
}
