package admin

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/batch"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/queue"
)

// finder finds what one kind of ids and names refers to.
type finder struct {
	kind string
	// recognizes reports whether an id without a kind can be one of these; nil: none can.
	recognizes func(id string) bool
	// find returns what the id refers to in an org, to be completed by explain; nil: nothing.
	find func(h *whyHandler, c *call, org, id string) (*Why, error)
	// unique means that only one thing has the id. A finder that is last is used if others found nothing. What is
	// shared is of no org: find is called once, with the org that the request names, or none.
	unique, last, shared bool
}

// finders are the rows. Ids come before names, which can have several meanings.
var finders = []finder{
	{kind: "job", recognizes: begins("job_"), find: (*whyHandler).findJob, unique: true},
	{kind: "response", recognizes: begins("resp_"), find: (*whyHandler).findResponse, unique: true},
	{kind: "batch", recognizes: begins("batch_", "msgbatch_"), find: (*whyHandler).findBatch, unique: true},
	{kind: "run", recognizes: guard.IsRunID, find: (*whyHandler).findRun, unique: true},
	{kind: "call", recognizes: isCall, find: (*whyHandler).findCall, unique: true},
	{kind: "request", recognizes: begins("lreq_"), find: (*whyHandler).findRequest, unique: true},
	{kind: "event", recognizes: begins("evt_"), find: (*whyHandler).findEvent, unique: true, shared: true},
	{kind: "user", recognizes: isName, find: (*whyHandler).findUser},
	{kind: "key", recognizes: isName, find: (*whyHandler).findKey},
	{kind: "limit", recognizes: isName, find: (*whyHandler).findLimit},
	{kind: "brake", recognizes: isName, find: (*whyHandler).findBrake},
	{kind: "org", recognizes: isName, find: (*whyHandler).findOrg},
	{kind: "stop", recognizes: isAllOrgs, find: (*whyHandler).findStop, unique: true},
	{kind: "run", recognizes: isName, find: (*whyHandler).findRun, last: true},
	{kind: "cap", recognizes: isName, find: findShared(budget.CauseCap), shared: true, last: true},
	{kind: "requests", recognizes: isName, find: findShared(budget.CauseRequests), shared: true, last: true},
	{kind: "pool", recognizes: isName, find: findShared(budget.CausePool), shared: true, last: true},
	{kind: "provider", recognizes: isName, find: findShared(budget.CauseProvider), shared: true, last: true},
	{kind: "model", recognizes: isName, find: (*whyHandler).findModel, shared: true, last: true},
	{kind: "queue", find: findShared(budget.CauseQueue), shared: true},
	{kind: "memory", find: findShared(budget.CauseMemory), shared: true},
	{kind: "run", find: findShared(budget.CauseRun), shared: true, last: true},
	{kind: "answer", recognizes: isLong, find: (*whyHandler).findUpstream, unique: true, last: true},
	{kind: "object", recognizes: isLong, find: (*whyHandler).findObject, unique: true, last: true},
}

// shows are the commands that show more of a kind, with {id} and {org}. Others have refused calls to show.
var shows = map[string]string{
	"batch": "batches show {id}", "run": "runs show {id} --org {org}", "limit": "limits get {id} --org {org}",
	"brake": "brakes list --org {org}", "request": "limits requests get {id}", "cap": "usage caps",
	"model": "prices show {id}",
}

// whyKinds returns the kinds of ids and names.
func whyKinds() (out []string) {
	for _, f := range finders {
		if !slices.Contains(out, f.kind) {
			out = append(out, f.kind)
		}
	}
	return out
}

func isAllOrgs(id string) bool { return id == everyOrg }

func begins(prefixes ...string) func(string) bool {
	return func(id string) bool {
		return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(id, p) })
	}
}

func isName(string) bool { return true }

// isLong reports whether an id is as long as those that providers give to answers.
func isLong(id string) bool { return len(id) >= 16 }

func isCall(id string) bool {
	_, ok := wire.CallTime(callPart(id))
	return ok && !strings.HasPrefix(id, "job_")
}

// callPart returns the call id in the id of a hold, a job, a response of a job, or a call.
func callPart(id string) string {
	if rest, ok := strings.CutPrefix(id, "hold_"); ok {
		return rest[:min(len(rest), callIDLen)]
	}
	job := id
	if of := queue.ResponseJob(id); of != "" {
		job = of
	}
	if rest, ok := strings.CutPrefix(job, "job_"); ok {
		return rest[max(0, len(rest)-callIDLen):]
	}
	return id
}

var callIDLen = len(wire.NewCallID())

// madeAt returns when an id was made; ok is false if it names no time, or one that is later than clocks can differ.
func madeAt(c *call, id string) (made time.Time, ok bool) {
	made, ok = wire.CallTime(callPart(id))
	from, _ := ledger.EntriesAround(made)
	return made, ok && from.Before(c.start)
}

// found returns what was found, and how it is explained.
func found(user, key string, explain func(*Why) error) (*Why, error) {
	w := &Why{User: user, Key: key}
	w.explain = func() error { return explain(w) }
	return w, nil
}

func (h *whyHandler) findJob(c *call, org, id string) (*Why, error) {
	q, err := h.jobs.queue(c)
	if err != nil {
		return nil, err
	}
	j, err := q.Job(c.r.Context(), org, id)
	if errors.Is(err, queue.ErrNotFound) {
		return h.findEnded(c, org, id)
	}
	if err != nil {
		return nil, err
	}
	return found(j.User, j.Key, func(w *Why) error { return h.explainJob(c, w, q, j) })
}

// findResponse finds the job of a response, or the call whose answer has the id.
func (h *whyHandler) findResponse(c *call, org, id string) (*Why, error) {
	if job := queue.ResponseJob(id); job != "" {
		return h.findJob(c, org, job)
	}
	return h.findUpstream(c, org, id)
}

func (h *whyHandler) findBatch(c *call, org, id string) (*Why, error) {
	if h.opts.Batches == nil {
		return nil, nil
	}
	b, err := h.opts.Batches.Find(c.r.Context(), strings.TrimPrefix(id, "msg"))
	if errors.Is(err, batch.ErrNotFound) || err == nil && b.Org != org {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return found(b.User, b.Key, func(w *Why) error { return h.explainBatch(c, w, b) })
}

// findRun finds a run by its id or its name.
func (h *whyHandler) findRun(c *call, org, id string) (*Why, error) {
	o := h.opts.Policy().Orgs[org]
	if o == nil {
		return nil, nil
	}
	runs, err := h.opts.Budget.Runs.Existing(c.r.Context(), org, id)
	if err == nil && len(runs) == 0 && !guard.IsRunID(id) {
		runs, _, err = h.runs.runs.List(c.r.Context(), guard.Caller{Org: o}, budget.RunPage{Limit: shownRuns})
		runs = slices.DeleteFunc(runs, func(r budget.Run) bool { return r.Name != id })
	}
	if err != nil || len(runs) == 0 {
		return nil, err
	}
	var all []*Why
	for _, run := range runs {
		w, _ := found(run.User, run.Key, func(w *Why) error { return h.explainRun(c, w, o, run) })
		w.ID = run.ID()
		all = append(all, w)
	}
	all[0].also = all[1:]
	return all[0], nil
}

// findCall finds a call by its id: waiting, refused or delayed, in the ledger, or open.
func (h *whyHandler) findCall(c *call, org, id string) (*Why, error) {
	id = callPart(id)
	r, err := h.opts.Budget.Refusals.Call(c.r.Context(), org, id)
	switch {
	case err != nil:
		return nil, err
	case r != nil && r.Waited && r.JobID != "":
		return h.findJob(c, org, r.JobID)
	case r != nil:
		return h.foundRefused(c, r)
	}
	w, err := h.findEntries(c, org, id)
	if w == nil && err == nil {
		w, err = h.findOpen(c, org, id)
	}
	return w, err
}

func (h *whyHandler) foundRefused(c *call, r *budget.RefusedCall) (*Why, error) {
	return found(r.User, r.Key, func(w *Why) error { return h.explainRefused(c, w, r) })
}

// findEnded finds a job that the queue has forgotten.
func (h *whyHandler) findEnded(c *call, org, id string) (*Why, error) {
	w, err := h.findEntries(c, org, id)
	if w != nil || err != nil {
		return w, err
	}
	r, err := h.opts.Budget.Refusals.Call(c.r.Context(), org, id)
	if err != nil || r == nil {
		return nil, err
	}
	return h.foundRefused(c, r)
}

// findEntries finds the ledger's entries of a call or a job.
func (h *whyHandler) findEntries(c *call, org, id string) (*Why, error) {
	made, ok := madeAt(c, id)
	if !ok {
		return nil, nil
	}
	entries, _, err := ledger.EntriesOf(c.r.Context(), h.opts.Budget.Ledger.Entries, org, id, made)
	if err != nil || len(entries) == 0 {
		return nil, err
	}
	return found(entries[0].User, entries[0].Key, func(w *Why) error { return h.explainCharged(c, w, entries) })
}

func (h *whyHandler) findOpen(c *call, org, id string) (*Why, error) {
	open, _, err := h.opts.Budget.OpenHolds(c.r.Context(), org, neighborHolds)
	at := slices.IndexFunc(open, func(o budget.OpenHold) bool { return o.Call.ID == id })
	if err != nil || at < 0 {
		return nil, err
	}
	who := open[at].Call
	return found(who.User, who.Key, func(w *Why) error { return h.explainOpen(c, w, &open[at]) })
}

// searchedEntries is how many of the newest ledger entries are searched for the id of an answer, in all orgs
// together, but in each at least searchedLeast.
const searchedEntries, searchedLeast = 20_000, 1_000

// findUpstream finds a call by the id of its answer, or by the provider's id of the request.
func (h *whyHandler) findUpstream(c *call, org, id string) (*Why, error) {
	var found *ledger.Entry
	newest := ledger.Newest{Books: h.opts.Budget.Ledger, Org: org, Most: searchedEntries}
	if c.r.URL.Query().Get("org") == "" {
		newest.Most = max(searchedEntries/len(h.dir.orgsOf("")), searchedLeast)
	}
	_, err := newest.Each(c.r.Context(), func(e ledger.Entry) error {
		if e.AnswerID != id && e.UpstreamID != id {
			return nil
		}
		found = &e
		return ledger.ErrEnough
	})
	if err != nil || found == nil {
		return nil, err
	}
	return h.findEntries(c, org, found.ID)
}

// caller is an org, a user or a key.
func (h *whyHandler) caller(c *call, user, key string) (*Why, error) {
	return found(user, key, func(w *Why) error { return h.explainCaller(c, w) })
}

func (h *whyHandler) findUser(c *call, org, id string) (*Why, error) {
	o, _, err := h.dir.org(org)
	if err != nil || o.User(id) == nil {
		return nil, err
	}
	return h.caller(c, id, "")
}

// findKey finds a key by its id, or by the last characters of its secret, as lists show them.
func (h *whyHandler) findKey(c *call, org, id string) (*Why, error) {
	o, _, err := h.dir.org(org)
	if err != nil {
		return nil, err
	}
	_, user, _, err := h.dir.key(o, id)
	if err == nil {
		return h.caller(c, user.ID, id)
	}
	for name, key := range h.dir.records(org).Keys {
		if key.Last4 != "" && key.Last4 == id {
			w, err := h.caller(c, key.User, name)
			w.ID = name
			return w, err
		}
	}
	return nil, nil
}

func (h *whyHandler) findOrg(c *call, org, id string) (*Why, error) {
	if org != id {
		return nil, nil
	}
	return h.caller(c, "", "")
}

// findStop finds the stop of an org, or of all.
func (h *whyHandler) findStop(c *call, org, id string) (*Why, error) {
	if id != org && !h.dir.isAll(id) {
		return nil, nil
	}
	if h.stopOf(org) == nil {
		return nil, nil
	}
	return h.caller(c, "", "")
}
