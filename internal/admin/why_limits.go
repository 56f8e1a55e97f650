package admin

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/guard"
)

// WhyLimit is a limit that applies, with when it frees capacity and who holds the most of it.
type WhyLimit struct {
	Name    string `json:"name" col:"limit"`
	Subject string `json:"subject" col:"subject;=of"`
	Cap     string `json:"cap,omitempty"` // for a spend cap: the deployment, or a provider
	Metric  string `json:"metric"`
	Unit    string `json:"unit"` // of the amounts: nano_usd, tokens, requests or calls
	Mode    string `json:"mode" col:"mode"`
	Shape   string `json:"shape"`

	Amount    int64 `json:"amount" col:"amount;unit"`
	Used      int64 `json:"used" col:"used;unit"`
	Held      int64 `json:"held" col:"held;unit"` // the part of Used that open calls may return
	Remaining int64 `json:"remaining"`
	// Wanted is what the job or the call would hold; null if unknown.
	Wanted *int64 `json:"wanted" col:"needed;unit"`
	// Refuses reports that there is no capacity: for the job or call, or at all for a user.
	Refuses bool `json:"refuses" col:"available;=room"`
	// Wait is when there is capacity, without further calls; null: now, or waiting does not
	// help.
	Wait   *float64   `json:"wait_seconds"`
	Reset  *float64   `json:"reset_seconds" col:"resets in;=reset"` // until everything is free; null: never
	Closed *time.Time `json:"closed_until"`                         // because of a data loss in Redis
	Frees  []Freed    `json:"frees"`
	// Neighbors hold the most of it, largest first: users of an org's limit, keys of a user's,
	// orgs of a spend cap.
	Neighbors []Neighbor `json:"neighbors"`
	// Command makes room.
	Command string `json:"command,omitempty"`

	limit    budget.Limit
	who      ledger.Call // whom it counts
	provider string      // of its spend cap; empty: all
}

// Freed is when an amount of a limit becomes free; null seconds: time alone does not free it.
type Freed struct {
	Amount  int64    `json:"amount"`
	Seconds *float64 `json:"in_seconds"`
}

// freedShares are the shares of a limit, in percent, whose times are reported.
var freedShares = []int64{10, 50, 100}

// title names a limit in a sentence.
func (l *WhyLimit) title() string {
	if l.Cap != "" {
		return "the spend cap " + l.Name + " of " + l.Cap
	}
	switch l.limit.Subject {
	case budget.RunBudget:
		return "the budget of the run " + l.limit.Only
	case budget.Org:
		return "the limit " + l.Name + " of org " + l.who.Org
	case budget.UserGroup:
		return "the limit " + l.Name + " of group " + l.limit.Only
	}
	of := guard.BrakeSubject(l.limit.Subject, l.limit.Subject.ID(l.who))
	return "the limit " + l.Name + " of " + strings.ReplaceAll(of, "=", " ")
}

// full returns the limits and caps without capacity.
func (w *Why) full() (out []string) {
	for i := range w.Limits {
		if w.Limits[i].Refuses {
			out = append(out, w.Limits[i].title())
		}
	}
	return out
}

// whyLimits reads the state of all limits.
func (h *whyHandler) whyLimits(c *call, w *Why) error {
	w.Limits = []WhyLimit{}
	want, ctx, books := budget.Amounts{}, c.r.Context(), h.opts.Budget
	if w.want != nil {
		want = *w.want
	}
	if len(w.limits) > 0 {
		statuses, err := books.Room(ctx, w.limits, w.who, want)
		if err != nil {
			return err
		}
		err = w.addLimits(w.limits, nil, statuses, func(share int64) ([]budget.Status, error) {
			return books.Frees(ctx, w.limits, w.who, share)
		})
		if err != nil {
			return err
		}
	}
	for _, spend := range w.caps {
		statuses, err := books.CapRoom(ctx, spend, w.who, want)
		if err != nil {
			return err
		}
		err = w.addLimits(spend.Limits, &spend, statuses, func(share int64) ([]budget.Status, error) {
			return books.CapFrees(ctx, spend, share)
		})
		if err != nil {
			return err
		}
	}
	if err := h.addNeighbors(c, w); err != nil {
		return err
	}
	slices.SortStableFunc(w.Limits, func(a, b WhyLimit) int { return cmp.Compare(rank(&a), rank(&b)) })
	return nil
}

// rank sorts limits that refuse first.
func rank(l *WhyLimit) int {
	if l.Refuses {
		return 0
	}
	return 1
}

// addLimits adds the org's limits, or those of a spend cap. frees reports when a share of them is free.
func (w *Why) addLimits(
	limits []budget.Limit, spend *budget.Cap, statuses []budget.Status, frees func(share int64) ([]budget.Status, error),
) error {
	var free [][]budget.Status
	for _, share := range freedShares {
		one, err := frees(share)
		if err != nil {
			return err
		}
		free = append(free, one)
	}
	for i, s := range statuses {
		at := slices.IndexFunc(limits, func(l budget.Limit) bool { return l.ID == s.LimitID && l.Metric == s.Metric })
		if at < 0 {
			continue
		}
		v := WhyLimit{
			Name: s.LimitID, Subject: string(s.Subject), Metric: string(s.Metric), Unit: units[s.Metric], Mode: string(s.Mode),
			Shape: shapeOf(limits[at].Shape), Amount: s.Amount, Used: s.Used, Held: s.Held, Remaining: s.Remaining,
			Reset: secondsOf(s.Reset), Frees: []Freed{}, Neighbors: []Neighbor{}, limit: limits[at], who: w.who,
		}
		if spend != nil {
			v.Cap, v.provider = spend.String(), spend.Provider
		}
		enforced, known := s.Mode != budget.Shadow, w.knows(s.Metric)
		v.Refuses = enforced && (s.Refused || !known && s.Remaining == 0)
		if s.Refused && !s.Never {
			v.Wait = secondsOf(s.Wait)
		}
		if !s.ClosedUntil.IsZero() {
			v.Closed, v.Refuses = &s.ClosedUntil, enforced
		}
		if known {
			n := wantedOf(s.Metric, *w.want)
			v.Wanted = &n
		}
		for k, share := range freedShares {
			if s.Metric == budget.Concurrency || i >= len(free[k]) || !free[k][i].Refused {
				continue
			}
			one := Freed{Amount: partOf(s.Amount, share)}
			if !free[k][i].Never {
				one.Seconds = secondsOf(free[k][i].Wait)
			}
			v.Frees = append(v.Frees, one)
		}
		v.Command = v.command(w)
		w.Limits = append(w.Limits, v)
	}
	return nil
}

// knows reports whether what w holds of a metric is known.
func (w *Why) knows(m budget.Metric) bool {
	return w.want != nil && (w.metric == "" || w.metric == m || m != budget.Cost && m != budget.Tokens)
}

func partOf(amount, percent int64) int64 { return amount/100*percent + amount%100*percent/100 }

func wantedOf(m budget.Metric, a budget.Amounts) int64 {
	switch m {
	case budget.Cost:
		return int64(a.Cost)
	case budget.Tokens:
		return a.Tokens
	}
	return 1
}

// secondsOf returns a duration in seconds; nil means endless.
func secondsOf(d time.Duration) *float64 {
	if d >= budget.Endless {
		return nil
	}
	s := math.Ceil(d.Seconds()*1000) / 1000
	return &s
}

// overrideFor is the duration of a suggested override.
const overrideFor = "1h"

// command returns the command that makes room for the call and for those ahead of it in this limit; empty if there is
// none, as for spend caps, which are set in the configuration.
func (l *WhyLimit) command(w *Why) string {
	if !l.Refuses {
		return ""
	}
	reason := ShellWord("let " + cmp.Or(w.subject(), w.ID) + " continue")
	switch {
	case l.Closed != nil && l.Cap != "":
		return "llmguard limits reopen --all --reason " + reason
	case l.Closed != nil:
		return "llmguard limits reopen --org " + w.Org + " --reason " + reason
	case l.Cap != "" || l.limit.Metric == budget.Concurrency && l.limit.Subject == budget.RunBudget:
		return ""
	}
	more := l.Used - l.Amount + max(partOf(l.Amount, 10), 1)
	if l.Wanted != nil {
		more = l.Used - l.Amount + *l.Wanted + w.before[nameOf(&l.limit)]
	}
	if l.limit.Subject == budget.RunBudget {
		return topUpCommand(w.Org, l.limit.Only, more)
	}
	add := fmt.Sprint(more)
	if l.limit.Metric == budget.Cost {
		add = ShellWord(dollars(more))
	}
	of := map[budget.Subject]string{
		budget.UserGroup: " --group " + l.limit.Only, budget.User: " --user " + w.who.User,
		budget.Key: " --key " + w.who.Key, budget.IP: " --ip " + w.who.IP,
	}
	return "llmguard limits override --org " + w.Org + of[l.limit.Subject] + " --limit " + l.Name + " --add " + add +
		" --until " + overrideFor + " --reason " + reason
}

// subject is what a command lets continue.
func (w *Why) subject() string {
	if w.Job != nil {
		return w.Job.ID
	}
	return w.who.User
}
