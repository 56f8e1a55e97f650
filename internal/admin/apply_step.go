package admin

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/simulate"
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/wire"
)

// refOf is the record of what a plan names.
func (p *planner) refOf(kind, user, id string) tenants.Ref {
	if kind == "limit" {
		id = tenants.LimitID(user, id)
	}
	return tenants.Ref{Kind: tenants.Kind(kind), Org: p.org, ID: id}
}

// step plans a record with the changed fields in it.
func (p *planner) step(kind, user, id string, there bool, fields []changed) {
	s := planned{PlanChange: PlanChange{Action: "update", Kind: kind, User: user, ID: id, Fields: []PlanField{}}, action: kind + ".update"}
	if !there {
		s.Action, s.action = "create", kind+".create"
	}
	if kind == "limit" {
		s.action = "limit.set"
	}
	values := map[string]stdjson.RawMessage{}
	for _, f := range fields {
		s.Fields = append(s.Fields, f.PlanField)
		values[f.Name] = f.value
	}
	ref := p.refOf(kind, user, id)
	s.target = ref.ID
	var err error
	switch kind {
	case "org":
		err = record(p, &s, ref, func(r *tenants.Org) error {
			r.Stamp = p.stamp(&r.Stamp)
			return put(&r.OrgSpec, values)
		}, nil)
	case "user":
		err = record(p, &s, ref, func(r *tenants.User) error {
			r.Stamp = p.stamp(&r.Stamp)
			return put(&r.UserSpec, values)
		}, nil)
	case "limit":
		err = record(p, &s, ref, func(r *tenants.Limit) error {
			r.Stamp = p.stamp(&r.Stamp)
			reshape(&r.LimitSpec, values)
			return put(&r.LimitSpec, values)
		}, nil)
	case "key":
		err = record(p, &s, ref, func(r *tenants.Key) error {
			r.Stamp, r.User = p.stamp(&r.Stamp), user
			return p.putKey(r, id, there, values)
		}, func(r tenants.Key) any { return bare(r) })
	}
	if err != nil {
		p.fail(err)
		return
	}
	p.steps = append(p.steps, s)
}

// record reads a record, changes it, and makes the step of that. Show leaves out what the audit
// must not have.
func record[T any](p *planner, s *planned, ref tenants.Ref, change func(*T) error, show func(T) any) error {
	if show == nil {
		show = func(r T) any { return r }
	}
	var r T
	old, err := p.o.Tenants.Get(p.r.Context(), ref, &r)
	if err != nil {
		return err
	}
	if old != "" {
		s.before = show(r)
	}
	if err := change(&r); err != nil {
		return err
	}
	s.after, s.change = show(r), tenants.Change{Ref: ref, Old: old, New: r}
	return nil
}

// put sets fields of a specification.
func put(spec any, values map[string]stdjson.RawMessage) error {
	raw, err := stdjson.Marshal(values)
	if err != nil {
		return err
	}
	return stdjson.Unmarshal(raw, spec)
}

// reshape takes the shape out of a record when another one is declared.
func reshape(spec *tenants.LimitSpec, values map[string]stdjson.RawMessage) {
	shapes := []string{"window", "calendar", "bucket"}
	if !slices.ContainsFunc(shapes, func(name string) bool { return values[name] != nil }) {
		return
	}
	if values["window"] == nil {
		spec.Window, spec.Exact = nil, nil
	}
	if values["calendar"] == nil {
		spec.Calendar, spec.TZ = nil, nil
	}
	if values["bucket"] == nil {
		spec.Bucket = nil
	} else {
		spec.Amount = nil
	}
}

// putKey sets fields of a key, and makes the key itself where there is none.
func (p *planner) putKey(r *tenants.Key, id string, there bool, values map[string]stdjson.RawMessage) error {
	if hash := values["hash"]; hash != nil {
		if err := stdjson.Unmarshal(hash, &r.Hash); err != nil {
			return err
		}
		r.Last4, r.Previous, r.PreviousUntil = "", "", time.Time{}
		delete(values, "hash")
	} else if !there {
		var text string
		text, r.Hash = p.fresh(false)
		r.Last4, p.secrets[id] = keys.Last4(text), text
	}
	return put(&r.KeySpec, values)
}

// prune plans to remove what is recorded of the org and not declared. What the file says stays.
func (p *planner) prune(d *Declaration, users map[string]bool) {
	keep := map[string]bool{}
	for _, l := range d.Limits {
		keep["limit "+l.Name] = true
	}
	for _, u := range d.Users {
		for _, k := range u.Keys {
			keep["key "+k.ID] = true
		}
		for _, l := range u.Limits {
			keep["limit "+tenants.LimitID(u.ID, l.Name)] = true
		}
	}
	for _, id := range slices.Sorted(maps.Keys(p.records.Limits)) {
		if !keep["limit "+id] {
			user, name := tenants.SplitLimitID(id)
			p.remove("limit", user, name)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(p.records.Keys)) {
		if !keep["key "+id] {
			p.remove("key", p.records.Keys[id].User, id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(p.records.Users)) {
		if !users[id] {
			p.remove("user", "", id)
		}
	}
}

func (p *planner) remove(kind, user, id string) {
	ref := p.refOf(kind, user, id)
	var before map[string]any
	old, err := p.o.Tenants.Get(p.r.Context(), ref, &before)
	if err != nil {
		p.fail(err)
		return
	}
	for _, secret := range []string{"hash", "previous"} {
		delete(before, secret)
	}
	s := planned{
		PlanChange: PlanChange{Action: "delete", Kind: kind, User: user, ID: id, Fields: []PlanField{}}, action: kind + ".delete", target: ref.ID,
		before: before, change: tenants.Change{Ref: ref, Old: old},
	}
	if kind == "limit" {
		s.action = "limit.unset"
	}
	p.steps = append(p.steps, s)
}

// What a replay may take: so many calls, the newest ones, and so long. One runs at a time.
const (
	replayCalls = 50_000
	replayTime  = 20 * time.Second
	replayDays  = 30
)

// replay runs the last calls of an org under how it is and how it would be.
func (c *call) replay(before, after *settings.Org, days int) (*Replay, error) {
	if c.o.Simulate == nil || before == nil {
		return nil, nil
	}
	if days > replayDays {
		return nil, wire.BadRequest("replay_days", "invalid_value", "replay_days must be at most %d", replayDays)
	}
	select {
	case c.replaying <- struct{}{}:
		defer func() { <-c.replaying }()
	default:
		return nil, wire.RateLimited("Another replay is running; one runs at a time", time.Second)
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), replayTime)
	defer cancel()
	out := &Replay{Days: days, Users: []simulate.Line{}, Shadow: []simulate.ShadowLine{}}
	trace, err := c.lastCalls(ctx, before.ID, out)
	if err != nil || trace.Len() == 0 {
		return out, err
	}
	for _, o := range []*settings.Org{before, after} {
		report, err := c.replayed(ctx, trace, o)
		if errors.Is(err, context.DeadlineExceeded) {
			return nil, wire.BadRequest("replay_days", "too_long", "The replay takes longer than %s. Name fewer days", replayTime)
		}
		if err != nil {
			return nil, err
		}
		if o == before {
			out.Before = report.Total
			continue
		}
		out.After, out.Shadow = report.Total, append(out.Shadow, report.Shadow...)
		for _, l := range report.Lines {
			if l.HeldBackCalls() > 0 {
				out.Users = append(out.Users, l)
			}
		}
	}
	return out, nil
}

// replayed decides the calls with an org in the place of the one of its name.
func (c *call) replayed(ctx context.Context, trace *simulate.Trace, o *settings.Org) (simulate.Report, error) {
	orgs := slices.Clone(c.o.Effective().Orgs)
	for i := range orgs {
		if orgs[i].ID == o.ID {
			orgs[i] = *o
		}
	}
	policy, err := c.o.Simulate(orgs)
	if err != nil {
		return simulate.Report{}, err
	}
	result, err := simulate.Run(ctx, trace, policy, simulate.Options{})
	if err != nil {
		return simulate.Report{}, err
	}
	return result.Report([]string{"user"})
}

// lastCalls reads the newest calls of the days.
func (c *call) lastCalls(ctx context.Context, org string, out *Replay) (*simulate.Trace, error) {
	r, read := simulate.NewReader(), 0
	err := c.o.Budget.Ledger.Recent(ctx, org, c.start.AddDate(0, 0, -out.Days), c.start, func(e budget.Entry) error {
		if read++; read > replayCalls {
			out.Cut = true
			return errEnough
		}
		return r.Entry(e)
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, err
	}
	return r.Trace()
}
