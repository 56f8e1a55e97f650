package top

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/guard"
)

const (
	endsAge  = 10 * time.Second       // minimum age of forecasts of an org before they are made again
	endsTime = 200 * time.Millisecond // of a sample for forecasts, as far as the next org does not exceed it
)

// ends are when limits of an org are used up, by limit and subject, as forecast last.
type ends struct {
	at   map[string]time.Time
	next time.Time // when they may be forecast again
}

// limits reads the state of the orgs' own limits, and of those of the users and groups with the highest
// cost.
func (s *Sampler) limits(ctx context.Context, from *Source, snap *Snapshot, user string) error {
	shown := map[string][]*Spender{}
	show := func(list []Spender, most int) {
		for i := range list {
			one := &list[i]
			if from.Orgs[one.Org] != nil && (i < most || user != "" && one.Org+"/"+one.User == user) {
				shown[one.Org] = append(shown[one.Org], one)
			}
		}
	}
	show(snap.Orgs, maxPeeked)
	show(snap.Users, maxUsers)
	show(snap.Groups, maxUsers)
	began := s.now()
	for _, org := range s.byAge(shown) {
		burns, err := s.burns(ctx, org, began)
		if err != nil {
			return err
		}
		for _, one := range shown[org] {
			at := standing{s, from.Orgs[org], burns, &s.states[org].ends}
			one.Limits, err = at.of(ctx, one, from.By)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// byAge returns the orgs, those without forecasts for the longest time first.
func (s *Sampler) byAge(shown map[string][]*Spender) []string {
	out := make([]string, 0, len(shown))
	for org := range shown {
		out = append(out, org)
	}
	slices.SortFunc(out, func(a, b string) int {
		return cmp.Or(s.states[a].ends.next.Compare(s.states[b].ends.next), cmp.Compare(shown[b][0].Cost, shown[a][0].Cost),
			cmp.Compare(a, b))
	})
	return out
}

// burns reads the recent entries of an org if its forecasts are due; otherwise it returns nil.
func (s *Sampler) burns(ctx context.Context, org string, began time.Time) (*budget.Burns, error) {
	state, now := s.states[org], s.now()
	if now.Before(state.ends.next) || now.Sub(began) > endsTime {
		return nil, nil
	}
	b, err := s.books.Burns(ctx, org, now)
	if err != nil {
		return nil, err
	}
	// Reading a large org must not keep Redis busy.
	state.ends = ends{map[string]time.Time{}, now.Add(max(endsAge, 10*s.now().Sub(now)))}
	return b, nil
}

// standing reads the states of limits of an org, and forecasts them if burns is not nil.
type standing struct {
	*Sampler
	org   *guard.Org
	burns *budget.Burns
	ends  *ends
}

// of returns the limits that count an org, a user or a group separately, fullest first.
func (s standing) of(ctx context.Context, one *Spender, by ledger.Dimension) ([]Limit, error) {
	call := one.call
	switch {
	case call.ID == "" && one.User == "":
		return s.read(ctx, s.org.Limits, ledger.Call{Org: one.Org}, budget.Org)
	case call.ID == "":
		return s.read(ctx, s.org.LimitsFor(one.User, ""), ledger.Call{Org: one.Org, User: one.User}, budget.User)
	case by.Name == ledger.Run:
		return s.run(ctx, one)
	case by.Name == "key":
		return s.read(ctx, s.org.LimitsFor(call.User, call.Key), call, budget.Key)
	case by.Label() != "" && one.Value != "":
		return s.read(ctx, s.org.Limits, call, budget.Subject(by.Label()))
	}
	return []Limit{}, nil
}

// run returns the budget of a run, and sets its name.
func (s standing) run(ctx context.Context, one *Spender) ([]Limit, error) {
	if one.Value == "" {
		return []Limit{}, nil
	}
	runs, err := s.books.Runs.Existing(ctx, one.Org, ledger.RunPath(one.Value).ID())
	if err != nil || len(runs) == 0 { // it ended too long ago
		return []Limit{}, err
	}
	one.Name = runs[0].Name
	return s.read(ctx, runs[0].Limits()[:1], ledger.Call{Org: one.Org}, budget.RunBudget)
}

// read returns the state of the limits of one kind of subject.
func (s standing) read(
	ctx context.Context, limits []budget.Limit, call ledger.Call, of budget.Subject,
) ([]Limit, error) {
	var asked []budget.Limit
	for _, l := range limits {
		member := of == budget.User && l.Subject == budget.UserGroup && l.Only != ""
		if (l.Subject == of || member) && (of == budget.RunBudget || l.Counts(call)) {
			asked = append(asked, l)
		}
	}
	out := []Limit{}
	if len(asked) == 0 {
		return out, nil
	}
	states, err := s.books.Peek(ctx, asked, call)
	if err != nil {
		return nil, err
	}
	for i := range states {
		st := &states[i]
		l := Limit{
			Name: st.LimitID, Metric: string(st.Metric), Mode: string(cmp.Or(st.Mode, budget.Enforce)), Used: st.Used,
			Held: st.Held, Amount: st.Amount, Reset: ending(st.Reset),
		}
		at := slices.IndexFunc(asked, func(one budget.Limit) bool { return one.ID == st.LimitID && one.Metric == st.Metric })
		if at >= 0 {
			l.UsedUp = s.usedUp(&asked[at], st, call)
		}
		out = append(out, l)
	}
	slices.SortStableFunc(out, func(a, b Limit) int { return cmp.Compare(b.Share(), a.Share()) })
	return out, nil
}

// usedUp returns in what time a limit is used up, or nil.
func (s standing) usedUp(l *budget.Limit, st *budget.Status, call ledger.Call) *time.Duration {
	now := s.now()
	name := strings.Join([]string{l.ID, string(l.Subject), string(l.Metric), l.Only, l.Subject.ID(call)}, " ")
	if s.burns != nil {
		f := s.burns.Forecast(l, st, call)
		if f.Known {
			s.ends.at[name] = now.Add(f.UsedUp)
		}
	}
	at, known := s.ends.at[name]
	if !known {
		return nil
	}
	left := max(at.Sub(now), 0)
	return &left
}

// ending returns a duration, or nil if it is endless.
func ending(d time.Duration) *time.Duration {
	if d >= budget.Endless {
		return nil
	}
	return &d
}
