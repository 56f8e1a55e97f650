package simulate_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/simulate"
)

const shadowed = `{"kind":"settle","org":"acme","user":"ann","shadow":[{"limit":"hour","wait_ms":5000},{"limit":"day","never":true}]}
{"kind":"settle","org":"acme","user":"ann","shadow":[{"limit":"hour","wait_ms":1000}]}
{"kind":"expire","org":"acme","user":"bob","shadow":[{"limit":"hour","wait_ms":3000},{"limit":"all","cap":"the deployment","never":true}]}

{"kind":"settle","org":"acme","user":"bob"}
{"kind":"void","org":"acme","user":"bob","shadow":[{"limit":"hour","wait_ms":9}]}
{"msg":"call","org":"acme"}
`

// A ledger yields what limits in shadow mode would have done: by limit, and by limit and user,
// most first.
func TestShadowOfALedger(t *testing.T) {
	var s simulate.Shadow
	err := s.Read(t.Context(), "f", strings.NewReader(shadowed))
	if err != nil {
		t.Fatal(err)
	}
	const hour, day, all = "hour", "day", "cap of the deployment: all"
	want := simulate.ShadowReport{
		Calls: 4, HeldBack: 3,
		Limits: []simulate.ShadowLine{
			{Limit: hour, Org: "acme", Waited: 3, WaitP50: 3000, WaitP95: 5000, WaitMax: 5000},
			{Limit: all, Org: "acme", Refused: 1},
			{Limit: day, Org: "acme", Refused: 1},
		},
		Lines: []simulate.ShadowLine{
			{Limit: hour, Org: "acme", User: "ann", Waited: 2, WaitP50: 1000, WaitP95: 5000, WaitMax: 5000},
			{Limit: all, Org: "acme", User: "bob", Refused: 1},
			{Limit: day, Org: "acme", User: "ann", Refused: 1},
			{Limit: hour, Org: "acme", User: "bob", Waited: 1, WaitP50: 3000, WaitP95: 3000, WaitMax: 3000},
		},
	}
	if got := s.Report(); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// Entries read from Redis count like the lines of an export.
func TestShadowOfEntries(t *testing.T) {
	var s simulate.Shadow
	for _, kind := range []string{ledger.KindSettle, ledger.KindExpire, ledger.KindVoid, ledger.KindLate} {
		e := ledger.Entry{Kind: kind}
		e.Org, e.User, e.Shadow = "acme", "ann", []ledger.Shadowed{{Limit: "hour", WaitMS: 7}}
		err := s.Entry(e)
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := s.Report(); got.Calls != 2 || got.HeldBack != 2 || len(got.Lines) != 1 || got.Lines[0].Waited != 2 {
		t.Errorf("got %+v, want two calls that would have waited", got)
	}
}

// An empty report has empty lists, not null.
func TestShadowOfNothing(t *testing.T) {
	got := new(simulate.Shadow).Report()
	if got.Limits == nil || got.Lines == nil || len(got.Lines) != 0 {
		t.Errorf("got %+v, want empty lists", got)
	}
}

func TestShadowNamesTheLine(t *testing.T) {
	err := new(simulate.Shadow).Read(t.Context(), "f", strings.NewReader("{}\n\n{\"kind\":5}\n"))
	if err == nil || !strings.HasPrefix(err.Error(), "f: line 3: ") {
		t.Errorf("got %v, want the error of line 3", err)
	}
	err = new(simulate.Shadow).Read(t.Context(), "f", strings.NewReader(strings.Repeat("x", 2<<20)))
	if err == nil || !strings.HasPrefix(err.Error(), "f: ") {
		t.Errorf("got %v, want an error about a line that is too long", err)
	}
}

func TestMillisecondsForPeople(t *testing.T) {
	for ms, want := range map[simulate.Milliseconds]string{
		0: "-", 1: "1ms", 999: "999ms", 1234: "1.23s", 9994: "9.99s", 10_400: "10s", 61_000: "1m1s", 3_600_000: "1h0m0s",
	} {
		if got := ms.String(); got != want {
			t.Errorf("%d: got %s, want %s", ms, got, want)
		}
	}
}

// Suggestions are refused where they would be meaningless.
func TestSuggestRefuses(t *testing.T) {
	right := func() simulate.SuggestOptions {
		return simulate.SuggestOptions{
			Metric: budget.Cost, Windows: []time.Duration{time.Minute}, Percentile: 95,
			Headroom: 1.2,
		}
	}
	for _, c := range []struct {
		spoil func(*simulate.SuggestOptions)
		want  string
	}{
		{
			func(o *simulate.SuggestOptions) { o.Metric = budget.Concurrency },
			`simulate: no limit on "concurrency" can be suggested; expected cost, tokens or requests`,
		},
		{func(o *simulate.SuggestOptions) { o.Percentile = 0 }, "simulate: percentile 0: expected 1 to 100"},
		{func(o *simulate.SuggestOptions) { o.Percentile = 101 }, "simulate: percentile 101: expected 1 to 100"},
		{func(o *simulate.SuggestOptions) { o.Headroom = 0.05 }, "simulate: headroom 0.05: expected 0.1 to 100"},
		{func(o *simulate.SuggestOptions) { o.Headroom = 101 }, "simulate: headroom 101: expected 0.1 to 100"},
		{func(o *simulate.SuggestOptions) { o.Windows = nil }, "simulate: a window is needed"},
		{
			func(o *simulate.SuggestOptions) { o.Windows[0] = 59 * time.Second },
			"simulate: window 59s: expected a minute to 366 days",
		},
		{
			func(o *simulate.SuggestOptions) { o.Windows[0] = 367 * 24 * time.Hour },
			"simulate: window 8808h0m0s: expected a minute to 366 days",
		},
	} {
		o := right()
		c.spoil(&o)
		_, err := simulate.Suggest(t.Context(), traceOf(t, callAt(0, 1)), o)
		if err == nil || err.Error() != c.want {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}

// A suggested amount is the percentile times the headroom, rounded up to two digits, and its
// replay shows what it would have done.
func TestSuggestedAmounts(t *testing.T) {
	var calls []simulate.Call
	for i := range 10 { // one call every two minutes, costing 101 to 110
		calls = append(calls, callAt(float64(120*i), int64(101+i)))
	}
	for _, c := range []struct {
		percentile      int
		headroom        float64
		reached, amount int64
		held            int
	}{
		{100, 1, 110, 110, 0},
		{50, 1, 105, 110, 0},
		{50, 0.8, 105, 84, 10},
		{100, 1.2, 110, 140, 0}, // 132 rounded up
		{10, 1.02, 101, 110, 0}, // 103.02 rounded up
		{100, 100, 110, 11_000, 0},
	} {
		list, err := simulate.Suggest(t.Context(), traceOf(t, calls...), simulate.SuggestOptions{
			Metric: budget.Cost, Windows: []time.Duration{time.Minute}, Percentile: c.percentile, Headroom: c.headroom,
		})
		if err != nil {
			t.Fatal(err)
		}
		org := list[0].Suggestions[0]
		if org.Name != "org-1m" || org.Basis.Reached != c.reached || org.Basis.Most != 110 || org.Basis.Of != 10 ||
			org.Amount != c.amount {
			t.Errorf("%d %% x %v: got %+v, want reached %d and amount %d", c.percentile, c.headroom, org, c.reached,
				c.amount)
		}
		if got := org.Effect.HeldBackCalls(); got != c.held {
			t.Errorf("%d %% x %v: got %d calls held back, want %d", c.percentile, c.headroom, got, c.held)
		}
	}
}

// No limits are suggested for windows longer than the history; the notes say so.
func TestSuggestNotes(t *testing.T) {
	list, err := simulate.Suggest(t.Context(), traceOf(t, callAt(0, 5), callAt(90, 5)), simulate.SuggestOptions{
		Metric: budget.Tokens, Windows: []time.Duration{time.Hour, time.Minute}, Percentile: 95, Headroom: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"no limit with a window of 1h: the calls span only 1m 30s",
		"no bucket: the calls span less than an hour",
	}
	if got := list[0].Notes; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := list[0].Suggestions[0].Name; got != "org-1m-tokens" {
		t.Errorf("got %s, want org-1m-tokens", got)
	}
}

// A limit's report starts when the limit was created: what an earlier limit of the name did is
// ignored, and calls before the org's first limit in shadow mode are not counted.
func TestShadowCountsFromTheLimitsCreation(t *testing.T) {
	made := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	s := simulate.Shadow{Made: map[string]map[string]time.Time{
		"acme": {"hour": made}, "filed": {"hour": made, "day": {}}, "bare": {},
	}}
	for _, org := range []string{"acme", "filed", "bare"} {
		for _, at := range []time.Time{made.Add(-time.Second), made, made.Add(time.Hour)} {
			for _, list := range [][]ledger.Shadowed{nil, {{Limit: "hour", WaitMS: 7}}} {
				e := ledger.Entry{Kind: ledger.KindSettle, At: at}
				e.Org, e.Shadow = org, list
				if err := s.Entry(e); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	got := s.Report()
	// acme: 2 of 4. filed: a limit of the file has no creation time, so 2 of 6. bare: all that
	// the ledger says, 3 of 6.
	if got.Calls != 16 || got.HeldBack != 7 {
		t.Errorf("got %d of %d calls held back, want 7 of 16", got.HeldBack, got.Calls)
	}
	for _, l := range got.Limits {
		if want := map[string]int{"acme": 2, "filed": 2, "bare": 3}[l.Org]; l.Waited != want {
			t.Errorf("%s: %d would have waited, want %d", l.Org, l.Waited, want)
		}
	}
}
