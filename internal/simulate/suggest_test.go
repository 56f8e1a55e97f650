package simulate

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/queue"
)

// crowd returns a random trace of a few minutes, with calls of one user.
func crowd(t *testing.T, rng *rand.Rand) *Trace {
	trace := NewTrace()
	at := start
	for range 5 + rng.IntN(60) {
		at = at.Add(time.Duration(rng.ExpFloat64() * float64(4*time.Second)))
		c := call("ann", 0)
		c.At, c.Took = at, time.Duration(rng.IntN(90_000)*rng.IntN(5))*time.Millisecond/4
		c.Held = pricing.Nano(1_000_000 + rng.IntN(10_000_000))
		c.Cost = c.Held * 2 / 3
		if rng.IntN(8) == 0 {
			c.Cost = c.Held + 5000 // more than its hold
		}
		if err := trace.Add(c); err != nil {
			t.Fatal(err)
		}
	}
	trace.Sort()
	return trace
}

// heldBack replays under one limit and counts the calls that did not run immediately.
func heldBack(t *testing.T, trace *Trace, l budget.Limit) int {
	t.Helper()
	result, err := Run(t.Context(), trace, policyOf(t, queue.Pool{}, l), Options{})
	if err != nil {
		t.Fatal(err)
	}
	report, err := result.Report(nil)
	if err != nil {
		t.Fatal(err)
	}
	return report.Total.HeldBackCalls()
}

// TestPeaks: the highest peak of a history is the smallest amount of a limit that delays no
// call.
func TestPeaks(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 7))
	for i := range 200 {
		trace := crowd(t, rng)
		w := []time.Duration{time.Minute, 7 * time.Minute}[i%2]
		reached := most(t, trace, budget.Shape{Kind: budget.Window, Window: w}, w)
		if n := heldBack(t, trace, window("w", reached, w)); n != 0 {
			t.Fatalf("trace %d: a window of %s and the peak of %d holds back %d", i, w, reached, n)
		}
		if n := heldBack(t, trace, window("w", reached-1, w)); n == 0 {
			t.Fatalf("trace %d: a window of %s and less than the peak of %d holds back nobody", i, w, reached)
		}
		bucket := budget.Shape{Kind: budget.Bucket, Refill: 900_000_000, Per: time.Hour}
		bucket.Amount = most(t, trace, bucket, time.Hour)
		l := budget.Limit{ID: "b", Subject: budget.Org, Metric: budget.Cost, Shape: bucket}
		if n := heldBack(t, trace, l); n != 0 {
			t.Fatalf("trace %d: a bucket of the peak of %d holds back %d", i, bucket.Amount, n)
		}
		l.Shape.Amount--
		if n := heldBack(t, trace, l); n == 0 {
			t.Fatalf("trace %d: a bucket of less than the peak of %d holds back nobody", i, bucket.Amount)
		}
	}
}

func most(t *testing.T, trace *Trace, s budget.Shape, stretch time.Duration) int64 {
	t.Helper()
	peaks, err := trace.peaks(trace.steps(), budget.Cost, s, stretch)
	if err != nil {
		t.Fatal(err)
	}
	return peaks[len(peaks)-1]
}

// TestPeaksByStretch: every period with calls has a peak, for each metric.
func TestPeaksByStretch(t *testing.T) {
	trace := traceOf(t, call("ann", 0), call("ann", 1), call("ann", 100), call("ann", 300))
	for metric, want := range map[budget.Metric][]int64{
		budget.Cost: {100, 100, 200}, budget.Tokens: {10, 10, 20}, budget.Requests: {1, 1, 2},
	} {
		got, err := trace.peaks(trace.steps(), metric, budget.Shape{Kind: budget.Window, Window: time.Minute}, time.Minute)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v, want %v", metric, got, err, want)
		}
	}
}

func options() SuggestOptions {
	return SuggestOptions{Metric: budget.Cost, Windows: []time.Duration{time.Minute}, Percentile: 70, Headroom: 1.2, Heavy: 1}
}

// TestSuggest: ann and two others make a call a minute; zed makes one every second for two of
// ten minutes.
func TestSuggest(t *testing.T) {
	var calls []Call
	for i := range 10 {
		for _, user := range []string{"ann", "bob", "cid"} {
			calls = append(calls, call(user, float64(60*i)))
		}
	}
	for i := range 120 {
		calls = append(calls, call("zed", float64(240+i)))
	}
	list, err := Suggest(t.Context(), traceOf(t, calls...), options())
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 1 || list[0].Org != "acme" || list[0].Calls != 150 || list[0].Users != 4 || list[0].Spend != 150*60 {
		t.Fatalf("suggested to %+v", list)
	}
	got := map[string]Suggestion{}
	for _, s := range list[0].Suggestions {
		got[s.Name+" "+s.User] = s
	}
	// A user's one-minute window contains the settled call of the previous minute and one that
	// is held.
	each := got["user-1m "]
	if each.Amount != 200 || each.Basis.Reached != 160 || each.Basis.Of != 4 || each.Effect.Calls != 30 || each.Effect.AtOnce != 30 {
		t.Errorf("to each user: %+v", each)
	}
	zed := got["user-1m zed"]
	if zed.Amount < 60*60*12/10 || zed.Limit.Subject != budget.User || zed.Effect.Calls != 120 || zed.Effect.AtOnce != 120 {
		t.Errorf("to zed: %+v", zed)
	}
	org := got["org-1m "]
	if len(got) != 3 || org.Basis.Of != 10 || org.Basis.Reached >= org.Basis.Most {
		t.Errorf("to the org: %+v", org)
	}
	// Seven of the ten minutes are without zed, so zed is held back.
	if org.Effect.HeldBackCalls() == 0 || org.HeldBack[0].User != "zed" || list[0].Together.HeldBackCalls() < org.Effect.HeldBackCalls() {
		t.Errorf("the org's limit holds back %+v, all together %+v", org.HeldBack, list[0].Together)
	}
	if len(list[0].Notes) != 1 {
		t.Errorf("notes: %q", list[0].Notes)
	}
}

// TestSuggestNames: a name that is taken is not suggested, and for an org that refuses calls
// the replay refuses too.
func TestSuggestNames(t *testing.T) {
	o := options()
	o.Windows, o.Percentile, o.Headroom = append(o.Windows, 2*time.Hour), 1, 0.5
	o.Orgs = map[string]*guard.Org{"acme": {
		Org: settings.Org{ID: "acme", OverLimit: "refuse"}, Limits: []budget.Limit{window("user-1m", 1, time.Minute)},
		UserLimits: map[string][]budget.Limit{"ann": {window("org-bucket", 1, time.Minute)}},
	}}
	list, err := Suggest(t.Context(), traceOf(t, call("ann", 0), call("ann", 3600)), o)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range list[0].Suggestions {
		names = append(names, s.Name)
		if s.Effect.Refused == 0 || s.Effect.Waited > 0 || s.Effect.GaveUp > 0 {
			t.Errorf("%s: %+v", s.Name, s.Effect)
		}
	}
	if !slices.Equal(names, []string{"org-1m", "user-1m-2", "org-bucket-2"}) || len(list[0].Notes) != 1 {
		t.Errorf("suggested %q, notes %q", names, list[0].Notes)
	}
}

func TestSuggestRefuses(t *testing.T) {
	for name, spoil := range map[string]func(*SuggestOptions){
		"metric":     func(o *SuggestOptions) { o.Metric = budget.Concurrency },
		"percentile": func(o *SuggestOptions) { o.Percentile = 101 },
		"headroom":   func(o *SuggestOptions) { o.Headroom = 0 },
		"no window":  func(o *SuggestOptions) { o.Windows = nil },
		"window":     func(o *SuggestOptions) { o.Windows[0] = time.Second },
	} {
		o := options()
		spoil(&o)
		if _, err := Suggest(t.Context(), traceOf(t, call("ann", 0)), o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := Suggest(t.Context(), NewTrace(), options()); err == nil {
		t.Error("a trace that is not sorted: no error")
	}
}
