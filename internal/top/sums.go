package top

import (
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
)

const sparkSteps = int(Span / SparkStep)

// adding adds the recent calls of an org to a snapshot.
type adding struct {
	from   *Source
	snap   *Snapshot
	org    *Spender
	users  map[string]*Spender
	groups map[string]*Spender
}

func newSpender(org string) *Spender {
	return &Spender{Org: org, Limits: []Limit{}, Spark: make([]int64, sparkSteps)}
}

// addTo adds an org, its users and its groups to a snapshot.
func (o *orgState) addTo(snap *Snapshot, id string, from *Source) {
	a := &adding{from: from, snap: snap, org: newSpender(id), users: map[string]*Spender{}, groups: map[string]*Spender{}}
	for i := range o.recent {
		e := &o.recent[i]
		e.Org = id
		if from.Filter.Fits(e) {
			a.entry(e)
		}
	}
	filtered := !from.Filter.Empty()
	for name, cost := range o.today(snap.At) {
		if u := a.user(name, !filtered); u != nil {
			u.Today = cost
		}
		a.org.Today += cost
	}
	all := refusals{}
	for name, by := range o.refused {
		if u := a.user(name, !filtered); u != nil {
			u.Refused, u.RefusedBy = by.sum()
		}
		for cause, n := range by {
			all[cause] += n
		}
	}
	a.org.Refused, a.org.RefusedBy = all.sum()
	snap.Today += a.org.Today
	snap.Partial = snap.Partial || o.partial
	if filtered && len(a.users) == 0 {
		return
	}
	snap.Calls += a.org.Calls
	snap.Cost += a.org.Cost
	snap.Orgs = append(snap.Orgs, *a.org)
	for _, u := range a.users {
		snap.Users = append(snap.Users, *u)
	}
	for _, g := range a.groups {
		snap.Groups = append(snap.Groups, *g)
	}
}

// user returns a user of the org, which is added if it is new, or nil.
func (a *adding) user(name string, added bool) *Spender {
	u := a.users[name]
	if u == nil && added {
		u = newSpender(a.org.Org)
		u.User = name
		a.users[name] = u
	}
	return u
}

// group returns the group of a call.
func (a *adding) group(c *ledger.Call) *Spender {
	value := a.from.By.Of(c)
	g := a.groups[value]
	if g == nil {
		g = newSpender(a.org.Org)
		g.Value, g.call = value, *c
		a.groups[value] = g
	}
	return g
}

func (a *adding) entry(e *ledger.Entry) {
	step := sparkSteps - 1 - max(min(int(a.snap.At.Sub(e.At)/SparkStep), sparkSteps-1), 0)
	all := []*Spender{a.org, a.user(e.User, true), a.group(&e.Call)}
	for _, one := range all {
		one.Cost += e.Cost
		one.Spark[step] += int64(e.Cost)
	}
	calls := e.Sums().Calls
	for _, one := range all {
		one.Calls += calls
	}
	if e.Kind != ledger.KindSettle && e.Kind != ledger.KindExpire {
		return // a correction of a call that was counted
	}
	for _, one := range all {
		if e.Status >= 400 {
			one.Failed++
		}
	}
	a.snap.Slow = append(a.snap.Slow, Ended{
		Call: e.ID, At: e.At.UTC(), Org: a.org.Org, User: e.User, Model: e.Model, Outcome: e.Outcome, Status: e.Status,
		Waited: time.Duration(e.WaitedMS) * time.Millisecond, Took: time.Duration(e.TookMS) * time.Millisecond, Cost: e.Cost,
		Run: string(e.Run), Labels: e.Labels,
	})
}
