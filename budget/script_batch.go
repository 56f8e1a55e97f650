package budget

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/lua"
)

// joinMost is how many calls one script carries out: Redis serves nobody else
// meanwhile.
const joinMost = 32

// joints are the scripts whose runs may be joined, by their SHA1.
var joints sync.Map // string -> *joint

// joint says how runs of one script become one of another.
type joint struct {
	many script
	// keys is how many a group has but for its limits', own how many arguments each of
	// its runs has, and each how many for each of its limits.
	keys, own, each int
	// key is what runs must have in common to share an org's part.
	key func(r run) groupKey
	// limits appends the limits of a run.
	limits func(r run, list []limitArgs) []limitArgs
	// add appends a group's part of KEYS and ARGV.
	add func(g *group, keys []string, args []any) ([]string, []any)
}

// groupKey is what the runs of a group have in common: keys of one org, and arguments.
type groupKey struct {
	limits int
	keys   [8]string
	args   [8]any
}

// run is one script call that may be joined.
type run struct {
	cmd  *redis.Cmd
	keys []any // strings or pointers to them
	args []any
}

// limitArgs is a limit's state and how it is read.
type limitArgs struct{ key, kind, p1, p2 string }

// group is runs of one org, with all their limits.
type group struct {
	joint   *joint
	key     groupKey
	older   *group // with the same first key
	runs    []run
	of      []int // the numbers of the runs' limits, one run's after the other's
	limits  []limitArgs
	numbers map[string]int // of the limits, by key
	ids     map[string]bool
	asked   []limitArgs // those of the run that is added
}

// each is how many limits each run has.
func (g *group) each() int { return len(g.of) / len(g.runs) }

// numbersOf are those of a run's limits.
func (g *group) numbersOf(run int) []int {
	n := g.each()
	return g.of[run*n : (run+1)*n]
}

// joinLeast is how many commands a flight has that is joined: with fewer it saves Redis
// less than it costs us.
const joinLeast = 8

// Join returns what has the holds of one flight carried out by one run of a script, and
// so its settles: on a cluster by a run for each org. Each call gets the reply that it
// would get by itself. It is made for redisconn.Joined; other commands of the flight are
// sent as they are. It is safe for concurrent use.
func Join(rdb redis.UniversalClient) func(cmds []redis.Cmder) func(context.Context, redis.Pipeliner) bool {
	return joinFrom(rdb, joinLeast)
}

// joinFrom is Join for flights of so many commands and more.
func joinFrom(rdb redis.UniversalClient, least int) func(cmds []redis.Cmder) func(context.Context, redis.Pipeliner) bool {
	_, cluster := rdb.(*redis.ClusterClient)
	return func(cmds []redis.Cmder) func(context.Context, redis.Pipeliner) bool {
		if len(cmds) < least {
			return nil
		}
		f := &joined{cluster: cluster}
		f.sort(cmds)
		return f.step
	}
}

// joined is one flight.
type joined struct {
	cluster bool
	groups  []*group
	alone   []redis.Cmder // to be sent as they are
	sent    []*batch
}

// batch is one run for the groups of several orgs, or a large one's part.
type batch struct {
	joint  *joint
	groups []*group
	cmd    *redis.Cmd
	keys   []string
	all    []any // of the command
	args   []any // those of them that are ARGV
	loaded bool  // sent with its text
}

// sort finds the runs that go together.
func (f *joined) sort(cmds []redis.Cmder) {
	open := map[openKey]*group{}
	for _, cmd := range cmds {
		r, j := runOf(cmd)
		if j == nil {
			f.alone = append(f.alone, cmd)
			continue
		}
		key := j.key(r)
		key.limits = len(r.keys)
		of := openKey{j, key.keys[0]}
		g := open[of]
		for g != nil && g.key != key {
			g = g.older
		}
		if g == nil || len(g.runs) == joinMost {
			g = &group{joint: j, key: key, older: open[of], runs: make([]run, 0, 4), numbers: map[string]int{}, ids: map[string]bool{}}
			open[of] = g
			f.groups = append(f.groups, g)
		}
		if !g.add(r) {
			f.alone = append(f.alone, cmd)
		}
	}
}

// openKey is what finds the group of a run, or one of few: a whole groupKey takes long
// to hash.
type openKey struct {
	joint *joint
	first string
}

// runOf takes a command apart; no joint: it is none that joins.
func runOf(cmd redis.Cmder) (run, *joint) {
	c, ok := cmd.(*redis.Cmd)
	if !ok {
		return run{}, nil
	}
	all := c.Args()
	if len(all) < 3 || all[0] != "evalsha" {
		return run{}, nil
	}
	found, ok := joints.Load(all[1])
	n, isInt := all[2].(int)
	if !ok || !isInt || len(all) < 3+n {
		return run{}, nil
	}
	return run{cmd: c, keys: all[3 : 3+n], args: all[3+n:]}, found.(*joint)
}

// step sends the runs, then reads what came of them; see redisconn.Join.
func (f *joined) step(ctx context.Context, pipe redis.Pipeliner) (again bool) {
	if f.groups != nil {
		f.pack()
		for _, b := range f.sent {
			b.cmd = redis.NewCmd(ctx, b.all...)
			b.cmd.SetFirstKeyPos(3)
			_ = pipe.Process(ctx, b.cmd) // only queues
		}
	} else {
		f.sent = f.read(ctx, pipe)
	}
	_ = pipe.BatchProcess(ctx, f.alone...) // only queues
	f.groups, f.alone = nil, nil
	return len(f.sent) > 0
}

// pack puts the groups into runs. A call that would be by itself in one is sent as
// it is.
func (f *joined) pack() {
	slices.SortStableFunc(f.groups, func(a, b *group) int { return strings.Compare(a.joint.many.name, b.joint.many.name) })
	var open *batch
	n := 0
	for _, g := range f.groups {
		if open == nil || open.joint != g.joint || f.cluster || n+len(g.runs) > joinMost ||
			open.groups[0].runs[0].args[0] != g.runs[0].args[0] { // now
			open, n = &batch{joint: g.joint}, 0
			f.sent = append(f.sent, open)
		}
		open.groups = append(open.groups, g)
		n += len(g.runs)
	}
	full := f.sent[:0]
	for _, b := range f.sent {
		if len(b.groups) == 1 && len(b.groups[0].runs) == 1 {
			f.alone = append(f.alone, b.groups[0].runs[0].cmd)
			continue
		}
		b.build()
		full = append(full, b)
	}
	f.sent = full
}

// build makes the EVALSHA of the run.
func (b *batch) build() {
	keys, args := 0, 2
	for _, g := range b.groups {
		keys += b.joint.keys + len(g.limits)
		args += 10 + 3*len(g.limits) + b.joint.own*len(g.runs) + b.joint.each*len(g.of)
	}
	b.keys = make([]string, 0, keys)
	all := make([]any, 3+keys, 3+keys+args)
	all = append(all, b.groups[0].runs[0].args[0], len(b.groups))
	for _, g := range b.groups {
		b.keys, all = b.joint.add(g, b.keys, all)
	}
	all[0], all[1], all[2] = "evalsha", b.joint.many.Hash(), keys
	for i := range b.keys {
		all[3+i] = &b.keys[i] // an interface of a string is a piece of memory each
	}
	b.all, b.args = all, all[3+keys:]
}

// read gives each call its reply, and queues what has to be sent by itself: everything
// when the store refused the run as a whole, for what is wrong with one call is then
// that call's alone. It returns the runs that have to be sent again.
func (f *joined) read(ctx context.Context, pipe redis.Pipeliner) []*batch {
	var again []*batch
	for _, b := range f.sent {
		replies, err := b.cmd.StringSlice()
		switch {
		case redis.HasErrorPrefix(err, "NOSCRIPT") && !b.loaded:
			b.loaded = true
			b.cmd = b.joint.many.Eval(ctx, pipe, b.keys, b.args...)
			again = append(again, b)
			continue
		case err != nil && unavailable(err) && !lua.Full(err): // a refusal of a limit writes nothing
			b.each(func(_ int, cmd *redis.Cmd) { cmd.SetErr(err) })
			continue
		}
		b.each(func(i int, cmd *redis.Cmd) {
			if i >= len(replies) || replies[i] == "alone" {
				f.alone = append(f.alone, cmd)
				return
			}
			cmd.SetVal(replies[i])
		})
	}
	return again
}

func (b *batch) each(do func(i int, cmd *redis.Cmd)) {
	i := 0
	for _, g := range b.groups {
		for _, r := range g.runs {
			do(i, r.cmd)
			i++
		}
	}
}

// text is an argument as Redis gets it; those of scripts are strings and whole numbers.
func text(arg any) string {
	switch v := arg.(type) {
	case string:
		return v
	case *string:
		return *v
	case int64:
		return strconv.FormatInt(v, 10)
	case int:
		return strconv.Itoa(v)
	default:
		return ""
	}
}

// add puts a run into the group, with its limits. It is false when the group has the
// call already, or reads a limit in another way, as while the configuration changes.
func (g *group) add(r run) bool {
	id := text(r.args[1])
	if g.ids[id] {
		return false
	}
	g.asked = g.joint.limits(r, g.asked[:0])
	from := len(g.of)
	for i := range g.asked {
		l := &g.asked[i]
		n, known := g.numbers[l.key]
		if known && g.limits[n-1] != *l {
			g.of = g.of[:from]
			return false
		}
		g.of = append(g.of, n)
	}
	for i, n := range g.of[from:] {
		if n == 0 {
			g.limits = append(g.limits, g.asked[i])
			g.of[from+i] = len(g.limits)
			g.numbers[g.asked[i].key] = len(g.limits)
		}
	}
	g.ids[id] = true
	g.runs = append(g.runs, r)
	return true
}
