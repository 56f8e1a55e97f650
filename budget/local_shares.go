package budget

import (
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/budget/outage"
)

// localShares count what this process admits without the store.
type localShares struct {
	*outage.Shares
	clock *clock
	loss  *outage.DataLoss
}

// take takes a call's amounts from all its shares or from none.
func (s *localShares) take(h *Hold, percent int) error {
	now := s.clock.now()
	asks, closed := make([]outage.Ask, len(h.limits)), make([]time.Time, len(h.limits))
	for i := range h.limits {
		l := &h.limits[i]
		asks[i] = outage.Ask{
			Key: shareKey(h.Call, &h.states[i]), Span: l.Shape.Span(), Open: l.Metric == Concurrency,
			Amount: l.Metric.amountOf(h.Max), Most: outage.ShareOf(l.AmountFor(h.Call, now), percent),
			Unlimited: l.Mode == Shadow,
		}
		closed[i] = closedUntil(s.loss, h.Call.Place(), l, now)
		if !closed[i].IsZero() {
			asks[i].Most = 0
		}
	}
	taken, refused := s.Shares.Take(asks)
	if refused == nil {
		h.taken = taken
		return nil
	}
	l, ask := &h.limits[refused.Ask], asks[refused.Ask]
	return &ExceededError{Requested: ask.Amount, Binding: Status{
		LimitID: l.ID, Subject: l.Subject, Metric: l.Metric, Mode: l.Mode, Used: refused.Used, Amount: ask.Most,
		Remaining: max(ask.Most-refused.Used, 0), Wait: refused.Wait, Refused: true, ClosedUntil: closed[refused.Ask],
	}}
}

// shareKey names the share of a limit.
func shareKey(c ledger.Call, st *state) string { return c.Org + " " + st.Key }

// give returns what a call does not use to its shares, including those of caps.
func (s *localShares) give(e Settle) {
	for _, h := range append([]*Hold{e.Hold}, e.Hold.caps...) {
		if len(h.taken) == 0 {
			continue
		}
		var stays []int64
		if e.Settlement != nil {
			stays = make([]int64, len(h.taken))
			for i := range stays {
				stays[i] = h.limits[i].Metric.settled(e.Settlement.Actual)
			}
		}
		s.Shares.Give(h.taken, stays)
		h.taken = nil
	}
}
