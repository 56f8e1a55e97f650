package console

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/diagnose"
	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/queue"
)

// read reads what several kinds need.
func (w *watch) read(ctx context.Context) error {
	orgs := w.o.orgs()
	var err error
	w.hours, _, err = w.Console.hours.await(ctx)
	if err != nil {
		return err
	}
	w.refused, w.flows = map[userID]map[budget.Cause]*budget.Refused{}, map[userID]waitingJobs{}
	for _, org := range orgs {
		list, err := w.o.Budget.Refusals.List(ctx, org, w.now.Add(-time.Hour), w.now.Add(time.Hour))
		if err != nil {
			return err
		}
		for _, r := range list {
			if w.now.Sub(r.Last) <= time.Hour {
				w.refuse(userID{org, r.User}, r)
			}
		}
	}
	for _, p := range w.o.Pools() {
		flows, _ := w.Console.flows.of(ctx, p.ID)
		for _, f := range flows {
			w.wait(p.ID, f)
		}
	}
	return nil
}

// refuse adds what was refused in an hour; keys of a user are added up.
func (w *watch) refuse(of userID, r budget.Refused) {
	causes := w.refused[of]
	if causes == nil {
		causes = map[budget.Cause]*budget.Refused{}
		w.refused[of] = causes
	}
	if sum := causes[r.Cause]; sum != nil {
		r.Refused, r.Waited = r.Refused+sum.Refused, r.Waited+sum.Waited
		if sum.First.Before(r.First) {
			r.First = sum.First
		}
	}
	causes[r.Cause] = &r
}

// oldAge is the wait of a job, by class, from which something holds it back: see also the alert LlmguardQueueOld.
var oldAge = map[queue.Class]time.Duration{
	queue.Interactive: 15 * time.Minute, queue.Async: 15 * time.Minute, queue.Batch: 12 * time.Hour,
}

func (w *watch) wait(pool string, f queue.Waiting) {
	of := userID{f.Org, f.User}
	all := w.flows[of]
	all.jobs += f.Jobs
	if all.oldest.IsZero() || f.Oldest.Before(all.oldest) {
		all.oldest = f.Oldest
	}
	if w.now.Sub(f.Oldest) > oldAge[f.Class] {
		all.old = pool
	}
	w.flows[of] = all
}

// watched returns the orgs, and the users whose limits are read.
func (w *watch) watched() []userID {
	var orgs, users []userID
	for _, org := range w.o.orgs() {
		orgs = append(orgs, userID{org, ""})
	}
	for of := range w.hours.Spent {
		if of.User != "" {
			users = append(users, of)
		}
	}
	slices.SortFunc(users, func(a, b userID) int { return cmp.Compare(w.hours.Spent[b], w.hours.Spent[a]) })
	users = users[:min(len(users), maxWatched)]
	add := func(of userID) {
		if len(users) < 2*maxWatched && !slices.Contains(users, of) {
			users = append(users, of)
		}
	}
	for of := range w.refused {
		add(of)
	}
	for of := range w.flows {
		add(of)
	}
	return append(orgs, users...)
}

// nearLimits finds limits in enforcement of which 80 % or more is used.
func nearLimits(ctx context.Context, w *watch) error {
	for _, of := range w.watched() {
		policy := w.o.Policy().Orgs[of.Org]
		if policy == nil {
			continue
		}
		limits, subjects := policy.Limits, []budget.Subject{budget.Org}
		if of.User != "" {
			limits, subjects = policy.LimitsFor(of.User, ""), []budget.Subject{budget.User, budget.UserGroup}
		}
		states, err := w.standing(ctx, limits, ledger.Call{Org: of.Org, User: of.User}, subjects...)
		if err != nil {
			return err
		}
		for i := range states {
			w.nearLimit(of, &states[i], policy.Groups[of.User])
		}
	}
	caps, err := w.caps(ctx)
	for i := range caps {
		if s := &caps[i].Status; near(s) {
			one := w.about("cap-"+caps[i].Of+"-"+s.LimitID, "spend cap of "+caps[i].Of)
			one.Grave, one.Link = true, "#caps"
			one.fact("%s", limitFact(s))
		}
	}
	return err
}

// near reports whether a limit is near its amount or at it. A limit of calls in flight or of a minute is so all the
// time; what such a limit refuses is another incident.
func near(s *budget.Status) bool {
	return s.Mode == budget.Enforce && s.Amount > 0 && barOf(s.Used, 0, s.Amount).Level != "" &&
		s.Metric != budget.Concurrency && (s.Window == 0 || s.Window > time.Minute)
}

func (w *watch) nearLimit(of userID, s *budget.Status, group string) {
	if !near(s) {
		return
	}
	var one *incident
	fields := []string{"org", of.Org}
	switch s.Subject {
	case budget.UserGroup:
		one = w.about(of.Org+"/group:"+group+"/"+s.LimitID, "group "+group+" ("+of.Org+")")
		one.Link, one.Facts = pathOf("orgs", of.Org), nil
		fields = append(fields, "group", group)
	case budget.User:
		one = w.user(of)
		fields = append(fields, "user", of.User)
	default:
		one = w.user(of)
	}
	one.Grave = true
	one.fact("%s", limitFact(s))
	one.act("raise-limit", "Raise "+s.LimitID, append(fields, "limit", s.LimitID)...)
	one.link("What if", pathOf("orgs", of.Org, "what-if")+"?"+url.Values{"limit": {s.LimitID}}.Encode())
}

// limitFact describes a limit that is near its amount.
func limitFact(s *budget.Status) string {
	text := fmt.Sprintf("limit %s at %d %%", s.LimitID, barOf(s.Used, 0, s.Amount).Percent)
	if s.Used >= s.Amount {
		text = "held by limit " + s.LimitID
	}
	text += ": " + amount(s.Metric, s.Used) + " of " + amount(s.Metric, s.Amount)
	if s.Reset > 0 && s.Reset < budget.Endless {
		text += ", resets in " + figures.Lasting(s.Reset)
	}
	return text
}

// spendJumps finds users who spend more than they did, and orgs that do without one of these users.
func spendJumps(_ context.Context, w *watch) error {
	explained := map[string]bool{} // orgs
	for of, costs := range w.hours.Costs {
		if of.User != "" && w.jumped(of, costs) {
			explained[of.Org] = true
		}
	}
	for _, org := range w.o.orgs() {
		if of := (userID{org, ""}); !explained[org] {
			w.jumped(of, w.hours.Costs[of])
		}
	}
	return nil
}

// jumped adds a jump, and reports whether there is one.
func (w *watch) jumped(of userID, costs *hourCosts) bool {
	hour, mean, found := costs.jump()
	if !found {
		return false
	}
	one := w.user(of)
	one.Grave = true
	at := figures.Mark(w.hours.From.Add(time.Duration(hour)*time.Hour), time.Hour, 0) + " UTC"
	if mean == 0 {
		one.fact("%s in the hour from %s, nothing in the day before it", figures.USD(costs[hour]), at)
		return true
	}
	one.fact("%s in the hour from %s, %d times the mean of %s", figures.USD(costs[hour]), at, costs[hour]/mean,
		figures.USD(mean))
	return true
}

// firedBrakes finds brakes that fired.
func firedBrakes(_ context.Context, w *watch) error {
	for org := range w.snapshot.Brakes {
		for _, b := range admin.FiredBrakes(w.snapshot, org, w.now) {
			if b.Action == "released" || b.Action == string(budget.BrakeShadow) {
				continue
			}
			one := w.braked(&b)
			one.Grave = true
			one.fact("brake %s (%s) since %s: %s", b.Brake, b.Action, figures.Minute(b.Since), cmp.Or(b.Why, b.Reason))
			one.act("release-brake", "Release", "org", org, "brake", b.Brake, "subject", b.Subject)
		}
	}
	return nil
}

// braked returns the incident of a brake: the one of the user, if it stopped a user.
func (w *watch) braked(b *admin.FiredBrake) *incident {
	if user, ok := strings.CutPrefix(b.Subject, "user="); ok && !strings.Contains(user, ",") {
		return w.user(userID{b.Org, user})
	}
	one := w.about("brake-"+b.Org+"-"+b.Brake+"-"+b.Subject, b.Subject+" ("+b.Org+")")
	one.Link = Path + "calls?" + url.Values{"org": {b.Org}, "q": {strings.ReplaceAll(b.Subject, ",", "")}}.Encode()
	return one
}

// stopsInForce finds stopped spending.
func stopsInForce(_ context.Context, w *watch) error {
	if w.o.Policy().Stopped {
		one := w.about("stop-file", "All spending is stopped")
		one.Grave = true
		one.fact("by kill_switch in the configuration file")
	}
	for org, s := range w.snapshot.Stops {
		of, title := org, "The spending of "+org+" is stopped"
		if org == tenants.AllOrgs {
			of, title = "all", "All spending is stopped"
		}
		one := w.about("stop-"+of, title)
		one.Grave = true
		one.fact("since %s by %s: %s", figures.Minute(s.Created), s.By, cmp.Or(s.Reason, "no reason given"))
		one.act("resume-spending", "Resume", "org", of)
	}
	return nil
}

// maxRefused is how many users are incidents only because their calls were refused.
const maxRefused = 5

// refusedUsers finds the users hit most by refusals in the last hour, and adds refusals to other incidents. What a stop
// or a brake refused is no incident of its own.
func refusedUsers(_ context.Context, w *watch) error {
	counts := map[userID]int64{}
	for of, causes := range w.refused {
		for cause, r := range causes {
			if kind := cause.Kind(); kind != budget.CauseStop && kind != budget.CauseBrake {
				counts[of] += r.Refused
			}
		}
	}
	users := slices.SortedFunc(maps.Keys(w.refused), func(a, b userID) int { return cmp.Compare(counts[b], counts[a]) })
	for i, of := range users {
		known := w.found[of.Org+"/"+of.User] != nil
		if !known && (i >= maxRefused || counts[of] == 0) {
			continue
		}
		one := w.user(of)
		one.weight = counts[of]
		for _, cause := range slices.Sorted(maps.Keys(w.refused[of])) {
			one.fact("%s", refusedFact(cause, w.refused[of][cause]))
		}
	}
	return nil
}

// refusedFact says what was refused for a cause.
func refusedFact(cause budget.Cause, r *budget.Refused) string {
	what := figures.Plural(r.Refused, "call") + " refused"
	switch {
	case r.Refused == 0:
		what = figures.Plural(r.Waited, "call") + " delayed"
	case r.Waited > 0:
		what += " and " + figures.Count(r.Waited) + " delayed"
	}
	return what + " by " + cause.Title() + " since " + figures.Clock(r.First)
}

// poolFindings finds pools that rest.
func poolFindings(_ context.Context, w *watch) error {
	for _, f := range w.findings {
		if f.Pool == "" || f.Level == diagnose.OK {
			continue
		}
		one := w.finding(f)
		if f.Level == diagnose.Error {
			one.act("resume-pool", "End the pause", "pool", f.Pool)
		}
	}
	return nil
}

// oldJobs finds users whose jobs wait for longer than they should.
func oldJobs(_ context.Context, w *watch) error {
	for of, f := range w.flows {
		if f.old == "" {
			continue
		}
		one := w.user(of)
		one.weight = max(one.weight, f.jobs)
		one.fact("jobs are old in pool %s", f.old)
		one.link("Jobs", Path+"jobs?"+url.Values{"org": {of.Org}, "user": {of.User}, "status": {"queued"}}.Encode())
	}
	return nil
}

// pendingRequests finds limit requests that need a decision.
func pendingRequests(_ context.Context, w *watch) error {
	for _, r := range w.o.pendingRequests() {
		more := pricing.Nano(r.Amount).Trimmed()
		one := w.about("request-"+r.ID, fmt.Sprintf("%s (%s) requests %s more of limit %s", r.User, r.Org, more, r.Limit))
		one.Link = Path + "limit-requests?id=" + r.ID
		one.fact("until %s: %s", figures.Minute(r.Until), r.Reason)
		one.fact("since %s", figures.Minute(r.Created))
		one.act("approve-request", "Approve", "request", r.ID, "amount", more, "until", formTime(r.Until))
		one.act("deny-request", "Deny", "request", r.ID)
	}
	return nil
}

// otherFindings finds what the checks find besides pools.
func otherFindings(_ context.Context, w *watch) error {
	for _, f := range w.findings {
		if f.Pool != "" || f.Level == diagnose.OK {
			continue
		}
		one := w.finding(f)
		if f.Target != "" {
			one.act("enable-webhook", "Enable", "org", f.Org, "target", f.Target)
		}
	}
	return nil
}

// finding adds a finding of the checks.
func (w *watch) finding(f diagnose.Finding) *incident {
	one := w.about("check-"+f.What, titleOf(f.What))
	one.Link, one.Grave = detailsOf(f), f.Level == diagnose.Error
	if f.Fix != "" {
		one.fact("%s", f.Fix)
	}
	return one
}

// detailsOf returns the page with the details of a finding; empty: none.
func detailsOf(f diagnose.Finding) string {
	switch {
	case f.Pool != "":
		return Path + "queue#pool-" + f.Pool
	case f.Org != "" && f.Target == "":
		return pathOf("orgs", f.Org)
	}
	return ""
}
