package budget

import (
	"context"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/budget/outage"
	"github.com/llmguard/llmguard/internal/redisconn"
)

// request is a call's request to hold, settle, void or expire. It is a Redis command whose
// arguments are built when it is sent. Requests that are sent together become one script run, see
// Join; each then has its own reply, a list of one.
type request struct {
	redisconn.Late
	common
	id     string // of the hold
	limits []limitUse
	hold   *holdRequest   // of the hold script
	ending *endingRequest // of the others
	text   bool           // the server does not know the script, so send its text
}

// common is what all calls of a place share in one run.
type common struct {
	script       script
	now          any // as clock.given
	place, chunk string

	lease any   // hold: in us
	mark  int64 // hold

	days   *threeDays // the others
	ending *endingOptions
}

// limitUse is a limit, how to read it, and what the call requests of it.
type limitUse struct {
	name, kind, p1, p2 string // name is below the org's prefix

	enforced any // hold: 0 or 1
	amount   int64
	cost     int64
	want     any // ending: *int64, or a Metric's name when it expires
}

// sameRead reports whether both limits are read in the same way.
func (l *limitUse) sameRead(o *limitUse) bool {
	return l.kind == o.kind && l.p1 == o.p1 && l.p2 == o.p2
}

// holdRequest holds a call's arguments of the hold script.
type holdRequest struct{ amounts, about string }

// endingRequest holds a call's arguments of the scripts that end it.
type endingRequest struct {
	cost      any // nano-USD, or an ExpiredCharge
	estimated any
	field     string
	labels    string // fields of the sums by label
	entry     string
	sums      []ledger.CostSum
	numbers   [12]int64 // most, since, tokens and costs by class; the last is storage for cost
}

// newRequest returns a request with a first key, by which a cluster client finds the node.
func newRequest(ctx context.Context, by Scripts, c common, id string, limits []limitUse) *request {
	r := &request{common: c, id: id, limits: limits}
	r.Late = by.Late(ctx, r, "evalsha", "", 1, ledger.Key(c.place, "holds"))
	return r
}

// requestOf returns the request that a command sends; nil for other commands.
func requestOf(cmd redisconn.Reply) *request {
	late, ok := cmd.(redisconn.Late)
	if !ok {
		return nil
	}
	r, _ := late.Builder().(*request)
	return r
}

// Args implements redisconn.Builder.
func (r *request) Args() []any { return newRun(newGroup(r)).args(r.text) }

// answer returns the reply of an executed request.
func (r *request) answer() (string, error) {
	list, err := r.StringSlice()
	if err != nil {
		return "", err
	}
	if len(list) != 1 {
		return "", errReplies
	}
	return list[0], nil
}

// group is the calls of one place in one run, with all their limits.
type group struct {
	common
	requests []*request
	of       []int // indexes of the requests' limits, request by request
	limits   []*limitUse
	numbers  map[string]int // of the limits, by name
	ids      map[string]bool
}

func newGroup(r *request) *group {
	g := &group{common: r.common}
	g.add(r)
	return g
}

// add adds a request with its limits to the group. It returns false if the group already has the
// call, or reads a limit differently, as happens while the configuration changes.
func (g *group) add(r *request) bool {
	if g.ids[r.id] || !g.readsAs(r) {
		return false
	}
	if len(g.requests) == 1 { // most groups have one request and need no maps
		g.ids, g.numbers = map[string]bool{g.requests[0].id: true}, make(map[string]int, len(g.limits))
		if r.id == g.requests[0].id {
			return false
		}
		for i, l := range g.limits {
			g.numbers[l.name] = i + 1
		}
		if !g.readsAs(r) {
			return false
		}
	}
	for i := range r.limits {
		l := &r.limits[i]
		n := g.numbers[l.name]
		if n == 0 {
			g.limits = append(g.limits, l)
			n = len(g.limits)
			if g.numbers != nil {
				g.numbers[l.name] = n
			}
		}
		g.of = append(g.of, n)
	}
	if g.ids != nil {
		g.ids[r.id] = true
	}
	g.requests = append(g.requests, r)
	return true
}

// readsAs reports whether the group reads the limits that it already has as the request does.
func (g *group) readsAs(r *request) bool {
	for i := range r.limits {
		if n := g.numbers[r.limits[i].name]; n > 0 && !g.limits[n-1].sameRead(&r.limits[i]) {
			return false
		}
	}
	return true
}

// run is one EVALSHA for the groups of several places.
type run struct {
	groups []*group
	n      int // requests
	cmd    redisconn.Reply
	text   bool // the server does not know the script, so send its text
}

func newRun(groups ...*group) *run {
	u := &run{groups: groups}
	for _, g := range groups {
		u.n += len(g.requests)
	}
	return u
}

// args returns the command, with KEYS and ARGV as lua/hold.lua and lua/endings.lua list them.
func (u *run) args(text bool) []any {
	size := 5
	for _, g := range u.groups {
		size += 20 + 4*len(g.limits) + 19*len(g.requests) + 4*len(g.of)
	}
	first, keys := u.groups[0], 0
	all := make([]any, 3, size)
	all[0], all[1] = "evalsha", first.script.Hash()
	if text {
		all[0], all[1] = "eval", first.script.Text()
	}
	for _, g := range u.groups {
		names := g.keys()
		keys += len(names)
		for i := range names {
			all = append(all, &names[i]) // a pointer: converting a string to an interface would allocate
		}
	}
	all[2] = keys
	all = append(all, first.now, len(u.groups))
	for _, g := range u.groups {
		all = g.appendArgs(all)
	}
	return all
}

// keys returns the group's part of KEYS.
func (g *group) keys() []string {
	names := make([]string, 0, 14+len(g.limits))
	if g.days == nil {
		names = append(names, "holds", "leases", g.chunk, outage.MarkName)
	} else {
		names = append(names, "leases", "holds", g.chunk, "ledger", "reconcile",
			g.days.keys[0], g.days.keys[1], g.days.keys[2], g.days.hours[0], g.days.hours[1], g.days.hours[2],
			g.days.label[0], g.days.label[1], g.days.label[2])
	}
	for _, l := range g.limits {
		names = append(names, l.name)
	}
	for _, r := range g.requests {
		if r.ending == nil {
			break
		}
		for _, sum := range r.ending.sums {
			names = append(names, sum.Name)
		}
	}
	return stateKeys(g.place, nil, names...)
}

// appendArgs appends the group's part of ARGV.
func (g *group) appendArgs(args []any) []any {
	if o := g.ending; o == nil {
		args = append(args, g.lease, recordLifeArg, g.mark)
	} else {
		args = append(args, g.days.first, o.horizon, o.doneLife, o.fields, o.ledgerLength, o.ledgerLife, o.rollupLife)
	}
	args = append(args, len(g.limits), len(g.requests))
	for _, l := range g.limits {
		args = append(args, &l.kind, &l.p1, &l.p2)
	}
	for _, r := range g.requests {
		args = append(args, &r.id)
	}
	of := g.of
	for _, r := range g.requests {
		args = r.appendArgs(args, of[:len(r.limits)])
		of = of[len(r.limits):]
	}
	return args
}

// appendArgs appends the call's part of ARGV; numbers are the indexes of its limits in the group.
func (r *request) appendArgs(args []any, numbers []int) []any {
	if h := r.hold; h != nil {
		args = append(args, &h.amounts, &h.about, len(r.limits))
		for i := range r.limits {
			l := &r.limits[i]
			args = append(args, numbers[i], l.enforced, &l.amount, &l.cost)
		}
		return args
	}
	e := r.ending
	n := &e.numbers
	args = append(args, e.cost, &n[0], e.estimated, &n[1], &e.field, &e.labels, &e.entry,
		&n[2], &n[3], &n[4], &n[5], &n[6], &n[7], &n[8], &n[9], &n[10], len(e.sums))
	for i := range e.sums {
		args = append(args, e.sums[i].Life)
	}
	args = append(args, len(r.limits))
	for i := range r.limits {
		args = append(args, numbers[i], r.limits[i].want)
	}
	return args
}
