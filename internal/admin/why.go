package admin

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/internal/wire"
)

// Why explains what refuses or delays a call, a job or a caller, or what a limit, brake or stop does to calls.
type Why struct {
	// Kind says what the id names, as in finders; "unknown" for an id whose time can be read, but of which nothing is
	// recorded.
	Kind string `json:"kind"`
	ID   string `json:"id"`
	Org  string `json:"org"`
	User string `json:"user"`
	Key  string `json:"key"`
	// Cause is what refuses or delays it, as budget.Cause; empty: nothing does, or it has another reason.
	Cause budget.Cause `json:"cause"`
	// Reason is a sentence for people. WaitsFor is limit, cap, quota, retry, brake, stop, run or pause while a job
	// waits.
	Reason   string `json:"reason"`
	WaitsFor string `json:"waits_for,omitempty"`
	// Job is the job; Entries are the call's ledger entries.
	Job     *JobLine       `json:"job,omitempty"`
	Entries []ledger.Entry `json:"entries,omitempty"`
	// Limits are those that apply, with their current state; spend caps have their scope in
	// Cap.
	Limits []WhyLimit `json:"limits"`
	// Refusals are those of the last 24 hours that concern it.
	Refusals []Refusal `json:"refusals"`
	// Ahead are the waiting jobs ahead of a job, by limit that refuses it.
	Ahead []AheadJobs `json:"ahead"`
	// Commands, if all are run, let it through, or show what it waits for. If there are none, More shows more of it.
	Commands []string `json:"commands"`
	More     string   `json:"more,omitempty"`

	explain func() error        // completes what find has found
	also    []*Why              // other things that find has found
	about   string              // a sentence on what has no refusals of its own, such as a file
	of      budget.Cause        // whose refusals are explained; empty: those of a caller
	fired   bool                // of a brake
	limits  []budget.Limit      // that apply to it
	caps    []budget.Cap        //
	who     ledger.Call         // whose limits these are
	want    *budget.Amounts     // what it holds when it starts; nil if unknown
	metric  budget.Metric       // the only one of want that is known; empty: all are
	before  map[limitName]int64 // what the jobs ahead of it will hold
	ended   *obstacle           // the end of one of its runs; nil: all are open
}

// whyHandler serves /why.
type whyHandler struct {
	base
	jobs  *jobHandler
	usage *usageHandler
	runs  *runHandler
}

// serve finds what an id names, and explains it.
func (h *whyHandler) serve(c *call) (any, error) {
	id, only := c.r.PathValue("id"), c.r.URL.Query().Get("org")
	if only != "" {
		if err := h.dir.known(only); err != nil {
			return nil, err
		}
	}
	found, err := h.find(c, id, only)
	if err == nil && len(found) > 1 {
		found, err = h.acting(c, found)
	}
	switch {
	case err != nil:
		return nil, err
	case len(found) == 0:
		return h.unknown(c, id, only)
	case len(found) > 1:
		return nil, ambiguous(id, found)
	}
	w := found[0]
	w.Limits, w.Refusals, w.Ahead, w.Commands = []WhyLimit{}, []Refusal{}, []AheadJobs{}, []string{}
	if err := w.explain(); err != nil {
		return nil, err
	}
	if len(w.Commands) == 0 {
		w.More = w.shows()
	}
	return w, nil
}

// find returns what an id names in an org, or in all if it is empty. An id can begin with a kind: user:alice.
func (h *whyHandler) find(c *call, id, only string) (out []*Why, err error) {
	kind, name, named := strings.Cut(id, ":")
	if !named || !slices.ContainsFunc(finders, func(f finder) bool { return f.kind == kind }) {
		kind, name = "", id
	}
	if name == "" {
		return nil, nil
	}
	for _, f := range finders {
		if kind != f.kind && (kind != "" || f.recognizes == nil || !f.recognizes(id)) || f.last && len(out) > 0 {
			continue
		}
		orgs := h.dir.orgsOf(only)
		if f.shared {
			orgs = []string{only}
		}
		for _, org := range orgs {
			w, err := f.find(h, c, org, name)
			if err != nil {
				return nil, err
			}
			if w == nil {
				continue
			}
			for _, one := range append(w.also, w) {
				one.Kind, one.ID, one.Org = f.kind, cmp.Or(one.ID, name), org
				out = append(out, one)
			}
			if f.unique {
				return out, nil
			}
		}
	}
	return out, nil
}

// acting returns the one limit or brake that refuses calls, of several; found, if there is not exactly one.
func (h *whyHandler) acting(c *call, found []*Why) ([]*Why, error) {
	var out []*Why
	for _, w := range found {
		if w.of == "" {
			return found, nil
		}
		lately, _, err := h.lately(c, w, budget.RefusalFilter{Cause: string(w.of)})
		if err != nil {
			return nil, err
		}
		if w.fired || lately != "" && w.of.Kind() != budget.CauseBrake { // a brake may be released
			out = append(out, w)
		}
	}
	if len(out) == 1 {
		return out, nil
	}
	return found, nil
}

// maxCandidates is how many meanings of a name are listed.
const maxCandidates = 10

// ambiguous lists the commands for what a name can mean.
func ambiguous(id string, found []*Why) error {
	var commands []string
	for _, w := range found[:min(len(found), maxCandidates)] {
		commands = append(commands, strings.TrimSuffix("llmguard why "+ShellWord(w.Kind+":"+w.ID)+" --org "+w.Org, " --org "))
	}
	text, more := "%.80q names several things. Choose one:\n  %s", len(found)-maxCandidates
	if more > 0 {
		commands = append(commands, fmt.Sprintf("and %d more", more))
	}
	return wire.BadRequest("org", "ambiguous", text, id, strings.Join(commands, "\n  "))
}

// shows returns the command that shows more of it.
func (w *Why) shows() string {
	command, in := shows[w.Kind], " --org "+w.Org
	switch {
	case w.Job != nil:
		return "llmguard jobs get " + w.Job.ID
	case len(w.Entries) > 0:
		return "llmguard usage entries" + in + " --filter id=" + w.Entries[0].ID
	case command != "":
		return "llmguard " + strings.NewReplacer("{id}", ShellWord(w.ID), "{org}", w.Org).Replace(command)
	case w.of != "":
		return w.related(w.of)
	case w.Key != "":
		in += " --key " + w.Key
	case w.User != "":
		in += " --user " + w.User
	}
	return "llmguard limits refused-calls" + in
}

// recordedAfter is how long after a call was refused its record can take.
const recordedAfter = 3 * time.Second

// unknown explains that nothing is recorded of an id. If its time can be read, it says what would be known of it.
func (h *whyHandler) unknown(c *call, id, only string) (any, error) {
	made, ok := madeAt(c, id)
	if !ok {
		return nil, wire.NotFound("id", "not_found", "Nothing has the id or name %.80q. llmguard why knows %s, and ids of "+
			"answers in the newest %d calls", id, strings.Join(whyKinds(), ", "), searchedEntries)
	}
	w := &Why{Kind: "unknown", ID: id, Org: only, Limits: []WhyLimit{}, Refusals: []Refusal{}, Ahead: []AheadJobs{}}
	hour, searched := made.UTC().Truncate(time.Hour), earlier(c.start, made.Add(ledger.CallAfter))
	orgs := h.dir.orgsOf(only)
	for _, org := range orgs {
		_, until, err := ledger.EntriesOf(c.r.Context(), h.opts.Budget.Ledger.Entries, org, id, made)
		if err != nil {
			return nil, err
		}
		if !until.IsZero() {
			searched = earlier(searched, until)
		}
	}
	list, err := h.usage.refusals(c, orgs, budget.RefusalFilter{From: hour, To: hour.Add(time.Hour)}, byKey)
	if err != nil {
		return nil, err
	}
	w.Refusals = append(w.Refusals, list...)
	refused := int64(0)
	for _, r := range w.Refusals {
		refused += r.Refused
	}
	w.Reason = fmt.Sprintf("Nothing is recorded of %.80s, made at %s: the ledger has no charge for it until %s. "+
		"Refused and delayed calls are kept for a day, finished jobs for %s. Calls refused in that hour in %s: %s.", id,
		figures.Second(made),
		figures.Second(searched), figures.Lasting(h.opts.File().ResultTTL), cmp.Or(only, "all orgs"), figures.Count(refused))
	if c.start.Sub(made) < recordedAfter {
		w.Reason += " It may not be recorded yet: repeat in a few seconds."
	}
	w.Commands = []string{fmt.Sprintf("llmguard limits refusals --from %s --to %s", hour.Format(time.RFC3339),
		hour.Add(time.Hour).Format(time.RFC3339))}
	return w, nil
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
