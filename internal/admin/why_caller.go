package admin

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/queue"
)

// obstacle refuses all calls of a caller, whatever its limits have left.
type obstacle struct {
	cause           budget.Cause // empty: something is disabled or has expired
	reason, command string
}

// obstacle returns what refuses the calls of w.who now, apart from limits; nil: nothing.
func (h *whyHandler) obstacle(c *call, w *Why) *obstacle {
	for _, find := range []func(*call, *Why) *obstacle{h.disabled, h.stopped, h.braked} {
		if o := find(c, w); o != nil {
			return o
		}
	}
	return w.ended
}

// endedObstacle says that a run has ended, and how another begins.
func endedObstacle(run *budget.Run) *obstacle {
	return &obstacle{
		cause:  budget.NewCause(budget.CauseRun, budget.RunEnded),
		reason: "The run " + run.ID() + " ended at " + figures.Second(cmp.Or(run.Ended, run.Expires)) + ".",
		command: "llmguard keys child --org " + run.Org + " --parent " + run.Key + " --amount " +
			ShellWord(dollars(int64(run.Amount))),
	}
}

func (h *whyHandler) disabled(c *call, w *Why) *obstacle {
	o, u, k, err := h.dir.caller(w.Org, w.who.User, w.who.Key)
	in := " --org " + w.Org
	switch {
	case err != nil:
		return nil
	case o.Disabled:
		return &obstacle{reason: "The org " + o.ID + " is disabled.", command: "llmguard orgs enable " + o.ID}
	case u != nil && u.Disabled:
		return &obstacle{reason: "The user " + u.ID + " is disabled.", command: "llmguard users enable " + u.ID + in}
	case k != nil && k.Disabled:
		return &obstacle{reason: "The key " + k.ID + " is disabled.", command: "llmguard keys enable " + k.ID + in}
	case k != nil && !k.Expires.IsZero() && !c.start.Before(k.Expires):
		return &obstacle{
			reason:  "The key " + k.ID + " expired at " + figures.Minute(k.Expires) + ".",
			command: "llmguard keys update " + k.ID + in + " --expires 90d",
		}
	}
	return nil
}

// stopOf returns the stop of an org, or of all; nil: its spending is not stopped.
func (h *whyHandler) stopOf(org string) *Stop {
	stops := h.opts.Tenants.Snapshot().Stops
	if h.opts.Policy().Stopped {
		return &Stop{Org: everyOrg, Source: "file"}
	}
	for _, id := range []string{tenants.AllOrgs, org} {
		if s := stops[id]; s != nil {
			v := viewStop(id, s)
			return &v
		}
	}
	return nil
}

func (h *whyHandler) stopped(_ *call, w *Why) *obstacle {
	s := h.stopOf(w.Org)
	if s == nil {
		return nil
	}
	o := obstacle{cause: budget.NewCause(budget.CauseStop, s.Org), command: "llmguard resume --org " + s.Org}
	if s.Org == everyOrg {
		o.command = "llmguard resume"
	}
	if s.Since == nil {
		o.reason = "All spending is stopped by kill_switch in the configuration file. Change it there, then reload."
		o.command = "llmguard config reload"
		return &o
	}
	what := "The spending of org " + s.Org
	if s.Org == everyOrg {
		what = "All spending"
	}
	o.reason = fmt.Sprintf("%s is stopped since %s by %s%s.", what, figures.Second(*s.Since), s.By, because(s.Reason))
	return &o
}

// because adds the reason that an administrator gave.
func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + strings.TrimSuffix(reason, ".")
}

func (h *whyHandler) braked(c *call, w *Why) *obstacle {
	snap := h.opts.Tenants.Snapshot()
	for _, b := range snap.Brakes[w.Org] {
		if b.Fired(c.start) && budget.Action(b.Action).Refuses() && w.isOf(budget.Subject(b.Subject), b.Value) {
			return firedObstacle(w.Org, b)
		}
	}
	return nil
}

// isOf reports whether a brake's subject concerns w: the call's own or, of a caller, one that names it.
func (w *Why) isOf(s budget.Subject, value string) bool {
	if w.who.Model != "" { // a call
		return s.ID(w.who) == value
	}
	names := false
	values := strings.Split(value, ",")
	for i, part := range s.Parts() {
		id := budget.Subject(part).ID(w.who)
		if i >= len(values) || id != "" && id != values[i] {
			return false
		}
		names = names || id != ""
	}
	return names
}

func firedObstacle(org string, b *tenants.Brake) *obstacle {
	v := viewBrake(org, b)
	until := " until it is released"
	if v.Until != nil {
		until = " until " + figures.Second(*v.Until)
	}
	does := "stops"
	if b.Action == string(budget.BrakeAsk) {
		does = "asks for approval of"
	}
	return &obstacle{
		cause: budget.NewCause(budget.CauseBrake, b.Brake),
		reason: fmt.Sprintf("The brake %s %s the calls of %s since %s%s%s.", b.Brake, does, v.Subject,
			figures.Second(v.Since), until, because(cmp.Or(v.Why, v.Reason))),
		command: "llmguard brakes release --org " + org + " --brake " + b.Brake + " " +
			ShellWord(strings.ReplaceAll(v.Subject, ", ", ",")) + " --reason " + ShellWord("let "+v.Subject+" continue"),
	}
}

// explainCaller explains an org, a user, a key or a run.
func (h *whyHandler) explainCaller(c *call, w *Why) error {
	in := h.opts.Policy().Orgs[w.Org]
	if in == nil {
		w.Reason = "The org is not in effect yet. Repeat this in a second."
		return nil
	}
	w.who.Org, w.who.User, w.who.Key = w.Org, w.User, w.Key
	w.caps = h.opts.Policy().Caps
	for _, l := range in.LimitsFor(w.User, w.Key) {
		if l.Mode != budget.Off && l.Tells(w.who) {
			w.limits = append(w.limits, l)
		}
	}
	if err := h.addRuns(c, w); err != nil {
		return err
	}
	if err := h.complete(c, w, w.ofCaller()); err != nil {
		return err
	}
	jobs, err := h.queued(c, w.Org, func(j *queue.Job) bool {
		return (w.User == "" || w.User == j.User) && (w.Key == "" || w.Key == j.Key) && j.Run.Within(w.who.Run)
	})
	if err != nil {
		return err
	}
	lately, cause, err := h.lately(c, w.Org, w.ofCaller())
	if err != nil {
		return err
	}
	o, full := h.obstacle(c, w), w.full()
	switch {
	case o != nil:
		w.stands(o)
	case len(full) > 0:
		w.Cause, w.Reason = w.Limits[0].cause(), "There is no capacity left in "+strings.Join(full, ", ")+"."
	case len(jobs) > 0:
		w.Reason = "A job of this " + w.Kind + " is waiting: " + jobs[0].ID + "."
	case lately != "":
		w.Reason = w.since(cause)
	default:
		w.Reason = "Nothing refuses or delays the calls of this " + w.Kind + ": " + w.nearest()
	}
	w.Reason = strings.TrimSpace(w.Reason + " " + lately)
	if len(jobs) > 0 && len(w.Commands) == 0 {
		w.Commands = append(w.Commands, "llmguard why "+jobs[0].ID)
	}
	return nil
}

// since says what calls can do now if a cause refused some lately, and nothing refuses all of them now.
func (w *Why) since(cause budget.Cause) string {
	l := w.binding(cause)
	if l == nil || l.limit.Metric != budget.Cost && l.limit.Metric != budget.Tokens {
		return "Nothing refuses it now."
	}
	return fmt.Sprintf("Nothing refuses it now, but calls that need more than %s are over %s.",
		quantityOf(l.limit.Metric, l.Remaining), l.title())
}

// stands makes an obstacle the reason.
func (w *Why) stands(o *obstacle) {
	w.Cause, w.Reason, w.Commands = o.cause, o.reason, []string{o.command}
}

// nearest describes the limit that has the smallest share left.
func (w *Why) nearest() string {
	var l *WhyLimit
	for i := range w.Limits {
		one := &w.Limits[i]
		if one.Amount > 0 && (l == nil || one.Used*100/one.Amount > l.Used*100/l.Amount) {
			l = one
		}
	}
	if l == nil {
		return "no limit applies."
	}
	return fmt.Sprintf("the fullest is %s, %d%% used.", l.title(), l.Used*100/l.Amount)
}

// lately describes the cause that refused or delayed most calls in this UTC hour and the one before.
func (h *whyHandler) lately(c *call, org string, f budget.RefusalFilter) (text string, cause budget.Cause, err error) {
	f.From, f.To = c.start.Add(-time.Hour), c.start.Add(time.Hour)
	list, err := h.usage.refusalsOf(c, org, f, false)
	if err != nil || len(list) == 0 {
		return "", "", err
	}
	most := slices.MaxFunc(list, func(a, b Refusal) int {
		return cmp.Or(cmp.Compare(a.Refused, b.Refused), cmp.Compare(a.Waited, b.Waited), a.Last.Compare(b.Last),
			strings.Compare(string(a.Cause), string(b.Cause)), strings.Compare(a.Key, b.Key))
	})
	for _, one := range list {
		if one.Cause != most.Cause || one.User == most.User && one.Key == most.Key {
			continue
		}
		most.Refused, most.Waited = most.Refused+one.Refused, most.Waited+one.Waited
		most.First = earlier(most.First, one.First)
		if one.Last.After(most.Last) {
			most.Last = one.Last
		}
	}
	did, n := "refused", most.Refused
	if n == 0 {
		did, n = "delayed", most.Waited
	}
	when := "At " + figures.Clock(most.First)
	if most.Last.Sub(most.First) >= time.Second {
		when = "Between " + figures.Cell(figures.Clock(most.First)) + " and " + figures.Clock(most.Last)
	}
	text = fmt.Sprintf("%s, %s %s %s.", when, most.Cause.Title(), did, figures.Plural(n, "call"))
	return text, most.Cause, nil
}

// maxQueued is how many of an org's waiting jobs are read.
const maxQueued = 1000

// queued returns those of the newest maxQueued waiting jobs of an org that are picked, newest first.
func (h *whyHandler) queued(c *call, org string, pick func(*queue.Job) bool) ([]*queue.Job, error) {
	q, err := h.jobs.queue(c)
	if err != nil {
		return nil, err
	}
	page, err := q.List(c.r.Context(), org, queue.Filter{State: queue.Queued}, "", maxQueued)
	return slices.DeleteFunc(page.Jobs, func(j *queue.Job) bool { return !pick(j) }), err
}

// explainRun explains a run as its caller, and says what it spent.
func (h *whyHandler) explainRun(c *call, w *Why, o *guard.Org, run budget.Run) error {
	uses, err := h.runs.runs.Uses(c.r.Context(), o, []budget.Run{run})
	if err != nil {
		return err
	}
	w.who.Run = run.Path
	w.who.Labels, err = ledger.NewLabels(run.Labels)
	if err != nil {
		return err
	}
	if err := h.explainCaller(c, w); err != nil {
		return err
	}
	w.Reason += fmt.Sprintf(" It spent %s of %s.", figures.USD(uses[0].Spent), figures.USD(run.Amount))
	return nil
}

// findLimit finds a limit of an org by its name.
func (h *whyHandler) findLimit(c *call, org, id string) (*Why, error) {
	in := h.opts.Policy().Orgs[org]
	if in == nil {
		return nil, nil
	}
	for list := range in.LimitLists() {
		at := slices.IndexFunc(list, func(l budget.Limit) bool { return l.ID == id && l.Mode != budget.Off })
		if at >= 0 {
			w, err := found("", "", func(w *Why) error { return h.explainLimit(c, w, list[at]) })
			w.acts = func() (bool, error) {
				f := budget.RefusalFilter{Cause: string(budget.NewCause(budget.CauseLimit, id))}
				lately, _, err := h.lately(c, org, f)
				return lately != "", err
			}
			return w, err
		}
	}
	return nil, nil
}

// explainLimit explains whom a limit refuses and delays, and how the org, or the caller that it refuses most, uses it.
func (h *whyHandler) explainLimit(c *call, w *Why, l budget.Limit) error {
	cause := budget.NewCause(budget.CauseLimit, l.ID)
	f := budget.RefusalFilter{Cause: string(cause), From: c.start.Add(-24 * time.Hour), To: c.start.Add(time.Hour)}
	list, err := h.usage.refusalsOf(c, w.Org, f, false)
	if err != nil {
		return err
	}
	w.who = ledger.Call{Org: w.Org}
	if len(list) > 0 {
		most := slices.MaxFunc(list, func(a, b Refusal) int { return cmp.Compare(a.Refused+a.Waited, b.Refused+b.Waited) })
		w.who.User, w.who.Key = most.User, most.Key
	}
	w.limits = slices.DeleteFunc(slices.Clone(h.opts.Policy().Orgs[w.Org].LimitsFor(w.who.User, w.who.Key)),
		func(one budget.Limit) bool { return one.ID != l.ID || !one.Tells(w.who) })
	if err := h.complete(c, w, f); err != nil {
		return err
	}
	lately, _, err := h.lately(c, w.Org, f)
	if err != nil {
		return err
	}
	if len(w.full()) > 0 {
		w.Cause = cause
	}
	waiting, err := h.queued(c, w.Org, func(j *queue.Job) bool { return j.Cause == cause })
	w.Reason = cmp.Or(lately, "The limit "+l.ID+" has refused and delayed no calls in the last hour.")
	if len(waiting) > 0 {
		w.Reason += fmt.Sprintf(" %s last waited for it.", figures.Plural(int64(len(waiting)), "job"))
	}
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
	w, err := found("", "", func(w *Why) error { return h.explainBrake(c, w, name, fired) })
	w.acts = func() (bool, error) {
		return slices.ContainsFunc(fired, func(b *tenants.Brake) bool { return b.Fired(c.start) }), nil
	}
	return w, err
}

// explainBrake explains whom a brake stops.
func (h *whyHandler) explainBrake(c *call, w *Why, name string, fired []*tenants.Brake) error {
	w.who = ledger.Call{Org: w.Org}
	f := budget.RefusalFilter{Cause: string(budget.NewCause(budget.CauseBrake, name))}
	if len(fired) > 0 {
		f.Cause = string(budget.NewCause(budget.CauseBrake, fired[0].Brake))
	}
	if err := h.complete(c, w, f); err != nil {
		return err
	}
	slices.SortFunc(fired, func(a, b *tenants.Brake) int { return b.Updated.Compare(a.Updated) })
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
		reasons = append(reasons, "The brake "+name+" stops nothing now.")
	}
	lately, _, err := h.lately(c, w.Org, f)
	w.Reason = strings.TrimSpace(strings.Join(reasons, " ") + " " + lately)
	return err
}
