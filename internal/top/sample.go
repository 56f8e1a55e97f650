package top

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/queue"
)

const (
	maxEntries = 20_000          // newest entries to read per org
	maxSlow    = 100             // calls in Snapshot.Slow
	maxUsers   = 40              // users with the highest cost whose limits are read
	maxCounted = 10_000          // waiting jobs per pool that are counted by user
	maxPeeked  = 200             // orgs with the highest cost whose limits are read
	sumsAge    = 5 * time.Second // minimum age of the day's sums before they are read again
)

// Source is what to sample. All fields are required.
type Source struct {
	Queue *queue.Queue
	Orgs  map[string]*guard.Org
}

// Sampler takes snapshots. It remembers the calls of the last minute, so that a sample reads
// only new ones. It must be used by one goroutine at a time.
type Sampler struct {
	books  *budget.Store
	now    func() time.Time
	most   int // newest entries to read per org
	states map[string]*orgState
}

// orgState is what is known about an org.
type orgState struct {
	recent  []budget.Entry  // of the last Span, oldest first
	last    string          // LedgerID of the newest entry read
	read    map[string]bool // LedgerIDs of the entries that the next sample reads again
	partial bool
	users   map[string]pricing.Nano // what each was charged today, as last read
	refused map[string]int64        // calls of each user refused by limits today
	next    time.Time               // when today's sums may be read again
}

// NewSampler returns a Sampler without history.
func NewSampler(books *budget.Store) *Sampler {
	return &Sampler{books: books, now: time.Now, most: maxEntries, states: map[string]*orgState{}}
}

// Sample takes a snapshot. It reads the limits of the users with the highest cost, and of user,
// given as "org/user", unless it is empty.
func (s *Sampler) Sample(ctx context.Context, from Source, user string) (*Snapshot, error) {
	snap := &Snapshot{At: s.now().UTC(), Orgs: []Spender{}, Users: []Spender{}, Pools: []Pool{}, Slow: []Ended{}}
	for id := range from.Orgs {
		state, err := s.read(ctx, id)
		if err != nil {
			return nil, err
		}
		state.addTo(snap, id)
	}
	if err := pools(ctx, from.Queue, snap); err != nil {
		return nil, err
	}
	byCost := func(a, b Spender) int {
		return cmp.Or(cmp.Compare(b.Cost, a.Cost), cmp.Compare(b.Today, a.Today), cmp.Compare(a.Org, b.Org),
			cmp.Compare(a.User, b.User))
	}
	slices.SortFunc(snap.Orgs, byCost)
	slices.SortFunc(snap.Users, byCost)
	slices.SortFunc(snap.Slow, func(a, b Ended) int {
		return cmp.Or(cmp.Compare(b.Waited+b.Took, a.Waited+a.Took), cmp.Compare(a.Call, b.Call))
	})
	snap.Slow = snap.Slow[:min(maxSlow, len(snap.Slow))]
	return snap, s.limits(ctx, from.Orgs, snap, user)
}

// read updates what is known about an org.
func (s *Sampler) read(ctx context.Context, org string) (*orgState, error) {
	state, now := s.states[org], s.now()
	if state == nil {
		state = &orgState{}
		s.states[org] = state
	}
	if err := s.readEntries(ctx, org, state, now); err != nil {
		return nil, err
	}
	if now.Before(state.next) {
		return state, nil
	}
	sums, err := s.books.Ledger.Rollups(ctx, org, now, now.Add(1))
	if err != nil {
		return nil, err
	}
	state.users = map[string]pricing.Nano{}
	for _, r := range sums {
		state.users[r.User] += r.Cost
	}
	if err := s.readRefused(ctx, org, state, now); err != nil {
		return nil, err
	}
	state.next = now.Add(max(sumsAge, 10*s.now().Sub(now))) // reading a large org must not keep Redis busy
	return state, nil
}

// readRefused reads what limits refused today.
func (s *Sampler) readRefused(ctx context.Context, org string, state *orgState, now time.Time) error {
	list, err := s.books.Refusals.List(ctx, org, now.UTC().Truncate(24*time.Hour), now.Add(time.Hour))
	state.refused = map[string]int64{}
	for _, r := range list {
		state.refused[r.User] += r.Refused
	}
	return err
}

// errEnough stops reading the ledger.
var errEnough = errors.New("enough")

// overlap is how much of what was read is read again. The parts of an org that is spread are read one
// after the other, from servers whose clocks differ, so an entry can appear before the newest one.
const overlap = 2 * time.Second

// readEntries reads new ledger entries, newest first, and drops those older than Span.
func (s *Sampler) readEntries(ctx context.Context, org string, state *orgState, now time.Time) error {
	from := now.Add(-Span)
	if at, ok := ledgerTime(state.last); ok && at.Add(-overlap).After(from) {
		from = at.Add(-overlap)
	}
	var fresh []budget.Entry
	read, last := map[string]bool{}, ""
	err := s.books.Ledger.Recent(ctx, org, from, time.Time{}, func(e budget.Entry) error {
		if len(fresh) == s.most {
			return errEnough
		}
		last, read[e.LedgerID] = cmp.Or(last, e.LedgerID), true
		if !state.read[e.LedgerID] {
			fresh = append(fresh, e)
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return err
	}
	full := len(fresh) == s.most
	state.last, state.read = cmp.Or(last, state.last), read
	slices.Reverse(fresh)
	all := append(state.recent, fresh...)
	all = all[max(0, len(all)-s.most):]
	begin := now.Add(-Span)
	old, _ := slices.BinarySearchFunc(all, begin, func(e budget.Entry, t time.Time) int { return e.At.Compare(t) })
	state.recent = slices.Clone(all[old:])
	state.partial = full || len(state.recent) == s.most
	return nil
}

// ledgerTime returns the time in a LedgerID.
func ledgerTime(id string) (time.Time, bool) {
	ms, _, _ := strings.Cut(id, "-")
	n, err := strconv.ParseInt(ms, 10, 64)
	return time.UnixMilli(n), err == nil
}

// today returns what each user was charged on this UTC day: the sums as last read, or the total
// of the recent entries if that is higher.
func (o *orgState) today(now time.Time) map[string]pricing.Nano {
	midnight := now.UTC().Truncate(24 * time.Hour)
	recent, out := map[string]pricing.Nano{}, map[string]pricing.Nano{}
	for _, e := range o.recent {
		if !e.At.Before(midnight) {
			recent[e.User] += e.Cost
		}
	}
	maps.Copy(out, o.users)
	for user, cost := range recent {
		out[user] = max(out[user], cost)
	}
	return out
}

const sparkSteps = int(Span / SparkStep)

// addTo adds an org and its users to a snapshot.
func (o *orgState) addTo(snap *Snapshot, id string) {
	org, users := Spender{Org: id, Limits: []Limit{}, Spark: make([]int64, sparkSteps)}, map[string]*Spender{}
	of := func(user string) *Spender {
		if users[user] == nil {
			users[user] = &Spender{Org: id, User: user, Limits: []Limit{}, Spark: make([]int64, sparkSteps)}
		}
		return users[user]
	}
	for name, cost := range o.today(snap.At) {
		of(name).Today = cost
		org.Today += cost
	}
	for name, n := range o.refused {
		of(name).Refused = n
		org.Refused += n
	}
	for i := range o.recent {
		e, user := &o.recent[i], of(o.recent[i].User)
		org.Cost += e.Cost
		user.Cost += e.Cost
		step := sparkSteps - 1 - max(min(int(snap.At.Sub(e.At)/SparkStep), sparkSteps-1), 0)
		org.Spark[step] += int64(e.Cost)
		user.Spark[step] += int64(e.Cost)
		if e.Kind != budget.KindSettle && e.Kind != budget.KindExpire {
			continue // a correction of a call that was counted
		}
		for _, one := range []*Spender{&org, user} {
			one.Calls++
			if e.Status >= 400 {
				one.Failed++
			}
		}
		snap.Slow = append(snap.Slow, Ended{
			Call: e.ID, At: e.At.UTC(), Org: id, User: e.User, Model: e.Model, Outcome: e.Outcome, Status: e.Status,
			Waited: time.Duration(e.WaitedMS) * time.Millisecond, Took: time.Duration(e.TookMS) * time.Millisecond, Cost: e.Cost,
		})
	}
	snap.Calls += org.Calls
	snap.Cost += org.Cost
	snap.Today += org.Today
	snap.Partial = snap.Partial || o.partial
	snap.Orgs = append(snap.Orgs, org)
	for _, u := range users {
		snap.Users = append(snap.Users, *u)
	}
}

// limits reads the state of the orgs' own limits, and of some users' limits.
func (s *Sampler) limits(ctx context.Context, orgs map[string]*guard.Org, snap *Snapshot, user string) error {
	for i := range snap.Orgs {
		one := &snap.Orgs[i]
		if i == maxPeeked {
			break
		}
		var err error
		one.Limits, err = s.standing(ctx, orgs[one.Org].Limits, budget.Call{Org: one.Org}, budget.Org)
		if err != nil {
			return err
		}
	}
	for i := range snap.Users {
		one := &snap.Users[i]
		if orgs[one.Org] == nil || i >= maxUsers && (user == "" || one.Org+"/"+one.User != user) {
			continue
		}
		var err error
		one.Limits, err = s.standing(ctx, orgs[one.Org].LimitsFor(one.User, ""), budget.Call{Org: one.Org, User: one.User},
			budget.User)
		if err != nil {
			return err
		}
	}
	return nil
}

// standing returns the state of the limits of one kind of subject, fullest first.
func (s *Sampler) standing(ctx context.Context, limits []budget.Limit, call budget.Call,
	of budget.Subject,
) ([]Limit, error) {
	var asked []budget.Limit
	for _, l := range limits {
		if l.Subject == of && l.Counts(call) {
			asked = append(asked, l)
		}
	}
	out := []Limit{}
	if len(asked) == 0 {
		return out, nil
	}
	states, err := s.books.Peek(ctx, asked, call)
	if err != nil {
		return nil, err
	}
	for _, st := range states {
		out = append(out, Limit{
			Name: st.LimitID, Metric: string(st.Metric), Mode: string(cmp.Or(st.Mode, budget.Enforce)), Used: st.Used,
			Held: st.Held, Amount: st.Amount, Reset: ending(st.Reset),
		})
	}
	slices.SortStableFunc(out, func(a, b Limit) int { return cmp.Compare(b.Share(), a.Share()) })
	return out, nil
}

// ending returns a duration, or nil if it is endless.
func ending(d time.Duration) *time.Duration {
	if d >= budget.Endless {
		return nil
	}
	return &d
}

// pools reads the contents of the queue.
func pools(ctx context.Context, q *queue.Queue, snap *Snapshot) error {
	for _, p := range q.Pools() {
		d, err := q.Depth(ctx, p.ID)
		if err != nil {
			return err
		}
		one := Pool{
			ID: p.ID, Waiting: map[string]int64{}, Running: d.Running(), Parked: d.Parked, Dead: d.Dead,
			Requests: d.Requests, RPM: d.RPM, Tokens: d.Tokens, TPM: d.TPM, Pace: d.Pace, Blocked: d.Blocked,
		}
		for class := queue.Interactive; class <= queue.Batch; class++ {
			one.Waiting[class.String()] = d.Waiting[class]
		}
		if err := waiting(ctx, q, snap, &one); err != nil {
			return err
		}
		snap.Waiting += one.waiting()
		snap.Running += one.Running
		snap.Pools = append(snap.Pools, one)
	}
	slices.SortStableFunc(snap.Pools, func(a, b Pool) int {
		return cmp.Or(cmp.Compare(b.waiting(), a.waiting()), cmp.Compare(a.ID, b.ID))
	})
	return nil
}

// waiting adds the waiting jobs of a pool to their orgs and users. A pool with very many
// waiting jobs is skipped, because every sample would read all of them.
func waiting(ctx context.Context, q *queue.Queue, snap *Snapshot, p *Pool) error {
	n := p.waiting()
	if n > maxCounted {
		snap.Uncounted = append(snap.Uncounted, p.ID)
	}
	if n == 0 || n > maxCounted {
		return nil
	}
	flows, err := q.Waiting(ctx, p.ID)
	for _, f := range flows {
		for _, id := range []Spender{{Org: f.Org}, {Org: f.Org, User: f.User}} {
			list := &snap.Orgs
			if id.User != "" {
				list = &snap.Users
			}
			at := slices.IndexFunc(*list, func(one Spender) bool { return one.Org == id.Org && one.User == id.User })
			if at < 0 && id.User == "" { // of an org that is not part of the sample
				break
			}
			if at < 0 {
				at = len(*list)
				*list = append(*list, Spender{Org: id.Org, User: id.User, Limits: []Limit{}, Spark: make([]int64, sparkSteps)})
			}
			(*list)[at].Waiting += f.Jobs
		}
	}
	return err
}
