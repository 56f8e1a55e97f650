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
	"github.com/llmguard/llmguard/pricing"
)

// bound sets the limits of w.who and of its runs.
func (h *whyHandler) bound(c *call, w *Why) error {
	var err error
	_, w.limits, w.caps, err = h.opts.Policy().Bounds(w.who)
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
		w.ended = &obstacle{runEnded, "The run " + w.who.Run.ID() + " has ended.", "llmguard runs list --org " + w.Org}
	}
	for i := range runs {
		w.limits = append(w.limits, runs[i].Limits()...)
		if !runs[i].Open(c.start) {
			w.ended = endedObstacle(&runs[i])
		}
	}
	return nil
}

// complete reads the limits and the refusals of the last day, and sets the commands of limits.
func (h *whyHandler) complete(c *call, w *Why, f budget.RefusalFilter) error {
	if err := h.whyLimits(c, w); err != nil {
		return err
	}
	list, err := h.usage.refusals(c, h.dir.orgsOf(w.Org), lastDay(c, f), byKey)
	w.Refusals = append(w.Refusals, list...)
	for i := range w.Limits {
		if l := &w.Limits[i]; l.Refuses && l.Command != "" {
			w.Commands = append(w.Commands, l.Command)
		}
	}
	return err
}

// lastDay adds the last 24 hours to a filter, with an hour for clock differences.
func lastDay(c *call, f budget.RefusalFilter) budget.RefusalFilter {
	f.From, f.To = c.start.Add(-budget.RefusedCallLife), c.start.Add(time.Hour)
	return f
}

// ofCaller selects the refusals of the caller.
func (w *Why) ofCaller() budget.RefusalFilter {
	f := budget.RefusalFilter{User: w.User, Key: w.Key}
	if w.Kind == "run" {
		f.Calls = ledger.OfRun(w.ID)
	}
	return f
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
	if len(w.Commands) == 0 && w.Cause != "" {
		w.Commands = append(w.Commands, w.related(w.Cause))
	}
	return nil
}

// explainRefused explains a call that was refused, or one that waited and is no job any more.
func (h *whyHandler) explainRefused(c *call, w *Why, r *budget.RefusedCall) error {
	w.who, w.Cause, w.metric = r.Call, r.Cause, r.Metric
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
	if r.Metric != "" {
		text += fmt.Sprintf(": needed %s, %s", quantityOf(r.Metric, r.Needed), quantityOf(r.Metric, r.Left))
		if l != nil && l.limit.Shape.Amount >= r.Left {
			text += " of " + quantityOf(r.Metric, l.limit.Shape.Amount)
		}
		text += " was left"
	} else if r.Status > 0 {
		text += fmt.Sprintf(" (%d)", r.Status)
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

// related returns the command that shows more of a cause, whoever has it.
func (w *Why) related(cause budget.Cause) string {
	switch cause.Kind() {
	case budget.CausePool:
		return "llmguard queue --pool " + cause.Name()
	case budget.CauseQueue, budget.CauseProvider:
		return "llmguard queue"
	case budget.CauseMemory:
		if w.Org != "" {
			return "llmguard orgs get " + w.Org
		}
	case budget.CauseCap:
		return "llmguard usage caps"
	}
	return "llmguard limits refused-calls --cause " + ShellWord(string(cause))
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
	w.Commands = nil
	return err
}
