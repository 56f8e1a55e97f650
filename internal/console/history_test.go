package console

import (
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
)

// TestEarlierDaysAreAddedUpOnce: the sum of the days before today is kept until
// one of them was read again, and today is added to it without changing it.
func TestEarlierDaysAreAddedUpOnce(t *testing.T) {
	h := newHistory(nil, time.Now, nil)
	of := func(read int64, cost int64) day {
		sums := map[string]budget.Sums{"alice": {Calls: cost}}
		return day{users: sums, models: sums, read: read}
	}
	var sums [days]day
	sums[0], sums[3], sums[days-1] = of(1, 10), of(2, 5), of(3, 1)
	view := func() int64 {
		s := &span{Orgs: map[string]*[days]day{"acme": &sums}, earlier: map[string]*day{"acme": h.before("acme", &sums)}}
		if got := s.today("acme", byUser); len(got) != 1 || got[0].Calls != sums[days-1].users["alice"].Calls {
			t.Errorf("today %v", got)
		}
		return s.month("acme", byUser)[0].Calls
	}
	if a, b := view(), view(); a != 16 || b != 16 {
		t.Errorf("%d calls, then %d; want 16 both times", a, b)
	}
	before := h.before("acme", &sums)
	if sums[days-1] = of(4, 2); view() != 17 || h.before("acme", &sums) != before {
		t.Errorf("today changed: %d, want 17, and nothing added up again", view())
	}
	if sums[3] = of(5, 7); view() != 19 {
		t.Errorf("a day was corrected: %d, want 19", view())
	}
}
