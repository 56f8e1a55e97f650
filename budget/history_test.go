package budget

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/pricing"
)

// history runs the same calls on a Store and on the oracle and compares them after each.
type history struct {
	*fixture
	ctx    context.Context
	choose func(n int) int // 0 <= result < n
	users  []string
	limits []Limit
	models map[string]*model // by state key
	holds  []*modelHold
	billed int64 // expected total of the ledger
	coarse bool  // from here on, a bucket may count more than the oracle
	trace  []string
}

type modelHold struct {
	call     ledger.Call
	limits   []Limit
	hold     *Hold // nil before it was admitted
	marks    [][]*mark
	had      []int64 // per limit
	max      Amounts
	expected Amounts
	ends     int64  // end of the lease
	state    string // "", open, settled, voided, expired
	charged  int64
}

func newHistory(ctx context.Context, f *fixture, choose func(int) int) *history {
	h := &history{fixture: f, ctx: ctx, choose: choose, users: []string{"ann", "bob"}, models: map[string]*model{}}
	berlin, _ := time.LoadLocation("Europe/Berlin")
	pick := func(list ...time.Duration) time.Duration { return list[choose(len(list))] }
	h.limits = []Limit{
		{ID: "win", Subject: User, Metric: Cost, Shape: Shape{Kind: Window, Amount: 1000, Window: pick(time.Minute, time.Second, 7*time.Millisecond)}},
		{ID: "org", Subject: Org, Metric: Cost, Shape: Shape{
			Kind: Bucket, Amount: 2000,
			Refill: []int64{0, 7, 100_003, 999_999_999_989}[choose(4)], Per: pick(time.Second, time.Minute, 24*time.Hour),
		}},
		{ID: "exact", Subject: User, Metric: Tokens, Shape: Shape{Kind: ExactWindow, Amount: 700, Window: pick(time.Second, time.Minute)}},
		{ID: "cal", Subject: Org, Metric: Tokens, Shape: []Shape{
			{Kind: Calendar, Amount: 2500, Calendar: "minute", Location: berlin},
			{Kind: Calendar, Amount: 2500, Calendar: "day", Location: berlin},
			{Kind: Calendar, Amount: 2500, Calendar: "month", Starts: "24", Location: berlin},
			{Kind: Fixed, Amount: 2500, Window: 90 * time.Second},
		}[choose(4)]},
		{ID: "par", Subject: Org, Metric: Concurrency, Shape: Shape{Kind: Concurrent, Amount: 4}},
		{ID: "rpm", Subject: User, Metric: Requests, Shape: Shape{Kind: Window, Amount: 9, Window: time.Minute}},
		{ID: "shadow", Subject: Org, Metric: Cost, Mode: Shadow, Shape: Shape{Kind: Window, Amount: 300, Window: time.Minute}},
	}
	return h
}

// limitUsersOnly replaces the limits of the org, which an org that is spread cannot have.
func (h *history) limitUsersOnly() {
	h.limits = slices.DeleteFunc(h.limits, func(l Limit) bool { return l.Mode == Shadow })
	for i := range h.limits {
		h.limits[i].Subject = User
	}
}

func (h *history) at() int64 { return h.now.Load() }

func (h *history) model(l Limit, c ledger.Call) *model {
	st := l.stateFor(c, h.opts.Lease)
	m := h.models[st.Key]
	if m == nil {
		m = newModel(l.Shape, h.opts.Lease)
		h.models[st.Key] = m
	}
	m.shape.Amount = l.Shape.Amount
	return m
}

func (h *history) note(format string, args ...any) {
	h.trace = append(h.trace, fmt.Sprintf(format, args...))
}

// step takes one random step and compares.
func (h *history) step() error {
	steps := []func() error{
		h.stepHold, h.stepHold, h.stepHold, h.stepHold, h.stepSettle, h.stepSettle, h.stepVoid, h.stepExtend,
		h.stepTime, h.stepTime, h.stepSweep, h.stepRenew, h.stepAgain, h.stepLost, h.stepAmount,
	}
	if err := steps[h.choose(len(steps))](); err != nil {
		return err
	}
	return h.compare()
}

func (h *history) stepTime() error {
	base := []int64{1, 1000, 100_000, 1_000_000, 20_000_000, 61_000_000, 3_600_000_000, -1_000, -1_500_000, -90_000_000}
	d := base[h.choose(len(base))]
	d += d * int64(h.choose(1000)) / 1000
	if edges := h.edges(); len(edges) > 0 && h.choose(3) == 0 {
		d = edges[h.choose(len(edges))] - h.at() + int64(h.choose(3)) - 1
	}
	h.now.Add(d)
	h.note("time %+dus -> %d", d, h.at())
	return nil
}

// edges lists instants at which something leaves a limit or a lease ends.
func (h *history) edges() []int64 {
	var out []int64
	for _, m := range h.holds {
		if m.state == "open" {
			out = append(out, m.ends)
		}
		for i, marks := range m.marks {
			for _, c := range marks {
				mod := h.model(m.limits[i], m.call)
				out = append(out, mod.leaves(c.at)-mod.lead)
			}
		}
	}
	return out
}

func (h *history) amounts() Amounts {
	scale := []int{1, 60, 400, 1100}[h.choose(4)]
	return Amounts{Cost: pricing.Nano(h.choose(scale + 1)), Tokens: int64(h.choose(scale + 1))}
}

func (h *history) stepHold() error {
	m := &modelHold{call: h.call(), max: h.amounts()}
	m.call.User = h.users[h.choose(2)]
	m.expected = Amounts{Cost: m.max.Cost / 2, Tokens: m.max.Tokens / 3}
	m.limits = slices.Clone(h.limits)
	if h.choose(4) == 0 {
		m.limits = m.limits[:h.choose(len(m.limits)+1)] // or none: only the record says what is held
	}
	h.holds = append(h.holds, m)
	return h.tryHold(m)
}

// stepAgain repeats an earlier hold, whatever its outcome.
func (h *history) stepAgain() error {
	if len(h.holds) == 0 {
		return nil
	}
	return h.tryHold(h.holds[h.choose(len(h.holds))])
}

func (h *history) tryHold(m *modelHold) error {
	h.note("hold %s user %s %v limits %d (%s)", m.call.ID[20:], m.call.User, m.max, len(m.limits), m.state)
	got, err := h.Hold(h.ctx, Terms{Limits: m.limits, Call: m.call, Max: m.max, Expected: m.expected})
	if m.state != "" && m.state != "open" {
		if !errors.Is(err, ErrEnded) {
			return fmt.Errorf("hold of a %s id: %w, want ErrEnded", m.state, err)
		}
		return nil
	}
	var refused bool
	if m.state == "" {
		refused = h.wouldRefuse(m)
	}
	var exceeded *ExceededError
	if refused != errors.As(err, &exceeded) || !refused && err != nil {
		return fmt.Errorf("hold: %w, oracle says refused = %v", err, refused)
	}
	if refused {
		return h.compareRefusal(m, exceeded)
	}
	if m.state == "open" {
		return nil
	}
	m.hold, m.state, m.ends = got, "open", h.at()+h.opts.Lease.Microseconds()
	for i, l := range m.limits {
		mod := h.model(l, m.call)
		n := l.Metric.amountOf(m.max)
		c := mod.charge(h.at(), got.ID, n, true)
		m.marks = append(m.marks, nil)
		if c != nil {
			m.marks[i] = []*mark{c}
		}
		m.had = append(m.had, n)
		if err := h.admitted(l, mod); err != nil {
			return err
		}
	}
	for i, s := range got.Statuses {
		used, held := h.model(m.limits[i], m.call).sums(h.at())
		if s.Used != used || s.Held != held {
			return fmt.Errorf("hold: %s used %d held %d, oracle %d %d", s.LimitID, s.Used, s.Held, used, held)
		}
	}
	return nil
}

func (h *history) wouldRefuse(m *modelHold) bool {
	refused := false
	for _, l := range m.limits {
		used, _ := h.model(l, m.call).sums(h.at())
		if l.Mode != Shadow && used+l.Metric.amountOf(m.max) > l.Shape.Amount {
			refused = true
		}
	}
	return refused
}

// admitted checks I1 and I2 right after a limit admitted something.
func (h *history) admitted(l Limit, m *model) error {
	if l.Mode == Shadow {
		return nil
	}
	if sum := m.realSum(h.at()); sum > l.Shape.Amount {
		return fmt.Errorf("limit %s let in %d of %d", l.ID, sum, l.Shape.Amount)
	}
	return nil
}

func (h *history) compareRefusal(m *modelHold, e *ExceededError) error {
	longest := int64(0)
	for i, s := range e.Statuses {
		l := m.limits[i]
		mod := h.model(l, m.call)
		used, held := mod.sums(h.at())
		defer mod.asked(h.at())
		n := l.Metric.amountOf(m.max)
		over := used+n > l.Shape.Amount
		if s.Used != used || s.Held != held || s.Refused != over {
			return fmt.Errorf("refusal: %s used %d held %d refused %v, oracle %d %d %v", l.ID, s.Used, s.Held, s.Refused, used, held, over)
		}
		if !over {
			continue
		}
		wait := mod.wait(h.at(), n)
		never := wait == math.MaxInt64
		if never && used+n-held <= l.Shape.Amount {
			never, wait = false, h.opts.Lease.Microseconds()
		}
		if s.Never != never || !never && s.Wait.Microseconds() != max(wait, 0) {
			return fmt.Errorf("refusal: %s wait %v never %v, oracle %dus %v", l.ID, s.Wait, s.Never, wait, never)
		}
		if l.Mode != Shadow {
			longest = max(longest, wait)
		}
	}
	if e.Binding.Mode == Shadow || !e.Binding.Refused || !e.Binding.Never && e.Binding.Wait.Microseconds() != longest {
		return fmt.Errorf("binding limit %+v, longest wait %dus", e.Binding, longest)
	}
	return nil
}

func (h *history) stepExtend() error {
	m := h.some()
	if m == nil {
		return nil
	}
	more := h.amounts()
	h.note("extend %s (%s) by %v", m.call.ID[20:], m.state, more)
	_, err := h.Extend(h.ctx, m.hold, more)
	if m.state != "open" {
		if !errors.Is(err, ErrEnded) {
			return fmt.Errorf("extend of a %s hold: %w", m.state, err)
		}
		return nil
	}
	refused := false
	grow := func(l Limit) int64 {
		if l.Metric == Cost || l.Metric == Tokens {
			return l.Metric.amountOf(more)
		}
		return 0
	}
	for _, l := range m.limits {
		used, _ := h.model(l, m.call).sums(h.at())
		if n := grow(l); l.Mode != Shadow && n > 0 && used+n > l.Shape.Amount {
			refused = true
		}
	}
	var e *ExceededError
	if refused != errors.As(err, &e) || !refused && err != nil {
		return fmt.Errorf("extend: %w, oracle says refused = %v", err, refused)
	}
	if refused {
		return nil
	}
	for i, l := range m.limits {
		n := grow(l)
		if n == 0 {
			continue
		}
		mod := h.model(l, m.call)
		h.extend(m, i, mod, n)
		if err := h.admitted(l, mod); err != nil {
			return err
		}
	}
	m.max, m.expected = m.max.add(more), m.expected.add(more)
	return nil
}

// extend adds to a hold in one limit.
func (h *history) extend(m *modelHold, i int, mod *model, n int64) {
	m.had[i] += n
	m.marks[i] = append(m.marks[i], mod.charge(h.at(), m.hold.ID, n, true))
}

func (h *history) stepSweep() error {
	n, err := h.Expiry.Sweep(h.ctx, h.org)
	if err != nil {
		return err
	}
	h.note("sweep: %d", n)
	var due []*modelHold
	for _, m := range h.holds {
		if m.state == "open" && m.ends <= h.at() {
			due = append(due, m)
		}
	}
	slices.SortFunc(due, func(a, b *modelHold) int {
		return cmp.Or(cmp.Compare(a.ends, b.ends), cmp.Compare(a.hold.ID, b.hold.ID))
	})
	for _, m := range due {
		charge := m.max
		if h.opts.ExpiredCharge == ChargeExpected {
			charge = m.expected
		}
		h.end(m, "expired", func(metric Metric) int64 { return metric.settled(charge) }, int64(charge.Cost))
	}
	if n != len(due) {
		return fmt.Errorf("sweep expired %d holds, oracle %d", n, len(due))
	}
	return nil
}

func (h *history) stepRenew() error {
	m := h.some()
	if m == nil {
		return nil
	}
	h.note("renew %s (%s)", m.call.ID[20:], m.state)
	if err := h.renew(h.ctx, m.hold.Call.Place(), []*Hold{m.hold}); err != nil {
		return err
	}
	if m.state == "open" {
		m.ends = h.at() + h.opts.Lease.Microseconds()
		for _, l := range m.limits {
			if open := h.model(l, m.call).open; open[m.hold.ID] > 0 {
				open[m.hold.ID] = m.ends
			}
		}
	}
	return nil
}

// stepAmount changes a limit's amount; its usage stays.
func (h *history) stepAmount() error {
	i := h.choose(len(h.limits))
	l := &h.limits[i]
	l.Shape.Amount = max(1, l.Shape.Amount*int64(50+h.choose(150))/100)
	h.limits = slices.Clone(h.limits)
	h.note("limit %s now %d", l.ID, l.Shape.Amount)
	return nil
}
