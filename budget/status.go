package budget

import (
	"fmt"
	"math"
	"math/bits"
	"time"
)

// Status is the state of one limit.
type Status struct {
	LimitID string
	Subject Subject
	Metric  Metric
	Mode    Mode

	Used      int64 // charged and held in the limit now; may exceed Amount
	Held      int64 // the part of Used that open holds may still give back
	Amount    int64 // of the limit, or the bucket's capacity, including raises
	Remaining int64 // Amount - Used, never negative

	// Window is the time in which Amount returns: the window, the longest period of the calendar, or
	// how long an empty bucket takes to fill; 0 if time alone does not return it.
	Window time.Duration

	Raised      int64     // the part of Amount that raises added
	RaisedUntil time.Time // when the first of them ends; zero if there are none

	Reset time.Duration // until nothing is used, without further use; may be Endless
	// Wait is, for a limit that refused, how long until the call fits, if no other call takes the
	// capacity. For concurrency, and for a bucket without refill, it is at most the lease of a
	// hold.
	Wait  time.Duration
	Never bool // refused, and waiting will not help
	// ClosedUntil is when a limit reopens that is closed because the store lost its data; zero if
	// it is open.
	ClosedUntil time.Time
	Refused     bool // the call did not fit; a Shadow limit reports it and admits the call
}

// refuses reports whether the limit keeps the call from running.
func (st Status) refuses() bool { return st.Refused && st.Mode != Shadow }

// ExceededError means that a call does not fit. Nothing was held.
type ExceededError struct {
	Binding   Status   // the refusing limit with the longest wait
	Statuses  []Status // of all limits, without the call
	Requested int64    // what the call requested of Binding
	Soon      bool     // it would fit if the open holds ended without a cost
	// Cap is set if a spend cap refused. Binding then describes the usage of all orgs together and
	// is for operators only; Statuses are the org's own.
	Cap *Cap
}

// Error names the limit and the wait.
func (e *ExceededError) Error() string {
	b := e.Binding
	when := fmt.Sprintf("fits in %s", b.Wait)
	if b.Never {
		when = "can never fit"
	}
	who := ""
	if e.Cap != nil {
		who = "cap of " + e.Cap.String() + ": "
	}
	if !b.ClosedUntil.IsZero() {
		return fmt.Sprintf("budget: %slimit %s is closed until %s because the store lost its data", who, b.LimitID,
			b.ClosedUntil.UTC().Format(time.RFC3339))
	}
	return fmt.Sprintf("budget: %slimit %s: %d %s wanted, %d of %d used: %s", who, b.LimitID, e.Requested, b.Metric,
		b.Used, b.Amount, when)
}

// amounts returns used, held, resets, frees and refused of a row. A row that is not told has the
// numbers of the state that was just charged; lua/shapes.lua lists them.
func (r row) amounts(l Limit, st state, now, lease int64) [5]int64 {
	n := r.numbers
	switch {
	case r.told:
		return [5]int64(n)
	case st.Kind == "b" && len(n) == 4: // held, clock, used, fraction
		return [5]int64{n[2], n[0], n[3], n[1], 0}
	case st.Kind == "w" && len(n) == 5: // used, held, newest slot, ...
		return [5]int64{n[0], n[1], (n[2] + slots + 1) * ringSlot(l.Shape.Window), now, 0}
	case st.Kind == "w" && len(n) == 6: // and its lead
		return [5]int64{n[0], n[1], (n[2] + slots + 1 - n[5]) * ringSlot(l.Shape.Window), now, 0}
	case st.Kind == "c" && len(n) == 4: // used, held, start, end
		return [5]int64{n[0], n[1], n[3], now, 0}
	case st.Kind == "x":
		return [5]int64{n[0], n[1], now + l.Shape.Window.Microseconds(), now, 0}
	default:
		return [5]int64{n[0], n[1], now + lease, now, 0}
	}
}

func (l Limit) mode() Mode {
	if l.Mode == "" {
		return Enforce
	}
	return l.Mode
}

// drained returns the instant, in microseconds, at which n units of a bucket have drained: clock
// plus the smallest integer e with e*units + fraction >= n*micros. It is math.MaxInt64 if that
// never happens.
func drained(n, fraction, units, micros, clock int64) int64 {
	if n <= 0 {
		return clock
	}
	if units == 0 {
		return math.MaxInt64
	}
	hi, lo := bits.Mul64(uint64(n), uint64(micros))
	lo, borrow := bits.Sub64(lo, uint64(fraction), 0)
	hi -= borrow
	lo, carry := bits.Add64(lo, uint64(units-1), 0)
	hi += carry
	if hi >= uint64(units) {
		return math.MaxInt64
	}
	e, _ := bits.Div64(hi, lo, uint64(units))
	if e > uint64(math.MaxInt64-clock) {
		return math.MaxInt64
	}
	return clock + int64(e)
}

// span converts microseconds to a duration.
func span(micros int64) time.Duration {
	if micros > century.Microseconds() {
		return Endless
	}
	return time.Duration(max(0, micros)) * time.Microsecond
}

// of returns the amount that counts for the limit.
func (a Amounts) of(l *Limit) int64 { return l.Metric.amountOf(a) }

// exceeded builds the error of a refusal.
func exceeded(limits []Limit, statuses []Status, want Amounts) *ExceededError {
	e := &ExceededError{Statuses: statuses, Soon: true}
	found := false
	for i, s := range statuses {
		if !s.refuses() {
			continue
		}
		n := limits[i].Metric.amountOf(want)
		if s.Used-s.Held+n > s.Amount || !s.ClosedUntil.IsZero() {
			e.Soon = false
		}
		if !found || s.Never && !e.Binding.Never || s.Never == e.Binding.Never && s.Wait > e.Binding.Wait {
			found, e.Binding, e.Requested = true, s, n
		}
	}
	return e
}
