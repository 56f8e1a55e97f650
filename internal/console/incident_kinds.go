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
	hours, at, err := w.Console.hours.wait(ctx)
	if err != nil || at.IsZero() {
		return cmp.Or(err, errUnread)
	}
	w.hours = hours
	lastHour := budget.RefusalFilter{From: w.now.Add(-time.Hour), To: w.now.Add(time.Hour)}
	for _, org := range w.o.orgs() {
		list, err := w.o.Budget.Refusals.List(ctx, org, lastHour)
		if err != nil {
			return err
		}
		for _, r := range list {
			if r.Refused > 0 && w.now.Sub(r.Last) <= time.Hour {
				w.refuse(userID{org, r.User}, r)
			}
		}
	}
	flows, _, _ := w.Console.flows.load(ctx)
	for _, p := range w.o.Pools() {
		for _, f := range flows[p.ID] {
			w.wait(p.ID, f)
		}
	}
	return nil
}

// refusedBy names the cause of refusals and, if it depends on the user, whose calls they are.
type refusedBy struct {
	of    userID
	title string
}

// refusals are the refused calls of the last hour with one cause.
type refusals struct {
	cause       budget.Cause
	first, last time.Time
	calls       int64
	users       map[userID]int64 // their calls
}

// mostNamed is how many users of a cause that refuses the calls of all are named.
const mostNamed = 3

// ofAll are the kinds of causes that do not depend on the user: what they refuse is one incident.
var ofAll = []string{
	budget.CauseProvider, budget.CauseCap, budget.CausePool, budget.CauseQueue, budget.CauseMemory, budget.CauseStop,
}

// refuse adds what was refused in an hour.
func (w *watch) refuse(of userID, r budget.Refused) {
	by := refusedBy{of, r.Cause.Title()}
	if slices.Contains(ofAll, r.Cause.Kind()) {
		by.of = userID{}
	}
	sum := w.refused[by]
	if sum == nil {
		sum = &refusals{cause: r.Cause, first: r.First, users: map[userID]int64{}}
		w.refused[by] = sum
	}
	sum.calls += r.Refused
	sum.users[of] += r.Refused
	if r.First.Before(sum.first) {
		sum.first = r.First
	}
	if r.Last.After(sum.last) {
		sum.last = r.Last
	}
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
	for by := range w.refused {
		if by.of.Org != "" {
			add(by.of)
		}
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
		one.Link, one.Facts, one.Acts = pathOf("orgs", of.Org), nil, nil // another of its users found it before
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
	for of, costs := range w.hours.Costs {
		if of.User == "" && !explained[of.Org] {
			w.jumped(of, costs)
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
	usual := "nothing in the day before it"
	if mean > 0 {
		usual = fmt.Sprintf("%d times the mean of %s", costs[hour]/mean, figures.USD(mean))
	}
	one := w.user(of)
	one.Grave = true
	at := w.hours.From.Add(time.Duration(hour) * time.Hour)
	one.fact("%s in the hour from %s UTC, %s", figures.USD(costs[hour]), figures.Mark(at, time.Hour, 0), usual)
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

// refusedCalls finds causes that refuse the calls of all, and users who are refused by limits of their own. It adds to
// the incidents of stops and brakes what these refused.
func refusedCalls(ctx context.Context, w *watch) error {
	byTitle := func(a, b refusedBy) int { return strings.Compare(a.title, b.title) }
	for _, by := range slices.SortedFunc(maps.Keys(w.refused), byTitle) {
		r := w.refused[by]
		one := w.refusing(by, r)
		if one == nil {
			continue
		}
		one.Grave = true
		one.weight += r.calls
		if r.cause.Kind() != budget.CauseRun {
			continue
		}
		if err := w.refusingRun(ctx, one); err != nil {
			return err
		}
	}
	return nil
}

// refusing adds refusals to the incident of their stop, brake, user or cause; nil if the stop or brake has ended.
func (w *watch) refusing(by refusedBy, r *refusals) (one *incident) {
	text := figures.Plural(r.calls, "call") + " refused"
	if by.of.Org != "" {
		text += " by " + by.title
	}
	switch {
	case r.cause.Kind() == budget.CauseStop:
		one = w.found["stop-"+r.cause.Name()]
	case r.cause.Kind() == budget.CauseBrake:
		one = w.found[by.of.Org+"/"+by.of.User]
	case by.of.Org != "":
		one = w.user(by.of)
	default:
		one = w.about("refused-"+string(r.cause), titleOf(by.title))
		one.Link, one.cost = Path+"queue", w.hours.All // it concerns what all spend
		text += ", of " + r.most()
	}
	if one != nil {
		one.fact("%s, %s", r.period(), text)
	}
	return one
}

// period returns when calls were refused.
func (r *refusals) period() string {
	first, last := figures.Clock(r.first), figures.Clock(r.last)
	if first == last {
		return "at " + last
	}
	return "from " + figures.Cell(first) + " to " + last
}

// most lists the users with the most refused calls.
func (r *refusals) most() string {
	var out []string
	for _, of := range slices.SortedFunc(maps.Keys(r.users), func(a, b userID) int {
		return cmp.Or(cmp.Compare(r.users[b], r.users[a]), strings.Compare(a.Org+"/"+a.User, b.Org+"/"+b.User))
	}) {
		out = append(out, fmt.Sprintf("%s (%s): %s", of.User, of.Org, figures.Count(r.users[of])))
	}
	if len(out) > mostNamed {
		out = append(out[:mostNamed], figures.Plural(int64(len(out)-mostNamed), "more user"))
	}
	return strings.Join(out, ", ")
}

// refusingRun adds the run that refused a call of the user last, and how to let it continue.
func (w *watch) refusingRun(ctx context.Context, one *incident) error {
	f := budget.RefusalFilter{
		User: one.of.User, Cause: budget.CauseRun, From: w.now.Add(-time.Hour), To: w.now.Add(time.Hour),
	}
	calls, err := w.o.Budget.Refusals.Calls(ctx, one.of.Org, f, 1)
	if err != nil || len(calls) == 0 {
		return err
	}
	one.link("Runs", pathOf("orgs", one.of.Org, "runs"))
	ids, depth := calls[0].Run.IDs(), 1
	_, _ = fmt.Sscanf(calls[0].Cause.Name(), "run-%d", &depth) // the outermost has no number
	if depth <= len(ids) && calls[0].Cause.Name() != budget.RunEnded {
		one.fact("last by %s", ids[depth-1])
		one.act("top-up-run", "Top up the run", "org", one.of.Org, "run", ids[depth-1])
	}
	return nil
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
