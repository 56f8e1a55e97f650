// Package alert notices that what was charged to a limit of money has passed a
// part of it, and has that told: once per limit, threshold and period, however
// many processes look.
//
// It looks a few seconds after calls were charged, at what they were charged and
// not at what is held; nothing waits for it. It does not deliver anything.
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

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/pricing"
)

// Everyone stands for all orgs, as one who is told and as one whose limits are
// watched; no org can be called so.
const Everyone = "*"

// Rule is who is told, and when.
type Rule struct {
	To string // an org's id, or Everyone for the operator
	// Thresholds are percentages of a limit.
	Thresholds []int
}

// Alert says that a limit was used so far.
type Alert struct {
	To        string
	Org, User string // User is empty for a limit of the whole org
	Limit     string
	Mode      budget.Mode
	Threshold int // percent
	Charged   pricing.Nano
	Amount    pricing.Nano
	At        time.Time
	Reset     time.Duration // until nothing is used, if no more is
}

// Text is the alert in one sentence.
func (a Alert) Text() string {
	who := "org " + a.Org
	if a.User != "" {
		who = "user " + a.User + " of org " + a.Org
	}
	text := fmt.Sprintf("llmguard: %s has used %d%% of its limit %s: %s of %s.", who,
		int64(a.Charged)*100/max(int64(a.Amount), 1), a.Limit, dollars(a.Charged), dollars(a.Amount))
	switch {
	case a.Mode == budget.Shadow:
		text += " The limit is in shadow mode and holds nothing back."
	case a.Threshold >= 100:
		text += " Further calls wait or are refused until there is room."
	}
	return text
}

// dollars writes an amount without the zeros after its cents.
func dollars(n pricing.Nano) string {
	text := n.String()
	cents := strings.IndexByte(text, '.') + 3
	return text[:cents] + strings.TrimRight(text[cents:], "0")
}

// Options are what a Watcher is built from; all but Every and Log are required.
type Options struct {
	Redis  redis.UniversalClient
	Budget *budget.Store
	// Limits are those in force for a user of an org.
	Limits func(org, user string) []budget.Limit
	// Send takes an alert on its way; after an error it is asked again later.
	Send func(context.Context, Alert) error
	// Every is how often those who were charged are looked at; 0 is 5 s.
	Every time.Duration
	Log   *slog.Logger
}

// Watcher looks at the limits of those who were charged. It is safe for
// concurrent use.
type Watcher struct {
	opts  Options
	rules atomic.Pointer[map[string][]Rule]

	mu      sync.Mutex
	charged map[subject]struct{}
}

type subject struct{ org, user string }

// most bounds those who are remembered between two looks; who comes after them
// is looked at after a later call.
const most = 100_000

// New returns a Watcher that has no rules.
func New(o Options) *Watcher {
	if o.Every <= 0 {
		o.Every = 5 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	w := &Watcher{opts: o, charged: map[subject]struct{}{}}
	w.SetRules(nil)
	return w
}

// SetRules replaces the rules, by org; those of Everyone are for all orgs.
func (w *Watcher) SetRules(rules map[string][]Rule) { w.rules.Store(&rules) }

func (w *Watcher) rulesOf(org string) []Rule {
	rules := *w.rules.Load()
	return slices.Concat(rules[org], rules[Everyone])
}

// Charged says that a user of an org was charged something. It returns at once.
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

// Run looks until ctx ends, and then once more.
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

// lookTime bounds the last look.
const lookTime = 2 * time.Second

func (w *Watcher) lookAll(ctx context.Context) {
	w.mu.Lock()
	charged := w.charged
	w.charged = map[subject]struct{}{}
	w.mu.Unlock()
	failed := 0
	for s := range charged {
		if err := w.look(ctx, s); err != nil {
			failed++
			if failed == 1 && !errors.Is(err, errClaimed) {
				w.opts.Log.WarnContext(ctx, "limits not looked at for alerts; they will be again", "org", s.org, "err", err)
			}
			w.Charged(s.org, s.user)
		}
	}
}

// look compares what one user, and its org, were charged with the thresholds.
func (w *Watcher) look(ctx context.Context, s subject) error {
	call := budget.Call{Org: s.org, User: s.user}
	limits := slices.DeleteFunc(slices.Clone(w.opts.Limits(s.org, s.user)), func(l budget.Limit) bool {
		of := l.Subject == budget.Org || l.Subject == budget.User
		return l.Metric != budget.Cost || !of || !l.Counts(call)
	})
	if len(limits) == 0 {
		return nil
	}
	list, err := w.opts.Budget.Peek(ctx, limits, call)
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
			if status.Subject == budget.User {
				a.User = s.user
			}
			if err := w.compare(ctx, a, rule.Thresholds, period(limits[i], status)); err != nil {
				return err
			}
		}
	}
	return nil
}

// The shortest and longest times in which a threshold is told once.
const (
	shortest = time.Minute
	longest  = 400 * 24 * time.Hour
)

// period is how long a threshold that was told is not told again.
func period(l budget.Limit, s budget.Status) time.Duration {
	p := s.Reset // of a calendar's period and of a bucket
	if l.Shape.Kind == budget.Window || l.Shape.Kind == budget.ExactWindow {
		p = l.Shape.Window
	}
	return min(max(p, shortest), longest)
}

// compare tells the highest threshold that was reached, and takes those below it
// for told.
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
		if told, err := w.tell(ctx, a, period); err != nil || !told {
			return err // those below were marked together with this one
		}
	}
	return nil
}

// claimTime is how long another process leaves an alert to the one that is
// telling it; should that die, it is told after all.
const claimTime = time.Minute

// claimed is what a mark says until the alert is told.
const claimed = "claimed"

// errClaimed says that another process is telling it: to be looked at again.
var errClaimed = errors.New("alert: another process is telling it")

// tell has an alert sent unless it was told already in this period.
func (w *Watcher) tell(ctx context.Context, a Alert, period time.Duration) (bool, error) {
	mine, err := w.opts.Redis.SetNX(ctx, a.mark(), claimed, claimTime).Result()
	if err != nil {
		return false, wrap(err)
	}
	if !mine {
		if state, err := w.opts.Redis.Get(ctx, a.mark()).Result(); err == nil && state == claimed {
			return false, errClaimed
		}
		return false, nil
	}
	if err := w.opts.Send(ctx, a); err != nil {
		_ = w.opts.Redis.Del(context.WithoutCancel(ctx), a.mark()).Err()
		return false, err
	}
	return true, wrap(w.opts.Redis.Set(context.WithoutCancel(ctx), a.mark(), "told", period).Err())
}

func wrap(err error) error {
	if err != nil {
		return fmt.Errorf("alert: %w", err)
	}
	return nil
}

// mark is the key that says that this was told. A limit that is raised is
// another one.
func (a Alert) mark() string {
	return "lg:{" + a.Org + "}:alert:" +
		strings.Join([]string{a.To, a.Limit, a.User, fmt.Sprint(int64(a.Amount)), fmt.Sprint(a.Threshold)}, ":")
}
