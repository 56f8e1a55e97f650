package budget

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/internal/redisconn"
)

// Bounds of the sums of refusals: when a day, or a day of hours, is full, new lines are counted
// under the user [ledger.OtherModels] and [OtherCauses].
const (
	refusalDayLines  = 10_000
	refusalHourLines = 20_000
	// refusalsAtOnce bounds the lines in memory until they are written.
	refusalsAtOnce  = 50_000
	refusalRunLines = 500 // of one run of the script
	// refusalsPause is the interval between writes.
	refusalsPause = time.Second
	// refusalRunLife is how long a repeated write is recognized.
	refusalRunLife = time.Hour
)

// hoursLife is how long hourly sums are kept: 14 days after the end of their day.
const hoursLife = 15 * 24 * time.Hour

// Hours is how far back hourly sums reach.
const Hours = 14 * 24 * time.Hour

// Refused counts the calls of a key that were refused or waited for one cause, in one UTC day or hour.
type Refused struct {
	// Begin is the start of the day, or of the hour if Hour is set.
	Begin time.Time
	Hour  bool
	User  string
	// Key is empty in counts of versions that did not tell keys apart.
	Key   string
	Cause Cause
	// Refused counts calls answered with an error, Waited those that waited in the queue and were not refused later.
	Refused, Waited int64
	First, Last     time.Time
}

// refusalLine identifies a line being gathered.
type refusalLine struct {
	org, user, key string
	cause          Cause
	hour           int64 // hours since 1970
}

// refusalCount is a line, with some of its calls.
type refusalCount struct {
	refused, waited, first, last int64
	calls                        []RefusedCall
}

// refusalWrite is one run of the script with lines of one org and day. Its number stays the same
// however often it is sent.
type refusalWrite struct {
	org    string
	day    int64
	number int64
	lines  []any
	calls  []RefusedCall
}

// Refusals counts the calls that are refused or wait, records some of them, and writes both once a second.
type Refusals struct {
	runner *runner
	rdb    redisconn.DB
	clock  *clock
	pages  *ledger.Pages
	memory *capacity.Memory // of the records; nil: no bound
	log    *slog.Logger
	life   time.Duration // Options.RollupLife

	mu       sync.Mutex
	lines    map[refusalLine]*refusalCount
	recorded map[string]int // calls in lines, by org
	process  string

	writing sync.Mutex // protects the rest
	runs    int64
	unsent  []*refusalWrite  // not yet answered by the store
	sizes   map[string]int64 // bytes of the records of orgs, as last seen
	warned  time.Time
}

func newRefusals(rdb redisconn.DB, r *runner, p *ledger.Pages, o Options) *Refusals {
	return &Refusals{
		runner: r, rdb: rdb, clock: r.clock, pages: p, memory: o.Memory, log: o.Log, life: o.RollupLife,
		lines: map[refusalLine]*refusalCount{}, recorded: map[string]int{}, process: rand.Text()[:12],
		sizes: map[string]int64{},
	}
}

// Add counts a call of an org that was refused or has to wait, and records it unless there are too many. Run writes
// both within a second, and writes the rest when it ends.
func (r *Refusals) Add(c RefusedCall) {
	if c.At.IsZero() {
		c.At = r.clock.now()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.line(&c, c.Cause, c.At)
	if c.Waited {
		n.waited++
	} else {
		n.refused++
	}
	r.record(n, c)
	if c.Before != "" {
		r.line(&c, c.Before, c.Since).waited--
	}
}

// line returns the line of a call's cause in the hour of a time.
func (r *Refusals) line(c *RefusedCall, cause Cause, at time.Time) *refusalCount {
	now := at.UnixMicro()
	l := refusalLine{c.Org, c.User, c.Key, cause, now / hourMicros}
	if r.lines[l] == nil && len(r.lines) >= refusalsAtOnce {
		l.user, l.key, l.cause = ledger.OtherModels, "", OtherCauses
	}
	n := r.lines[l]
	if n == nil {
		n = &refusalCount{first: now}
		r.lines[l] = n
	}
	n.first, n.last = min(n.first, now), max(n.last, now)
	return n
}

// run writes the counts once a second, and the rest when ctx ends.
func (r *Refusals) run(ctx context.Context) {
	tick := time.NewTicker(refusalsPause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), refusalsPause)
			defer cancel()
			if err := r.Write(last); err != nil {
				r.log.Warn("refusal counts not written", "err", err)
			}
			return
		case <-tick.C:
			if err := r.Write(ctx); err != nil && ctx.Err() == nil {
				r.log.Debug("refusal counts not written, will retry", "err", err)
			}
		}
	}
}

// Write writes the gathered counts, with one script run per org, day and [refusalRunLines] lines.
func (r *Refusals) Write(ctx context.Context) error {
	r.writing.Lock()
	defer r.writing.Unlock()
	r.gather()
	for len(r.unsent) > 0 {
		if err := r.send(ctx, r.unsent[0]); err != nil {
			return err
		}
		r.unsent = r.unsent[1:]
	}
	return nil
}

// gather moves the counted lines to unsent, unless earlier ones have still to be written.
func (r *Refusals) gather() {
	if len(r.unsent) > 0 {
		return
	}
	r.mu.Lock()
	lines := r.lines
	r.lines, r.recorded = map[refusalLine]*refusalCount{}, map[string]int{}
	r.mu.Unlock()
	type place struct {
		org string
		day int64
	}
	open := map[place]*refusalWrite{}
	for l, n := range lines {
		at := place{l.org, l.hour / 24}
		w := open[at]
		if w == nil || len(w.lines) == 6*refusalRunLines {
			r.runs++
			w = &refusalWrite{org: at.org, day: at.day, number: r.runs}
			open[at] = w
			r.unsent = append(r.unsent, w)
		}
		hour, subject := fmt.Sprintf("%02d", l.hour%24), l.user+"|"+l.key+"|"+string(l.cause)
		w.lines = append(w.lines, hour, subject, n.refused, n.waited, n.first, n.last)
		w.calls = append(w.calls, n.calls...)
	}
}

func (r *Refusals) send(ctx context.Context, w *refusalWrite) error {
	day := ledger.DayText(w.day)
	keys := []string{
		ledger.Key(w.org, "refusals:"+day), ledger.Key(w.org, "refusals-by-hour:"+day),
		ledger.Key(w.org, "refusals-of:"+r.process), ledger.Key(w.org, refusedCalls), ledger.Key(w.org, refusedTimes),
	}
	calls := r.admitted(ctx, w.org, w.calls)
	args := []any{
		w.number, refusalDayLines, refusalHourLines, r.life.Milliseconds(), hoursLife.Milliseconds(),
		refusalRunLife.Milliseconds(), RefusedCallLife.Milliseconds(), refusedCallBytes,
		r.clock.now().Add(-RefusedCallLife).UnixMicro(), refusedCallOverhead, len(calls) / 3,
	}
	args = append(append(args, calls...), w.lines...)
	reply, err := r.runner.run(ctx, r.runner.scripts.refusals, keys, args)
	if n, wrong := strconv.ParseInt(reply, 10, 64); err == nil && wrong == nil {
		r.sizes[w.org] = n
	}
	return err
}

// List returns the org's counts of refused and waiting calls in the UTC hours that overlap [From, To) of a filter: by
// the hour for the last 14 days, by the day before that, oldest first. With a filter of calls it counts only recorded
// calls, each by itself, newest first.
func (r *Refusals) List(ctx context.Context, org string, f RefusalFilter) ([]Refused, error) {
	if !f.Calls.Empty() {
		return r.countCalls(ctx, org, f)
	}
	var out []Refused
	from := f.From.UTC().Truncate(time.Hour)
	oldest := r.clock.now().UTC().Add(-Hours).Truncate(24 * time.Hour)
	for day := from.Truncate(24 * time.Hour); day.Before(f.To); day = day.Add(24 * time.Hour) {
		hours := !day.Before(oldest)
		name := "refusals:"
		if hours {
			name = "refusals-by-hour:"
		}
		name = ledger.Key(org, name+ledger.DayText(day.Unix()/86400))
		err := r.pages.Each(ctx, name, "", func(field, text string) error {
			one, err := decodeRefused(day, hours, field, text)
			within := !hours || !one.Begin.Before(from) && one.Begin.Before(f.To)
			counted := one.Refused > 0 || one.Waited > 0
			if err == nil && counted && within && f.matches(one.User, one.Key, one.Cause) {
				out = append(out, one)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(out, func(a, b Refused) int {
		return cmp.Or(a.Begin.Compare(b.Begin), cmp.Compare(a.User, b.User), cmp.Compare(a.Key, b.Key),
			cmp.Compare(a.Cause, b.Cause))
	})
	return out, nil
}

func decodeRefused(day time.Time, hour bool, field, text string) (Refused, error) {
	r, subject := Refused{Begin: day, Hour: hour}, field
	if hour {
		first, rest, _ := strings.Cut(field, "|")
		n, err := strconv.Atoi(first)
		if err != nil {
			return r, fmt.Errorf("budget: refusals of %q are not understood", field)
		}
		r.Begin, subject = day.Add(time.Duration(n)*time.Hour), rest
	}
	parts := strings.Split(subject, "|")
	n, err := integers(text)
	if len(parts) < 2 || len(parts) > 3 || err != nil || len(n) != 4 {
		return r, fmt.Errorf("budget: refusals %q = %q are not understood", field, text)
	}
	r.User, r.Cause = parts[0], ParseCause(parts[len(parts)-1])
	if len(parts) == 3 {
		r.Key = parts[1]
	}
	// Sums are below 0 while the wait of a call that was refused is not written yet.
	r.Refused, r.Waited = max(n[0], 0), max(n[1], 0)
	r.First, r.Last = time.UnixMicro(n[2]).UTC(), time.UnixMicro(n[3]).UTC()
	return r, nil
}
