package budget

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/randtest"
	"github.com/llmguard/llmguard/internal/redistest"
)

// passScript moves the ends of all keys that have one closer, as if time had passed. ARGV 1 is in ms.
var passScript = redis.NewScript(`
local cursor, left = '0', 0
repeat
  local page = redis.call('SCAN', cursor, 'COUNT', 1000)
  cursor = page[1]
  for _, key in ipairs(page[2]) do
    local life = redis.call('PTTL', key)
    if life >= 0 then redis.call('PEXPIRE', key, life - ARGV[1]) end
  end
until cursor == '0'
return redis.call('DBSIZE')`)

// day is a store under a clock that the test moves, for Redis as well.
type day struct {
	t     *testing.T
	rdb   *redis.Client
	store *Store
	now   time.Time
}

// pass lets time go by, in the scripts and for the ends of keys. It returns how many keys are left.
func (d *day) pass(span time.Duration) int {
	d.t.Helper()
	d.now = d.now.Add(span)
	left, err := passScript.Run(d.t.Context(), d.rdb, nil, span.Milliseconds()).Int()
	if err != nil {
		d.t.Fatal(err)
	}
	return left
}

// kinds returns how many keys there are by the first part of their names; l are counters.
func (d *day) kinds() map[string]int {
	d.t.Helper()
	kinds := map[string]int{}
	keys := d.rdb.Scan(d.t.Context(), 0, "*", 10_000).Iterator()
	for keys.Next(d.t.Context()) {
		kind, _, _ := strings.Cut(strings.TrimPrefix(keys.Val(), "lg:{acme}:"), ":")
		kinds[kind]++
	}
	if keys.Err() != nil {
		d.t.Fatal(keys.Err())
	}
	return kinds
}

// TestBrakesOfADay: many sessions of one call in a day are counted by brakes with all rules. At no time are
// there more counters than sessions in the longest window, 25 windows of the spend rule, and after it none: in the
// long form for 100,000 sessions.
func TestBrakesOfADay(t *testing.T) {
	sessions := 2_400
	if randtest.Long() {
		sessions = 100_000
	}
	d := &day{t: t, rdb: shared(t), now: start}
	d.store = New(redistest.DB(d.rdb), Options{})
	d.store.clock.fake = func() int64 { return d.now.UnixMicro() }
	var limits []Limit
	for i, rule := range []BrakeRule{
		{Window: 10 * time.Minute, Factor: 5000, Floor: 50}, {Window: 5 * time.Minute, Repeats: 20}, {Window: time.Hour, Calls: 500},
	} {
		b, err := NewBrake(Brake{ID: fmt.Sprint("b", i), Subject: "session", Action: BrakeStop, Rule: rule})
		if err != nil {
			t.Fatal(err)
		}
		limits = append(limits, b.Counters()...)
	}
	const step = 10 * time.Minute
	steps := int(24 * time.Hour / step)
	most := 0
	for i := range steps {
		d.calls(limits, i*sessions/steps, (i+1)*sessions/steps)
		most = max(most, d.kinds()["l"])
		d.pass(step)
	}
	// Four counters of a session live for 10 and 250 minutes, 5 minutes and an hour, and each for up to a slot
	// and a minute more. Each is full at most for the steps in which it lives.
	perStep := sessions/steps + 1
	if bound := perStep*(3+28+2+8) + 2; most > bound || most < perStep*4 {
		t.Errorf("got %d counters at most, want %d to %d for %d sessions in a step", most, perStep*4, bound, perStep)
	}
	d.pass(26 * 10 * time.Minute)
	d.pass(5 * time.Minute)
	kinds := d.kinds()
	if kinds["l"] != 0 {
		t.Errorf("after all windows: got %v, want no counter", kinds)
	}
	d.pass(40 * 24 * time.Hour)
	rest := d.kinds()
	t.Logf("%d sessions: at most %d counters; after their windows %v, 40 days later %v", sessions, most, kinds, rest)
	for kind, n := range rest {
		if n > 20 {
			t.Errorf("%d keys %s are left, want none that grow with sessions", n, kind)
		}
	}
}

// calls makes one call of each session.
func (d *day) calls(limits []Limit, from, to int) {
	var all sync.WaitGroup
	at := d.now
	for worker := range 16 {
		all.Go(func() {
			for i := from + worker; i < to; i += 16 {
				c := ledger.Call{
					ID: idAt(at, i), Attempt: 1, Org: "acme", Labels: ledger.Labels(fmt.Sprint("session=s", i)), Request: fmt.Sprint(i),
				}
				h, err := d.store.Hold(d.t.Context(), Terms{Limits: limits, Call: c, Max: cost(100), Expected: cost(100)})
				if err == nil {
					_, err = d.store.Settle(d.t.Context(), h, Settlement{Actual: cost(10)})
				}
				if err != nil {
					d.t.Error(err)
					return
				}
			}
		})
	}
	redistest.Wait(d.t, all.Wait)
}
