package console

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
)

// days is the length of the spending history.
const days = 30

const (
	todayAge = 5 * time.Second
	pastAge  = 10 * time.Minute // corrections are charged to the day they are made, so past days hardly change
)

// day is what an org spent on one UTC day.
type day struct {
	total  ledger.Sums
	users  map[string]ledger.Sums
	models map[string]ledger.Sums
	keys   map[[2]string]ledger.Sums // by user and key
	read   int64                     // id of the reading; 0: not read yet
	at     time.Time                 // time of the reading
}

// history caches sums of the last days, so that a page does not add up the roll-ups of
// thousands of users.
type history struct {
	budget  *budget.Store
	now     func() time.Time
	log     *slog.Logger
	mu      sync.Mutex
	reads   atomic.Int64
	turn    chan struct{} // one reading at a time, which leaves Redis and a CPU core to the pages
	kept    map[historyKey]*fresh[day]
	earlier map[string]*earlier // by org
}

// earlier is what an org spent on all days before today, by user and model. With thousands of
// users it takes too long to add up for each page.
type earlier struct {
	of  [days - 1]int64 // ids of the readings included
	sum *day
}

type historyKey struct {
	org string
	day int64 // days since the Unix epoch
}

func newHistory(b *budget.Store, now func() time.Time, log *slog.Logger) *history {
	return &history{
		budget: b, now: now, log: log, kept: map[historyKey]*fresh[day]{}, turn: make(chan struct{}, 1),
		earlier: map[string]*earlier{},
	}
}

// of returns the entry for an org's day, and drops outdated entries.
func (h *history) of(org string, unixDay, today int64) *fresh[day] {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := historyKey{org, unixDay}
	f := h.kept[key]
	if f == nil {
		for old := range h.kept {
			if old.day <= today-days {
				delete(h.kept, old)
			}
		}
		f = &fresh[day]{get: func(ctx context.Context) (day, error) { return h.read(ctx, org, unixDay) }}
		h.kept[key] = f
	}
	f.mu.Lock()
	f.age = pastAge
	if unixDay == today {
		f.age = todayAge
	}
	f.mu.Unlock()
	return f
}

const daySeconds = 24 * 60 * 60

// byDay is what the sums of a day are grouped by.
var byDay = ledger.By("user", "key", "model")

func (h *history) read(ctx context.Context, org string, unixDay int64) (day, error) {
	d := day{
		users: map[string]ledger.Sums{}, models: map[string]ledger.Sums{}, keys: map[[2]string]ledger.Sums{},
		read: h.reads.Add(1), at: h.now(),
	}
	select {
	case h.turn <- struct{}{}:
		defer func() { <-h.turn }()
	case <-ctx.Done():
		return d, ctx.Err()
	}
	from := time.Unix(unixDay*daySeconds, 0).UTC()
	report, err := ledger.Read(ctx, h.budget.Ledger, ledger.Query{
		Orgs: []string{org}, From: from, To: from.AddDate(0, 0, 1), By: byDay,
	})
	if err != nil {
		h.log.Warn("console daily sum read failed", "org", org, "day", from.Format(time.DateOnly), "err", err)
		return d, err
	}
	d.total = report.Total
	for _, row := range report.Rows {
		user, key, model := row.Values[0], row.Values[1], row.Values[2]
		add(d.users, user, row.Sums)
		add(d.models, model, row.Sums)
		add(d.keys, [2]string{user, key}, row.Sums)
	}
	return d, nil
}

func add[K comparable](to map[K]ledger.Sums, key K, s ledger.Sums) {
	sum := to[key]
	sum.Add(s)
	to[key] = sum
}

// reading describes how complete the sums of a page are.
type reading struct {
	Missing int       // number of sums not read yet
	AsOf    time.Time // when the oldest of today's was read; zero: none yet
}

// span is the history of some orgs, oldest day first.
type span struct {
	Days [days]time.Time
	Orgs map[string]*[days]day
	reading

	earlier map[string]*day // sums of all days except today
}

// last returns the days of the orgs. It requests all of them concurrently and waits up to
// patience for missing ones.
func (h *history) last(ctx context.Context, orgs ...string) *span {
	today := h.now().Unix() / daySeconds
	s := &span{Orgs: map[string]*[days]day{}, earlier: map[string]*day{}}
	for i := range days {
		s.Days[i] = time.Unix((today-days+1+int64(i))*daySeconds, 0).UTC()
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex
	gate := make(chan struct{}, 8)
	for _, org := range orgs {
		sums := &[days]day{}
		s.Orgs[org] = sums
		for i := range days {
			f := h.of(org, today-days+1+int64(i), today)
			if d, known := f.peek(); known {
				sums[i] = d
				continue
			}
			wg.Go(func() {
				gate <- struct{}{}
				defer func() { <-gate }()
				d, _, _ := f.load(ctx)
				mu.Lock()
				defer mu.Unlock()
				sums[i] = d
				if d.read == 0 {
					s.Missing++
				}
			})
		}
	}
	wg.Wait()
	for _, org := range orgs {
		s.earlier[org] = h.before(org, s.Orgs[org])
		if at := s.Orgs[org][days-1].at; s.AsOf.IsZero() || !at.IsZero() && at.Before(s.AsOf) {
			s.AsOf = at
		}
	}
	return s
}

// before returns the sum of all days except the last, cached if possible.
func (h *history) before(org string, sums *[days]day) *day {
	var of [days - 1]int64
	for i := range of {
		of[i] = sums[i].read
	}
	h.mu.Lock()
	known := h.earlier[org]
	h.mu.Unlock()
	if known != nil && known.of == of {
		return known.sum
	}
	made := &earlier{of, &day{users: map[string]ledger.Sums{}, models: map[string]ledger.Sums{}}}
	for i := range of {
		for name, one := range sums[i].users {
			add(made.sum.users, name, one)
		}
		for name, one := range sums[i].models {
			add(made.sum.models, name, one)
		}
	}
	h.mu.Lock()
	h.earlier[org] = made
	h.mu.Unlock()
	return made.sum
}

// peek returns a young value without waiting.
func (f *fresh[T]) peek() (value T, known bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.value, !f.at.IsZero() && f.err == nil && time.Since(f.at) <= f.life()
}

// spent is what was spent on some days. Known is false while one of them has not been read,
// because the sum would be too small.
type spent struct {
	ledger.Sums
	Known bool
}

func (s *spent) add(other spent) {
	s.Sums.Add(other.Sums)
	s.Known = s.Known && other.Known
}

func whole(d *day) ledger.Sums { return d.total }

func ofUser(id string) func(*day) ledger.Sums {
	return func(d *day) ledger.Sums { return d.users[id] }
}

// On returns what an org, or a part of it, spent on day i.
func (s *span) On(org string, i int, of func(*day) ledger.Sums) spent {
	d := &s.Orgs[org][i]
	return spent{of(d), d.read != 0}
}

// Today returns what it spent today.
func (s *span) Today(org string, of func(*day) ledger.Sums) spent { return s.On(org, days-1, of) }

// Month returns what it spent on all days.
func (s *span) Month(org string, of func(*day) ledger.Sums) spent {
	all := spent{Known: true}
	for i := range days {
		all.add(s.On(org, i, of))
	}
	return all
}

// Complete reports whether all days of an org have been read.
func (s *span) Complete(org string) bool { return s.Month(org, whole).Known }

// named is a sum with its name.
type named struct {
	Name string
	ledger.Sums
}

// today and month list the sums by name, highest cost first.
func (s *span) today(org string, of func(*day) map[string]ledger.Sums) []named {
	return ranked(of(&s.Orgs[org][days-1]))
}

func (s *span) month(org string, of func(*day) map[string]ledger.Sums) []named {
	sums := maps.Clone(of(s.earlier[org]))
	for name, one := range of(&s.Orgs[org][days-1]) {
		add(sums, name, one)
	}
	return ranked(sums)
}

func ranked(sums map[string]ledger.Sums) []named {
	out := make([]named, 0, len(sums))
	for name, sum := range sums {
		out = append(out, named{name, sum})
	}
	slices.SortFunc(out, func(a, b named) int { return cmp.Or(cmp.Compare(b.Cost, a.Cost), cmp.Compare(a.Name, b.Name)) })
	return out
}

func byUser(d *day) map[string]ledger.Sums  { return d.users }
func byModel(d *day) map[string]ledger.Sums { return d.models }

// costs returns the cost of each day.
func (s *span) costs(org string, of func(*day) ledger.Sums) []spent {
	out := make([]spent, days)
	for i := range out {
		out[i] = s.On(org, i, of)
	}
	return out
}
