package console

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/diagnose"
	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/queue"
)

// TestAnOldValueIsReadAgainBeforeItIsShown: the first view after a pause shows the current
// value, not the one of the last view.
func TestAnOldValueIsReadAgainBeforeItIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n, slow atomic.Int64
		f := &fresh[int]{age: 3 * time.Second, get: func(context.Context) (int, error) {
			read := int(n.Add(1))
			time.Sleep(time.Duration(slow.Load()))
			return read, nil
		}}
		if v, at, err := f.load(t.Context()); v != 1 || !at.Equal(time.Now()) || err != nil {
			t.Errorf("at first: got %d of %s, want 1 of now", v, at)
		}
		time.Sleep(time.Hour)
		if v, at, _ := f.load(t.Context()); v != 2 || !at.Equal(time.Now()) {
			t.Errorf("an hour later: got %d of %s, want 2 of now", v, at)
		}
		slow.Store(int64(time.Second)) // longer than a page waits
		read := time.Now()
		time.Sleep(5 * time.Second)
		if v, at, _ := f.load(t.Context()); v != 2 || !at.Equal(read) {
			t.Errorf("while it is read: got %d of %s, want 2 with its time, %s", v, at, read)
		}
		time.Sleep(time.Hour)
		if _, at, _ := f.load(t.Context()); !at.IsZero() {
			t.Errorf("while it is read after an hour: got a value of %s, want none", at)
		}
		time.Sleep(time.Minute)
		slow.Store(0)
		before, _, _ := f.load(t.Context())
		f.forget()
		if v, _, _ := f.load(t.Context()); v != before+1 {
			t.Errorf("after a change: got %d, want %d", v, before+1)
		}
		slow.Store(int64(time.Second))
		f.forget()
		_, _, _ = f.load(t.Context())
		f.forget() // what is being read may be from before the change
		time.Sleep(2 * time.Second)
		if v, at, _ := f.load(t.Context()); !at.IsZero() {
			t.Errorf("what was read across a change: got %d of %s, want none", v, at)
		}
		time.Sleep(time.Minute)
	})
}

// TestAPanicIsAnError: what a page reads in the background does not end the process.
func TestAPanicIsAnError(t *testing.T) {
	f := &fresh[int]{age: time.Second, get: func(context.Context) (int, error) { panic("a bug") }}
	if _, at, err := f.wait(t.Context()); !at.IsZero() || err == nil || !strings.Contains(err.Error(), "a bug") {
		t.Errorf("got a value of %s and %v, want none, and the panic", at, err)
	}
}

// TestHoursThatAreNotReadInTime: incidents are not found without them. A page shows what there is.
func TestHoursThatAreNotReadInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Console{o: Options{
			Now: time.Now, Snapshot: func() *tenants.Snapshot { return nil },
			Findings: func(context.Context) []diagnose.Finding { return nil },
		}}
		c.hours = &fresh[*hourly]{age: time.Second, get: func(context.Context) (*hourly, error) {
			time.Sleep(time.Minute)
			return new(hourly), nil
		}}
		if v, at, err := c.hours.load(t.Context()); v != nil || !at.IsZero() || err != nil {
			t.Errorf("a page: got %v of %s and %v, want no value and no error", v, at, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if list, err := c.findIncidents(ctx); list != nil || err == nil {
			t.Errorf("got incidents %v and %v, want an error", list, err)
		}
		time.Sleep(time.Hour)
	})
}

// TestOldIncidentsAreShownWithTheirTime: incidents that take long to find are found rarely, and the overview shows the
// last ones meanwhile.
func TestOldIncidentsAreShownWithTheirTime(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr})
	t.Cleanup(func() { _ = rdb.Close() })
	c, err := New(Options{
		API:     http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"data":[]}`)) }),
		Tenants: func() settings.Set { return settings.Set{} }, Policy: func() *guard.Policy { return &guard.Policy{} },
		Budget: budget.New(redistest.DB(rdb), budget.Options{}), Pools: func() []queue.Pool { return nil },
		Findings: func(context.Context) []diagnose.Finding { return nil }, Stopped: func(context.Context) []string { return nil },
		Snapshot: func() *tenants.Snapshot { return &tenants.Snapshot{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	id, _ := c.sessions.begin("k")
	page := func(age time.Duration, found ...*incident) string {
		c.incidents.value, c.incidents.at, c.incidents.took = found, time.Now().Add(-age), time.Hour
		r := httptest.NewRequest(http.MethodGet, Path, nil)
		r.AddCookie(&http.Cookie{Name: cookieName, Value: id})
		w := httptest.NewRecorder()
		c.ServeHTTP(w, r)
		return w.Body.String()
	}
	odd := &incident{Title: "A thing is odd"}
	if text := page(0, odd); !strings.Contains(text, "<h2>Needs attention <small>1</small></h2>") {
		t.Errorf("got %s, want an incident, and no time", text)
	}
	for want, found := range map[string][]*incident{
		"<h2>Needs attention <small>1, as of ":    {odd},
		"and the deployment were checked, as of ": nil,
	} {
		text := page(time.Minute, found...)
		if want += figures.Clock(c.incidents.at); !strings.Contains(text, want) {
			t.Errorf("got %s, want %q", text, want)
		}
	}
}

// TestSumsWithUnreadDaysAreNotShown: a sum that includes an unread day would be too small.
func TestSumsWithUnreadDaysAreNotShown(t *testing.T) {
	of := func(n int) map[string]*sums {
		one := &sums{costs: map[string][]pricing.Nano{"": make([]pricing.Nano, n)}}
		one.total.Cost = pricing.Nano(n) * 1_000_000_000
		return map[string]*sums{"acme": one}
	}
	s := &span{earlier: of(days - 1), today: of(1)}
	shown := func() (today, month string) {
		a, b := s.Today("acme", whole), s.Month("acme", whole)
		return a.show(figures.USD(a.Cost)), b.show(figures.USD(b.Cost))
	}
	if today, month := shown(); today != "$1.00" || month != "$30.00" {
		t.Errorf("all read: got %s and %s, want $1.00 and $30.00", today, month)
	}
	s.earlier["acme"] = nil
	if today, month := shown(); today != "$1.00" || month != unread {
		t.Errorf("only today is read: got %s and %s, want $1.00 and no sum", today, month)
	}
	if costs := s.costs("acme", ""); costs[days-2].Known || !costs[days-1].Known {
		t.Errorf("the chart: got %v and %v, want a gap and a value", costs[days-2], costs[days-1])
	}
	s.today["acme"] = nil
	if today, _ := shown(); today != unread {
		t.Errorf("today is not read: got %s, want no sum", today)
	}
}

// TestWhatHappened: the ledger yields the number of calls that waited, their waiting times, and
// the total charge.
func TestWhatHappened(t *testing.T) {
	h := &happenings{users: map[string]*happened{}}
	entry := func(user, kind string, cost pricing.Nano, waited int64) {
		e := ledger.Entry{Kind: kind, Cost: cost, Details: ledger.Details{WaitedMS: waited}}
		e.User = user
		h.entry(e)
	}
	entry("ann", ledger.KindSettle, 10, 0)
	entry("ann", ledger.KindSettle, 20, 5000)
	entry("bob", ledger.KindExpire, 30, 1000)
	entry("bob", ledger.KindVoid, -30, 1000) // a correction, not a call
	h.finish()
	if got := h.total; got.Calls != 3 || got.Waited != 2 || got.P50 != 1000 || got.P95 != 5000 || got.Spent != 30 {
		t.Errorf("got %+v, want 3 calls, 2 that waited 1 s and 5 s, 30 spent", got)
	}
	if got := h.users["bob"]; got.Calls != 1 || got.Spent != 0 {
		t.Errorf("bob: got %+v, want 1 call and nothing spent", got)
	}
}

// TestSpendJumps: a jump is three times the mean of the hours before in which something was spent, and at least a dollar,
// in the current hour or the one before.
func TestSpendJumps(t *testing.T) {
	const usd = pricing.Nano(1_000_000_000)
	for name, c := range map[string]struct {
		last  [3]pricing.Nano // the last hours; 1 $ was spent in two others
		hour  int
		found bool
	}{
		"three times the mean": {[3]pricing.Nano{0, 0, 3 * usd}, lastHours - 1, true},
		"less":                 {[3]pricing.Nano{0, 0, 3*usd - 1}, 0, false},
		"an hour ago":          {[3]pricing.Nano{0, 4 * usd, usd}, lastHours - 2, true},
		"two hours ago":        {[3]pricing.Nano{9 * usd, usd, usd}, 0, false},
	} {
		costs := hourCosts{2: usd, 7: usd}
		copy(costs[lastHours-3:], c.last[:])
		if hour, _, found := costs.jump(); hour != c.hour || found != c.found {
			t.Errorf("%s: got %d, %t, want %d, %t", name, hour, found, c.hour, c.found)
		}
	}
	if _, _, found := (&hourCosts{lastHours - 1: usd - 1}).jump(); found {
		t.Error("got a jump to less than a dollar")
	}
}
