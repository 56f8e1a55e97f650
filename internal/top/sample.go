package top

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
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

// Source is what to sample. Queue, Orgs and By are required.
type Source struct {
	Queue *queue.Queue
	Orgs  map[string]*guard.Org
	By    ledger.Dimension // of Snapshot.Groups
	// Filter selects calls of the last minute; FilterText is its text.
	Filter     ledger.Filter
	FilterText string
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
	recent  []ledger.Entry  // of the last Span, oldest first
	last    string          // LedgerID of the newest entry read
	read    map[string]bool // LedgerIDs of the entries that the next sample reads again
	partial bool
	users   map[string]pricing.Nano // what each was charged today, as last read
	refused map[string]refusals     // of each user, today
	next    time.Time               // when today's sums may be read again
	ends    ends
}

// byUser groups the sums of today.
var byUser = ledger.By("user")

// NewSampler returns a Sampler without history.
func NewSampler(books *budget.Store) *Sampler {
	return &Sampler{books: books, now: time.Now, most: maxEntries, states: map[string]*orgState{}}
}

// Sample takes a snapshot. It reads the limits of the users with the highest cost, and of user,
// given as "org/user", unless it is empty.
func (s *Sampler) Sample(ctx context.Context, from Source, user string) (*Snapshot, error) {
	snap := &Snapshot{
		At: s.now().UTC(), Orgs: []Spender{}, Users: []Spender{}, Pools: []Pool{}, Slow: []Ended{}, Groups: []Spender{},
		By: from.By.Name, Filter: from.FilterText, Dimensions: []string{},
	}
	for id := range from.Orgs {
		state, err := s.read(ctx, id)
		if err != nil {
			return nil, err
		}
		state.addTo(snap, id, &from)
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
	slices.SortFunc(snap.Groups, func(a, b Spender) int { return cmp.Or(byCost(a, b), cmp.Compare(a.Value, b.Value)) })
	slices.SortFunc(snap.Slow, func(a, b Ended) int {
		return cmp.Or(cmp.Compare(b.Waited+b.Took, a.Waited+a.Took), cmp.Compare(a.Call, b.Call))
	})
	snap.Slow = snap.Slow[:min(maxSlow, len(snap.Slow))]
	return snap, s.limits(ctx, &from, snap, user)
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
	today := now.UTC().Truncate(24 * time.Hour)
	sums, err := ledger.Read(ctx, s.books.Ledger, ledger.Query{
		Orgs: []string{org}, From: today, To: today.AddDate(0, 0, 1), By: byUser,
	})
	if err != nil {
		return nil, err
	}
	state.users = map[string]pricing.Nano{}
	for _, row := range sums.Rows {
		state.users[row.Values[0]] = row.Cost
	}
	if err := s.readRefused(ctx, org, state, now); err != nil {
		return nil, err
	}
	state.next = now.Add(max(sumsAge, 10*s.now().Sub(now))) // reading a large org must not keep Redis busy
	return state, nil
}

// refusals counts refused calls by cause.
type refusals map[budget.Cause]int64

// sum returns the number of calls and the cause of most of them.
func (r refusals) sum() (n int64, most budget.Cause) {
	for _, cause := range slices.Sorted(maps.Keys(r)) {
		n += r[cause]
		if most == "" || r[cause] > r[most] {
			most = cause
		}
	}
	return n, most
}

// readRefused reads what was refused today.
func (s *Sampler) readRefused(ctx context.Context, org string, state *orgState, now time.Time) error {
	list, err := s.books.Refusals.List(ctx, org, budget.RefusalFilter{
		From: now.UTC().Truncate(24 * time.Hour), To: now.Add(time.Hour),
	})
	state.refused = map[string]refusals{}
	for _, r := range list {
		if state.refused[r.User] == nil {
			state.refused[r.User] = refusals{}
		}
		if r.Refused > 0 {
			state.refused[r.User][r.Cause] += r.Refused
		}
	}
	return err
}

// overlap is how much of what was read is read again. The parts of an org that is spread are read one
// after the other, from servers whose clocks differ, so an entry can appear before the newest one.
const overlap = 2 * time.Second

// readEntries reads new ledger entries, newest first, and drops those older than Span.
func (s *Sampler) readEntries(ctx context.Context, org string, state *orgState, now time.Time) error {
	from := now.Add(-Span)
	if at, ok := ledgerTime(state.last); ok && at.Add(-overlap).After(from) {
		from = at.Add(-overlap)
	}
	var fresh []ledger.Entry
	read, last := map[string]bool{}, ""
	err := s.books.Ledger.Recent(ctx, org, from, time.Time{}, func(e ledger.Entry) error {
		if len(fresh) == s.most {
			return ledger.ErrEnough
		}
		last, read[e.LedgerID] = cmp.Or(last, e.LedgerID), true
		if !state.read[e.LedgerID] {
			fresh = append(fresh, e)
		}
		return nil
	})
	if err != nil {
		return err
	}
	full := len(fresh) == s.most
	state.last, state.read = cmp.Or(last, state.last), read
	slices.Reverse(fresh)
	all := append(state.recent, fresh...)
	all = all[max(0, len(all)-s.most):]
	begin := now.Add(-Span)
	old, _ := slices.BinarySearchFunc(all, begin, func(e ledger.Entry, t time.Time) int { return e.At.Compare(t) })
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

// pools reads the contents of the queue.
func pools(ctx context.Context, q *queue.Queue, snap *Snapshot) error {
	for _, p := range q.Pools() {
		d, err := q.Depth(ctx, p.ID)
		if err != nil {
			return err
		}
		one := Pool{
			ID: p.ID, Waiting: map[string]int64{}, Running: d.Running(), Parked: d.Parked, Dead: d.Dead,
			Rates: d.Rates, Pace: d.Pace, Blocked: d.Blocked,
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
			if at < 0 && (id.User == "" || snap.Filter != "") { // not part of the sample
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
