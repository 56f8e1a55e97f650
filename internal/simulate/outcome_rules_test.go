package simulate_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/simulate"
	"github.com/llmguard/llmguard/queue"
)

// waiting is a trace whose third call exceeds the limit, for an org whose calls wait.
var waiting = []simulate.Call{callAt(0, 50), callAt(1, 50), callAt(2, 50)}

// Under each shape a waiting call runs as soon as there is capacity.
func TestWhenALimitFrees(t *testing.T) {
	for _, c := range []struct {
		name  string
		shape budget.Shape
		wait  time.Duration
	}{
		// The first call leaves the exact window after 60 s, at second 60.
		{"an exact window", budget.Shape{Kind: budget.ExactWindow, Amount: 100, Window: time.Minute}, 58 * time.Second},
		// In sixtieths, the second in which it arrived must have passed as well.
		{"a window", budget.Shape{Kind: budget.Window, Amount: 100, Window: time.Minute}, 59 * time.Second},
		{"a minute", budget.Shape{Kind: budget.Calendar, Amount: 100, Calendar: "minute"}, 58 * time.Second},
		// After two seconds 2 x 5 of the 50 that it needs have refilled: 40 are missing.
		{"a bucket", budget.Shape{Kind: budget.Bucket, Amount: 100, Refill: 5, Per: time.Second}, 8 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			list := decisions(t, traceOf(t, waiting...), under(t, limitOf(c.shape)))
			checkOutcomes(t, list, "immediate", "immediate", "waited "+c.wait.String())
			if list[2].Why != "l" {
				t.Errorf("got reason %q, want the limit l", list[2].Why)
			}
		})
	}
}

// If capacity returns too late for a caller, the call is refused immediately.
func TestPatience(t *testing.T) {
	hour := limitOf(budget.Shape{Kind: budget.ExactWindow, Amount: 100, Window: time.Hour})
	minute := limitOf(budget.Shape{Kind: budget.ExactWindow, Amount: 100, Window: 8 * time.Minute})
	patient := callAt(2, 50)
	patient.Stream = true
	stream := []simulate.Call{waiting[0], waiting[1], patient}
	short := under(t, minute)
	short.Guard.Orgs["acme"].MaxWait = time.Minute
	long := under(t, minute)
	long.HoldFor = 9 * time.Minute
	for _, c := range []struct {
		name   string
		calls  []simulate.Call
		policy simulate.Policy
		want   string
	}{
		{"a plain call of 280 s", waiting, under(t, minute), "refused"},
		{"a plain call of 9 m", waiting, long, "waited 7m58s"},
		{"a stream of 10 m", stream, under(t, minute), "waited 7m58s"},
		{"a stream, for an hour", stream, under(t, hour), "refused"},
		{"a stream of an org that waits a minute", stream, short, "refused"},
	} {
		t.Run(c.name, func(t *testing.T) {
			checkOutcomes(t, decisions(t, traceOf(t, c.calls...), c.policy), "immediate", "immediate", c.want)
		})
	}
}

// A call larger than a limit can never run, so it does not wait.
func TestTooLargeForALimit(t *testing.T) {
	for _, shape := range []budget.Shape{
		{Kind: budget.Window, Amount: 49, Window: time.Minute},
		{Kind: budget.ExactWindow, Amount: 49, Window: time.Minute},
		{Kind: budget.Calendar, Amount: 49, Calendar: "day"},
		{Kind: budget.Bucket, Amount: 49, Refill: 49, Per: time.Second},
	} {
		checkOutcomes(t, decisions(t, traceOf(t, waiting[0]), under(t, limitOf(shape))), "refused")
	}
	job := waiting[0]
	job.Class = "batch"
	small := limitOf(budget.Shape{Kind: budget.Window, Amount: 49, Window: time.Minute})
	checkOutcomes(t, decisions(t, traceOf(t, job), under(t, small)), "refused")
	small.Mode = budget.Shadow
	checkOutcomes(t, decisions(t, traceOf(t, job), under(t, small)), "waited")
}

// A limit counts only the subjects and models that it is for.
func TestWhomALimitCounts(t *testing.T) {
	window := budget.Shape{Kind: budget.ExactWindow, Amount: 100, Window: time.Minute}
	bob, other := callAt(2, 50), callAt(2, 50)
	bob.User, bob.Key, bob.IP = "bob", "k2", "10.0.0.8"
	other.Model, other.Endpoint = "x", "embeddings"
	for _, c := range []struct {
		name   string
		change func(*budget.Limit)
		last   simulate.Call
		want   string
	}{
		{"of the org", func(*budget.Limit) {}, bob, "refused"},
		{"of each user", func(l *budget.Limit) { l.Subject = budget.User }, bob, "immediate"},
		{"of each key", func(l *budget.Limit) { l.Subject = budget.Key }, bob, "immediate"},
		{"of each address", func(l *budget.Limit) { l.Subject = budget.IP }, bob, "immediate"},
		{"of ann alone", func(l *budget.Limit) { l.Subject, l.Only = budget.User, "ann" }, bob, "immediate"},
		{"of each user, the same", func(l *budget.Limit) { l.Subject = budget.User }, waiting[2], "refused"},
		{"of a model", func(l *budget.Limit) { l.Models = []string{"m*"} }, other, "immediate"},
		{"of all models", func(*budget.Limit) {}, other, "refused"},
		{"of an endpoint", func(l *budget.Limit) { l.Endpoints = []string{"chat.*"} }, other, "immediate"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := limitOf(window)
			c.change(&l)
			trace := traceOf(t, waiting[0], waiting[1], c.last)
			checkOutcomes(t, decisions(t, trace, refusing(t, l)), "immediate", "immediate", c.want)
		})
	}
}

// A limit in shadow mode counts, delays nobody, and reports what it would do.
func TestShadowHoldsNobodyBack(t *testing.T) {
	l := limitOf(budget.Shape{Kind: budget.ExactWindow, Amount: 100, Window: time.Minute})
	l.Mode = budget.Shadow
	big := callAt(3, 101)
	report := reportOf(t, traceOf(t, append(slices.Clone(waiting), big)...), under(t, l))
	if report.Total.AtOnce != 4 || report.Total.HeldBackCalls() != 0 || len(report.Limits) != 0 {
		t.Errorf("got %+v and %+v, want all four at once", report.Total, report.Limits)
	}
	want := simulate.ShadowLine{
		Limit: "l", Org: "acme", User: "ann", Waited: 1, WaitP50: 58_000, WaitP95: 58_000,
		WaitMax: 58_000, Refused: 1,
	}
	if len(report.Shadow) != 1 || report.Shadow[0] != want {
		t.Errorf("got %+v, want %+v", report.Shadow, want)
	}
}

// A pool's quota limits calls, tokens and concurrency, whichever binds first.
func TestQuotaOfAPool(t *testing.T) {
	for _, c := range []struct {
		name string
		pool queue.Pool
		why  string
	}{
		{"requests", queue.Pool{RPM: 2}, "quota of all (rpm)"},
		{"tokens", queue.Pool{TPM: 250}, "quota of all (tpm)"},
		{"places", queue.Pool{Concurrency: 2}, "quota of all (concurrency)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var calls []simulate.Call
			for _, one := range waiting {
				one.QuotaTokens, one.HeldTokens, one.Tokens, one.Took = 100, 100, 100, 5*time.Second
				calls = append(calls, one)
			}
			p := refusing(t)
			c.pool.ID = "all"
			p.Pools = []queue.Pool{c.pool}
			list := decisions(t, traceOf(t, calls...), p)
			if list[0].Outcome != simulate.AtOnce || list[2].Outcome != simulate.Refused || list[2].Why != c.why {
				t.Errorf("got %q and reason %q, want the last refused by %q", outcomes(list), list[2].Why, c.why)
			}
		})
	}
}

// Calls that cannot be decided are skipped and counted by reason.
func TestSkipped(t *testing.T) {
	stranger := callAt(0, 5)
	stranger.Org = "globex"
	p := under(t)
	report := reportOf(t, traceOf(t, stranger, stranger, callAt(1, 5)), p)
	if report.Total.Calls != 1 || report.Skipped["org globex is not in p"] != 2 {
		t.Errorf("got %d calls and skipped %v", report.Total.Calls, report.Skipped)
	}
}

// The same trace under the same policy yields the same result, byte for byte.
func TestRunsAreTheSame(t *testing.T) {
	var calls []simulate.Call
	for i := range 300 {
		c := callAt(float64(i)/3, int64(1+i*7%50))
		c.User, c.Took = string(rune('a'+i%7)), time.Duration(i%11)*time.Second
		calls = append(calls, c)
	}
	l := limitOf(budget.Shape{Kind: budget.Window, Amount: 300, Window: time.Minute})
	text := func(calls []simulate.Call) string {
		p := under(t, l)
		p.Pools = []queue.Pool{{ID: "all", RPM: 100, Concurrency: 5}}
		out, err := json.Marshal(reportOf(t, traceOf(t, calls...), p, "user", "model"))
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	first := text(calls)
	if again := text(calls); again != first {
		t.Errorf("got another report the second time:\n%s\n%s", again, first)
	}
	slices.Reverse(calls)
	if again := text(calls); again != first {
		t.Errorf("got another report of the calls read in reverse:\n%s\n%s", again, first)
	}
}

// Reports can be grouped by any dimensions; users and keys of two orgs are separate.
func TestReportDimensions(t *testing.T) {
	p := under(t)
	p.Guard.Orgs["globex"] = p.Guard.Orgs["acme"]
	a, b, c := callAt(0, 10), callAt(1, 20), callAt(2, 40)
	b.Key, b.Model = "k2", "n"
	c.Org = "globex"
	for _, one := range []struct {
		by   []string
		want string
	}{
		{nil, " 70"},
		{[]string{"org"}, "globex 40, acme 30"},
		{[]string{"user"}, "globex/ann 40, acme/ann 30"},
		{[]string{"key"}, "globex/ann/k 40, acme/ann/k2 20, acme/ann/k 10"},
		{[]string{"model"}, "m 50, n 20"},
		{[]string{"org", "model"}, "globex/m 40, acme/n 20, acme/m 10"},
	} {
		var got []string
		for _, l := range reportOf(t, traceOf(t, a, b, c), p, one.by...).Lines {
			name := strings.Join(slices.DeleteFunc([]string{l.Org, l.User, l.Key, l.Model},
				func(s string) bool { return s == "" }), "/")
			got = append(got, name+" "+strings.TrimLeft(strings.TrimPrefix(l.Spend.String(), "$0."), "0"))
		}
		if strings.Join(got, ", ") != one.want {
			t.Errorf("by %v: got %s, want %s", one.by, strings.Join(got, ", "), one.want)
		}
	}
	_, err := run(t, traceOf(t, a), p).Report([]string{"colour"})
	if want := `simulate: cannot group by "colour"; expected any of [org user key model]`; err == nil ||
		err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestAddRefuses(t *testing.T) {
	for name, change := range map[string]func(*simulate.Call){
		"a negative cost":     func(c *simulate.Call) { c.Cost = -1 },
		"a negative hold":     func(c *simulate.Call) { c.Held = -1 },
		"negative tokens":     func(c *simulate.Call) { c.Tokens = -1 },
		"negative quota":      func(c *simulate.Call) { c.QuotaTokens = -1 },
		"no time":             func(c *simulate.Call) { c.At = time.Time{} },
		"a class of its own":  func(c *simulate.Call) { c.Class = "night" },
		"negative held token": func(c *simulate.Call) { c.HeldTokens = -1 },
	} {
		c := callAt(0, 1)
		change(&c)
		trace := simulate.NewTrace()
		if err := trace.Add(c); err == nil || trace.Len() != 0 {
			t.Errorf("%s: got %v and %d calls, want an error and none", name, err, trace.Len())
		}
	}
}

// A trace must be sorted before a run, and a run stops with its context.
func TestRunRefuses(t *testing.T) {
	trace := simulate.NewTrace()
	err := trace.Add(callAt(0, 1))
	if err != nil {
		t.Fatal(err)
	}
	_, err = simulate.Run(t.Context(), trace, under(t), simulate.Options{})
	if err == nil || err.Error() != "simulate: sort the trace first" {
		t.Errorf("not sorted: got %v", err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	trace.Sort()
	_, err = simulate.Run(over, trace, under(t), simulate.Options{})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v, want %v", err, context.Canceled)
	}
}

// Progress starts at zero and ends with all calls.
func TestProgress(t *testing.T) {
	var seen []int
	_, err := simulate.Run(t.Context(), traceOf(t, waiting...), under(t), simulate.Options{
		Progress: func(done, of int) { seen = append(seen, done, of) },
	})
	if err != nil || !slices.Equal(seen, []int{0, 3, 3, 3}) {
		t.Errorf("got %v, %v, want 0 of 3 and 3 of 3", seen, err)
	}
}

// A call that was refused when recorded gets a typical cost: that of the same user and model,
// else of the model, else its whole hold.
func TestRefusedCallsAreLentACost(t *testing.T) {
	half := callAt(0, 100)
	half.Cost, half.Took = 50, 4*time.Second
	tenth := callAt(1, 100)
	tenth.User, tenth.Cost, tenth.Took = "bob", 10, 2*time.Second
	refused := func(user, model string) simulate.Call {
		c := callAt(2, 40)
		c.User, c.Model, c.Refused, c.Cost = user, model, true, 0
		return c
	}
	for _, c := range []struct {
		name string
		call simulate.Call
		cost int64
		took time.Duration
	}{
		{"of the user", refused("ann", "m"), 20, 4 * time.Second},
		{"of the model", refused("cid", "m"), 12, 3 * time.Second}, // 2 calls that cost 60 of 200 and took 6 s
		{"of nothing", refused("ann", "other"), 40, 0},
	} {
		list := decisions(t, traceOf(t, half, tenth, c.call), nothingKnown())
		if got := list[2].Call; int64(got.Cost) != c.cost || got.Took != c.took {
			t.Errorf("%s: got %d in %s, want %d in %s", c.name, got.Cost, got.Took, c.cost, c.took)
		}
	}
}

// What identifies a call (its request, run, labels) changes nothing for calls that wait or are jobs,
// whether or not a brake counts it.
func TestIdentitiesOfWaitingCalls(t *testing.T) {
	plain := slices.Clone(waiting)
	for _, class := range []string{"async", "batch"} {
		job := callAt(3, 50)
		job.Class = class
		plain = append(plain, job)
	}
	named := slices.Clone(plain)
	for i := range named {
		named[i].Request = "r" + string(rune('0'+i))
		named[i].Run, named[i].Labels = "agent", ledger.Labels("").With("project", "a")
	}
	minute := limitOf(budget.Shape{Kind: budget.ExactWindow, Amount: 100, Window: time.Minute})
	never := limitOf(budget.Shape{Kind: budget.Window, Amount: 100, Window: 300 * 24 * time.Hour})
	for name, rule := range map[string]*budget.BrakeRule{
		"no brake": nil,
		"calls":    {Calls: 100, Window: time.Minute},
		"repeats":  {Repeats: 100, Window: time.Minute},
		"spend":    {Factor: 100_000, Floor: nano(1000), Window: time.Minute},
	} {
		for _, limit := range []budget.Limit{minute, never} {
			p := under(t, limit)
			if rule != nil {
				b, err := budget.NewBrake(budget.Brake{ID: "b", Subject: budget.User, Action: budget.BrakeStop, Rule: *rule})
				if err != nil {
					t.Fatal(err)
				}
				p.Guard.Orgs["acme"].Brakes = []*budget.Brake{b}
			}
			want := outcomes(decisions(t, traceOf(t, plain...), under(t, limit)))
			t.Run(name, func(t *testing.T) { checkOutcomes(t, decisions(t, traceOf(t, named...), p), want...) })
		}
	}
}
