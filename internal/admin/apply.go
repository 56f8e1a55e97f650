package admin

import (
	"slices"

	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/wire"
)

// application is a request to make an org match its declaration.
type application struct {
	Org Declaration `json:"org"`
	// DryRun only plans.
	DryRun bool `json:"dry_run,omitempty"`
	// Prune removes runtime users, keys and limits that are not declared.
	Prune bool `json:"prune,omitempty"`
	// ReplayDays replays the calls of this many days under the current and the declared org; 0:
	// none.
	ReplayDays int    `json:"replay_days,omitempty"`
	Reason     string `json:"reason,omitempty"`
}

// Plan is what an application changes or has changed.
type Plan struct {
	Org     string       `json:"org"`
	Changes []PlanChange `json:"changes"`
	// Warnings are about names and patterns of models that match no known model.
	Warnings []string `json:"warnings"`
	// Keys are the created keys. Their secrets are returned only here.
	Keys   []NewKey `json:"keys"`
	Replay *Replay  `json:"replay"`
}

// PlanChange is the change of one org, user, key or limit.
type PlanChange struct {
	Action string      `json:"action"` // create, update or delete
	Kind   string      `json:"kind"`   // org, user, key or limit
	User   string      `json:"user"`   // the user that the key or limit belongs to
	ID     string      `json:"id"`
	Fields []PlanField `json:"fields"`
}

// PlanField is a field before and after; empty means the default, or no value.
type PlanField struct {
	Name   string `json:"name"`
	Before string `json:"before"`
	After  string `json:"after"`
}

// planned is a change together with the records that make it.
type planned struct {
	PlanChange
	action string // audit action
	target string
	before any
	after  any
	change tenants.Change
}

// planner compares an org with its declaration.
type planner struct {
	h       *declarationHandler
	c       *call
	org     string
	now     *settings.Org // nil if it does not exist
	records *tenants.Tenant
	steps   []planned
	secrets map[string]string // of created keys, by id
	err     error
}

// apply makes an org match its declaration, or plans the changes.
func (h *declarationHandler) apply(c *call) (any, error) {
	n := body[application](c)
	if !n.DryRun && c.actor.readOnly {
		return nil, wire.Forbidden("read_only", "This administrator's key is read-only. Set dry_run")
	}
	org := c.r.PathValue("org")
	if n.Org.ID != org {
		return nil, invalid("org.id", "The declaration is for org %.80q, but the path names %.80q", n.Org.ID, org)
	}
	p := &planner{h: h, c: c, org: org, records: h.dir.records(org), secrets: map[string]string{}}
	if o, _, err := h.dir.org(org); err == nil {
		p.now = o
	}
	if err := p.plan(n); err != nil {
		return nil, err
	}
	plan := &Plan{Org: org, Changes: []PlanChange{}, Warnings: []string{}, Keys: []NewKey{}}
	for _, s := range p.steps {
		plan.Changes = append(plan.Changes, s.PlanChange)
		for _, text := range h.audit.unmatched(s.change) {
			plan.Warnings = append(plan.Warnings, s.Kind+" "+s.ID+": models: "+text)
		}
	}
	merged, err := p.merged()
	if err != nil {
		return nil, err
	}
	if n.ReplayDays > 0 && len(p.steps) > 0 {
		plan.Replay, err = h.replays.replay(c, p.now, merged, n.ReplayDays)
		if err != nil {
			return nil, err
		}
	}
	if n.DryRun || len(p.steps) == 0 {
		return plan, nil
	}
	if done, err := p.commit(plan); err != nil {
		plan.Changes, plan.Replay = plan.Changes[:done], nil
		return partial{plan, err}, nil
	}
	return plan, nil
}

// merged returns the org after the changes, or nil if nothing changes.
func (p *planner) merged() (*settings.Org, error) {
	changes := make([]tenants.Change, 0, len(p.steps))
	for _, s := range p.steps {
		changes = append(changes, s.change)
	}
	if len(changes) == 0 {
		return p.now, nil
	}
	next, err := p.h.opts.Tenants.Snapshot().With(changes...)
	if err != nil {
		return nil, err
	}
	org, err := p.h.opts.Merge(p.org, next.Tenants[p.org])
	if err != nil {
		return nil, invalid("org", "%v", err)
	}
	return org, nil
}

// commit makes the changes. Each has its own audit entry, like a single change.
func (p *planner) commit(plan *Plan) (done int, err error) {
	defer p.h.opts.Applied()
	for i, s := range p.steps {
		e := p.c.newEntry(s.action, p.org, s.target)
		e.Before, err = shown(s.before)
		if err != nil {
			return i, err
		}
		e.After, err = shown(s.after)
		if err != nil {
			return i, err
		}
		if err := p.h.opts.Tenants.Commit(p.c.r.Context(), e, s.change); err != nil {
			return i, err
		}
		p.c.logEntry(e)
		if secret := p.secrets[s.ID]; secret != "" && plan.Changes[i].Kind == "key" {
			plan.Keys = append(plan.Keys, NewKey{Key{ID: s.ID, Org: p.org, User: s.User, Status: "active"}, secret})
		}
	}
	return len(p.steps), nil
}

// plan determines the steps. Things that others refer to are created first and removed last.
func (p *planner) plan(n *application) error {
	d := &n.Org
	usual := p.h.opts.NewOrg(d.ID)
	now := usual
	if p.now != nil {
		now = *p.now
	}
	org := thing{kind: "org", id: d.ID, there: p.now != nil}
	object(p, org, state[settings.Org]{&now, settings.Changed(&now, &usual), d.Fields},
		func(r *tenants.Org, set settings.Fields[settings.Org]) {
			r.Fields = r.Fields.Patch(set)
		})
	for _, g := range d.Groups {
		p.limits(&now, settings.Owner("group", g.ID), g.Limits)
	}
	for _, one := range d.Plans {
		p.limits(&now, settings.Owner("plan", one.ID), one.Limits)
	}
	users := map[string]bool{}
	for i := range d.Users {
		users[d.Users[i].ID] = true
		p.user(&now, &d.Users[i])
	}
	p.limits(&now, "", d.Limits)
	for i := range d.Users {
		p.limits(&now, d.Users[i].ID, d.Users[i].Limits)
	}
	if n.Prune && p.err == nil {
		p.prune(d, users)
	}
	for i := range d.Users { // last: no key may work before its limits apply, and the response should follow soon after
		for k := range d.Users[i].Keys {
			p.key(&now, d.Users[i].ID, &d.Users[i].Keys[k])
		}
	}
	return p.err
}

func (p *planner) user(now *settings.Org, d *DeclaredUser) {
	usual := p.h.opts.NewUser(d.ID)
	u, there := &usual, false
	if known := now.User(d.ID); known != nil {
		u, there = known, true
	}
	object(p, thing{kind: "user", id: d.ID, there: there},
		state[settings.User]{u, settings.Changed(u, &usual), d.Fields},
		func(r *tenants.User, set settings.Fields[settings.User]) {
			r.Fields = r.Fields.Patch(set)
		})
}

func (p *planner) key(now *settings.Org, user string, d *DeclaredKey) {
	k, owner := settings.Key{ID: d.ID}, ""
	for _, u := range now.Users {
		if i := slices.IndexFunc(u.Keys, func(k settings.Key) bool { return k.ID == d.ID }); i >= 0 {
			k, owner = u.Keys[i], u.ID
		}
	}
	if owner != "" && owner != user {
		p.fail(invalid("keys", "The key %s belongs to user %s, but is declared for user %s", d.ID, owner, user))
		return
	}
	of := thing{kind: "key", user: user, id: d.ID, there: owner != ""}
	of.hash = d.Hash != nil && (owner == "" || *d.Hash != k.Hash)
	object(p, of, state[settings.Key]{&k, settings.Changed(&k, &settings.Key{}), d.Fields},
		func(r *tenants.Key, set settings.Fields[settings.Key]) {
			r.Fields, r.User = r.Fields.Patch(set), user
			p.hash(r, of, d.Hash)
		})
}

// listOf returns the limits of an owner (settings.Owner) in an org, and those that they replace.
func (p *planner) listOf(now *settings.Org, owner string) (own, above []settings.Limit) {
	var user *settings.User
	switch kind, id := settings.SplitOwner(owner); kind {
	case "group":
		if g := now.Group(id); g != nil {
			own = g.Limits
		}
	case "plan":
		if i := slices.IndexFunc(now.Plans, func(p settings.Plan) bool { return p.ID == id }); i >= 0 {
			own = now.Plans[i].Limits
		}
	case "user":
		user = now.User(id)
		if user != nil {
			own = user.Limits
		}
	default:
		own = now.Limits
	}
	return own, p.h.opts.Effective().Defaults.Above(now, owner, user)
}

func (p *planner) limits(now *settings.Org, owner string, list []DeclaredLimit) {
	own, above := p.listOf(now, owner)
	for _, d := range list {
		same := func(l settings.Limit) bool { return l.Name == d.Name }
		l := p.h.opts.NewLimit(owner, d.Name)
		i := slices.IndexFunc(own, same)
		over := slices.IndexFunc(above, same)
		switch {
		case i >= 0:
			l = own[i]
		case over >= 0: // a user's limit is stored on top of it
			l = above[over]
			if kind, id := settings.SplitOwner(owner); kind == "user" {
				l.Only = id
			}
			if set, err := changes(p, &l, d.Fields); err == nil && len(set) == 0 {
				continue
			}
		}
		object(p, thing{kind: "limit", user: owner, id: d.Name, there: i >= 0},
			state[settings.Limit]{&l, p.h.limitFields(owner, &l), d.Fields},
			func(r *tenants.Limit, set settings.Fields[settings.Limit]) {
				reshape(r.Fields, set)
				r.Fields = r.Fields.Patch(set)
			})
	}
}

func (p *planner) fail(err error) {
	if p.err == nil {
		p.err = err
	}
}
