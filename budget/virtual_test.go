package budget

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/randtest"
)

// pairing runs the same calls on a Store on Redis and on a Virtual, and requires identical answers
// to the microsecond. Unlike the histories with the oracle, it continues when a bucket has more
// dips than it keeps.
type pairing struct {
	*history
	v     *Virtual
	pairs []*paired
}

type paired struct {
	call ledger.Call
	on   *Standing
	real *Hold
	twin *VirtualHold
}

func runPairing(t testing.TB, rdb *redis.Client, sc scripts, steps int, choose func(int) int) error {
	o := Options{Lease: 30 * time.Second, ExpiredCharge: []string{ChargeMax, ChargeExpected}[choose(2)]}
	f := newFixture(t, rdb, o)
	f.runner.scripts = sc
	p := &pairing{history: newHistory(t.Context(), f, choose), v: NewVirtual(o)}
	if choose(2) == 0 { // a crowd in a slowly draining bucket, which creates dips
		p.limits = []Limit{{ID: "org", Subject: Org, Metric: Cost, Shape: Shape{
			Kind: Bucket, Amount: 1 << 40, Refill: []int64{5_000_011, 30_000_001, 70_000_027}[choose(3)], Per: time.Second,
		}}}
	}
	for range steps {
		if err := p.step(); err != nil {
			return fmt.Errorf("%w\n%s", err, strings.Join(p.trace, "\n"))
		}
	}
	return nil
}

func (p *pairing) step() error {
	if len(p.limits) == 1 {
		return errors.Join(p.stepCrowd(), p.same())
	}
	steps := []func() error{
		p.hold, p.hold, p.hold, p.hold, p.hold, p.settle, p.settle, p.settle, p.void, p.extend, p.sweep, p.renew,
		p.stepAmount, p.stepTimeOnly, p.stepTimeOnly, p.stepRefill,
	}
	return errors.Join(steps[p.choose(len(steps))](), p.same())
}

// stepCrowd mostly holds, a few milliseconds apart.
func (p *pairing) stepCrowd() error {
	p.now.Add(int64(p.choose(9000)))
	switch n := p.choose(25); {
	case n == 24:
		return p.stepRefill()
	case n < 16:
		return p.hold()
	case n < 18:
		return p.settle()
	case n < 22:
		return p.void()
	case n == 22:
		return p.extend()
	default:
		p.now.Add(int64(p.choose(60_000)))
		return nil
	}
}

// stepRefill changes how fast the buckets drain; open holds are from before.
func (p *pairing) stepRefill() error {
	p.limits = slices.Clone(p.limits)
	for i := range p.limits {
		if s := &p.limits[i].Shape; s.Kind == Bucket {
			s.Refill = min(s.Refill*int64(p.choose(300))/100+int64(p.choose(2)), MaxAmount)
			p.note("refill of %s now %d", p.limits[i].ID, s.Refill)
		}
	}
	return nil
}

func (p *pairing) stepTimeOnly() error {
	base := []int64{1, 1000, 100_000, 1_000_000, 20_000_000, 61_000_000, 3_600_000_000, -1_000, -1_500_000, -90_000_000}
	d := base[p.choose(len(base))]
	p.now.Add(d + d*int64(p.choose(1000))/1000)
	p.note("time %d", p.at())
	return nil
}

func (p *pairing) hold() error {
	c := p.call()
	c.User = p.users[p.choose(2)]
	most := p.amounts()
	if len(p.limits) == 1 {
		most.Cost *= 1000
	}
	expected := Amounts{Cost: most.Cost / 2, Tokens: most.Tokens / 3}
	limits := slices.Clone(p.limits)
	p.note("hold %s user %s %v", c.ID[20:], c.User, most)
	on, err := p.v.Bind(limits, c)
	if err != nil {
		return err
	}
	h, err := p.Hold(p.ctx, Terms{Limits: limits, Call: c, Max: most, Expected: expected})
	twin, refused := p.v.Hold(p.at(), on, most, expected)
	var exceeded *ExceededError
	if !errors.As(err, &exceeded) && err != nil {
		return err
	}
	if !reflect.DeepEqual(exceeded, refused) {
		return fmt.Errorf("refused:\n%+v\nvirtually:\n%+v", exceeded, refused) //nolint:errorlint // two answers that differ, not a cause
	}
	if twin == nil {
		return nil
	}
	if err := sameShadow(h.Statuses, twin.Statuses); err != nil {
		return err
	}
	p.pairs = append(p.pairs, &paired{c, on, h, twin})
	return nil
}

// sameShadow compares what limits in shadow mode would have done.
func sameShadow(real, twin []Status) error {
	for i, s := range real {
		switch {
		case twin != nil && s.Refused && !reflect.DeepEqual(s, twin[i]):
			return fmt.Errorf("in the shadow:\n%+v\nvirtually:\n%+v", s, twin[i])
		case s.Refused != (twin != nil && twin[i].Refused):
			return fmt.Errorf("in the shadow %+v, virtually %+v", s, twin)
		}
	}
	return nil
}

func (p *pairing) some() *paired {
	if len(p.pairs) == 0 {
		return nil
	}
	if len(p.limits) > 1 && p.choose(3) > 0 { // mostly one of the last
		n := min(len(p.pairs), 6)
		return p.pairs[len(p.pairs)-1-p.choose(n)]
	}
	return p.pairs[p.choose(len(p.pairs))]
}

func (p *pairing) settle() error {
	c := p.some()
	if c == nil {
		return nil
	}
	actual := p.amounts()
	if len(p.limits) == 1 {
		actual.Cost *= 1000
	}
	if p.choose(3) == 0 {
		actual = c.twin.Max
	}
	p.note("settle %s (%d) %v", c.call.ID[20:], c.twin.state, actual)
	p.v.Settle(p.at(), c.twin, actual)
	_, err := p.Settle(p.ctx, c.real, Settlement{Actual: actual})
	return err
}

func (p *pairing) void() error {
	c := p.some()
	if c == nil {
		return nil
	}
	p.note("void %s (%d)", c.call.ID[20:], c.twin.state)
	p.v.Void(p.at(), c.twin)
	return p.Void(p.ctx, c.real)
}

func (p *pairing) extend() error {
	c := p.some()
	if c == nil {
		return nil
	}
	more := p.amounts()
	p.note("extend %s (%d) by %v", c.call.ID[20:], c.twin.state, more)
	open, refused := p.v.Extend(p.at(), c.twin, more)
	_, err := p.Extend(p.ctx, c.real, more)
	var exceeded *ExceededError
	switch {
	case !open && !errors.Is(err, ErrEnded), open && err != nil && !errors.As(err, &exceeded):
		return fmt.Errorf("extend: %w, virtually open = %v", err, open)
	case (refused != nil) != (exceeded != nil):
		return fmt.Errorf("extend: %w, virtually %w", err, refused)
	}
	return nil
}

func (p *pairing) sweep() error {
	n, err := p.Expiry.Sweep(p.ctx, p.org)
	p.note("sweep: %d", n)
	var due []*paired
	for _, c := range p.pairs {
		if c.twin.state == holdOpen && c.twin.ends <= p.at() {
			due = append(due, c)
		}
	}
	slices.SortFunc(due, func(a, b *paired) int {
		return cmp.Or(cmp.Compare(a.twin.ends, b.twin.ends), cmp.Compare(a.real.ID, b.real.ID))
	})
	for _, c := range due {
		charge := c.twin.Max
		if p.opts.ExpiredCharge == ChargeExpected {
			charge = c.twin.Expected
		}
		p.v.Expire(p.at(), c.twin, charge)
	}
	if err == nil && n != len(due) {
		err = fmt.Errorf("%d holds expired, virtually %d", n, len(due))
	}
	return err
}

func (p *pairing) renew() error {
	c := p.some()
	if c == nil {
		return nil
	}
	p.note("renew %s (%d)", c.call.ID[20:], c.twin.state)
	p.v.Renew(p.at(), c.twin)
	return p.Store.renew(p.ctx, p.org, []*Hold{c.real})
}

// same compares the states of all limits of all users.
func (p *pairing) same() error {
	for _, user := range p.users {
		c := ledger.Call{Org: p.org, User: user}
		real, err := p.Peek(p.ctx, p.limits, c)
		if err != nil {
			return err
		}
		on, err := p.v.Bind(p.limits, c)
		if err != nil {
			return err
		}
		if twin := p.v.Peek(p.at(), on); !reflect.DeepEqual(real, twin) {
			for i := range real {
				if real[i] != twin[i] {
					return fmt.Errorf("%s:\n%+v\nvirtually:\n%+v", user, real[i], twin[i])
				}
			}
		}
		if err := p.loads(c, real); err != nil {
			return err
		}
		want := Amounts{Cost: 7, Tokens: 3}
		real, err = p.Room(p.ctx, p.limits, c, want)
		if err != nil {
			return err
		}
		if twin := p.v.Room(p.at(), on, want); !reflect.DeepEqual(real, twin) {
			return fmt.Errorf("room of %s:\n%+v\nvirtually:\n%+v", user, real, twin)
		}
	}
	return nil
}

// loads checks that a Virtual with the states in the store has the same amounts, and frees them when the
// store does.
func (p *pairing) loads(c ledger.Call, real []Status) error {
	v := NewVirtual(p.opts)
	on, err := v.Bind(p.limits, c)
	if err != nil {
		return err
	}
	if _, err := p.Load(p.ctx, v, []*Standing{on}); err != nil {
		return err
	}
	for i, s := range v.Peek(p.at(), on) {
		shape := p.limits[i].Shape
		timed := shape.Kind == Fixed || shape.Kind == Calendar
		if shape.Kind == Window || shape.Kind == ExactWindow { // unless the clock went back
			timed = real[i].Reset <= shape.Window+shape.Window/60
		}
		if s.Used != real[i].Used || timed && s.Reset != real[i].Reset {
			return fmt.Errorf("loaded:\n%+v\nin the store:\n%+v", s, real[i])
		}
	}
	return nil
}

// TestVirtualHistories: a Virtual answers as the scripts do.
func TestVirtualHistories(t *testing.T) {
	rdb := shared(t)
	rapid.Check(t, func(rt *rapid.T) {
		choose := func(n int) int { return rapid.IntRange(0, n-1).Draw(rt, "choice") }
		if err := runPairing(t, rdb, loaded, 40, choose); err != nil {
			rt.Fatal(err)
		}
	})
}

// TestVirtualLongHistories is TestVirtualHistories with longer histories. LLMGUARD_SEED replays
// them.
func TestVirtualLongHistories(t *testing.T) {
	seed, rdb := randtest.Seed(t), shared(t)
	for i := range randtest.Rounds(8, 2000) {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		if err := runPairing(t, rdb, loaded, 250, rng.IntN); err != nil {
			t.Fatalf("LLMGUARD_SEED=%d history %d: %v", seed, i, err)
		}
	}
}

// TestVirtualNotices proves that the comparison can fail: it detects each of these mistakes in the
// scripts.
func TestVirtualNotices(t *testing.T) {
	rdb := shared(t)
	notice(t, 200, []mistake{
		{"dips joined too late", "st.hi - st.lo > 20 and", "st.hi - st.lo > 21 and", 123},
		{"other dips squeezed", "if st.hi - st.lo > 28 then", "if st.hi - st.lo > 27 then", 123},
		{"fraction of the refill lost", "f = x - drained * p", "f = 0", 2},
		{"another refill reaches back", "r1, r2 = rate:match('^(.*):(.*)$')", "r1, r2 = p1, p2", 0},
		{"an overrun brings its own refill", "if st.other and held and nth == 1 then", "if st.other then", 0},
		{"another refill never applies to a full bucket", "if verdict == 'refused' and state.other then", "if false then", 0},
		{"refund from another period", "if place == st.from then", "if true then", 3},
		{"concurrency forgets holds that nobody expired", "'(' .. num(now - FORGOTTEN_US), '+inf')", "'(' .. num(now), '+inf')", 1},
	}, func(sc scripts, i int) error {
		return runPairing(t, rdb, sc, 200, rand.New(rand.NewPCG(11, uint64(i))).IntN)
	})
}

func BenchmarkVirtual(b *testing.B) {
	v := NewVirtual(Options{})
	limits := []Limit{
		{ID: "w", Subject: User, Metric: Cost, Shape: Shape{Kind: Window, Amount: 1 << 50, Window: time.Hour}},
		{ID: "b", Subject: Org, Metric: Cost, Shape: Shape{Kind: Bucket, Amount: 1 << 50, Refill: 1_000_000, Per: time.Second}},
		{ID: "r", Subject: User, Metric: Requests, Shape: Shape{Kind: Window, Amount: 1 << 50, Window: time.Minute}},
	}
	on, err := v.Bind(limits, ledger.Call{Org: "o", User: "u"})
	if err != nil {
		b.Fatal(err)
	}
	now := start.UnixMicro()
	for b.Loop() {
		now += 1000
		h, refused := v.Hold(now, on, cost(50_000), cost(50_000))
		if refused != nil {
			b.Fatal(refused)
		}
		v.Settle(now+500, h, cost(20_000))
	}
}

// TestRefusalLeavesNothingOfAnUnusedBucket: an unused bucket has no time of its own, even after a
// call was refused under another refill.
func TestRefusalLeavesNothingOfAnUnusedBucket(t *testing.T) {
	v := NewVirtual(Options{Lease: 30 * time.Second})
	limit := Limit{ID: "org", Subject: Org, Metric: Cost, Shape: Shape{Kind: Bucket, Amount: 100}}
	bind := func() *Standing {
		on, err := v.Bind([]Limit{limit}, ledger.Call{Org: "acme", User: "ann"})
		if err != nil {
			t.Fatal(err)
		}
		return on
	}
	const now = int64(1_800_000_000_000_000)
	v.Peek(now, bind())
	limit.Shape.Refill, limit.Shape.Per = 1, time.Second
	on := bind()
	if _, refused := v.Hold(now, on, Amounts{Cost: 101}, Amounts{}); refused == nil {
		t.Fatal("a hold beyond the amount was granted")
	}
	if s := v.Peek(now-1_500_000, on)[0]; s.Reset != 0 {
		t.Errorf("after the clock was set back it resets in %s, want 0", s.Reset)
	}
}
