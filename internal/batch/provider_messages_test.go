package batch

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
)

// long is a text that prompt caches keep.
func long(word string) string { return strings.Repeat(word+" and so on. ", 800) }

// TestMessagesHalfPrice checks the prices of a batch at Anthropic: half of each class of tokens, whole fees, and
// nothing for what was refused. The prices of claude-opus-5 are 5, 0.5, 6.25, 10 and 25 dollars per million tokens.
func TestMessagesHalfPrice(t *testing.T) {
	t.Parallel()
	r := newHandover(t, purse)
	r.org.AllowBuiltinTools = true
	body := func(text, more string) string {
		return fmt.Sprintf(`{"model":"claude-opus-5","max_tokens":600,"messages":[{"role":"user","content":%q}]%s}`, text, more)
	}
	system := func(word, cache string) string {
		return fmt.Sprintf(`,"system":[{"type":"text","text":%q,"cache_control":{"type":"ephemeral"%s}}]`, long(word), cache)
	}
	text := strings.Join([]string{
		messageLine("plain", body("hello", "")),
		messageLine("written", body("hello", system("five", ""))),
		messageLine("written 1h", body("hello", system("hour", `,"ttl":"1h"`))),
		messageLine("read", body("[fake: cached=1100]", system("read", ""))),
		messageLine("searched", body("[fake: tools=30 output=600]", `,"tools":[{"type":"web_search_20250305","name":"web_search","max_uses":30}]`)),
		messageLine("refused", body("[fake: status=400]", "")),
		messageLine("overloaded", body("[fake: status=529]", "")),
		messageLine("broken", body("[fake: status=500]", "")),
	}, "\n")
	r.runner(r.handover())
	b := r.ended(r.create(r.upload(text), wire.Messages).ID)
	output, errs := r.results(b)
	for id, status := range map[string]int{"refused": 400, "overloaded": 503, "broken": 500} {
		if one := errs[id]; one.Response == nil || one.Response.StatusCode != status || !strings.Contains(string(one.Response.Body), `"type":"error"`) {
			t.Errorf("%s: %+v", id, one.Response)
		}
	}
	if len(output) != 5 || len(errs) != 3 {
		t.Fatalf("%d+%d lines", len(output), len(errs))
	}
	var all fakeprovider.Usage
	for _, rec := range r.fake.Log() {
		if rec.Reported != "" {
			all = all.Add(rec.Usage)
		}
	}
	if all.Cached == 0 || all.CacheWrite == 0 || all.CacheWrite1h == 0 || all.Searches != 30 {
		t.Fatalf("a class is missing: %+v", all)
	}
	want := pricing.Nano(2500*(all.Prompt-all.Cached-all.CacheWrite-all.CacheWrite1h) + 250*all.Cached +
		3125*all.CacheWrite + 5000*all.CacheWrite1h + 12_500*all.Completion + 10_000_000*all.Searches)
	if problems := r.estimates(); len(problems) > 0 {
		t.Errorf("entries that are estimates: %+v", problems)
	}
	if booked, entries := r.books(); booked != want || entries != 5 || b.Charged != int64(want) || b.Charged > b.Estimate {
		t.Errorf("%d entries of %v, the batch has %d of at most %d; want %v", entries, booked, b.Charged, b.Estimate, want)
	}
	r.holdsHalf(body("hello", system("five", "")))
}

// estimates returns the entries of the ledger that are not what the provider reported.
func (r *rig) estimates() (list []ledger.Entry) {
	r.t.Helper()
	store := budget.New(redistest.DB(r.rdb), budget.Options{})
	err := store.Ledger.Entries(r.t.Context(), "acme", time.Now().Add(-time.Hour), time.Now().Add(time.Hour), func(e ledger.Entry) error {
		if e.Estimated {
			list = append(list, e)
		}
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return list
}

// TestMessagesMissing checks that a request without a result counts as run in a batch that has expired, too, because
// Anthropic has a result for each.
func TestMessagesMissing(t *testing.T) {
	t.Parallel()
	r := newHandover(t, purse)
	r.fake.ScriptBatches(func(int) fakeprovider.BatchScript { return fakeprovider.BatchScript{Expire: 10, Drop: 15} })
	r.runner(r.handover())
	b := r.ended(r.create(r.upload(anthropicForm.lines(20)), wire.Messages).ID)
	output, errs := r.results(b)
	lost := 0
	for _, one := range errs {
		if one.Error.Code == CodeLost {
			lost++
		}
	}
	if b.Status != Expired || len(output) != 10 || lost != 1 || len(errs) != 10 || len(r.estimates()) != 1 {
		t.Errorf("%s: %d+%d lines, %d lost, %d charged as estimates", b.Status, len(output), len(errs), lost, len(r.estimates()))
	}
}

// holdsHalf checks that a line is held at half the price of a live call.
func (r *rig) holdsHalf(body string) {
	r.t.Helper()
	caller, err := r.guard.Policy().Caller("acme", "alice", "k1", "")
	if err != nil {
		r.t.Fatal(err)
	}
	held := func(batched bool) pricing.Nano {
		caller.Batched = batched
		req, err := wire.Scan(wire.Messages, []byte(body), wire.Limits{})
		if err != nil {
			r.t.Fatal(err)
		}
		plan, err := r.guard.Plans.Prepare(caller, req)
		if err != nil {
			r.t.Fatal(err)
		}
		return plan.Max.Cost
	}
	if live, half := held(false), held(true); live != 2*half {
		r.t.Errorf("a line holds %v, a live call %v", half, live)
	}
}

// elsewhere creates a batch of n lines at the provider, as another client of the account does.
func (r *rig) elsewhere(n int) {
	r.t.Helper()
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf(`{"custom_id":"other-%d","params":{"model":"claude-opus-5","max_tokens":5,`+
			`"messages":[{"role":"user","content":"of another client"}]}}`, i))
	}
	body := strings.NewReader(`{"requests":[` + strings.Join(list, ",") + `]}`)
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, r.fake.BaseURL()+"/messages/batches", body)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", "sk-ant")
	req.Header.Set("Anthropic-Version", "2023-06-01")
	resp, err := (&http.Client{Timeout: redistest.Bound}).Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		r.t.Fatal(resp.Status)
	}
}

// TestMessagesDoubt: after a creation without an answer, no second batch is created while one of the same size may
// be it, and another client's batch is not taken for ours.
func TestMessagesDoubt(t *testing.T) {
	t.Parallel()
	r := newHandover(t, purse)
	const lines = 30
	o := r.handover()
	var creations, late atomic.Int64
	var first atomic.Pointer[time.Time]
	release := make(chan struct{})
	end := sync.OnceFunc(func() { close(release) })
	defer end()
	r.fake.Script(func(q *fakeprovider.Request) fakeprovider.Behaviour {
		switch at := first.Load(); {
		case strings.Contains(string(q.Body), "of another client"):
			if q.Path == "/v1/messages" {
				redistest.Came(t, release)
			}
		case q.Path != anthropicForm.creation:
		case q.Method == http.MethodPost && creations.Add(1) == 1:
			now := time.Now()
			first.Store(&now)
			return fakeprovider.Behaviour{Status: http.StatusBadGateway} // and it was not executed
		case q.Method == http.MethodGet && at != nil && time.Since(*at) > 2*o.Doubt:
			late.Add(1)
		}
		return fakeprovider.Behaviour{}
	})
	r.elsewhere(lines)
	r.runner(o)
	b := r.create(r.upload(anthropicForm.lines(lines)), wire.Messages)
	redistest.Eventually(t, "the list was read when another creation was due", func() bool {
		return late.Load() > 3 || creations.Load() > 1
	})
	if n := creations.Load(); n != 1 {
		t.Errorf("%d creations while the first may still run", n)
	}
	end()
	b = r.ended(b.ID)
	if output, _ := r.results(b); len(output) != lines || b.Charged == 0 || creations.Load() != 2 {
		t.Errorf("%s: %d results, charged %d, %d creations", b.Status, len(output), b.Charged, creations.Load())
	}
	if all := r.fake.Batches(); len(all) != 2 || all[0].Status != "ended" || all[1].Status != "deleted" {
		t.Errorf("batches at the provider: %+v", all)
	}
}

// TestMessagesCreatedAgain: after a creation that failed, a part does not wait for another batch of the same size, of
// the same upload or of another client.
func TestMessagesCreatedAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		failed    int64 // which creation fails
		status    int
		elsewhere bool // another client has a batch
	}{
		"another part":           {failed: 2, status: http.StatusBadGateway},
		"another client's batch": {failed: 1, status: wire.StatusOverloaded, elsewhere: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newHandover(t, purse)
			lines := int(10 * c.failed)
			o := r.handover()
			o.PartLines = 10
			var creations atomic.Int64
			release := make(chan struct{})
			end := sync.OnceFunc(func() { close(release) })
			defer end()
			r.fake.Script(func(q *fakeprovider.Request) fakeprovider.Behaviour {
				switch {
				case q.Path == "/v1/messages" && creations.Load() <= c.failed:
					redistest.Came(t, release)
				case strings.Contains(string(q.Body), "of another client"):
				case q.Path == anthropicForm.creation && q.Method == http.MethodPost && creations.Add(1) == c.failed:
					return fakeprovider.Behaviour{Status: c.status}
				}
				return fakeprovider.Behaviour{}
			})
			if c.elsewhere {
				r.elsewhere(10)
			}
			r.runner(o)
			b := r.create(r.upload(anthropicForm.lines(lines)), wire.Messages)
			redistest.Eventually(t, "the part was created again", func() bool { return creations.Load() == c.failed+1 })
			if other := r.fake.Batches()[0]; other.Status != "in_progress" {
				t.Errorf("the other batch is %s", other.Status)
			}
			end()
			if output, _ := r.results(r.ended(b.ID)); len(output) != lines {
				t.Errorf("%d results", len(output))
			}
		})
	}
}

// TestMessagesCancelOverloaded: a cancellation that an overloaded provider refused is repeated.
func TestMessagesCancelOverloaded(t *testing.T) {
	t.Parallel()
	r := newHandover(t, purse)
	var cancels atomic.Int64
	release := make(chan struct{})
	end := sync.OnceFunc(func() { close(release) })
	defer end()
	r.fake.Script(func(q *fakeprovider.Request) fakeprovider.Behaviour {
		switch {
		case q.Path == "/v1/messages":
			redistest.Came(t, release)
		case strings.HasSuffix(q.Path, "/cancel") && cancels.Add(1) == 1:
			return fakeprovider.Behaviour{Status: wire.StatusOverloaded}
		}
		return fakeprovider.Behaviour{}
	})
	r.runner(r.handover())
	b := r.create(r.upload(anthropicForm.lines(10)), wire.Messages)
	redistest.Eventually(t, "the batch was created", func() bool { return len(r.fake.Batches()) > 0 })
	if _, err := r.store.Cancel(t.Context(), "acme", "alice", b.ID); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, "the batch was cancelled again", func() bool { return cancels.Load() == 2 })
	end()
	r.ended(b.ID)
}

// TestMessagesBetas: the betas of a batch reach the provider, whoever runs its lines.
func TestMessagesBetas(t *testing.T) {
	t.Parallel()
	for mode, paths := range map[string][]string{
		guard.ByProvider: {"/v1/messages/batches", "/v1/messages"},
		guard.ByQueue:    {"/v1/messages"},
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			r := newHandover(t)
			r.t = t
			r.org.BatchMode = mode
			r.runner(r.handover())
			r.worker()
			b, err := r.store.Create(t.Context(), Request{
				Owner: Owner{Org: "acme", User: "alice", Key: "k1"}, File: r.upload(message("a", "hi")), Endpoint: wire.Messages,
				Header: http.Header{"Anthropic-Beta": {"a-1,b-2"}},
			})
			if err != nil {
				t.Fatal(err)
			}
			r.ended(b.ID)
			seen := map[string]string{}
			for _, rec := range r.fake.Log() {
				if rec.Method == http.MethodPost {
					seen[rec.Path] = strings.Join(rec.Header.Values("Anthropic-Beta"), ",")
				}
			}
			for _, path := range paths {
				if seen[path] != "a-1,b-2" {
					t.Errorf("the provider has seen %v", seen)
				}
			}
		})
	}
}

// TestMessagesStrictBetas: a batch with a beta of unknown cost fails at a strict provider, whoever would run its lines.
func TestMessagesStrictBetas(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{guard.ByProvider, guard.ByQueue} {
		r := newHandover(t)
		r.org.BatchMode = mode
		for _, p := range r.guard.Policy().Providers.All() {
			p.Strict = true
		}
		r.runner(r.handover())
		b, err := r.store.Create(t.Context(), Request{
			Owner: Owner{Org: "acme", User: "alice", Key: "k1"}, File: r.upload(message("a", "hi")), Endpoint: wire.Messages,
			Header: http.Header{"Anthropic-Beta": {"effort-2025-11-24,free-lunch-2027-01-01"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		b = r.ended(b.ID)
		if b.Status != Failed || len(b.Problems) != 1 || !strings.Contains(b.Problems[0].Message, "Unknown beta: 'free-lunch-2027-01-01'") {
			t.Errorf("%s: got %s, %+v; want it to fail for its beta", mode, b.Status, b.Problems)
		}
	}
}
