package admin

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/internal/storage/files"
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/queue"
)

// cause is a cause of refusals that was found. now says what it does at present.
func (h *whyHandler) cause(c *call, of budget.Cause, now func(*Why) (string, error)) *Why {
	w := &Why{of: of}
	w.explain = func() error {
		text, err := now(w)
		if err == nil {
			err = h.explainCause(c, w, text)
		}
		return err
	}
	return w
}

// explainCause explains whom a cause refuses and delays now, and did lately.
func (h *whyHandler) explainCause(c *call, w *Why, now string) error {
	f := budget.RefusalFilter{Cause: string(w.of)}
	if err := h.complete(c, w, f); err != nil {
		return err
	}
	if len(w.full()) > 0 {
		w.Cause = w.of
	}
	lately, _, err := h.lately(c, w, f)
	if err != nil {
		return err
	}
	if lately == "" && now == "" {
		now = "No calls were refused or delayed by " + w.of.Title() + " in the last hour."
	}
	w.Reason = strings.TrimSpace(now + " " + lately)
	waiting, err := h.queued(c, w.Org, func(j *queue.Job) bool { return j.Cause == w.of })
	if len(waiting) > 0 {
		w.Reason += fmt.Sprintf(" %s last waited for it.", figures.Plural(int64(len(waiting)), "job"))
	}
	return err
}

// findLimit finds a limit of an org by its name.
func (h *whyHandler) findLimit(c *call, org, id string) (*Why, error) {
	in := h.opts.Policy().Orgs[org]
	if in == nil {
		return nil, nil
	}
	for list := range in.LimitLists() {
		if slices.ContainsFunc(list, func(l budget.Limit) bool { return l.ID == id && l.Mode != budget.Off }) {
			return h.cause(c, budget.NewCause(budget.CauseLimit, id), func(w *Why) (string, error) {
				return "", h.ofMostRefused(c, w, in)
			}), nil
		}
	}
	return nil, nil
}

// ofMostRefused sets how the caller that the limit refuses most uses it, or the org if it refuses none.
func (h *whyHandler) ofMostRefused(c *call, w *Why, in *guard.Org) error {
	list, err := h.usage.refusals(c, []string{w.Org}, lastDay(c, budget.RefusalFilter{Cause: string(w.of)}), byKey)
	w.who = ledger.Call{Org: w.Org}
	if len(list) > 0 {
		w.who.User, w.who.Key = list[0].User, list[0].Key
	}
	w.limits = slices.DeleteFunc(slices.Clone(in.LimitsFor(w.who.User, w.who.Key)), func(l budget.Limit) bool {
		return l.ID != w.of.Name() || !l.Tells(w.who)
	})
	return err
}

// findBrake finds a brake by its name, or by name:subject, or by a subject for which it fired.
func (h *whyHandler) findBrake(c *call, org, id string) (*Why, error) {
	name, subject, _ := strings.Cut(id, ":")
	var fired []*tenants.Brake
	for _, b := range h.opts.Tenants.Snapshot().Brakes[org] {
		of := strings.ReplaceAll(guard.BrakeSubject(budget.Subject(b.Subject), b.Value), ", ", ",")
		if b.Counts(c.start) && (of == id || b.Brake == name && (subject == "" || subject == of)) {
			fired = append(fired, b)
		}
	}
	if len(fired) == 0 && (&brakeHandler{h.base}).configured(org, name) == nil {
		return nil, nil
	}
	slices.SortFunc(fired, func(a, b *tenants.Brake) int { return b.Updated.Compare(a.Updated) })
	if len(fired) > 0 {
		name = fired[0].Brake
	}
	cause := budget.NewCause(budget.CauseBrake, name)
	w := h.cause(c, cause, func(w *Why) (string, error) { return w.stops(c, fired), nil })
	w.fired = slices.ContainsFunc(fired, func(b *tenants.Brake) bool { return b.Fired(c.start) })
	return w, nil
}

// stops says whom a brake stops, and sets the commands that release them.
func (w *Why) stops(c *call, fired []*tenants.Brake) string {
	w.who = ledger.Call{Org: w.Org}
	reasons := []string{}
	for _, b := range fired {
		v := viewBrake(w.Org, b)
		if !b.Fired(c.start) || !budget.Action(b.Action).Refuses() {
			reasons = append(reasons, fmt.Sprintf("It is %s for %s.", v.Action, v.Subject))
			continue
		}
		o := firedObstacle(w.Org, b)
		w.Cause = o.cause
		reasons = slices.Insert(reasons, 0, o.reason)
		w.Commands = append(w.Commands, o.command)
	}
	if len(fired) == 0 {
		return "The brake " + w.of.Name() + " stops nothing now."
	}
	return strings.Join(reasons, " ")
}

// findShared returns a function that finds what can refuse calls of several orgs.
func findShared(kind string) func(*whyHandler, *call, string, string) (*Why, error) {
	return func(h *whyHandler, c *call, _, name string) (*Why, error) {
		w := h.cause(c, budget.NewCause(kind, name), func(w *Why) (string, error) { return h.poolNow(c, w) })
		known, err := h.knows(c, w)
		if !known || err != nil {
			return nil, err
		}
		return w, nil
	}
}

// knows reports whether a cause exists, and sets its spend caps.
func (h *whyHandler) knows(c *call, w *Why) (bool, error) {
	p, name := h.opts.Policy(), w.of.Name()
	switch w.of.Kind() {
	case budget.CauseCap:
		for _, spend := range p.Caps {
			spend.Limits = slices.DeleteFunc(slices.Clone(spend.Limits), func(l budget.Limit) bool { return l.ID != name })
			if len(spend.Limits) > 0 {
				w.caps = append(w.caps, spend)
			}
		}
		return len(w.caps) > 0, nil
	case budget.CauseRequests:
		return slices.ContainsFunc(p.RequestLimits, func(l guard.RequestLimit) bool { return l.ID == name }), nil
	case budget.CauseProvider:
		return p.Providers.Get(name) != nil, nil
	case budget.CausePool:
		q, err := h.jobs.queue(c)
		return err == nil && slices.ContainsFunc(q.Pools(), func(p queue.Pool) bool { return p.ID == name }), err
	}
	list, err := h.usage.refusals(c, h.dir.orgsOf(""), lastDay(c, budget.RefusalFilter{Cause: string(w.of)}), byCause)
	return len(list) > 0, err
}

// poolNow says how full the pool is that w explains, if it is one, and sets the command that resumes it.
func (h *whyHandler) poolNow(c *call, w *Why) (string, error) {
	pool := w.of.Name()
	if w.of.Kind() != budget.CausePool {
		return "", nil
	}
	q, err := h.jobs.queue(c)
	if err != nil {
		return "", err
	}
	d, err := q.Depth(c.r.Context(), pool)
	if d.Paused {
		w.Cause, w.Commands = w.of, append(w.Commands, "llmguard queue resume "+pool)
		return w.about + "Pool " + pool + " is paused.", err
	}
	return fmt.Sprintf("%sPool %s has %s.%s", w.about, pool, figures.Plural(d.Jobs, "unfinished job"), tightest(d)), err
}

// tightest describes the quota of a pool that is used most.
func tightest(d queue.Depth) string {
	full := d.Rates.Fullest()
	if full.Limit == 0 {
		return ""
	}
	return fmt.Sprintf(" Its tightest quota is %s: %d of %d used in the last minute.", full.Name, full.Used, full.Limit)
}

// findModel finds a model that has a price, and explains its pool.
func (h *whyHandler) findModel(c *call, _, id string) (*Why, error) {
	p := h.opts.Policy()
	t, err := p.Providers.Resolve(id, nil)
	if err != nil {
		return nil, nil
	}
	if _, err := p.Catalogue.Lookup(t.Provider.ID, t.Model, c.start); err != nil {
		return nil, nil
	}
	w := h.cause(c, budget.NewCause(budget.CausePool, t.Pool), func(w *Why) (string, error) { return h.poolNow(c, w) })
	w.about = "Calls of " + id + " go to the provider " + t.Provider.ID + ". "
	return w, nil
}

// findRequest finds a caller's request for more of a limit.
func (h *whyHandler) findRequest(c *call, org, id string) (*Why, error) {
	r := h.opts.Tenants.Snapshot().RaiseRequest(id)
	if r == nil || r.Org != org {
		return nil, nil
	}
	v := viewLimitRequest(r, c.start)
	about := fmt.Sprintf("The request for %s more of the limit %s until %s is %s.", v.Amount, v.Limit,
		figures.Minute(v.Until), v.Status)
	w, err := h.owned(c, r.User, about)
	explain := w.explain
	w.explain = func() error {
		err := explain()
		if v.Status == string(tenants.RaisePending) {
			w.Commands = append(w.Commands, "llmguard limits requests approve "+id)
		}
		return err
	}
	return w, err
}

// findEvent finds an event that no webhook has received.
func (h *whyHandler) findEvent(c *call, _, id string) (*Why, error) {
	if h.opts.Webhooks == nil {
		return nil, nil
	}
	hooks, err := h.opts.Webhooks()
	if err != nil {
		return nil, err
	}
	list, err := (&webhookHandler{h.base}).listDeadWebhooks(c, hooks)
	if err != nil {
		return nil, err
	}
	for _, d := range list.(deadPage).Data {
		if d.Event == id || d.ID == id {
			return found("", "", func(w *Why) error {
				w.Reason = fmt.Sprintf("The event %s of %s was not delivered to %s (%s).", d.Type, d.Object, d.Host, d.Reason)
				w.Commands = append(w.Commands, "llmguard webhooks replay "+d.ID)
				return nil
			})
		}
	}
	return nil, nil
}

// findObject finds a file, or something that a provider stores, and explains the calls of the user who made it.
func (h *whyHandler) findObject(c *call, org, id string) (*Why, error) {
	notes, err := h.opts.Ownership.Look(c.r.Context(), org, id)
	if err != nil {
		return nil, err
	}
	n, known := notes[id]
	if n.Response != "" {
		if w, err := h.findUpstream(c, org, n.Response); w != nil || err != nil {
			return w, err
		}
	}
	if known {
		return h.owned(c, n.User, fmt.Sprintf("The %s at %s belongs to user %s.", n.Is().Words(), n.Provider, n.User))
	}
	f, err := h.opts.Files.Find(c.r.Context(), org, id)
	if errors.Is(err, files.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return h.owned(c, f.User, fmt.Sprintf("The file %.80q belongs to user %s (%s, purpose %s) and is stored until %s.",
		f.Name, f.User, figures.Plural(f.Bytes, "byte"), f.Purpose, figures.Minute(f.Expires)))
}

// owned is something that has no refusals of its own, and explains the calls of its user.
func (h *whyHandler) owned(c *call, user, about string) (*Why, error) {
	w, err := h.caller(c, user, "")
	w.about = about
	return w, err
}
