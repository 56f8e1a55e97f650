package budget

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// request is what one call asks of hold, settle, void or expire. It is a command of its own:
// its arguments are made when it is sent. Requests that leave together become one run
// of the script, see Join. After that it has its reply, a list of one.
type request struct {
	*redis.Cmd
	common
	id     string // of the hold
	limits []limitUse
	hold   *holdRequest   // of the hold script
	ending *endingRequest // of the others
	text   bool           // the server does not know the script: its text is sent, too
}

// common is what all calls of an org have in common in one run.
type common struct {
	script     script
	now        any // as Store.given
	org, chunk string

	lease any   // hold: in us
	mark  int64 // hold

	days   *threeDays // the others
	ending *endingOptions
}

// limitUse is a limit, how it is read, and what the call wants of it.
type limitUse struct {
	name, kind, p1, p2 string // name is below the org's prefix

	enforced any // hold: 0 or 1
	amount   int64
	cost     int64
	want     any // ending: *int64, or a Metric's name when it expires
}

// sameRead reports whether two calls read a limit in the same way.
func (l *limitUse) sameRead(o *limitUse) bool {
	return l.kind == o.kind && l.p1 == o.p1 && l.p2 == o.p2
}

// holdRequest is what a call gives the hold script.
type holdRequest struct{ amounts, about string }

// endingRequest is what a call gives the scripts that end it.
type endingRequest struct {
	cost         any // nano-USD, or an ExpiredCharge
	estimated    any
	field, entry string
	numbers      [12]int64 // most, since, tokens and costs by class, and room for cost
}

// newRequest returns a request that servers of a cluster can tell the node of.
func newRequest(ctx context.Context, c common, id string, limits []limitUse) *request {
	cmd := redis.NewCmd(ctx, "evalsha", c.script.Hash(), 1, key(c.org, "holds"))
	r := &request{Cmd: cmd, common: c, id: id, limits: limits}
	r.SetFirstKeyPos(3)
	return r
}

// Args implements redis.Cmder.
func (r *request) Args() []any { return newRun(newGroup(r)).args(r.text) }

// answer returns the reply after the request was carried out.
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

// group is calls of one org in one run, with all their limits.
type group struct {
	common
	requests []*request
	of       []int // the numbers of the requests' limits, one request's after the other's
	limits   []*limitUse
	numbers  map[string]int // of the limits, by name
	ids      map[string]bool
}

func newGroup(r *request) *group {
	g := &group{common: r.common}
	g.add(r)
	return g
}

// add puts a request into the group, with its limits. It is false when the group has the
// call already, or reads a limit in another way, as while the configuration changes.
func (g *group) add(r *request) bool {
	if g.ids[r.id] || !g.readsAs(r) {
		return false
	}
	if len(g.requests) == 1 { // most groups have one request, and need no maps
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

// readsAs reports whether the group reads the limits that it has as the request does.
func (g *group) readsAs(r *request) bool {
	for i := range r.limits {
		if n := g.numbers[r.limits[i].name]; n > 0 && !g.limits[n-1].sameRead(&r.limits[i]) {
			return false
		}
	}
	return true
}

// run is one EVALSHA for the groups of several orgs.
type run struct {
	groups []*group
	n      int // requests
	cmd    *redis.Cmd
	text   bool // the server does not know the script: its text is sent, too
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
		size += 20 + 4*len(g.limits) + 17*len(g.requests) + 4*len(g.of)
	}
	first, keys := u.groups[0], 0
	all := make([]any, 3, size)
	all[0], all[1] = "evalsha", first.script.Hash()
	if text {
		all[0], all[1] = "eval", first.script.text
	}
	for _, g := range u.groups {
		names := g.keys()
		keys += len(names)
		for i := range names {
			all = append(all, &names[i]) // an interface of a string is a piece of memory each
		}
	}
	all[2] = keys
	all = append(all, first.now, len(u.groups))
	for _, g := range u.groups {
		all = g.appendArgs(all)
	}
	return all
}

// keys are the group's part of KEYS.
func (g *group) keys() []string {
	names := make([]string, 0, 11+len(g.limits))
	if g.days == nil {
		names = append(names, "holds", "leases", g.chunk, markName)
	} else {
		names = append(names, "leases", "holds", g.chunk, "ledger", "reconcile",
			g.days.keys[0], g.days.keys[1], g.days.keys[2], g.days.hours[0], g.days.hours[1], g.days.hours[2])
	}
	for _, l := range g.limits {
		names = append(names, l.name)
	}
	return stateKeys(g.org, nil, names...)
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

// appendArgs appends the call's part of ARGV; its limits have these numbers in the group.
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
	args = append(args, e.cost, &n[0], e.estimated, &n[1], &e.field, &e.entry,
		&n[2], &n[3], &n[4], &n[5], &n[6], &n[7], &n[8], &n[9], &n[10], len(r.limits))
	for i := range r.limits {
		args = append(args, numbers[i], r.limits[i].want)
	}
	return args
}
