package budget

import (
	"math"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
)

// Virtual decides as a [Store] does, in memory and at given instants, for simulations. Its shapes
// reimplement lua/shape_*.lua in Go; refusals use the Store's own code. Tests with random histories
// check that both give the same answers (TestVirtualHistories). It keeps no ledger and is not safe
// for concurrent use.
//
// Instants are Unix microseconds. They may go backwards, as Redis's clock may.
type Virtual struct {
	binder binder // how a Store binds limits and reads rows
	lease  int64
	twins  map[string]twin // by org and state key
}

// NewVirtual returns an empty Virtual. It uses only the Lease option.
func NewVirtual(o Options) *Virtual {
	o = o.withDefaults()
	return &Virtual{binder: binder{o.Lease, &places{}}, lease: o.Lease.Microseconds(), twins: map[string]twin{}}
}

// twin is one limit for one subject: the Go counterpart of a lua/shape_*.lua file. at and look read
// the state without changing it; changes happen between open and close.
type twin interface {
	// at returns what counts at now, and how much of it is held.
	at(now int64) (used, held int64)
	// look returns when nothing is left and when excess has gone, like row in lua/shapes.lua.
	look(now, excess int64) (resets, frees int64)
	// late reports whether a caller that only reads the state at now has to write it, so that it
	// remembers the time: it has a new lead over the clock, or was last written seenMicros ago.
	late(now int64) bool
	// open moves the state to now.
	open(now int64)
	// charge adds n and returns its place.
	charge(h *VirtualHold, n int64, held bool) place
	// merges reports whether a charge would go to this place.
	merges(p place) bool
	// change reduces the part at p to at most from, and ends its hold if open; it returns what was
	// given back.
	change(h *VirtualHold, p place, from, to int64, open bool) int64
	close()
}

// place is where part of a hold was charged.
type place struct {
	at   int64    // a slot, an instant or the start of a period
	part *logPart // of an exact window
}

// Standing is a caller bound to all limits that apply. Bind it once and use it for all calls of the
// same subjects.
type Standing struct {
	call   ledger.Call
	limits []Limit
	states []state
	twins  []twin
}

// Limits returns the limits in the order of statuses. They must not be modified.
func (s *Standing) Limits() []Limit { return s.limits }

// Bind names the states of the limits that apply to the call, as Hold does. The call needs no id.
func (v *Virtual) Bind(limits []Limit, c ledger.Call) (*Standing, error) {
	out := &Standing{call: c}
	var err error
	out.limits, out.states, err = v.binder.bind(limits, c)
	if err != nil {
		return nil, err
	}
	for i, l := range out.limits {
		key := c.Org + " " + out.states[i].Key
		t := v.twins[key]
		if t == nil {
			t = v.newTwin(l.Shape, out.states[i])
			v.twins[key] = t
		}
		out.twins = append(out.twins, t)
	}
	return out, nil
}

func (v *Virtual) newTwin(s Shape, st state) twin {
	switch st.Kind {
	case "w":
		return &ringTwin{width: ringSlot(s.Window)}
	case "x":
		return &logTwin{width: s.Window.Microseconds()}
	case "b":
		units, micros := s.rate()
		return &bucketTwin{units: units, micros: micros}
	case "c":
		if s.Kind == Once {
			return &periodTwin{to: math.MaxInt64}
		}
		p, zone, _ := s.period() // validated
		return &periodTwin{period: p, zone: zone}
	case "d":
		return &activeTwin{width: s.Window.Microseconds(), last: map[int64]int64{}}
	default:
		return &concurrencyTwin{lease: v.lease, ends: map[*VirtualHold]int64{}}
	}
}

// VirtualHold is what a call has taken from its limits.
type VirtualHold struct {
	Max, Expected Amounts
	// Statuses are the states of the limits if one in shadow mode refused the call; otherwise nil.
	Statuses []Status

	on    *Standing
	parts []virtualPart // by limit
	ends  int64         // of the lease
	state holdState
}

// virtualPart is what a hold has taken from one limit, and where.
type virtualPart struct {
	total int64
	list  []piece
}

type piece struct {
	place
	n int64
}

type holdState uint8

const (
	holdOpen holdState = iota
	holdExpired
	holdSettled
	holdVoided
)

// Hold is [Store.Hold] at an instant, for a new call.
func (v *Virtual) Hold(now int64, on *Standing, most, expected Amounts) (*VirtualHold, *ExceededError) {
	refused, told := false, false
	for i, t := range on.twins {
		l := &on.limits[i]
		if used, _ := t.at(now); used+l.Metric.amountOf(most) > l.now(time.UnixMicro(now)) {
			told = true
			refused = refused || l.Mode != Shadow
		}
	}
	for i, t := range on.twins { // a refill applies from the first call under it
		b, ok := t.(*bucketTwin)
		switch {
		case !ok || b.refills(on.limits[i].Shape):
		case b.written:
			b.open(now)
			b.refill(on.limits[i].Shape)
			b.close()
		default: // unused, so a refusal leaves no trace in it
			b.units, b.micros = on.limits[i].Shape.rate()
		}
	}
	if refused {
		return nil, exceeded(on.limits, v.statuses(now, on, asks, most), most)
	}
	h := &VirtualHold{
		Max: most, Expected: Amounts{min(expected.Cost, most.Cost), min(expected.Tokens, most.Tokens)}, on: on,
		parts: make([]virtualPart, len(on.twins)), ends: now + v.lease,
	}
	for i, t := range on.twins {
		n := on.limits[i].takes(&on.call, most)
		t.open(now)
		h.parts[i] = virtualPart{total: n, list: []piece{{t.charge(h, n, true), n}}}
		t.close()
	}
	if told {
		h.Statuses = v.statuses(now, on, charged, most)
	}
	return h, nil
}

// Peek is [Store.Peek].
func (v *Virtual) Peek(now int64, on *Standing) []Status {
	return v.statuses(now, on, looks, Amounts{})
}

// Room is [Store.Room].
func (v *Virtual) Room(now int64, on *Standing, want Amounts) []Status {
	return v.statuses(now, on, asks, want)
}

// inquiry is who requests statuses: a caller that only reads, one that requests an amount, or one
// that has just been charged.
type inquiry uint8

const (
	looks inquiry = iota
	asks
	charged
)

func (v *Virtual) statuses(now int64, on *Standing, who inquiry, want Amounts) []Status {
	out := make([]Status, len(on.twins))
	for i, t := range on.twins {
		l := on.limits[i]
		if log, ok := t.(*logTwin); who != charged && (t.late(now) || ok && log.trims(now)) {
			t.open(now)
			t.close()
		}
		used, held := t.at(now)
		n, over, refused := int64(0), int64(0), int64(0)
		if who != looks {
			n = l.Metric.amountOf(want)
			over = used + n - l.Shape.Amount
		}
		if who == charged {
			over -= n
		}
		if over > 0 {
			refused = 1
		}
		resets, frees := t.look(now, max(over, 0))
		if b, ok := t.(*bucketTwin); ok && !b.refills(l.Shape) {
			resets = 0 // the fraction is that of another refill
		}
		out[i] = v.binder.statusOf(l, on.states[i], n, now,
			row{told: true, numbers: []int64{used, held, resets, frees, refused}})
	}
	return out
}
