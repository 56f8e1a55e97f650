package budget

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/llmguard/llmguard/budget/outage"
	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/lua"
)

// runMost is the maximum number of calls per run, because Redis serves no other client meanwhile.
const runMost = 32

var errReplies = errors.New("the script's reply has the wrong number of calls")

// Join returns a function that combines the holds of one batch into one script run, and likewise
// its settles; on a cluster, into one run per hash tag. Each call gets the same reply as on its own. It
// is made for redisconn.Joined; other commands of the batch are sent unchanged. It is safe for
// concurrent use.
func Join(rdb redisconn.DB) func(cmds []redisconn.Reply) func(context.Context, redisconn.Pipe) bool {
	return func(cmds []redisconn.Reply) func(context.Context, redisconn.Pipe) bool {
		if !several(cmds) {
			return nil
		}
		f := &joined{rdb: rdb, cluster: rdb.Cluster()}
		f.sort(cmds)
		return f.step
	}
}

// several reports whether there are requests to join; a single one is sent as it is.
func several(cmds []redisconn.Reply) bool {
	requests := 0
	for _, cmd := range cmds {
		if requestOf(cmd) != nil {
			requests++
		}
	}
	return requests > 1
}

// joined is one batch.
type joined struct {
	rdb     redisconn.DB
	cluster bool
	groups  []*group
	others  []redisconn.Reply // sent unchanged
	sent    []*run
}

// sort groups the requests that can run together.
func (f *joined) sort(cmds []redisconn.Reply) {
	open := map[common]*group{}
	for _, cmd := range cmds {
		r := requestOf(cmd)
		if r == nil {
			f.others = append(f.others, cmd)
			continue
		}
		g := open[r.common]
		if g == nil || len(g.requests) == runMost || !g.add(r) {
			g = newGroup(r)
			open[r.common] = g
			f.groups = append(f.groups, g)
		}
	}
}

// step sends the runs and then reads their results; see redisconn.Join.
func (f *joined) step(ctx context.Context, pipe redisconn.Pipe) (again bool) {
	if f.groups != nil {
		f.pack()
	} else {
		f.sent = f.read()
	}
	for _, u := range f.sent {
		u.cmd = f.rdb.Command(ctx, u.args(u.text)...)
		pipe.Add(ctx, u.cmd)
	}
	for _, cmd := range f.others {
		pipe.Add(ctx, cmd)
	}
	f.groups, f.others = nil, nil
	return len(f.sent) > 0
}

// pack distributes the groups over runs.
func (f *joined) pack() {
	slices.SortStableFunc(f.groups, func(a, b *group) int { return strings.Compare(a.script.name, b.script.name) })
	var open *run
	for _, g := range f.groups {
		if open == nil || open.groups[0].script != g.script || f.cluster || open.n+len(g.requests) > runMost ||
			open.groups[0].now != g.now {
			open = newRun(g)
			f.sent = append(f.sent, open)
			continue
		}
		open.groups, open.n = append(open.groups, g), open.n+len(g.requests)
	}
}

// read gives each call its reply and returns the runs that have to be sent again: a run whose
// script the server does not know, and each call on its own if the server refused their run as a
// whole, because an error caused by one call must not affect the others.
func (f *joined) read() []*run {
	var again []*run
	for _, u := range f.sent {
		err := u.cmd.Err()
		switch {
		case redisconn.NoScript(err) && !u.text:
			u.text = true
			again = append(again, u)
		case err != nil && u.n > 1 && (!outage.Unreachable(err) || lua.Full(err)): // refused without a write
			u.each(func(_ int, r *request) { again = append(again, newRun(newGroup(r))) })
		default:
			u.answer()
		}
	}
	return again
}

// answer gives each call its reply.
func (u *run) answer() {
	replies, err := u.cmd.StringSlice()
	if err == nil && len(replies) != u.n {
		err = errReplies
	}
	u.each(func(i int, r *request) {
		if err != nil {
			r.SetErr(err)
			return
		}
		r.SetVal([]any{replies[i]})
	})
}

func (u *run) each(do func(i int, r *request)) {
	i := 0
	for _, g := range u.groups {
		for _, r := range g.requests {
			do(i, r)
			i++
		}
	}
}
