// Package alert detects that the charges of a money limit have passed a threshold, and sends an
// alert once per limit, threshold and period, however many processes are watching.
//
// It checks a few seconds after calls were charged, and considers charges, not holds; no call
// waits for it. It does not deliver the alerts.
package alert

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/pricing"
)

// Everyone stands for all orgs, both as a recipient and as the subject of watched limits; no
// org can have this id.
const Everyone = "*"

// Rule says who is alerted, and when.
type Rule struct {
	To string // an org's id, or Everyone for the operator
	// Thresholds are percentages of a limit.
	Thresholds []int
	// Forecast is how long before a limit is used up, at the recent rate, it is alerted; 0: not.
	Forecast time.Duration
}

// Alert reports that a limit has been used up to a threshold.
type Alert struct {
	To        string
	Org, User string // User is empty for a limit of the whole org or of a group
	Group     string // empty for all other limits
	Limit     string
	Mode      budget.Mode
	Threshold int // in percent
	Charged   pricing.Nano
	Amount    pricing.Nano
	At        time.Time
	Reset     time.Duration // until nothing is used, without further calls
	// UsedUp is how long the limit lasts at the recent rate; set for a forecast, which has no
	// Threshold.
	UsedUp time.Duration
}

// Text is the alert in one sentence.
func (a Alert) Text() string {
	who := "org " + a.Org
	switch {
	case a.User != "":
		who = "user " + a.User + " of org " + a.Org
	case a.Group != "":
		who = "group " + a.Group + " of org " + a.Org
	}
	if a.UsedUp > 0 {
		return fmt.Sprintf("llmguard: the limit %s of %s runs out in %s if spending continues: %s of %s so far.", a.Limit,
			who, figures.About(a.UsedUp), a.Charged.Trimmed(), a.Amount.Trimmed())
	}
	text := fmt.Sprintf("llmguard: %s has used %d%% of its limit %s: %s of %s.", who,
		int64(a.Charged)*100/max(int64(a.Amount), 1), a.Limit, a.Charged.Trimmed(), a.Amount.Trimmed())
	switch {
	case a.Mode == budget.Shadow:
		text += " The limit is in shadow mode and holds nothing back."
	case a.Threshold >= 100:
		text += " Further calls wait or are refused until there is room."
	}
	return text
}

// Options configure a Watcher; all fields except SendRun, Every and Log are required.
type Options struct {
	Redis  redisconn.DB
	Budget *budget.Store
	// Limits returns the current limits of a user of an org.
	Limits func(org, user string) []budget.Limit
	// Send sends an alert, and SendRun that a run has used up its amount; after an error they are
	// called again later. SendRun may be nil: runs are not watched.
	Send    func(context.Context, Alert) error
	SendRun func(context.Context, Run) error
	// Every is the interval of checks of those who were charged; 0 means 5 s.
	Every time.Duration
	Log   *slog.Logger
}

// Watcher checks the limits of those who were charged. It is safe for concurrent use.
type Watcher struct {
	opts  Options
	rules atomic.Pointer[map[string][]Rule]

	mu      sync.Mutex
	charged map[subject]struct{}
	usedUp  map[runMark]budget.Run

	recent map[string]*budget.Burns // by org, as read in this check
}

type subject struct{ org, user string }

// most limits how many users are remembered between two checks; any others are checked after a
// later call.
const most = 100_000

// New returns a Watcher without rules.
func New(o Options) *Watcher {
	if o.Every <= 0 {
		o.Every = 5 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	w := &Watcher{
		opts: o, charged: map[subject]struct{}{}, usedUp: map[runMark]budget.Run{}, recent: map[string]*budget.Burns{},
	}
	w.SetRules(nil)
	return w
}

// SetRules replaces the rules, by org; those of Everyone apply to all orgs.
func (w *Watcher) SetRules(rules map[string][]Rule) { w.rules.Store(&rules) }

func (w *Watcher) rulesOf(org string) []Rule {
	rules := *w.rules.Load()
	return slices.Concat(rules[org], rules[Everyone])
}

// Charged records that a user of an org was charged. It returns immediately.
func (w *Watcher) Charged(org, user string) {
	rules := *w.rules.Load()
	if len(rules[org])+len(rules[Everyone]) == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.charged) < most {
		w.charged[subject{org, user}] = struct{}{}
	}
}

// Run checks periodically until ctx is done, and then once more.
func (w *Watcher) Run(ctx context.Context) error {
	tick := time.NewTicker(w.opts.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTime)
			defer cancel()
			w.lookAll(last)
			return nil
		case <-tick.C:
			w.lookAll(ctx)
		}
	}
}

// lookTime limits the last check.
const lookTime = 2 * time.Second

func (w *Watcher) lookAll(ctx context.Context) {
	w.mu.Lock()
	charged := w.charged
	w.charged = map[subject]struct{}{}
	w.mu.Unlock()
	clear(w.recent)
	failed, seen := 0, map[string]bool{}
	for s := range charged {
		if err := w.look(ctx, s, seen); err != nil {
			failed++
			if failed == 1 && !errors.Is(err, errClaimed) {
				w.opts.Log.WarnContext(ctx, "limit alerts skipped, will retry", "org", s.org, "err", err)
			}
			w.Charged(s.org, s.user)
		}
	}
	w.lookRuns(ctx)
}

// shared reports whether the users of an org or of a group have the limit together.
func shared(l budget.Limit) bool {
	return l.Subject == budget.Org || l.Subject == budget.UserGroup && l.Only != ""
}

// counter names the counter of a shared limit.
func counter(org string, l budget.Limit) string { return org + "/" + l.Only + "/" + l.ID }

// look compares the charges of one user, of its group and of its org with the thresholds. The charges of an
// org that is spread are read from all its parts, so shared limits that were seen are not read for each
// user. A user's own limit can replace one of them.
func (w *Watcher) look(ctx context.Context, s subject, seen map[string]bool) error {
	call := ledger.Call{Org: s.org, User: s.user}
	limits := slices.DeleteFunc(slices.Clone(w.opts.Limits(s.org, s.user)), func(l budget.Limit) bool {
		of := shared(l) && !seen[counter(s.org, l)] || l.Subject == budget.User
		return l.Metric != budget.Cost || !of || !l.Counts(call)
	})
	for _, l := range limits {
		if shared(l) {
			seen[counter(s.org, l)] = true
		}
	}
	if len(limits) == 0 {
		return nil
	}
	list, err := w.opts.Budget.Peek(ctx, limits, call)
	if err != nil {
		return err
	}
	burns, err := w.burns(ctx, s.org)
	if err != nil {
		return err
	}
	for i, status := range list {
		for _, rule := range w.rulesOf(s.org) {
			a := Alert{
				To: rule.To, Org: s.org, Limit: status.LimitID, Mode: status.Mode,
				Charged: pricing.Nano(status.Used - status.Held), Amount: pricing.Nano(status.Amount), At: time.Now(),
				Reset: status.Reset,
			}
			switch status.Subject {
			case budget.User:
				a.User = s.user
			case budget.UserGroup:
				a.Group = limits[i].Only
			}
			if err := w.compare(ctx, a, rule.Thresholds, period(limits[i], status)); err != nil {
				return err
			}
			if rule.Forecast > 0 {
				a.UsedUp = burns.Forecast(&limits[i], &status, call).UsedUp
				if err := w.foretell(ctx, a, rule.Forecast, period(limits[i], status)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// burns returns an org's recent spending if a rule needs it.
func (w *Watcher) burns(ctx context.Context, org string) (*budget.Burns, error) {
	if !slices.ContainsFunc(w.rulesOf(org), func(r Rule) bool { return r.Forecast > 0 }) {
		return nil, nil
	}
	if known := w.recent[org]; known != nil {
		return known, nil
	}
	b, err := w.opts.Budget.Burns(ctx, org, time.Now())
	if err == nil {
		w.recent[org] = b
	}
	return b, err
}

// foretell sends an alert for a limit that is used up within a time, once in its period.
func (w *Watcher) foretell(ctx context.Context, a Alert, within, period time.Duration) error {
	if a.UsedUp <= 0 || a.UsedUp > within {
		return nil
	}
	_, err := w.tellAlert(ctx, a, period)
	return err
}

// The shortest and longest periods in which a threshold is reported once.
const (
	shortest = time.Minute
	longest  = 400 * 24 * time.Hour
)

// period returns how long a reported threshold is not reported again.
func period(l budget.Limit, s budget.Status) time.Duration {
	p := s.Reset // for calendar periods and buckets
	if l.Shape.Kind == budget.Window || l.Shape.Kind == budget.ExactWindow {
		p = l.Shape.Window
	}
	return min(max(p, shortest), longest)
}

// compare sends an alert for the highest threshold that was reached, and marks the lower ones
// as sent.
func (w *Watcher) compare(ctx context.Context, a Alert, thresholds []int, period time.Duration) error {
	reached := slices.DeleteFunc(slices.Clone(thresholds), func(percent int) bool {
		return a.Amount <= 0 || int64(a.Charged)*100 < int64(a.Amount)*int64(percent)
	})
	slices.Sort(reached)
	for i := len(reached) - 1; i >= 0; i-- {
		a.Threshold = reached[i]
		if i < len(reached)-1 {
			if err := w.opts.Redis.SetNX(ctx, a.mark(), "below", period).Err(); err != nil {
				return fmt.Errorf("alert: %w", err)
			}
			continue
		}
		if told, err := w.tellAlert(ctx, a, period); err != nil || !told {
			return err // the lower ones were marked together with this one
		}
	}
	return nil
}

// claimTime is how long an alert is left to the process that is sending it. If that process
// dies, the alert is sent after this time.
const claimTime = time.Minute

// claimed is the value of a mark until the alert has been sent.
const claimed = "claimed"

// errClaimed means that another process is sending the alert, so it must be checked again.
var errClaimed = errors.New("alert: another process is telling it")

// tellAlert sends an alert, unless it has already been sent in this period.
func (w *Watcher) tellAlert(ctx context.Context, a Alert, period time.Duration) (bool, error) {
	return w.tell(ctx, a.mark(), period, func(ctx context.Context) error { return w.opts.Send(ctx, a) })
}

// tell sends something, unless it has already been sent under this mark in this period.
func (w *Watcher) tell(
	ctx context.Context, mark string, period time.Duration, send func(context.Context) error,
) (bool, error) {
	mine, err := w.opts.Redis.SetNX(ctx, mark, claimed, claimTime).Result()
	if err != nil {
		return false, wrap(err)
	}
	if !mine {
		if state, err := w.opts.Redis.Get(ctx, mark).Result(); err == nil && state == claimed {
			return false, errClaimed
		}
		return false, nil
	}
	if err := send(ctx); err != nil {
		_ = w.opts.Redis.Del(context.WithoutCancel(ctx), mark).Err()
		return false, err
	}
	return true, wrap(w.opts.Redis.Set(context.WithoutCancel(ctx), mark, "told", period).Err())
}

func wrap(err error) error {
	if err != nil {
		return fmt.Errorf("alert: %w", err)
	}
	return nil
}

// kind distinguishes the alerts of a limit: a percentage, or forecast.
func (a Alert) kind() string {
	if a.UsedUp > 0 {
		return "forecast"
	}
	return fmt.Sprint(a.Threshold)
}

// mark returns the key that records that this alert was sent. A raised limit has a new mark.
func (a Alert) mark() string {
	who := a.User
	if a.Group != "" {
		who = "group " + a.Group // no user's id has a space
	}
	return "lg:{" + a.Org + "}:alert:" +
		strings.Join([]string{a.To, a.Limit, who, fmt.Sprint(int64(a.Amount)), a.kind()}, ":")
}
