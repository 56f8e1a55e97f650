package budget

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/listen"
	"github.com/llmguard/llmguard/internal/tenants/settings"
)

// Metric is what a limit counts.
type Metric string

// Metrics. Cost is in nano-USD.
const (
	Cost        Metric = "cost"
	Tokens      Metric = "tokens"
	Requests    Metric = "requests"
	Concurrency Metric = "concurrency"

	active Metric = "active" // different subjects with a call, for brakes
)

// Subject says whose calls share a limit: those of the whole org, or those of each user, API key,
// client address or value of a label separately, or of a combination such as user+session.
type Subject string

// Subjects. A call does not name its group: a limit of a UserGroup has the group in Only, and the
// caller of this package passes only the limits of the user's group. Without Only it counts the
// calls of users without a group.
const (
	Org       Subject = "org"
	UserGroup Subject = ledger.GroupLabel
	User      Subject = "user"
	Key       Subject = "key"
	IP        Subject = "ip"
	// RunBudget is a run of calls; see [Run]. Brakes count the outermost run of a call, with all runs inside
	// it. No label can have this name.
	RunBudget Subject = settings.RunBudget
)

// Mode says what a limit does.
type Mode string

// Modes. A Shadow limit counts calls and reports that it would have refused them; a limit that is
// Off is ignored. The zero value is Enforce.
const (
	Enforce Mode = "enforce"
	Shadow  Mode = "shadow"
	Off     Mode = "off"
)

// ShapeKind is how a limit regains capacity over time.
type ShapeKind string

// Shapes.
const (
	Window      ShapeKind = "window"     // sliding, in 61 slots; never over-admits, frees up to 1/60 of the window late
	ExactWindow ShapeKind = "exact"      // sliding, to the microsecond; for small windows
	Bucket      ShapeKind = "bucket"     // Amount is the capacity, Refill is added every Per
	Fixed       ShapeKind = "fixed"      // windows of one length, aligned to the Unix epoch
	Calendar    ShapeKind = "calendar"   // fixed periods in a time zone
	Concurrent  ShapeKind = "concurrent" // number of open holds
	Once        ShapeKind = "once"       // Amount can be used once, in the Window that ends at Until

	distinct ShapeKind = "distinct" // subjects with a call in a sliding window, for brakes
)

const (
	// MaxAmount is the largest amount of a limit or a hold: 2^52-1, about $4.5
	// million. The sum of two stays exact in Redis scripts.
	MaxAmount = 1<<52 - 1

	maxWindow = 366 * 24 * time.Hour
	maxExact  = time.Hour
	maxPer    = 100 * 24 * time.Hour
	slots     = 60 // a ring has one more
)

// Shape is a limit's amount and how capacity returns over time.
type Shape struct {
	Kind   ShapeKind
	Amount int64 // in the metric's unit; nano-USD for cost; >= 0

	Window time.Duration // Window, ExactWindow, Fixed, Once
	Until  time.Time     // Once

	Refill int64         // Bucket: returns every Per, evenly; 0: never
	Per    time.Duration // Bucket

	Calendar string         // Calendar: year, quarter, month, week, day, hour or minute
	Starts   string         // Calendar: 15 (day of months), sunday (of weeks) or 04-06 (of quarters, years)
	Location *time.Location // Calendar: nil is UTC; must have an IANA name
}

// Limit bounds one metric of one subject. Its usage is identified by ID, Subject, Metric and shape:
// a new amount keeps it, another window or time zone starts at zero.
type Limit struct {
	ID      string  // [A-Za-z0-9._-]{1,64}
	Subject Subject // whose calls share it
	Only    string  // if set, the only id of its Subject it applies to; of a UserGroup, the group
	// IPv6Prefix is how many bits of an IPv6 address identify a subject IP: all addresses with the
	// same prefix count as one. 0: all bits.
	IPv6Prefix int

	// Models and Endpoints are patterns. The caller of this package matches them and passes only
	// the limits that apply to a call.
	Models, Endpoints []string

	Metric Metric
	Shape  Shape
	Mode   Mode

	// Raises change the amount temporarily.
	Raises []Raise

	// counts is set in the counters of brakes, which refuse nothing and are not shown.
	counts counterOf
}

// Validate reports why the limit is unusable.
func (l Limit) Validate() error {
	if err := l.validate(); err != nil {
		return fmt.Errorf("budget: limit %q: %w", l.ID, err)
	}
	return nil
}

func (l Limit) validate() error {
	if !ledger.ValidID(l.ID) {
		return fmt.Errorf("id must be 1 to 64 letters, digits, dots, dashes or underscores")
	}
	if err := l.Subject.validate(); err != nil {
		return err
	}
	switch l.Mode {
	case Enforce, Shadow, Off, "":
	default:
		return fmt.Errorf("unknown mode %q", l.Mode)
	}
	switch l.Metric {
	case Cost, Tokens, Requests, Concurrency, active:
	default:
		return fmt.Errorf("unknown metric %q", l.Metric)
	}
	if (l.Metric == Concurrency) != (l.Shape.Kind == Concurrent) {
		return fmt.Errorf("metric concurrency and shape concurrent go together, not %q and %q", l.Metric, l.Shape.Kind)
	}
	return l.Shape.validate()
}

func (s Shape) validate() error {
	if s.Amount < 0 || s.Amount > MaxAmount {
		return fmt.Errorf("amount %d is not in 0..%d", s.Amount, int64(MaxAmount))
	}
	switch s.Kind {
	case Window, distinct:
		return inRange("window", s.Window, slots*time.Microsecond, maxWindow)
	case ExactWindow:
		return inRange("exact window", s.Window, time.Microsecond, maxExact)
	case Bucket:
		if s.Refill < 0 || s.Refill > MaxAmount {
			return fmt.Errorf("refill %d is not in 0..%d", s.Refill, int64(MaxAmount))
		}
		if s.Refill == 0 {
			return nil
		}
		return inRange("refill time", s.Per, time.Microsecond, maxPer)
	case Fixed, Calendar:
		p, _, err := s.period()
		if err == nil && s.Kind == Calendar && p.every > 0 {
			return fmt.Errorf("unknown calendar period %q", s.Calendar)
		}
		return err
	case Once:
		if s.Until.IsZero() {
			return fmt.Errorf("an amount for once needs the time until which it can be used")
		}
		return inRange("time", s.Window, time.Microsecond, maxWindow)
	case Concurrent:
		return nil
	default:
		return fmt.Errorf("unknown shape %q", s.Kind)
	}
}

func inRange(what string, d, low, high time.Duration) error {
	if d < low || d > high || d%time.Microsecond != 0 {
		return fmt.Errorf("%s %s is not a whole number of microseconds in %s..%s", what, d, low, high)
	}
	return nil
}

// subjectOf returns the id whose usage the call adds to; see Subject.ID.
func (l Limit) subjectOf(c ledger.Call) string {
	if l.Subject == UserGroup || l.Subject == RunBudget && !l.counts.only {
		return l.Only // the caller of this package passes the limits of the call's group and runs only
	}
	c.IP = l.Network(c.IP)
	return l.Subject.ID(c)
}

// Network returns the address that a limit per address counts an address as.
func (l Limit) Network(ip string) string {
	if l.IPv6Prefix <= 0 || !strings.Contains(ip, ":") {
		return ip
	}
	a, err := netip.ParseAddr(ip)
	if err != nil {
		return ip
	}
	return listen.Network(a, l.IPv6Prefix).String()
}

// Same reports whether two calls of one org name the same subject of the limit.
func (l Limit) Same(a, b ledger.Call) bool { return l.subjectOf(a) == l.subjectOf(b) }

// amountOf returns what a call with these amounts adds to the limit.
func (m Metric) amountOf(a Amounts) int64 {
	switch m {
	case Cost:
		return int64(a.Cost)
	case Tokens:
		return a.Tokens
	default:
		return 1
	}
}

// state names a limit's state in Redis and how scripts read it. It is kept with the hold, so that
// any process can end it.
type state struct {
	Key    string // below the org's prefix
	Kind   string // of lua/shape_of.lua
	Metric Metric
	P1, P2 string
}

// stateFor returns the state of a limit for the call's subject.
func (l Limit) stateFor(c ledger.Call, lease time.Duration) state {
	s := l.Shape
	st := state{Metric: l.Metric}
	var buf [160]byte
	b := append(append(append(buf[:0], "l:"...), l.ID...), ':')
	b = append(append(append(append(b, l.Subject...), '-'), l.Metric...), '-')
	switch s.Kind {
	case Window:
		st.Kind, st.P1 = "w", strconv.FormatInt(ringSlot(s.Window), 10)
		b = strconv.AppendInt(append(b, 'w'), s.Window.Microseconds(), 10)
	case ExactWindow:
		st.Kind, st.P1 = "x", strconv.FormatInt(s.Window.Microseconds(), 10)
		b = append(append(b, 'x'), st.P1...)
	case Bucket:
		refill, per := s.rate()
		st.Kind, st.P1, st.P2 = "b", strconv.FormatInt(refill, 10), strconv.FormatInt(per, 10)
		b = append(b, 'b')
	case Fixed, Calendar:
		st.Kind, st.P1, st.P2 = "c", s.periodText(), s.zone()
		b = append(append(append(append(b, 'c'), st.P1...), '-'), st.P2...)
	case distinct:
		st.Kind, st.P1 = "d", strconv.FormatInt(s.Window.Microseconds(), 10)
		b = append(append(b, 'd'), st.P1...)
	case Once:
		st.Kind, st.P1 = "c", oncePrefix+strconv.FormatInt(s.Until.UnixMicro(), 10)
		b = strconv.AppendInt(append(b, 'o'), s.Until.UnixMicro(), 10)
	default:
		st.Kind, st.P1 = "n", strconv.FormatInt(lease.Microseconds(), 10)
		b = append(b, 'n')
	}
	b = append(append(b, ':'), l.subjectOf(c)...)
	if l.counts.repeats {
		b = append(append(b, subjectSep...), c.Request...)
	}
	st.Key = string(b)
	return st
}

// ringSlot returns the width of a window's slots in microseconds.
func ringSlot(window time.Duration) int64 {
	return (window.Microseconds() + slots - 1) / slots
}

// rate returns the refill as units per microseconds in lowest terms.
func (s Shape) rate() (units, micros int64) {
	if s.Refill == 0 {
		return 0, 1
	}
	a, b := s.Refill, s.Per.Microseconds()
	for b != 0 {
		a, b = b, a%b
	}
	return s.Refill / a, s.Per.Microseconds() / a
}

// params returns p1 and p2 in the form that scripts take at now.
func (st state) params(now time.Time) (p1, p2 string, err error) {
	if st.Kind != "c" {
		return st.P1, st.P2, nil
	}
	if until, ok := strings.CutPrefix(st.P1, oncePrefix); ok {
		p1, err = onceAround(until, now)
		return p1, "", err
	}
	a, err := periodsAround(st.P1, st.P2, now)
	return a.text, "", err
}

// window is Span, or 0 if time alone does not return the amount.
func (s Shape) window() time.Duration {
	if s.Kind == Concurrent || s.Kind == Once || s.Kind == Bucket && s.Refill == 0 {
		return 0
	}
	return s.Span()
}

// Span is the time in which a limit's amount returns.
func (s Shape) Span() time.Duration {
	switch s.Kind {
	case Window, ExactWindow, Fixed, Once, distinct:
		return s.Window
	case Calendar:
		p, _, err := s.period()
		if err != nil {
			return maxWindow
		}
		_, longest := p.lengths()
		return longest
	case Bucket:
		if s.Refill > 0 {
			full := float64(s.Amount) / float64(s.Refill) * float64(s.Per) // a time, not money
			return time.Duration(min(full, float64(maxWindow)))
		}
		return maxWindow
	default: // open calls leave when they end
		return time.Second
	}
}
