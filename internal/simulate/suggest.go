package simulate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/pricing"
)

// SuggestOptions select the limits to suggest. All fields are required except Orgs and Heavy.
type SuggestOptions struct {
	Metric  budget.Metric   // Cost, Tokens or Requests
	Windows []time.Duration // lengths of the sliding windows
	// Percentile, from 1 to 100, is the percentage of the history that a limit allows before
	// headroom: of the periods of the window's length for an org or a heavy user, of the users
	// for a limit of each user.
	Percentile int
	Headroom   float64 // an amount is the percentile times this; from 0.1 to 100
	// Heavy is the maximum number of users above the limit of each user that get their own
	// limits.
	Heavy int
	// Orgs, if set, are the current orgs: whether and how long their calls wait, and which
	// limit names are taken.
	Orgs map[string]*guard.Org
}

// OrgSuggestions are the limits suggested for one org.
type OrgSuggestions struct {
	Org         string       `json:"org"`
	Calls       int          `json:"calls"`
	Users       int          `json:"users"`
	From        time.Time    `json:"from"`
	To          time.Time    `json:"to"`
	Spend       pricing.Nano `json:"spend_nano"`
	Suggestions []Suggestion `json:"suggestions"`
	// Together is the effect of all of them combined.
	Together Line     `json:"together"`
	Notes    []string `json:"notes"` // what is not suggested, and why
}

// Suggestion is a limit, the basis of its amount, and what it would have done, on its own, to
// the same calls.
type Suggestion struct {
	Limit budget.Limit `json:"-"`

	Name    string         `json:"name"`
	Subject budget.Subject `json:"subject"`
	User    string         `json:"user,omitempty"` // the heavy user that it applies to
	Metric  budget.Metric  `json:"metric"`
	Amount  int64          `json:"amount"` // in the metric's unit, nano-USD for cost; for a bucket, its capacity
	WindowS int64          `json:"window_s,omitempty"`
	Refill  int64          `json:"refill,omitempty"` // of a bucket, every PerS
	PerS    int64          `json:"per_s,omitempty"`

	Basis    Basis  `json:"basis"`
	Effect   Line   `json:"effect"`
	HeldBack []Line `json:"held_back"` // by user, those whose calls it holds back, most first
}

// Basis is what was found in the history.
type Basis struct {
	Reached int64  `json:"reached"` // at the percentile
	Most    int64  `json:"most"`    // maximum
	Of      int    `json:"of"`      // sample size
	What    string `json:"what"`    // periods of the window's length, or users
}

// HeldBackCalls returns how many calls did not run immediately.
func (l Line) HeldBackCalls() int { return l.Waited + l.GaveUp + l.Refused }

func (o SuggestOptions) validate() error {
	switch {
	case o.Metric != budget.Cost && o.Metric != budget.Tokens && o.Metric != budget.Requests:
		return fmt.Errorf("simulate: no limit on %q can be suggested; expected cost, tokens or requests", o.Metric)
	case o.Percentile < 1 || o.Percentile > 100:
		return fmt.Errorf("simulate: percentile %d: expected 1 to 100", o.Percentile)
	case !(o.Headroom >= 0.1 && o.Headroom <= 100):
		return fmt.Errorf("simulate: headroom %v: expected 0.1 to 100", o.Headroom)
	case len(o.Windows) == 0:
		return errors.New("simulate: a window is needed")
	}
	for _, w := range o.Windows {
		if w < time.Minute || w > 366*24*time.Hour {
			return fmt.Errorf("simulate: window %s: expected a minute to 366 days", w)
		}
	}
	return nil
}

// Suggest derives limits from a sorted trace for each of its orgs, and replays the calls under
// each of them.
func Suggest(ctx context.Context, t *Trace, o SuggestOptions) ([]OrgSuggestions, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if !t.sorted {
		return nil, errors.New("simulate: sort the trace first")
	}
	seen := map[uint32]bool{}
	var out []OrgSuggestions
	for i := range t.calls {
		org := t.calls[i].who.org
		if seen[org] {
			continue
		}
		seen[org] = true
		s := &suggesting{ctx: ctx, o: o, org: org, trace: t.only(org, func(uint32) bool { return true })}
		one, err := s.suggest()
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	slices.SortFunc(out, func(a, b OrgSuggestions) int {
		return cmp.Or(cmp.Compare(b.Spend, a.Spend), cmp.Compare(a.Org, b.Org))
	})
	return out, nil
}

// suggesting is the state for one org.
type suggesting struct {
	ctx   context.Context
	o     SuggestOptions
	org   uint32
	trace *Trace // the org's calls
	users map[uint32]*Trace
	out   OrgSuggestions
}

func (s *suggesting) suggest() (OrgSuggestions, error) {
	from, to := s.trace.Span()
	s.users = map[uint32]*Trace{}
	s.out = OrgSuggestions{
		Org: s.trace.names[s.org], Calls: s.trace.Len(), From: from.UTC(), To: to.UTC(),
		Notes: []string{},
	}
	for i := range s.trace.calls {
		r := &s.trace.calls[i]
		if !r.refused {
			s.out.Spend += pricing.Nano(r.cost)
		}
		if s.users[r.who.user] == nil {
			s.users[r.who.user] = &Trace{names: s.trace.names, ids: s.trace.ids, sorted: true, Skipped: map[string]int{}}
		}
		u := s.users[r.who.user]
		u.calls = append(u.calls, *r)
	}
	s.out.Users = len(s.users)
	for _, w := range s.o.Windows {
		if to.Sub(from) < w {
			s.out.Notes = append(s.out.Notes,
				fmt.Sprintf("no limit with a window of %s: the calls span only %s", settings.DurationText(w),
					figures.Lasting(to.Sub(from))))
			continue
		}
		if err := s.window(w); err != nil {
			return s.out, err
		}
	}
	if err := s.bucket(from, to); err != nil {
		return s.out, err
	}
	var err error
	s.out.Together, err = s.together()
	if err != nil {
		return s.out, err
	}
	return s.out, s.ctx.Err()
}

// window suggests limits with one window: for the org, for each user, and for heavy users.
func (s *suggesting) window(w time.Duration) error {
	peaks, err := s.windowPeaks(s.trace, w)
	if err != nil {
		return err
	}
	basis := s.basis(peaks, "stretches of "+settings.DurationText(w)+" with calls")
	if err := s.add(s.windowed("org-", budget.Org, "", w, basis), s.trace); err != nil {
		return err
	}
	type user struct {
		id    uint32
		peaks []int64
	}
	var users []user
	var most []int64
	for id, calls := range s.users {
		if s.ctx.Err() != nil {
			return s.ctx.Err()
		}
		p, err := s.windowPeaks(calls, w)
		if err != nil {
			return err
		}
		users, most = append(users, user{id, p}), append(most, p[len(p)-1])
	}
	slices.Sort(most)
	each := s.windowed("user-", budget.User, "", w, s.basis(most, "users, by the most of each"))
	slices.SortFunc(users, func(a, b user) int {
		return cmp.Or(cmp.Compare(rank(b.peaks, 100), rank(a.peaks, 100)),
			cmp.Compare(s.trace.names[a.id], s.trace.names[b.id]))
	})
	own, ids := []Suggestion(nil), map[uint32]bool{}
	for _, u := range users {
		basis := s.basis(u.peaks, "stretches of "+settings.DurationText(w)+" with calls")
		if one := s.windowed("user-", budget.User, s.trace.names[u.id], w, basis); len(own) < s.o.Heavy &&
			one.Amount > each.Amount {
			own, ids[u.id] = append(own, one), true
		}
	}
	if err := s.add(each, s.trace.only(s.org, func(id uint32) bool { return !ids[id] })); err != nil {
		return err
	}
	for _, one := range own {
		if err := s.add(one, s.users[s.trace.ids[one.User]]); err != nil {
			return err
		}
	}
	return nil
}

func (s *suggesting) windowPeaks(calls *Trace, w time.Duration) ([]int64, error) {
	return calls.peaks(calls.steps(), s.o.Metric, budget.Shape{Kind: budget.Window, Window: w}, w)
}

// bucket suggests a bucket for the org: the refill is the average rate, and the capacity covers
// bursts above it.
func (s *suggesting) bucket(from, to time.Time) error {
	if to.Sub(from) < time.Hour {
		s.out.Notes = append(s.out.Notes, "no bucket: the calls span less than an hour")
		return nil
	}
	total := int64(0)
	for i := range s.trace.calls {
		total += s.trace.calls[i].charged(s.o.Metric)
	}
	refill := s.amount(int64(float64(total) / to.Sub(from).Hours()))
	shape := budget.Shape{Kind: budget.Bucket, Refill: refill, Per: time.Hour}
	peaks, err := s.trace.peaks(s.trace.steps(), s.o.Metric, shape, time.Hour)
	if err != nil {
		return err
	}
	basis := s.basis(peaks, "stretches of 1h with calls")
	shape.Amount = s.amount(basis.Reached)
	l := budget.Limit{
		ID: s.name("org-bucket"), Subject: budget.Org, Metric: s.o.Metric, Mode: budget.Enforce,
		Shape: shape,
	}
	one := suggestionOf(l, "", basis)
	one.Refill, one.PerS = refill, int64(time.Hour/time.Second)
	return s.add(one, s.trace)
}

func (s *suggesting) windowed(prefix string, subject budget.Subject, user string, w time.Duration,
	basis Basis,
) Suggestion {
	l := budget.Limit{
		ID: s.name(prefix + settings.DurationText(w)), Subject: subject, Metric: s.o.Metric, Mode: budget.Enforce,
		Shape: budget.Shape{Kind: budget.Window, Amount: s.amount(basis.Reached), Window: w},
	}
	one := suggestionOf(l, user, basis)
	one.WindowS = int64(w / time.Second)
	return one
}

func suggestionOf(l budget.Limit, user string, basis Basis) Suggestion {
	return Suggestion{
		Limit: l, Name: l.ID, Subject: l.Subject, User: user, Metric: l.Metric, Amount: l.Shape.Amount, Basis: basis,
		HeldBack: []Line{},
	}
}

func (s *suggesting) basis(sorted []int64, what string) Basis {
	return Basis{Reached: rank(sorted, s.o.Percentile), Most: rank(sorted, 100), Of: len(sorted), What: what}
}

// amount applies the headroom and rounds up to two digits.
func (s *suggesting) amount(reached int64) int64 {
	n := int64(min(max(float64(reached)*s.o.Headroom, 1), budget.MaxAmount/10))
	unit := int64(1)
	for n/unit >= 100 {
		unit *= 10
	}
	return (n + unit - 1) / unit * unit
}

// name returns a name that no other limit of the org has.
func (s *suggesting) name(want string) string {
	if s.o.Metric != budget.Cost {
		want += "-" + string(s.o.Metric)
	}
	org := s.o.Orgs[s.out.Org]
	if org == nil {
		return want
	}
	taken := map[string]bool{}
	note := func(list []budget.Limit) {
		for _, l := range list {
			taken[l.ID] = true
		}
	}
	for list := range org.LimitLists() {
		note(list)
	}
	name := want
	for i := 2; taken[name]; i++ {
		name = fmt.Sprintf("%s-%d", want, i)
	}
	return name
}
