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

	"github.com/llmguard/llmguard/internal/diagnose"
	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/pricing"
)

const (
	incidentsAge = 10 * time.Second
	// maxIncidents is how many the overview shows; it counts the others. maxOfKind is how many of a kind come before
	// the first of the other kinds.
	maxIncidents = 20
	maxOfKind    = 6
	// maxWatched bounds the users whose limits are read: those with the highest cost in a day, and those who wait or
	// were refused.
	maxWatched = 100
)

// incident is what an operator may have to act on, about one subject.
type incident struct {
	ID    string // of the element on the page
	Title string // the subject, or what is wrong
	Link  string // its page; empty: none
	Facts []string
	Acts  []form // without token and address
	Links []incidentLink
	Grave bool // money is at stake, or calls are refused

	of     userID       // the user or org that it is about; empty: neither
	cost   pricing.Nano // of the last hours
	rank   int          // of its most urgent kind
	weight int64        // how many calls or jobs it is about
}

type incidentLink struct{ Text, Link string }

func (i *incident) fact(format string, args ...any) {
	i.Facts = append(i.Facts, fmt.Sprintf(format, args...))
}

// act adds a button that starts an action. Fields are alternating names and values.
func (i *incident) act(name, label string, fields ...string) {
	i.Acts = append(i.Acts, newForm("", "", name, label, fields...))
}

// link adds a link, once for each text.
func (i *incident) link(text, link string) {
	if !slices.ContainsFunc(i.Links, func(l incidentLink) bool { return l.Text == text }) {
		i.Links = append(i.Links, incidentLink{text, link})
	}
}

// incidentKinds are the kinds of incidents, the most urgent first. What several kinds find about one subject is one
// incident. To add a kind, add a row.
var incidentKinds = []struct {
	name  string
	finds func(context.Context, *watch) error
}{
	{"limits", nearLimits},
	{"spend jumps", spendJumps},
	{"brakes", firedBrakes},
	{"stops", stopsInForce},
	{"refusals", refusedCalls},
	{"pools", poolFindings},
	{"old jobs", oldJobs},
	{"limit requests", pendingRequests},
	{"checks", otherFindings},
}

// watch finds incidents. It holds what several kinds need.
type watch struct {
	*Console
	now      time.Time
	hours    *hourly
	refused  map[refusedBy]*refusals
	flows    map[userID]waitingJobs
	findings []diagnose.Finding
	snapshot *tenants.Snapshot

	rank  int // of the kind that is being looked for
	found map[string]*incident
}

// waitingJobs is the waiting work of a user in all pools. Old is a flow that waits for longer than it should.
type waitingJobs struct {
	jobs   int64
	oldest time.Time
	old    string // its pool; empty: none
}

// findIncidents returns all incidents, the most urgent first. A kind that cannot be read is an incident itself.
func (c *Console) findIncidents(ctx context.Context) ([]*incident, error) {
	w := &watch{
		Console: c, now: c.o.Now(), found: map[string]*incident{}, snapshot: c.o.Snapshot(), findings: c.o.Findings(ctx),
		refused: map[refusedBy]*refusals{}, flows: map[userID]waitingJobs{},
	}
	if err := w.read(ctx); err != nil {
		return nil, err
	}
	for rank, kind := range incidentKinds {
		w.rank = rank
		if err := kind.finds(ctx, w); err != nil {
			w.about("unread-"+kind.name, "The "+kind.name+" could not be read").fact("%v", err)
		}
	}
	out := slices.Collect(maps.Values(w.found))
	for _, one := range out {
		w.complete(one)
	}
	order := func(a, b *incident) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(b.cost, a.cost), cmp.Compare(b.weight, a.weight),
			strings.Compare(a.ID, b.ID))
	}
	slices.SortFunc(out, order)
	ofKind := make([]int, len(incidentKinds))
	for _, one := range out {
		ofKind[one.rank]++
		if ofKind[one.rank] > maxOfKind {
			one.rank += len(incidentKinds)
		}
	}
	slices.SortFunc(out, order)
	return out, nil
}

// about returns the incident with an id, which it makes if there is none.
func (w *watch) about(id, title string) *incident {
	one := w.found[id]
	if one == nil {
		one = &incident{ID: "incident-" + id, Title: title, rank: w.rank}
		w.found[id] = one
	}
	return one
}

// user returns the incident about a user, or about an org.
func (w *watch) user(of userID) *incident {
	title, link := "org "+of.Org, pathOf("orgs", of.Org)
	if of.User != "" {
		title, link = of.User+" ("+of.Org+")", pathOf("orgs", of.Org, "users", of.User)
	}
	one := w.about(of.Org+"/"+of.User, title)
	one.of, one.Link = of, link
	return one
}

// complete adds what a user or an org spent and has waiting, and how to stop its spending.
func (w *watch) complete(i *incident) {
	if i.of.Org == "" {
		return
	}
	var facts []string
	i.cost = w.hours.Spent[i.of]
	if i.cost > 0 {
		share := figures.Share(int64(i.cost), int64(w.hours.All))
		facts = append(facts, figures.USD(i.cost)+" in 24 hours, "+share+" of all")
	}
	if f := w.flows[i.of]; f.jobs > 0 {
		facts = append(facts, figures.Plural(f.jobs, "job")+" waiting, the oldest for "+figures.Lasting(w.now.Sub(f.oldest)))
	}
	i.Facts = append(facts, i.Facts...)
	acts := i.Acts
	i.Acts = nil
	calls := url.Values{"org": {i.of.Org}}
	if i.of.User != "" {
		calls.Set("q", "user="+i.of.User)
		w.userStop(i)
	} else if w.snapshot.Stops[i.of.Org] == nil {
		i.act("stop-spending", "Stop spending", "org", i.of.Org)
	}
	i.Acts = append(i.Acts, acts...)
	i.link("Calls", Path+"calls?"+calls.Encode())
}

// userStop adds the button that stops a user, or lets the user's calls run again.
func (w *watch) userStop(i *incident) {
	o := w.o.Tenants().Org(i.of.Org)
	if o == nil || o.User(i.of.User) == nil {
		return
	}
	if o.User(i.of.User).Disabled {
		i.fact("the user is disabled")
		i.act("enable-user", "Enable", "org", i.of.Org, "user", i.of.User)
		return
	}
	i.act("disable-user", "Stop spending", "org", i.of.Org, "user", i.of.User)
}
