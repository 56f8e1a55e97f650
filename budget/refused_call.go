package budget

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
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
	// refusedCallBytes is the most that the records of an org take in Redis. The oldest are dropped first.
	refusedCallBytes = 1 << 20
	// refusedCallsAtOnce is how many calls of an org are recorded in one write.
	refusedCallsAtOnce = 300
	// refusedCallsOfKind is how many of them have the same user and cause, so that a caller that retries in a loop
	// leaves room for others.
	refusedCallsOfKind = 20
	refusedCallText    = 100 // bytes of each text of a record
	// refusedCallOverhead is about what Redis needs for a record in addition to its text.
	refusedCallOverhead = 250
	refusedCallPage     = 200
	refusedCalls        = "refused"
	refusedTimes        = "refused-at"
)

// RefusedCall is one call that was refused or had to wait.
type RefusedCall struct {
	// ID is the id that the caller got, Job the id of the call's job, if it has one.
	ID  string `json:"id"`
	Job string `json:"job,omitempty"`
	// At is when it was refused or began to wait; zero means now.
	At       time.Time `json:"at"`
	User     string    `json:"user"`
	Key      string    `json:"key"`
	Model    string    `json:"model,omitempty"`
	Endpoint string    `json:"endpoint,omitempty"`
	Cause    Cause     `json:"cause"`
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
	// Run is the path of the call's run; empty if it has none.
	Run string `json:"run,omitempty"`

	// Before is, for a refused call, the cause as which its wait was counted at Since. The call is then no longer
	// counted as waited.
	Before Cause     `json:"-"`
	Since  time.Time `json:"-"`
}

// encode returns the record, with texts of bounded length.
func (c RefusedCall) encode() string {
	for _, text := range []*string{&c.Job, &c.User, &c.Key, &c.Model, &c.Endpoint, &c.Run, (*string)(&c.Cause)} {
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
}

// Matches reports whether the filter selects calls of a key with a cause.
func (f RefusalFilter) Matches(user, key string, c Cause) bool {
	return (f.User == "" || f.User == user) && (f.Key == "" || f.Key == key) && c.Matches(f.Cause)
}

// callKind is what calls have in common of which one is as good as another.
type callKind struct {
	user  string
	cause Cause
}

// recentCalls are calls to be recorded. Of a flood it has the newest of each user and cause.
type recentCalls struct {
	list    []RefusedCall
	kinds   map[callKind]recentKind
	checked int // with a full list, the calls before this index are the newest of their kinds and stay
}

// recentKind is where the newest call of a kind is in the list, and how many calls of the kind were added to it.
type recentKind struct{ newest, n int }

func (r *recentCalls) add(c RefusedCall) {
	kind := callKind{c.User, c.Cause}
	had, known := r.kinds[kind]
	at := had.newest
	full := len(r.list) == refusedCallsAtOnce
	switch {
	case !full && had.n < refusedCallsOfKind:
		at = len(r.list)
		r.list = append(r.list, c)
		had.n++
	case !known:
		at = r.replaceable()
		if at < 0 {
			return
		}
	}
	had.newest = at
	r.list[at], r.kinds[kind] = c, had
}

// replaceable returns the index of a call in a full list that is not the newest of its kind; -1 if there is none.
func (r *recentCalls) replaceable() int {
	for ; r.checked < len(r.list); r.checked++ {
		one := &r.list[r.checked]
		if r.kinds[callKind{one.User, one.Cause}].newest != r.checked {
			return r.checked
		}
	}
	return -1
}

// callRecords admits records of calls to the memory of Redis. It is used by one goroutine at a time.
type callRecords struct {
	memory *capacity.Memory // nil: no bound
	log    *slog.Logger
	sizes  map[string]int64 // bytes of the records of orgs, as last seen
	warned time.Time
}

// warnEvery is how often it is logged that there is no memory for records.
const warnEvery = time.Minute

// admitted returns the arguments of the script for calls: none if there is no memory for them.
func (m *callRecords) admitted(ctx context.Context, org string, calls []RefusedCall) []any {
	args := make([]any, 0, 3*len(calls))
	bytes := m.sizes[org]
	for _, c := range calls {
		text := c.encode()
		bytes += int64(len(text)) + refusedCallOverhead
		args = append(args, c.ID, c.At.UnixMicro(), text)
	}
	if m.memory == nil || len(calls) == 0 {
		return args
	}
	all := capacity.Bytes{Written: min(bytes, refusedCallBytes)}
	err := m.memory.TryReserve(ctx, org, org+" "+refusedCalls, all, RefusedCallLife)
	if err == nil {
		return args
	}
	if time.Since(m.warned) > warnEvery {
		m.warned = time.Now()
		m.log.Warn("refused calls counted but not recorded", "org", org, "calls", len(calls), "err", err)
	}
	return nil
}

// written notes the script's reply.
func (m *callRecords) written(org, reply string) {
	if n, err := strconv.ParseInt(reply, 10, 64); err == nil {
		m.sizes[org] = n
	}
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
		for _, c := range calls {
			if len(out) < n && f.Matches(c.User, c.Key, c.Cause) {
				out = append(out, c)
			}
		}
		if len(out) == n {
			break
		}
	}
	return out, nil
}

// Call returns the org's call with an id, or with a job with that id; nil if none is recorded.
func (r *Refusals) Call(ctx context.Context, org, id string) (*RefusedCall, error) {
	calls, err := r.read(ctx, org, []string{id})
	if err == nil && len(calls) == 0 && strings.HasPrefix(id, "job_") {
		calls, err = r.Calls(ctx, org, RefusalFilter{To: r.clock.now().Add(time.Hour)}, refusedCallBytes)
	}
	for i := range calls {
		if c := &calls[i]; c.ID == id || c.Job == id {
			return c, nil
		}
	}
	return nil, err
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
