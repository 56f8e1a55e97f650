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
		runEnded, "The run " + run.ID() + " ended at " + figures.Second(cmp.Or(run.Ended, run.Expires)) + ".",
		"llmguard keys child --org " + run.Org + " --parent " + run.Key + " --amount " +
			ShellWord(dollars(int64(run.Amount))),
	}
}

const runEnded = budget.Cause(budget.CauseRun + ":" + budget.RunEnded)

func (h *whyHandler) disabled(c *call, w *Why) *obstacle {
	o, u, k, err := h.dir.caller(w.Org, w.who.User, w.who.Key)
	in := " --org " + w.Org
	switch {
	case err != nil:
		return nil
	case o.Disabled:
		return &obstacle{"", "The org " + o.ID + " is disabled.", "llmguard orgs enable " + o.ID}
	case u != nil && u.Disabled:
		return &obstacle{"", "The user " + u.ID + " is disabled.", "llmguard users enable " + u.ID + in}
	case k != nil && k.Disabled:
		return &obstacle{"", "The key " + k.ID + " is disabled.", "llmguard keys enable " + k.ID + in}
	case k != nil && !k.Expires.IsZero() && !c.start.Before(k.Expires):
		expired := "The key " + k.ID + " expired at " + figures.Minute(k.Expires) + "."
		return &obstacle{"", expired, "llmguard keys update " + k.ID + in + " --expires 90d"}
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
	cause := budget.NewCause(budget.CauseStop, s.Org)
	if s.Since == nil {
		const text = "All spending is stopped by kill_switch in the configuration file. Change it there, then reload."
		return &obstacle{cause, text, "llmguard config reload"}
	}
	what, command := "The spending of org "+s.Org, "llmguard resume --org "+s.Org
	if s.Org == everyOrg {
		what, command = "All spending", "llmguard resume"
	}
	since := fmt.Sprintf("%s is stopped since %s by %s%s.", what, figures.Second(*s.Since), s.By, because(s.Reason))
	return &obstacle{cause, since, command}
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
	since := fmt.Sprintf("The brake %s %s the calls of %s since %s%s%s.", b.Brake, does, v.Subject,
		figures.Second(v.Since), until, because(cmp.Or(v.Why, v.Reason)))
	command := "llmguard brakes release --org " + org + " --brake " + b.Brake + " " +
		ShellWord(strings.ReplaceAll(v.Subject, ", ", ",")) + " --reason " + ShellWord("let "+v.Subject+" continue")
	return &obstacle{budget.NewCause(budget.CauseBrake, b.Brake), since, command}
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
	lately, cause, err := h.lately(c, w, w.ofCaller())
	if err != nil {
		return err
	}
	o, full, kind := h.obstacle(c, w), w.full(), w.Kind
	if w.about != "" {
		kind = "user"
	}
	switch {
	case o != nil:
		w.stands(o)
	case len(full) > 0:
		w.Cause, w.Reason = w.Limits[0].cause(), "There is no capacity left in "+strings.Join(full, ", ")+"."
	case len(jobs) > 0:
		w.Reason = "A job of this " + kind + " is waiting: " + jobs[0].ID + "."
	case lately != "":
		w.Reason = w.since(cause)
	default:
		w.Reason = "Nothing refuses or delays the calls of this " + kind + ": " + w.nearest()
	}
	w.Reason = strings.TrimSpace(w.about + " " + strings.TrimSpace(w.Reason+" "+lately))
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
func (h *whyHandler) lately(c *call, w *Why, f budget.RefusalFilter) (text string, cause budget.Cause, err error) {
	f.From, f.To = c.start.Add(-time.Hour), c.start.Add(time.Hour)
	list, err := h.usage.refusals(c, h.dir.orgsOf(w.Org), f, byCause)
	if err != nil || len(list) == 0 {
		return "", "", err
	}
	most := list[0]
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
	if org == "" { // only an org lists its jobs
		return nil, nil
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
