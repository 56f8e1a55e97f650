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
)

// Bounds of the sums of refusals: when a day, or a day of hours, is full, new lines are counted
// under the user and limit [OtherModels].
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

// Refused counts a user's calls that a limit refused or made wait, in one UTC day or hour.
type Refused struct {
	// Begin is the start of the day, or of the hour if Hour is set.
	Begin time.Time
	Hour  bool
	User  string
	// Limit is the limit's id, with the prefix "cap:" for a spend cap.
	Limit string
	// Refused counts calls answered with an error, Waited those that waited in the queue.
	Refused, Waited int64
	First, Last     time.Time
}

// refusalLine identifies a line being gathered.
type refusalLine struct {
	org, user, limit string
	hour             int64 // hours since 1970
}

type refusalCount struct{ refused, waited, first, last int64 }

// refusalWrite is one run of the script with lines of one org and day. Its number stays the same
// however often it is sent.
type refusalWrite struct {
	org    string
	day    int64
	number int64
	lines  []any
}

// Refusals counts the calls that limits refuse and writes the counts once a second.
type Refusals struct {
	runner *runner
	clock  *clock
	pages  *ledger.Pages
	log    *slog.Logger
	life   time.Duration // Options.RollupLife

	mu      sync.Mutex
	lines   map[refusalLine]*refusalCount
	process string
	runs    int64
	writing sync.Mutex
	unsent  []refusalWrite // not yet answered by the store
}

func newRefusals(r *runner, p *ledger.Pages, o Options) *Refusals {
	return &Refusals{
		runner: r, clock: r.clock, pages: p, log: o.Log, life: o.RollupLife,
		lines: map[refusalLine]*refusalCount{}, process: rand.Text()[:12],
	}
}

// Count records that a limit refused a user's call or made it wait. Run writes it within a second,
// and writes the rest when it ends.
func (r *Refusals) Count(org, user, limit string, waits bool) {
	now := r.clock.now().UnixMicro()
	r.mu.Lock()
	defer r.mu.Unlock()
	at := refusalLine{org, user, limit, now / hourMicros}
	if r.lines[at] == nil {
		if len(r.lines) >= refusalsAtOnce {
			at.user, at.limit = ledger.OtherModels, ledger.OtherModels
		}
		if r.lines[at] == nil {
			r.lines[at] = &refusalCount{first: now}
		}
	}
	n := r.lines[at]
	n.last = now
	if waits {
		n.waited++
	} else {
		n.refused++
	}
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
	r.lines = map[refusalLine]*refusalCount{}
	r.mu.Unlock()
	type place struct {
		org string
		day int64
	}
	found := map[place][]any{}
	for l, n := range lines {
		at := place{l.org, l.hour / 24}
		hour, subject := fmt.Sprintf("%02d", l.hour%24), l.user+"|"+l.limit
		found[at] = append(found[at], hour, subject, n.refused, n.waited, n.first, n.last)
	}
	for at, list := range found {
		for part := range slices.Chunk(list, 6*refusalRunLines) {
			r.runs++
			r.unsent = append(r.unsent, refusalWrite{at.org, at.day, r.runs, part})
		}
	}
}

func (r *Refusals) send(ctx context.Context, w refusalWrite) error {
	day := ledger.DayText(w.day)
	keys := []string{
		ledger.Key(w.org, "refusals:"+day), ledger.Key(w.org, "refusals-by-hour:"+day),
		ledger.Key(w.org, "refusals-of:"+r.process),
	}
	args := append([]any{
		w.number, refusalDayLines, refusalHourLines, r.life.Milliseconds(), hoursLife.Milliseconds(),
		refusalRunLife.Milliseconds(),
	}, w.lines...)
	_, err := r.runner.run(ctx, r.runner.scripts.refusals, keys, args)
	return err
}

// List returns what the org's limits refused in the UTC hours that overlap [from, to): by the hour
// for the last 14 days, by the day before that, oldest first.
func (r *Refusals) List(ctx context.Context, org string, from, to time.Time) ([]Refused, error) {
	var out []Refused
	from = from.UTC().Truncate(time.Hour)
	oldest := r.clock.now().UTC().Add(-Hours).Truncate(24 * time.Hour)
	for day := from.Truncate(24 * time.Hour); day.Before(to); day = day.Add(24 * time.Hour) {
		hours := !day.Before(oldest)
		name := "refusals:"
		if hours {
			name = "refusals-by-hour:"
		}
		name = ledger.Key(org, name+ledger.DayText(day.Unix()/86400))
		err := r.pages.Each(ctx, name, "", func(field, text string) error {
			one, err := decodeRefused(day, hours, field, text)
			if err == nil && (!hours || !one.Begin.Before(from) && one.Begin.Before(to)) {
				out = append(out, one)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(out, func(a, b Refused) int {
		return cmp.Or(a.Begin.Compare(b.Begin), cmp.Compare(a.User, b.User), cmp.Compare(a.Limit, b.Limit))
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
	var ok bool
	r.User, r.Limit, ok = strings.Cut(subject, "|")
	n, err := integers(text)
	if !ok || err != nil || len(n) != 4 {
		return r, fmt.Errorf("budget: refusals %q = %q are not understood", field, text)
	}
	r.Refused, r.Waited, r.First, r.Last = n[0], n[1], time.UnixMicro(n[2]).UTC(), time.UnixMicro(n[3]).UTC()
	return r, nil
}
