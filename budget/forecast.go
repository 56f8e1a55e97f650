package budget

import (
	"context"
	"math/big"
	"slices"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/providers"
)

// The recent past, whose rate a forecast continues: a twelfth of the limit's window within these
// bounds.
const (
	shortestBurn = 5 * time.Minute
	longestBurn  = time.Hour
	burnEntries  = 20_000 // read at most
)

// Forecast says when a limit is used up if its subject continues at its recent rate.
type Forecast struct {
	Spent int64         // of the limit's metric, in the time Over
	Over  time.Duration // until now
	// UsedUp is how long the limit lasts, if Known; 0: it is used up. It is not known if the limit
	// does not end before it resets, or regains its amount faster than it is used.
	UsedUp time.Duration
	Known  bool
}

// PerHour returns the rate, rounded down.
func (f Forecast) PerHour() int64 { return timesOver(f.Spent, time.Hour, f.Over) }

// timesOver returns n * part / whole for n >= 0, at most MaxInt64.
func timesOver(n int64, part, whole time.Duration) int64 {
	if n <= 0 || whole <= 0 {
		return 0
	}
	product := new(big.Int).Mul(big.NewInt(n), big.NewInt(int64(part)))
	product.Quo(product, big.NewInt(int64(whole)))
	if !product.IsInt64() {
		return int64(Endless)
	}
	return product.Int64()
}

// BurnTime returns how far back the rate of a limit in this state is measured.
func (s *Status) BurnTime() time.Duration {
	return min(max(s.Window/12, shortestBurn), longestBurn)
}

// Forecast continues a rate: spent was used of the limit in the time over.
//
// Calendar periods and fixed windows last (amount - used) / rate, if that is before their reset. In a
// sliding window old use also ends, so it is forecast only if the rate fills the whole window. Of a
// bucket the refill is taken from the rate.
func (l *Limit) Forecast(s *Status, spent int64, over time.Duration) Forecast {
	f := Forecast{Spent: max(spent, 0), Over: over}
	if l.Metric == Concurrency || l.Mode == Off || over <= 0 || f.Spent == 0 {
		return f
	}
	net := f.Spent
	switch l.Shape.Kind {
	case Window, ExactWindow:
		if timesOver(f.Spent, l.Shape.Window, over) <= s.Amount {
			return f
		}
	case Bucket:
		if l.Shape.Refill > 0 {
			net -= timesOver(l.Shape.Refill, over, l.Shape.Per)
		}
		if net <= 0 {
			return f
		}
	}
	f.UsedUp = time.Duration(timesOver(int64(over), time.Duration(max(s.Amount-s.Used, 0)), time.Duration(net)))
	f.Known = true
	if kind := l.Shape.Kind; (kind == Calendar || kind == Fixed) && f.UsedUp >= s.Reset {
		f.UsedUp, f.Known = 0, false
	}
	return f
}

// Spent returns what sums of the ledger add to a limit of the metric.
func (m Metric) Spent(s ledger.Sums) int64 {
	switch m {
	case Cost:
		return int64(s.Cost)
	case Tokens:
		return s.Input + s.Output
	default:
		return s.Calls
	}
}

// Burns are the recent entries of an org, for forecasts of its limits.
type Burns struct {
	now, since time.Time
	entries    []ledger.Entry
}

// Burns reads the last hour of an org's ledger, or its newest 20,000 entries.
func (s *Store) Burns(ctx context.Context, org string, now time.Time) (*Burns, error) {
	b := &Burns{now: now, since: now.Add(-longestBurn)}
	cut, err := ledger.Newest{
		Books: s.Ledger, Org: org, Span: ledger.Span{From: b.since}, Most: burnEntries,
	}.Each(ctx, func(e ledger.Entry) error {
		b.entries = append(b.entries, e)
		return nil
	})
	if !cut.IsZero() {
		b.since = cut
	}
	return b, err
}

// Forecast forecasts a limit for the subject of a call.
func (b *Burns) Forecast(l *Limit, s *Status, who ledger.Call) Forecast {
	since := []time.Time{b.since, b.now.Add(-s.BurnTime())}
	if l.Shape.Kind == Once {
		since = append(since, l.Shape.Until.Add(-l.Shape.Window))
	}
	begin := slices.MaxFunc(since, time.Time.Compare)
	id, spent := l.subjectOf(who), int64(0)
	for i := range b.entries {
		e := &b.entries[i]
		if e.At.Before(begin) || e.Kind == ledger.KindAdjust || l.subjectOf(e.Call) != id ||
			l.Subject == RunBudget && !slices.Contains(e.Run.IDs(), l.Only) ||
			!providers.MatchAny(l.Models, e.Model) || !providers.MatchAny(l.Endpoints, e.Endpoint) {
			continue
		}
		spent += l.Metric.Spent(e.Sums())
	}
	f := l.Forecast(s, spent, b.now.Sub(begin))
	if l.Shape.Kind == Once && !b.now.Add(f.UsedUp).Before(l.Shape.Until.Add(-RunKept)) {
		f.UsedUp, f.Known = 0, false // the run ends before
	}
	return f
}
