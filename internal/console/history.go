package console

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/pricing"
)

// days is the length of the spending history.
const days = 30

const (
	todayAge   = 5 * time.Second
	earlierAge = 10 * time.Minute // corrections are charged to the day they are made, so past days hardly change
)

// sums is what an org spent on some UTC days.
type sums struct {
	total  ledger.Sums
	users  map[string]ledger.Sums
	models map[string]ledger.Sums
	keys   map[[2]string]ledger.Sums // by user and key
	costs  map[string][]pricing.Nano // of each day, by user; "" has those of the org
	at     time.Time                 // of the reading
}

// history caches sums of the last days, so that a page does not add up the roll-ups of
// thousands of users. It is safe for concurrent use.
type history struct {
	budget *budget.Store
	now    func() time.Time
	log    *slog.Logger
	turn   chan struct{} // one reading at a time, which leaves Redis and a CPU core to the pages

	mu    sync.Mutex
	today time.Time
	orgs  map[string]*orgHistory // as of today
}

// orgHistory has what an org spent today, and on all days before.
type orgHistory struct{ earlier, today *fresh[*sums] }

func newHistory(b *budget.Store, now func() time.Time, log *slog.Logger) *history {
	return &history{budget: b, now: now, log: log, turn: make(chan struct{}, 1)}
}

func (h *history) of(org string, today time.Time) *orgHistory {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !today.Equal(h.today) {
		h.today, h.orgs = today, map[string]*orgHistory{}
	}
	if h.orgs[org] == nil {
		read := func(age time.Duration, from, to int) *fresh[*sums] {
			return &fresh[*sums]{age: age, get: func(ctx context.Context) (*sums, error) {
				return h.read(ctx, org, today.AddDate(0, 0, from), today.AddDate(0, 0, to))
			}}
		}
		h.orgs[org] = &orgHistory{read(earlierAge, 1-days, 0), read(todayAge, 0, 1)}
	}
	return h.orgs[org]
}

// byDay is what the sums of days are grouped by.
var byDay = ledger.By("user", "key", "model")

func (h *history) read(ctx context.Context, org string, from, to time.Time) (*sums, error) {
	report, err := h.query(ctx, ledger.Query{Orgs: []string{org}, From: from, To: to, By: byDay, Step: wholeDay})
	if err != nil {
		return nil, err
	}
	s := &sums{
		total: report.Total, users: map[string]ledger.Sums{}, models: map[string]ledger.Sums{},
		keys: map[[2]string]ledger.Sums{}, costs: map[string][]pricing.Nano{}, at: h.now(),
	}
	for _, row := range report.Rows {
		user, key, model := row.Values[0], row.Values[1], row.Values[2]
		add(s.users, user, row.Sums)
		add(s.models, model, row.Sums)
		add(s.keys, [2]string{user, key}, row.Sums)
		for _, who := range slices.Compact([]string{"", user}) {
			if s.costs[who] == nil {
				s.costs[who] = make([]pricing.Nano, report.Steps)
			}
			for i, cost := range row.Series {
				s.costs[who][i] += cost
			}
		}
	}
	return s, nil
}

// query asks the ledger, when it is its turn.
func (h *history) query(ctx context.Context, q ledger.Query) (*ledger.Report, error) {
	select {
	case h.turn <- struct{}{}:
		defer func() { <-h.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	report, err := ledger.Read(ctx, h.budget.Ledger, q)
	if err != nil {
		h.log.Warn("console sums read failed", "orgs", q.Orgs, "from", q.From.Format(time.RFC3339), "err", err)
	}
	return report, err
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

// span is the history of some orgs. A sum that has not been read is nil.
type span struct {
	From           time.Time // the first day
	earlier, today map[string]*sums
	reading
}

// last returns the days of the orgs. It waits up to patience for missing ones.
func (h *history) last(ctx context.Context, orgs ...string) *span {
	today := h.now().UTC().Truncate(wholeDay)
	s := &span{From: today.AddDate(0, 0, 1-days), earlier: map[string]*sums{}, today: map[string]*sums{}}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, org := range orgs {
		of := h.of(org, today)
		s.earlier[org], _, _ = of.earlier.load(ctx)
		s.today[org], _, _ = of.today.load(ctx)
		if s.earlier[org] == nil {
			s.Missing++
		}
		now := s.today[org]
		if now == nil {
			s.Missing++
		} else if s.AsOf.IsZero() || now.at.Before(s.AsOf) {
			s.AsOf = now.at
		}
	}
	return s
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

func whole(s *sums) ledger.Sums { return s.total }

func ofUser(id string) func(*sums) ledger.Sums {
	return func(s *sums) ledger.Sums { return s.users[id] }
}

// Today returns what an org, or a part of it, spent today.
func (s *span) Today(org string, of func(*sums) ledger.Sums) spent { return part(s.today[org], of) }

// Month returns what it spent on all days.
func (s *span) Month(org string, of func(*sums) ledger.Sums) spent {
	all := part(s.earlier[org], of)
	all.add(s.Today(org, of))
	return all
}

func part(s *sums, of func(*sums) ledger.Sums) spent {
	if s == nil {
		return spent{}
	}
	return spent{of(s), true}
}

// named is a sum with its name.
type named struct {
	Name string
	ledger.Sums
}

// month lists the sums of all days by name, highest cost first; none if some were not read.
func (s *span) month(org string, of func(*sums) map[string]ledger.Sums) []named {
	if s.earlier[org] == nil || s.today[org] == nil {
		return nil
	}
	all := maps.Clone(of(s.earlier[org]))
	for name, one := range of(s.today[org]) {
		add(all, name, one)
	}
	return ranked(all)
}

func ranked(all map[string]ledger.Sums) []named {
	out := make([]named, 0, len(all))
	for name, sum := range all {
		out = append(out, named{name, sum})
	}
	slices.SortFunc(out, func(a, b named) int { return cmp.Or(cmp.Compare(b.Cost, a.Cost), cmp.Compare(a.Name, b.Name)) })
	return out
}

func byUser(s *sums) map[string]ledger.Sums  { return s.users }
func byModel(s *sums) map[string]ledger.Sums { return s.models }

// costs returns the cost of each day: of a user, or of the org without one.
func (s *span) costs(org, user string) []spent {
	out := make([]spent, days)
	for i := range out {
		of, at := s.earlier[org], i
		if i == days-1 {
			of, at = s.today[org], 0
		}
		if of == nil {
			continue
		}
		out[i].Known = true
		if costs := of.costs[user]; costs != nil {
			out[i].Cost = costs[at]
		}
	}
	return out
}
