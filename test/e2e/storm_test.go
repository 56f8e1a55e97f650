package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/pricing"
)

// The limits of each org in the storm, as configuration and in package budget's form: every
// shape, metric and kind of subject.
const stormLimits = `
      - {name: user-hour, subject: user, amount: $0.02, window: 1h}
      - {name: user-calls, subject: user, metric: requests, amount: 12, window: 5s, exact: true}
      - {name: user-open, subject: user, metric: concurrency, amount: 2}
      - {name: org-bucket, bucket: {capacity: $0.06, refill: $3.60/1h}}
      - {name: org-day, metric: tokens, amount: 60000, calendar: day}`

// The size of the storm. The holds of a killed proxy end with their lease.
var (
	stormOrgs    = either(4, 8)
	stormUsers   = either(4, 8) // per org
	stormCallers = either(2, 3) // per user
	stormProxies = either(3, 4)
	stormLength  = either(3*time.Second, 10*time.Minute)
)

const stormLease = 10 * time.Second

func stormBudget() []budget.Limit {
	usd := func(milli int64) int64 { return milli * int64(pricing.NanoPerUSD) / 1000 }
	return []budget.Limit{
		{ID: "user-hour", Subject: budget.User, Metric: budget.Cost, Mode: budget.Enforce, Shape: budget.Shape{Kind: budget.Window, Amount: usd(20), Window: time.Hour}},
		{ID: "user-calls", Subject: budget.User, Metric: budget.Requests, Mode: budget.Enforce, Shape: budget.Shape{Kind: budget.ExactWindow, Amount: 12, Window: 5 * time.Second}},
		{ID: "user-open", Subject: budget.User, Metric: budget.Concurrency, Mode: budget.Enforce, Shape: budget.Shape{Kind: budget.Concurrent, Amount: 2}},
		{ID: "org-bucket", Subject: budget.Org, Metric: budget.Cost, Mode: budget.Enforce, Shape: budget.Shape{Kind: budget.Bucket, Amount: usd(60), Refill: usd(3600), Per: time.Hour}},
		{ID: "org-day", Subject: budget.Org, Metric: budget.Tokens, Mode: budget.Enforce, Shape: budget.Shape{Kind: budget.Calendar, Amount: 60000, Calendar: "day", Location: time.UTC}},
	}
}

func stormConfig() string {
	var b strings.Builder
	fmt.Fprintf(&b, "store: {hold_lease: %s, deadline: 5s}\n", stormLease)
	b.WriteString("providers:\n  - {id: openai, base_url: \"${provider}\", api_key: \"${provider_key}\"}\norgs:\n")
	for o := range stormOrgs {
		fmt.Fprintf(&b, "  - id: o%d\n", o)
		if o%2 == 0 {
			b.WriteString("    over_limit: refuse\n")
		}
		b.WriteString("    limits:" + stormLimits + "\n    users:\n")
		for u := range stormUsers {
			fmt.Fprintf(&b, "      - {id: o%d-u%d, keys: [{id: k%d, hash: \"${key:o%d-u%d}\"}]}\n", o, u, u, o, u)
		}
	}
	return b.String()
}

// storm is the deployment under load and the outcomes of its calls.
type storm struct {
	*stack
	seed    uint64
	began   time.Time
	mu      sync.Mutex
	proxies []*process
	status  map[int]int
}

// TestStorm: users of several orgs call through several proxies under mixed limits. One caller
// in five disconnects, and proxies are killed at random. At no time is a user or an org over a
// limit. The ledger matches the provider's log for calls whose usage arrived, the others are
// listed as estimates, and in the end nothing is held.
func TestStorm(t *testing.T) {
	t.Parallel()
	s := &storm{stack: newStack(t, fakeprovider.Options{KeepBodies: true}, stormConfig()), seed: uint64(time.Now().UnixNano()), status: map[int]int{}}
	t.Logf("seed %d", s.seed)
	s.fake.Script(func(r *fakeprovider.Request) fakeprovider.Behaviour {
		rng := rand.New(rand.NewPCG(s.seed, uint64(r.Seq)))
		return fakeprovider.Behaviour{
			Fill: rng.IntN(2) == 0, Delay: time.Duration(rng.IntN(300)) * time.Millisecond, Gap: time.Duration(rng.IntN(4)) * time.Millisecond,
		}
	})
	for range stormProxies {
		s.proxies = append(s.proxies, s.proxy())
	}
	s.worker()
	s.began = time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { defer cancel(); s.rage() })
	wg.Go(func() { s.kill(ctx) })
	wg.Go(func() { s.watch(ctx) })
	for o := range stormOrgs {
		for u := range stormUsers {
			for c := range stormCallers {
				wg.Go(func() { s.user(ctx, fmt.Sprintf("o%d-u%d", o, u), uint64((o*stormUsers+u)*stormCallers+c)) })
			}
		}
	}
	redistest.Wait(t, wg.Wait)
	t.Logf("answers by status, 0 for none: %v", s.status)
	s.calm()
	s.audit()
}

// rage lasts for stormLength, and longer on a slow machine, until everything has happened:
// calls were served, refused and broken off, and some reported usage while others never will.
func (s *storm) rage() {
	time.Sleep(stormLength)
	until(s.t, "everything has happened", func() bool {
		s.mu.Lock()
		answered := s.status[200] > 0 && s.status[429] > 0 && s.status[0] > 0
		s.mu.Unlock()
		exact, estimated := s.kinds()
		return answered && exact && estimated
	})
}

// kinds reports whether the ledgers have exact and estimated entries.
func (s *storm) kinds() (exact, estimated bool) {
	for o := range stormOrgs {
		for _, e := range s.entries(fmt.Sprintf("o%d", o)) {
			if e.Kind != ledger.KindVoid {
				exact, estimated = exact || !e.Estimated, estimated || e.Estimated
			}
		}
	}
	return exact, estimated
}

// kill kills and replaces a proxy about once a second.
func (s *storm) kill(ctx context.Context) {
	rng := rand.New(rand.NewPCG(s.seed, 1<<40))
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(500+rng.IntN(1500)) * time.Millisecond):
		}
		i := rng.IntN(len(s.proxies))
		s.proxies[i].kill()
		next := s.proxy()
		s.mu.Lock()
		s.proxies[i] = next
		s.mu.Unlock()
	}
}

func (s *storm) url(i int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proxies[i].URL
}

// user makes calls until the storm ends.
func (s *storm) user(ctx context.Context, id string, n uint64) {
	rng := rand.New(rand.NewPCG(s.seed, n))
	models := []string{"gpt-4o", "gpt-4o-mini", "gpt-4.1-nano"}
	for ctx.Err() == nil {
		body := chat(models[rng.IntN(len(models))], "I am "+id+". "+strings.Repeat("Tell me more. ", rng.IntN(40)),
			fmt.Sprintf(`"max_completion_tokens":%d,"stream":%v`, 20+rng.IntN(300), rng.IntN(2) == 0))
		patience := time.Minute
		if rng.IntN(5) == 0 { // disconnects
			patience = time.Duration(rng.IntN(600)) * time.Millisecond
		}
		once, cancel := context.WithTimeout(ctx, patience)
		status := s.call(once, s.url(rng.IntN(stormProxies)), s.keys[id], body)
		cancel()
		s.mu.Lock()
		s.status[status]++
		s.mu.Unlock()
		time.Sleep(time.Duration(rng.IntN(100)) * time.Millisecond)
	}
}

func (s *storm) call(ctx context.Context, url, key, body string) int {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/chat/completions", bytes.NewReader([]byte(body)))
	if err != nil {
		s.t.Error(err)
		return 0
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Prefer", "wait=2")
	resp, err := client.Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0
	}
	return resp.StatusCode
}

// watch checks all limits of all users repeatedly.
func (s *storm) watch(ctx context.Context) {
	store := budget.New(s.redis.DB(), budget.Options{Lease: stormLease})
	looks := 0
	for ctx.Err() == nil {
		s.each(func(org, user string) {
			statuses, err := store.Peek(context.WithoutCancel(ctx), stormBudget(), ledger.Call{Org: org, User: user})
			if err != nil {
				s.t.Logf("not looked: %v", err)
				return
			}
			looks++
			for _, st := range statuses {
				if st.Used > st.Amount {
					s.t.Errorf("%s: %s is over its limit: %d of %d", user, st.LimitID, st.Used, st.Amount)
				}
			}
		})
	}
	if s.t.Logf("looked %d times", looks); looks == 0 {
		s.t.Error("never looked")
	}
}

func (s *storm) each(fn func(org, user string)) {
	for o := range stormOrgs {
		for u := range stormUsers {
			fn(fmt.Sprintf("o%d", o), fmt.Sprintf("o%d-u%d", o, u))
		}
	}
}

// calm waits until nothing is held; holds of killed proxies end with their lease.
func (s *storm) calm() {
	store := budget.New(s.redis.DB(), budget.Options{Lease: stormLease})
	var held []string
	for range 400 {
		held = nil
		s.each(func(org, user string) {
			statuses, err := store.Peek(s.t.Context(), stormBudget(), ledger.Call{Org: org, User: user})
			if err != nil {
				held = append(held, err.Error())
			}
			for _, st := range statuses {
				if st.Held > 0 {
					held = append(held, fmt.Sprintf("%s %s: %d", user, st.LimitID, st.Held))
				}
			}
		})
		if len(held) == 0 {
			return
		}
		time.Sleep(250 * time.Millisecond)
	}
	s.t.Errorf("still held: %v", held)
}

var caller = regexp.MustCompile(`I am (o\d+)(-u\d+)`)

// audit compares the ledger with the provider's log, call by call, and both with the limits.
func (s *storm) audit() {
	served := map[string]fakeprovider.Record{} // by request id
	reached := map[string]int{}                // calls that reached the provider, by org
	byUser := map[string][]fakeprovider.Record{}
	for _, r := range s.fake.Log() {
		m := caller.FindSubmatch(r.Body)
		served[r.RequestID] = r
		reached[string(m[1])]++
		user := string(m[1]) + string(m[2])
		byUser[user] = append(byUser[user], r)
	}
	exact, estimated, whole := 0, 0, map[string]bool{}
	for o := range stormOrgs {
		org := fmt.Sprintf("o%d", o)
		spent, tokens, users, calls := pricing.Nano(0), int64(0), map[string]pricing.Nano{}, 0
		for _, e := range s.entries(org) {
			spent, users[e.User] = spent+e.Cost, users[e.User]+e.Cost
			tokens += e.Usage.Input + e.Usage.Output
			calls++
			r, known := served[e.UpstreamID]
			switch {
			case e.Kind == ledger.KindVoid: // reverses the charge of an expired hold
			case !e.Estimated && (!known || e.Total != bill(s.t, []fakeprovider.Record{r})):
				s.t.Errorf("%s: entry %+v is not what the provider says: %+v", org, e, r)
			case !e.Estimated:
				exact++
				whole[e.UpstreamID] = true
			default:
				estimated++
			}
			if e.Overrun != 0 {
				s.t.Errorf("%s: overrun: %+v", org, e)
			}
		}
		if calls < reached[org] {
			s.t.Errorf("%s: %d calls reached the provider, the ledger has %d", org, reached[org], calls)
		}
		if most := stormCeiling(time.Since(s.began)); spent > most {
			s.t.Errorf("%s spent %v of %v", org, spent, most)
		}
		if tokens > 60000 && s.began.UTC().Day() == time.Now().UTC().Day() {
			s.t.Errorf("%s used %d tokens of 60000 a day", org, tokens)
		}
		for user, n := range users {
			if n > 20*pricing.NanoPerUSD/1000 {
				s.t.Errorf("%s spent %v of $0.02", user, n)
			}
		}
	}
	for user, records := range byUser {
		s.paced(user, records, whole)
	}
	s.t.Logf("%d exact and %d estimated entries for %d calls at the provider", exact, estimated, len(served))
}

// stormCeiling is the most that an org's bucket allows within d.
func stormCeiling(d time.Duration) pricing.Nano {
	return pricing.NanoPerUSD*60/1000 + pricing.Nano(int64(d/time.Millisecond)*int64(pricing.NanoPerUSD)/1_000_000)
}

// paced checks the two limits that the provider can observe, by conditions that hold however
// late any process is. A call counts as held if its end had not been sent when another arrived,
// and it was read to its end. The number of calls that arrived is at most what could have been
// admitted since the storm began.
func (s *storm) paced(user string, records []fakeprovider.Record, whole map[string]bool) {
	slices.SortFunc(records, func(a, b fakeprovider.Record) int { return a.At.Compare(b.At) })
	for i, r := range records {
		open := 1
		for _, earlier := range records[:i] {
			if whole[earlier.RequestID] && earlier.Last.After(r.At) {
				open++
			}
		}
		if most := 12 * (int(r.At.Sub(s.began)/(5*time.Second)) + 1); open > 2 || i+1 > most {
			s.t.Errorf("%s: %d calls open at the provider, %d of %d came", user, open, i+1, most)
			return
		}
	}
}
