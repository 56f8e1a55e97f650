package budget

import (
	"errors"
	"fmt"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
)

// some returns a random hold that was admitted.
func (h *history) some() *modelHold {
	var list []*modelHold
	for _, m := range h.holds {
		if m.hold != nil {
			list = append(list, m)
		}
	}
	if len(list) == 0 {
		return nil
	}
	return list[h.choose(len(list))]
}

func (h *history) stepSettle() error {
	m := h.some()
	if m == nil {
		return nil
	}
	actual := h.amounts()
	if h.choose(3) == 0 {
		actual = m.max
	}
	h.note("settle %s (%s) %v", m.call.ID[20:], m.state, actual)
	r, err := h.Settle(h.ctx, m.hold, Settlement{Actual: actual})
	if err != nil {
		return err
	}
	if m.state == "settled" {
		if !r.Replayed || int64(r.Charged) != m.charged {
			return fmt.Errorf("settle again: %+v, want %d replayed", r, m.charged)
		}
		return nil
	}
	late := m.state != "open"
	if r.Replayed || r.Charged != actual.Cost || r.Late != late || r.Overrun != max(0, actual.Cost-m.max.Cost) {
		return fmt.Errorf("settle of a %s hold: %+v", m.state, r)
	}
	h.end(m, "settled", func(metric Metric) int64 { return metric.settled(actual) }, int64(actual.Cost))
	return nil
}

// end regrades all limits of a hold.
func (h *history) end(m *modelHold, state string, want func(Metric) int64, bill int64) {
	for i, l := range m.limits {
		had, marks := m.had[i], m.marks[i]
		if m.state == "voided" {
			had, marks = 0, nil
		}
		mod := h.model(l, m.call)
		if c := mod.regrade(h.at(), m.hold.ID, marks, had, want(l.Metric)); c != nil {
			m.marks[i] = append(m.marks[i], c)
		}
		m.had[i] = want(l.Metric)
	}
	h.billed += bill - m.charged
	m.charged, m.state = bill, state
}

func (h *history) stepVoid() error {
	m := h.some()
	if m == nil {
		return nil
	}
	h.note("void %s (%s)", m.call.ID[20:], m.state)
	if err := h.Void(h.ctx, m.hold); err != nil {
		return err
	}
	if m.state == "open" || m.state == "expired" {
		h.end(m, "voided", func(Metric) int64 { return 0 }, 0)
	}
	return nil
}

// stepLost voids a known or unknown hold as if its answer had been lost.
func (h *history) stepLost() error {
	m := &modelHold{call: h.call(), state: "voided", limits: h.limits}
	if len(h.holds) > 0 && h.choose(2) == 0 {
		m = h.holds[h.choose(len(h.holds))]
	} else {
		h.holds = append(h.holds, m)
	}
	h.note("void lost %s (%s)", m.call.ID[20:], m.state)
	if err := h.VoidLost(h.ctx, m.call); err != nil {
		return err
	}
	switch m.state {
	case "open", "expired":
		h.end(m, "voided", func(Metric) int64 { return 0 }, 0)
	case "":
		m.state = "voided"
	}
	return nil
}

// compare checks every limit of every user: the sums are equal, and never less than what was really
// charged.
func (h *history) compare() error {
	for _, user := range h.users {
		c := ledger.Call{Org: h.org, User: user}
		list, err := h.Peek(h.ctx, h.limits, c)
		if err != nil {
			return err
		}
		for i, s := range list {
			m := h.model(h.limits[i], c)
			used, held := m.sums(h.at())
			defer m.asked(h.at())
			if m.coarse {
				h.coarse = true
				if s.Used >= used {
					continue
				}
			}
			if s.Used != used || s.Held != held {
				return fmt.Errorf("%s of %s: used %d held %d, oracle %d %d", s.LimitID, user, s.Used, s.Held, used, held)
			}
			if sum := m.realSum(h.at()); sum > used {
				return fmt.Errorf("%s of %s: counts %d, but %d was charged", s.LimitID, user, used, sum)
			}
		}
	}
	return nil
}

// finish ends everything and checks that nothing is held and the ledger adds up.
func (h *history) finish() error {
	for _, m := range h.holds {
		if m.state == "open" && h.choose(2) == 0 {
			if _, err := h.Settle(h.ctx, m.hold, Settlement{Actual: m.max}); err != nil {
				return err
			}
			h.end(m, "settled", func(metric Metric) int64 { return metric.settled(m.max) }, int64(m.max.Cost))
		}
	}
	h.pass(2 * h.opts.Lease)
	if latest := h.latestLease(); latest > h.at() {
		h.now.Store(latest)
	}
	if err := errors.Join(h.stepSweep(), h.compare()); err != nil {
		return err
	}
	for key, m := range h.models {
		if _, held := m.sums(h.at()); held != 0 {
			return fmt.Errorf("%s: %d still held", key, held)
		}
	}
	open := h.rdb.HLen(h.ctx, ledger.Key(h.org, "holds")).Val() + h.rdb.ZCard(h.ctx, ledger.Key(h.org, "leases")).Val()
	if open != 0 {
		return fmt.Errorf("%d records of open holds are left", open)
	}
	var sum int64
	err := h.Ledger.Entries(h.ctx, h.org, time.Time{}, time.Time{}, func(e ledger.Entry) error {
		sum += int64(e.Cost)
		return nil
	})
	if err != nil || sum != h.billed {
		return fmt.Errorf("ledger adds up to %d, want %d (%w)", sum, h.billed, err)
	}
	return nil
}

func (h *history) latestLease() int64 {
	var latest int64
	for _, m := range h.holds {
		if m.state == "open" {
			latest = max(latest, m.ends)
		}
	}
	return latest
}
