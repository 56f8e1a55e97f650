package admin

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/queue"
)

// Why explains how a job, a call or a user relates to its limits.
type Why struct {
	Kind string `json:"kind"` // job, call or user
	Org  string `json:"org"`
	User string `json:"user"`
	// Reason is a sentence for people. WaitsFor is limit, cap, quota, retry or pause while a
	// job waits.
	Reason   string `json:"reason"`
	WaitsFor string `json:"waits_for,omitempty"`
	// Job is the job; Entries are the call's ledger entries.
	Job     *JobLine       `json:"job,omitempty"`
	Entries []ledger.Entry `json:"entries,omitempty"`
	// Limits are those that apply, with their current state; spend caps have their scope in
	// Cap.
	Limits []WhyLimit `json:"limits"`
	// Refusals are the user's in the last 24 hours.
	Refusals []Refusal `json:"refusals"`
	// Commands, if all are run, let it through.
	Commands []string `json:"commands"`

	limits []budget.Limit // that apply to it
	caps   []budget.Cap
	who    ledger.Call
	want   *budget.Amounts // what it holds when it starts; nil if unknown
	before ahead
}

// ahead is what older waiting jobs of the same org, user and key will hold.
type ahead map[budget.Subject]*waitingJobs

type waitingJobs struct {
	budget.Amounts
	jobs int64
}

// whyHandler serves /why.
type whyHandler struct {
	base
	jobs  *jobHandler
	usage *usageHandler
}

// explain finds what an id refers to.
func (h *whyHandler) explain(c *call) (any, error) {
	id, only := c.r.PathValue("id"), c.r.URL.Query().Get("org")
	if only != "" {
		if err := h.dir.known(only); err != nil {
			return nil, err
		}
	}
	for _, find := range []func(*call, string, string) (*Why, error){h.whyJob, h.whyCall, h.whyUser} {
		w, err := find(c, id, only)
		if err != nil {
			return nil, err
		}
		if w != nil {
			return w, h.complete(c, w)
		}
	}
	return nil, wire.NotFound("id", "not_found", "No job, call in the ledger or user has the id %.80q", id)
}

// complete adds what all kinds have: limits, refusals and commands.
func (h *whyHandler) complete(c *call, w *Why) error {
	if err := h.whyLimits(c, w); err != nil {
		return err
	}
	w.Refusals = []Refusal{}
	day := budget.RefusalFilter{User: w.User, From: c.start.Add(-24 * time.Hour), To: c.start.Add(time.Hour)}
	list, err := h.usage.refusalsOf(c, w.Org, day, false)
	w.Refusals = append(w.Refusals, list...)
	w.Commands = []string{}
	for i := range w.Limits {
		if l := &w.Limits[i]; l.Refuses && l.Command != "" {
			w.Commands = append(w.Commands, l.Command)
		}
	}
	w.conclude()
	return err
}

// conclude sets the reason if the limits decide it. They are read after the job's queue
// position, so a job that was waiting for quota may be waiting for a limit by then.
func (w *Why) conclude() {
	switch full := w.full(); {
	case w.Kind != "job":
		w.Reason = w.standing()
	case w.WaitsFor == "quota" && len(full) > 0:
		w.WaitsFor = "limit"
		w.Reason = fmt.Sprintf("It waits behind %d others in pool %s, and is over %s.",
			*w.Job.Ahead, w.Job.Pool, strings.Join(full, ", "))
	}
}

// full returns the limits and caps without capacity.
func (w *Why) full() (out []string) {
	for i := range w.Limits {
		if w.Limits[i].Refuses {
			out = append(out, w.Limits[i].title())
		}
	}
	return out
}

// standing describes which limits of a call or a user have no capacity.
func (w *Why) standing() string {
	full := w.full()
	switch {
	case w.Reason != "":
		return w.Reason
	case len(full) > 0 && w.want != nil:
		return "The same call would now be over " + strings.Join(full, ", ") + "."
	case len(full) > 0:
		return "There is no capacity left in " + strings.Join(full, ", ") + "."
	case w.want != nil:
		return "The same call would now be within all limits."
	}
	return "All limits have capacity."
}

func (h *whyHandler) whyJob(c *call, id, only string) (*Why, error) {
	if !strings.HasPrefix(id, "job_") {
		return nil, nil
	}
	q, err := h.jobs.queue(c)
	if err != nil {
		return nil, err
	}
	for _, org := range h.dir.orgsOf(only) {
		j, err := q.Job(c.r.Context(), org, id)
		if errors.Is(err, queue.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return h.explainJob(c, q, j)
	}
	return nil, nil
}

func (h *whyHandler) explainJob(c *call, q *queue.Queue, j *queue.Job) (*Why, error) {
	l := JobLineOf(j)
	w := &Why{Kind: "job", Org: j.Org, User: j.User, Job: &l, want: &budget.Amounts{Cost: j.Cost, Tokens: j.Tokens}}
	w.who = ledger.Call{
		Org: j.Org, User: j.User, Key: j.Key, IP: j.IP, Labels: j.Labels, Model: j.Model, Endpoint: string(j.Endpoint),
	}
	var err error
	w.limits, w.caps, err = h.opts.Policy().Bounds(waiterOf(w.who))
	if err != nil {
		w.Reason = "It cannot run: " + err.Error() + "."
		return w, nil
	}
	if j.State != queue.Queued {
		w.Reason = "The job is not waiting: it is " + string(j.State) + "."
		return w, nil
	}
	if err := h.jobs.place(c, q, j, &l); err != nil {
		return nil, err
	}
	w.waits(&l)
	d, err := q.Depth(c.r.Context(), j.Pool)
	if err != nil {
		return nil, err
	}
	if d.Paused {
		w.WaitsFor = "pause"
		w.Reason = fmt.Sprintf("Pool %s is paused. To start its jobs: llmguard queue resume %s", j.Pool, j.Pool)
	}
	full := d.Rates.Fullest()
	if w.WaitsFor == "quota" && full.Limit > 0 {
		const text = " Its tightest quota is %s: %d of %d used in the last minute."
		w.Reason += fmt.Sprintf(text, full.Name, full.Used, full.Limit)
	}
	w.before, err = h.aheadOf(c, q, j, w.sameAddress)
	return w, err
}

// sameAddress reports whether the limits per address count an address as the one of w.
func (w *Why) sameAddress(ip string) bool {
	l := budget.Limit{Subject: budget.IP}
	if i := slices.IndexFunc(w.limits, func(l budget.Limit) bool { return l.Subject == budget.IP }); i >= 0 {
		l = w.limits[i]
	}
	return l.Same(ledger.Call{IP: ip}, w.who)
}

// maxAhead is how many of an org's waiting jobs are read.
const maxAhead = 1000

// aheadOf adds up the older jobs that wait for the same limits.
func (h *whyHandler) aheadOf(c *call, q *queue.Queue, j *queue.Job, same func(ip string) bool) (ahead, error) {
	out := ahead{budget.Org: {}, budget.User: {}, budget.Key: {}, budget.IP: {}}
	page, err := q.List(c.r.Context(), j.Org, queue.Filter{State: queue.Queued}, "", maxAhead)
	if err != nil {
		return nil, err
	}
	for _, one := range page.Jobs {
		if one.ID == j.ID || one.Created.After(j.Created) || one.Pool != j.Pool {
			continue
		}
		for subject, shared := range map[budget.Subject]bool{
			budget.Org: true, budget.User: one.User == j.User, budget.Key: one.Key == j.Key, budget.IP: same(one.IP),
		} {
			if sum := out[subject]; shared {
				sum.Cost = sum.Cost + one.Cost
				sum.Tokens = sum.Tokens + one.Tokens
				sum.jobs = sum.jobs + 1
			}
		}
	}
	return out, nil
}

// waits sets what a job waits for.
func (w *Why) waits(l *JobLine) {
	place, until := fmt.Sprintf("%d ahead of it", *l.Ahead), "waiting alone does not help"
	if l.ETA != nil {
		until = "about " + figures.Lasting(time.Duration(*l.ETA)*time.Second)
	}
	kind, name, _ := strings.Cut(l.WaitingFor, ":")
	switch {
	case l.Next != nil:
		w.WaitsFor = "retry"
		w.Reason = fmt.Sprintf("The last attempt failed at the provider; the next one begins in %s.", until)
	case kind == "limit":
		w.WaitsFor = "limit"
		w.Reason = fmt.Sprintf("It waits for the limit %s, %s (%s).", name, until, place)
	case kind == "cap":
		w.WaitsFor = "cap"
		w.Reason = fmt.Sprintf("It waits for a spend cap, %s (%s).", until, place)
	case kind == "pool":
		w.WaitsFor = "quota"
		const text = "It waits for its turn at the provider's quota in pool %s, %s (%s). Its limits have capacity."
		w.Reason = fmt.Sprintf(text, name, until, place)
	case l.WaitingFor != "":
		w.WaitsFor = kind
		w.Reason = fmt.Sprintf("%s It continues %s (%s).", budget.Cause(l.WaitingFor).Text(), until, place)
	default:
		w.Reason = "It is about to start."
	}
}

func (h *whyHandler) whyCall(c *call, id, only string) (*Why, error) {
	made, ok := wire.CallTime(id)
	if !ok {
		return nil, nil
	}
	for _, org := range h.dir.orgsOf(only) {
		entries, err := ledger.EntriesOf(c.r.Context(), h.opts.Budget.Ledger.Entries, org, id, made)
		if err != nil {
			return nil, err
		}
		if len(entries) > 0 {
			return h.explainCall(entries)
		}
	}
	return nil, nil
}

func (h *whyHandler) explainCall(entries []ledger.Entry) (*Why, error) {
	e := entries[0]
	w := &Why{Kind: "call", Org: e.Org, User: e.User, Entries: entries, who: e.Call}
	if e.HeldNano > 0 || e.HeldTokens > 0 {
		w.want = &budget.Amounts{Tokens: e.HeldTokens}
		w.want.Cost += nano(e.HeldNano)
	}
	var err error
	w.limits, w.caps, err = h.opts.Policy().Bounds(waiterOf(w.who))
	if err != nil {
		w.Reason = "Such a call is no longer possible: " + err.Error() + "."
	}
	return w, nil
}

func (h *whyHandler) whyUser(c *call, id, only string) (*Why, error) {
	var found []string
	for _, org := range h.dir.orgsOf(only) {
		o, _, err := h.dir.org(org)
		if err != nil {
			return nil, err
		}
		if _, _, err := h.dir.user(o, id); err == nil {
			found = append(found, org)
		}
	}
	if len(found) == 0 {
		return nil, nil
	}
	if len(found) > 1 {
		const text = "%s is a user of several orgs: %s. Name one with org"
		return nil, wire.BadRequest("org", "ambiguous", text, id, strings.Join(found, ", "))
	}
	in := h.opts.Policy().Orgs[found[0]]
	if in == nil {
		return nil, nil
	}
	w := &Why{Kind: "user", Org: found[0], User: id, who: ledger.Call{Org: found[0], User: id}, caps: h.opts.Policy().Caps}
	for _, l := range in.LimitsFor(id, "") {
		if l.Mode != budget.Off && l.Tells(w.who) {
			w.limits = append(w.limits, l)
		}
	}
	waiting, err := h.waitingJob(c, w)
	if err != nil {
		return nil, err
	}
	switch {
	case in.Disabled:
		w.Reason = "The org is disabled: llmguard orgs enable " + w.Org
	case in.DisabledUsers[id]:
		w.Reason = "The user is disabled: llmguard users enable " + id + " --org " + w.Org
	case waiting != "":
		w.Reason = "A job of this user is waiting: llmguard why " + waiting
	}
	return w, nil
}

// waitingJob returns a user's newest waiting job, or "" if there is none.
func (h *whyHandler) waitingJob(c *call, w *Why) (string, error) {
	q, err := h.jobs.queue(c)
	if err != nil {
		return "", err
	}
	page, err := q.List(c.r.Context(), w.Org, queue.Filter{User: w.User, State: queue.Queued}, "", 1)
	if err != nil || len(page.Jobs) == 0 {
		return "", err
	}
	return page.Jobs[0].ID, nil
}

// waiterOf returns the call in the form used to check limits.
func waiterOf(c ledger.Call) guard.Waiter {
	return guard.Waiter{
		Org: c.Org, User: c.User, Key: c.Key, IP: c.IP, Model: c.Model, Endpoint: wire.Endpoint(c.Endpoint),
	}
}
