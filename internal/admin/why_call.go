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
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
)

// bound sets the limits of w.who and of its runs.
func (h *whyHandler) bound(c *call, w *Why) error {
	var err error
	_, w.limits, w.caps, err = h.opts.Policy().Bounds(waiterOf(w.who))
	if err != nil {
		w.Reason = strings.TrimSpace(w.Reason + " Such a call is no longer possible: " + err.Error() + ".")
		return nil
	}
	return h.addRuns(c, w)
}

// addRuns adds the limits of the runs of w.who, and finds whether one has ended.
func (h *whyHandler) addRuns(c *call, w *Why) error {
	ids := w.who.Run.IDs()
	runs, err := h.opts.Budget.Runs.Existing(c.r.Context(), w.Org, ids...)
	if err != nil {
		return err
	}
	if len(runs) < len(ids) {
		w.ended = &obstacle{
			cause:   budget.NewCause(budget.CauseRun, budget.RunEnded),
			reason:  "The run " + w.who.Run.ID() + " has ended.",
			command: "llmguard runs list --org " + w.Org,
		}
	}
	for i := range runs {
		w.limits = append(w.limits, runs[i].Limits()...)
		if !runs[i].Open(c.start) {
			w.ended = endedObstacle(&runs[i])
		}
	}
	return nil
}

// waiterOf returns the call in the form used to check limits.
func waiterOf(c ledger.Call) guard.Waiter {
	return guard.Waiter{
		Org: c.Org, User: c.User, Key: c.Key, IP: c.IP, Labels: c.Labels, Model: c.Model, Endpoint: wire.Endpoint(c.Endpoint),
	}
}

// complete reads the limits and the refusals of the last day, and sets the commands of limits.
func (h *whyHandler) complete(c *call, w *Why, f budget.RefusalFilter) error {
	if err := h.whyLimits(c, w); err != nil {
		return err
	}
	f.From, f.To = c.start.Add(-24*time.Hour), c.start.Add(time.Hour)
	list, err := h.usage.refusalsOf(c, w.Org, f, false)
	w.Refusals = append(w.Refusals, list...)
	w.command()
	return err
}

// ofCaller selects the refusals of the caller.
func (w *Why) ofCaller() budget.RefusalFilter { return budget.RefusalFilter{User: w.User, Key: w.Key} }

// command sets the commands that the limits need.
func (w *Why) command() {
	w.Commands = []string{}
	for i := range w.Limits {
		if l := &w.Limits[i]; l.Refuses && l.Command != "" {
			w.Commands = append(w.Commands, l.Command)
		}
	}
}

// explainCall explains a call by its limits now. text says how it went.
func (h *whyHandler) explainCall(c *call, w *Why, text func() string) error {
	if err := h.bound(c, w); err != nil {
		return err
	}
	if err := h.complete(c, w, w.ofCaller()); err != nil {
		return err
	}
	o, full, now := h.obstacle(c, w), w.full(), "The same call would now be within all limits."
	unknown := func(l WhyLimit) bool { return l.Wanted == nil }
	switch {
	case o != nil:
		now, w.Commands = o.reason, []string{o.command}
	case len(full) > 0:
		now = "The same call would now be over " + strings.Join(full, ", ") + "."
	case len(w.limits) == 0:
		now = ""
	case slices.ContainsFunc(w.Limits, unknown):
		now = "None of its limits is used up now."
	}
	w.Reason = strings.TrimSpace(text() + " " + strings.TrimSpace(w.Reason+" "+now))
	if len(w.Commands) == 0 {
		w.Commands = h.related(w)
	}
	return nil
}

// explainRefused explains a call that was refused, or one that waited and is no job any more.
func (h *whyHandler) explainRefused(c *call, w *Why, r *budget.RefusedCall) error {
	w.who = ledger.Call{
		ID: r.ID, Org: w.Org, User: r.User, Key: r.Key, Model: r.Model, Endpoint: r.Endpoint, JobID: r.Job,
		Run: ledger.RunPath(r.Run),
	}
	w.Cause, w.metric = r.Cause, r.Metric
	switch r.Metric {
	case "":
	case budget.Cost:
		w.want = &budget.Amounts{Cost: pricing.Nano(r.Needed)}
	case budget.Tokens:
		w.want = &budget.Amounts{Tokens: r.Needed}
	default:
		w.want = &budget.Amounts{}
	}
	return h.explainCall(c, w, func() string { return w.refusedText(r) })
}

// refusedText is the sentence that says what refused a call, and why.
func (w *Why) refusedText(r *budget.RefusedCall) string {
	did := "Refused by "
	if r.Waited {
		did = "Delayed by "
	}
	text, l := did+r.Cause.Title(), w.binding(r.Cause)
	if l != nil {
		text = did + l.title()
	}
	text += " at " + figures.Second(r.At)
	switch {
	case r.Metric == "":
		if r.Status > 0 {
			text += fmt.Sprintf(" (%d)", r.Status)
		}
	case l == nil || l.limit.Shape.Amount < r.Left:
		text += fmt.Sprintf(": needed %s, %s was left", quantityOf(r.Metric, r.Needed), quantityOf(r.Metric, r.Left))
	default:
		text += fmt.Sprintf(": needed %s, %s of %s was left", quantityOf(r.Metric, r.Needed), quantityOf(r.Metric, r.Left),
			quantityOf(r.Metric, l.limit.Shape.Amount))
	}
	if r.Wait > 0 {
		text += "; it was to have capacity at " + figures.Second(r.At.Add(r.Wait))
	}
	return text + "."
}

// binding returns the limit or spend cap that a cause names; nil if it applies no more.
func (w *Why) binding(cause budget.Cause) *WhyLimit {
	for i := range w.Limits {
		if w.Limits[i].cause() == cause {
			return &w.Limits[i]
		}
	}
	return nil
}

// cause returns the cause of calls that the limit refuses.
func (l *WhyLimit) cause() budget.Cause {
	kind := budget.CauseLimit
	switch {
	case l.Cap != "":
		kind = budget.CauseCap
	case l.limit.Subject == budget.RunBudget:
		kind = budget.CauseRun
	}
	return budget.NewCause(kind, l.Name)
}

// quantityOf formats an amount of a metric.
func quantityOf(m budget.Metric, n int64) string {
	switch m {
	case budget.Cost:
		return figures.USD(pricing.Nano(n))
	case budget.Tokens:
		return figures.Plural(n, "token")
	case budget.Concurrency:
		return figures.Plural(n, "open call")
	}
	return figures.Plural(n, "request")
}

// related returns the command that shows more of a cause that is not the caller's.
func (h *whyHandler) related(w *Why) []string {
	switch w.Cause.Kind() {
	case budget.CausePool:
		return []string{"llmguard queue --pool " + w.Cause.Name()}
	case budget.CauseQueue, budget.CauseProvider:
		return []string{"llmguard queue"}
	case budget.CauseMemory:
		return []string{"llmguard orgs get " + w.Org}
	}
	return []string{}
}

// dollars formats an amount for a command, in whole cents and rounded up.
func dollars(n int64) string {
	const cent = int64(pricing.NanoPerUSD) / 100
	return fmt.Sprintf("$%d.%02d", (n+cent-1)/cent/100, (n+cent-1)/cent%100)
}

func topUpCommand(org, run string, more int64) string {
	return "llmguard runs top-up " + run + " --org " + org + " --add " + ShellWord(dollars(max(more, 1))) +
		" --reason " + ShellWord("let "+run+" continue")
}

// explainCharged explains a call by its ledger entries.
func (h *whyHandler) explainCharged(c *call, w *Why, entries []ledger.Entry) error {
	e := &entries[0]
	w.Entries, w.who = entries, e.Call
	if e.HeldNano > 0 || e.HeldTokens > 0 {
		w.want = &budget.Amounts{Cost: pricing.Nano(e.HeldNano), Tokens: e.HeldTokens}
	}
	return h.explainCall(c, w, func() string { return outcomeText(e) })
}

// outcomes are how calls end, as guard.Outcome.
var outcomes = map[guard.Outcome]string{
	guard.Completed: "completed", guard.NoUsage: "completed without usage from the provider",
	guard.Rejected: "was refused by the provider", guard.Busy: "was refused by the provider, which was busy",
	guard.Unsent: "did not reach the provider", guard.UpstreamError: "failed at the provider",
	guard.Broken: "broke off at the provider", guard.ClientGone: "ended because its caller disconnected",
	guard.Cut: "was cut off because a limit had no more capacity", guard.Cached: "was answered from the cache",
}

func outcomeText(e *ledger.Entry) string {
	status := ""
	if e.Status >= 400 {
		status = fmt.Sprintf(" (%d)", e.Status)
	}
	return fmt.Sprintf("It %s%s at %s and cost %s.", cmp.Or(outcomes[guard.Outcome(e.Outcome)], "ended"), status,
		figures.Second(e.At), figures.USD(e.Total))
}

// explainOpen explains a call that runs.
func (h *whyHandler) explainOpen(c *call, w *Why, o *budget.OpenHold) error {
	w.who = o.Call
	w.Reason = fmt.Sprintf("It is running and reserves %s.", figures.USD(o.Held.Cost))
	if err := h.bound(c, w); err != nil {
		return err
	}
	err := h.complete(c, w, w.ofCaller())
	w.Commands = []string{}
	return err
}
