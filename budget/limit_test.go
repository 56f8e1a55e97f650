package budget

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
)

func TestLimitValidate(t *testing.T) {
	good := costLimit("a.b-c_1", User, hour(5))
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Limit){
		"id must":                        func(l *Limit) { l.ID = "a:b" },
		"unknown subject":                func(l *Limit) { l.Subject = "a team" },
		"unknown mode":                   func(l *Limit) { l.Mode = "maybe" },
		"unknown metric":                 func(l *Limit) { l.Metric = "bytes" },
		"go together":                    func(l *Limit) { l.Metric = Concurrency },
		"amount -1":                      func(l *Limit) { l.Shape.Amount = -1 },
		"amount 45":                      func(l *Limit) { l.Shape.Amount = 1 << 52 },
		"window 1ns":                     func(l *Limit) { l.Shape.Window = 1 },
		"exact window 2h":                func(l *Limit) { l.Shape = Shape{Kind: ExactWindow, Window: 2 * time.Hour} },
		"refill time 0s":                 func(l *Limit) { l.Shape = Shape{Kind: Bucket, Refill: 1} },
		"refill -1":                      func(l *Limit) { l.Shape = Shape{Kind: Bucket, Refill: -1} },
		"unknown calendar":               func(l *Limit) { l.Shape = Shape{Kind: Calendar, Calendar: "decade"} },
		"unknown calendar period \"5m\"": func(l *Limit) { l.Shape = Shape{Kind: Calendar, Calendar: "5m"} },
		"month starts on a day":          func(l *Limit) { l.Shape = Shape{Kind: Calendar, Calendar: "month", Starts: "29"} },
		"week starts on a day":           func(l *Limit) { l.Shape = Shape{Kind: Calendar, Calendar: "week", Starts: "Sunday"} },
		"year starts on a date":          func(l *Limit) { l.Shape = Shape{Kind: Calendar, Calendar: "year", Starts: "04-31"} },
		"no other start":                 func(l *Limit) { l.Shape = Shape{Kind: Calendar, Calendar: "day", Starts: "8"} },
		"window 999ms":                   func(l *Limit) { l.Shape = Shape{Kind: Fixed, Window: 999 * time.Millisecond} },
		"unknown shape":                  func(l *Limit) { l.Shape.Kind = "cube" },
		"time zone \"Custom\"": func(l *Limit) {
			l.Shape = Shape{Kind: Calendar, Calendar: "day", Location: time.FixedZone("Custom", 60)}
		},
	} {
		l := good
		change(&l)
		if err := l.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("limit %+v: %v, want %q", l, err, want)
		}
	}
}

// TestBadInput: invalid input is refused before it reaches a script.
func TestBadInput(t *testing.T) {
	f := newFixture(t, shared(t), Options{})
	ctx := t.Context()
	limits := []Limit{costLimit("win", User, hour(1000))}
	for name, do := range map[string]func(c ledger.Call) error{
		"org with braces": func(c ledger.Call) error {
			c.Org = "a}{b"
			_, err := f.Hold(ctx, Terms{Limits: limits, Call: c, Max: cost(1), Expected: cost(1)})
			return err
		},
		"id without time": func(c ledger.Call) error {
			c.ID = "x"
			_, err := f.Hold(ctx, Terms{Limits: limits, Call: c, Max: cost(1), Expected: cost(1)})
			return err
		},
		"negative hold": func(c ledger.Call) error {
			_, err := f.Hold(ctx, Terms{Limits: limits, Call: c, Max: cost(-1), Expected: cost(-1)})
			return err
		},
		"huge hold": func(c ledger.Call) error {
			_, err := f.Hold(ctx, Terms{Limits: limits, Call: c, Max: cost(MaxAmount + 1), Expected: cost(1)})
			return err
		},
		"negative charge": func(c ledger.Call) error {
			_, err := f.Settle(ctx, &Hold{ID: c.HoldID(), Call: c}, Settlement{Actual: cost(-5)})
			return err
		},
		"limit given twice": func(c ledger.Call) error {
			_, err := f.Hold(ctx, Terms{Limits: append(limits, limits[0]), Call: c, Max: cost(1), Expected: cost(1)})
			return err
		},
	} {
		if err := do(f.call()); err == nil || errors.Is(err, ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	f.used(ctx, limits, [2]int64{0, 0})
}

// TestWhoseUsage: which changes of a limit or a call lead to a separate usage, and which keep it.
func TestWhoseUsage(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, shared(t), Options{})
	base := costLimit("l", User, hour(1000))
	hold := func(l Limit, change func(*ledger.Call)) {
		t.Helper()
		c := f.call()
		change(&c)
		if _, err := f.Hold(ctx, Terms{Limits: []Limit{l}, Call: c, Max: cost(100), Expected: cost(100)}); err != nil {
			t.Fatal(err)
		}
	}
	same := func(*ledger.Call) {}
	hold(base, same)
	hold(base, func(c *ledger.Call) { c.User = "bob" })
	hold(base, func(c *ledger.Call) { c.Key = "k2" })
	only := base
	only.Only = "bob"
	hold(only, same) // does not apply to ann
	off := base
	off.Mode = Off
	hold(off, same)
	f.used(ctx, []Limit{base}, [2]int64{200, 200})

	more := base
	more.Shape.Amount = 5000
	f.used(ctx, []Limit{more}, [2]int64{200, 200})
	longer := base
	longer.Shape.Window = 2 * time.Hour
	f.used(ctx, []Limit{longer}, [2]int64{0, 0})
	byKey := base
	byKey.Subject = Key
	f.used(ctx, []Limit{byKey}, [2]int64{0, 0})
	if list, err := f.Peek(ctx, []Limit{off}, f.call()); err != nil || len(list) != 0 {
		t.Fatalf("a limit that is off: %+v, %v", list, err)
	}
}

// TestShadow: a shadow limit counts, reports and admits.
func TestShadow(t *testing.T) {
	f := newFixture(t, shared(t), Options{})
	l := costLimit("l", User, hour(100))
	l.Mode = Shadow
	f.hold(t.Context(), []Limit{l}, 80)
	h := f.hold(t.Context(), []Limit{l}, 80)
	s := h.Statuses[0]
	if !s.Refused || s.Used != 160 || s.Remaining != 0 || s.Never || s.Wait <= 0 || s.Wait > 62*time.Minute {
		t.Fatalf("status %+v", s)
	}
}
