package proxy

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/auth"
	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/queue"
)

// outcomes returns how often the response cache had this outcome.
func (r *rig) outcomes(of string) (n float64) {
	r.t.Helper()
	families, err := r.answers.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == "llmguard_cache_requests_total" && l.GetValue() == of {
					n = m.GetCounter().GetValue()
				}
			}
		}
	}
	return n
}

// stored waits until n answers have been stored.
func (r *rig) stored(n float64) {
	r.t.Helper()
	r.until(fmt.Sprintf("%v answers are stored", n), func() bool { return r.outcomes("stored") == n })
}

// ledger waits for n entries of the org and returns them.
func (r *rig) ledger(n int) []ledger.Entry {
	r.t.Helper()
	var out []ledger.Entry
	r.until(fmt.Sprintf("%d ledger entries", n), func() bool {
		out = nil
		err := r.store.Ledger.Entries(r.t.Context(), "acme", time.Unix(0, 0), time.Now().Add(time.Hour), func(e ledger.Entry) error {
			out = append(out, e)
			return nil
		})
		if err != nil {
			r.t.Fatal(err)
		}
		return len(out) >= n
	})
	return out
}

// provided returns how many requests have reached the provider.
func (r *rig) provided() int { return len(r.fake.Log()) }

// is asserts what an answer says about the response cache.
func (a answer) is(t *testing.T, cache string) {
	t.Helper()
	if got := a.header.Get(guard.HeaderCache); a.err != nil || a.status != 200 || got != cache {
		t.Fatalf("got %v, status %d, %s %q, %s; want 200 and %q", a.err, a.status, guard.HeaderCache, got, a.body, cache)
	}
}

const (
	responsesBody  = `{"model":"gpt-4o","input":"hi","max_output_tokens":19,"store":false%s}`
	embeddingsBody = `{"model":"text-embedding-3-small","input":"hi"%s}`
)

// TestCacheReplays: an identical request gets the same bytes, from the cache, for a share of the cost.
func TestCacheReplays(t *testing.T) {
	r := newRig(t, queue.Pool{}, nil, window(roomy, time.Hour))
	r.org.Cache = settings.Cache{MaxAge: time.Hour, Cost: 25}
	requests := []struct{ path, body string }{
		{"/v1/chat/completions", prompt("hi", `"max_tokens":9`)},
		{"/v1/chat/completions", prompt("hi", `"max_tokens":9,"stream":true`)},
		{"/v1/chat/completions", prompt("hi", `"max_tokens":9,"stream":true,"stream_options":{"include_usage":true}`)},
		{"/v1/responses", fmt.Sprintf(responsesBody, "")},
		{"/v1/responses", fmt.Sprintf(responsesBody, `,"stream":true`)},
		{"/v1/embeddings", fmt.Sprintf(embeddingsBody, "")},
	}
	for i, q := range requests {
		first := r.call(http.MethodPost, q.path, q.body, guard.HeaderCache, "max-age=600")
		first.is(t, "miss")
		r.stored(float64(i + 1))
		sent := r.provided()
		again := r.call(http.MethodPost, q.path, q.body, guard.HeaderCache, "max-age=600")
		again.is(t, "hit")
		if got, want := sha256.Sum256([]byte(again.body)), sha256.Sum256([]byte(first.body)); got != want {
			t.Errorf("%s: got %s; want the bytes of the first answer, %s", q.body, again.body, first.body)
		}
		if n := r.provided(); n != sent {
			t.Errorf("%s: %d requests reached the provider, want none", q.body, n-sent)
		}
		stream := strings.Contains(q.body, `"stream":true`)
		if stream != strings.HasPrefix(again.header.Get("Content-Type"), "text/event-stream") {
			t.Errorf("%s: got Content-Type %q", q.body, again.header.Get("Content-Type"))
		}
		if id := again.header.Get(guard.HeaderCall); id == "" || id == first.header.Get(guard.HeaderCall) || again.header.Get("Age") == "" {
			t.Errorf("%s: got headers %v; want an Age and a call id of its own", q.body, again.header)
		}
		entries := r.ledger(2 * (i + 1))
		original, hit := entries[2*i], entries[2*i+1]
		want := (original.Cost + 3) / 4 // 25%, rounded up
		if hit.Outcome != "cached" || hit.Cost != want || hit.Endpoint != original.Endpoint || hit.Estimated {
			t.Errorf("%s: got ledger entry %+v; want it cached, charged %d", q.body, hit, want)
		}
		if got := again.header.Get(guard.HeaderCost); got != string(want.AppendUSD(nil)) {
			t.Errorf("%s: got cost %q, want %d nano", q.body, got, want)
		}
		if m := r.records(2 * (i + 1))[2*i+1]; m["cache"] != "hit" || m["outcome"] != "cached" || m["cost_nano_usd"] != float64(want) {
			t.Errorf("%s: got access record %v; want a hit", q.body, m)
		}
	}
}

// TestCacheIsScoped: only requests of the same org, with a key that may call the model, are answered.
func TestCacheIsScoped(t *testing.T) {
	narrow, unscoped, foreign, own := keys.New(keys.Live), keys.New(keys.Live), keys.New(keys.Live), keys.New(keys.Live)
	r := newRig(t, queue.Pool{}, func(o *Options) {
		orgs := o.Guard.Policy().Orgs
		orgs["other"].Cache = settings.Cache{MaxAge: time.Hour}
		add := func(key string, p auth.Principal) { o.Directory.ByHash[keys.Hash(keys.Pepper{}, key)] = p }
		add(narrow, auth.Principal{Org: orgs["acme"], User: "bob", Key: "k2", Models: []string{"gpt-4o-mini"}})
		add(unscoped, auth.Principal{Org: orgs["acme"], User: "bob", Key: "k3", Scopes: []string{"embeddings"}})
		add(foreign, auth.Principal{Org: orgs["other"], User: "alice", Key: "k1"})
		add(own, auth.Principal{Org: orgs["acme"], User: "carol", Key: "k4"})
	})
	r.org.Cache = settings.Cache{MaxAge: time.Hour, Always: true}
	body := prompt("hi", `"max_tokens":9`)
	as := func(key string) answer {
		return r.chat(body, "Authorization", "Bearer "+key, guard.HeaderCache, "max-age=600")
	}
	as(r.key).is(t, "miss")
	r.stored(1)
	as(narrow).fails(t, 404, "model_not_found")
	as(unscoped).fails(t, 403, "missing_scope")
	as(foreign).is(t, "miss")
	as(own).is(t, "hit")
	r.chat(prompt("hi", `"max_tokens":8`)).is(t, "miss")
	r.chat(" "+body).is(t, "miss")
}

// TestCacheStoresWholeAnswers: answers that failed, are incomplete or may be referred to are not stored.
func TestCacheStoresWholeAnswers(t *testing.T) {
	r := newRig(t, queue.Pool{}, nil)
	r.org.Cache = settings.Cache{MaxAge: time.Hour, Always: true}
	var with fakeprovider.Behaviour
	r.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour { return with })
	plain, stream := `"max_tokens":9`, `"max_tokens":9,"stream":true`
	for _, c := range []struct {
		extra string
		with  fakeprovider.Behaviour
	}{
		{plain, fakeprovider.Behaviour{Status: 400}},
		{plain, fakeprovider.Behaviour{Status: 500}},
		{plain, fakeprovider.Behaviour{Usage: fakeprovider.UsageNone}},
		{plain, fakeprovider.Behaviour{Cut: fakeprovider.CutAbort}},
		{stream, fakeprovider.Behaviour{Cut: fakeprovider.CutReset}},
		{stream, fakeprovider.Behaviour{Cut: fakeprovider.CutEOF}},
		{stream, fakeprovider.Behaviour{Cut: fakeprovider.CutError}},
		{stream, fakeprovider.Behaviour{Usage: fakeprovider.UsageNone}},
	} {
		with = c.with
		for range 2 {
			sent := r.provided()
			r.chat(prompt("hi", c.extra))
			if n := r.provided(); n != sent+1 {
				t.Errorf("%+v: %d requests reached the provider, want 1", c.with, n-sent)
			}
		}
	}
	with = fakeprovider.Behaviour{}
	image := `{"model":"gpt-4o","max_tokens":9,"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://example.com/a.png"}}]}]}`
	for _, q := range []struct{ path, body string }{
		{"/v1/chat/completions", prompt("hi", `"max_tokens":9,"store":true`)},
		{"/v1/responses", `{"model":"gpt-4o","input":"hi","max_output_tokens":19}`}, // stored by default
		{"/v1/chat/completions", image},
	} {
		for range 2 {
			r.call(http.MethodPost, q.path, q.body).is(t, "skipped")
		}
	}
	// Neither may answer for the other.
	r.chat(prompt("hi", plain)).is(t, "miss")
	r.stored(1)
	r.chat(prompt("hi", stream)).is(t, "miss")
	r.stored(2)
}

// TestCacheWishes: what a request says, and how old an answer may be.
func TestCacheWishes(t *testing.T) {
	r := newRig(t, queue.Pool{}, nil)
	body := prompt("hi", `"max_tokens":9`)
	ask := func(wish string) answer { return r.chat(body, guard.HeaderCache, wish) }
	ask("max-age=60").fails(t, 400, "cache_not_allowed")
	ask("no-store").is(t, "")

	r.org.Cache = settings.Cache{MaxAge: time.Hour}
	for _, wrong := range []string{"on", "max-age", "max-age=-1", "max-age=1h", "no-cache, private"} {
		if text := ask(wrong).fails(t, 400, "invalid_cache"); !strings.Contains(text, "max-age=SECONDS (at most 3600") || !strings.Contains(text, "no-store") {
			t.Errorf("%s: got %q; want what is allowed", wrong, text)
		}
	}
	ask("").is(t, "") // it does not ask
	ask("max-age=60").is(t, "miss")
	r.stored(1)
	ask("max-age=60").is(t, "hit")
	ask("max-age=999999999999").is(t, "hit")
	ask("max-age=0").is(t, "miss")
	r.stored(2)
	ask("no-cache").is(t, "miss")
	r.stored(3)
	sent := r.provided()
	ask("no-store").is(t, "")
	if n := r.provided(); n != sent+1 {
		t.Errorf("%d requests reached the provider, want 1", n-sent)
	}
	age := func(of time.Duration) { // of the only answer
		names, err := r.rdb.Keys(t.Context(), "lg:{acme}:cache:????????????????????????????????????????????????????????????????").Result()
		if err != nil || len(names) != 1 {
			t.Fatalf("got keys %v, %v; want one answer", names, err)
		}
		r.rdb.PExpire(t.Context(), names[0], time.Hour-of)
	}
	age(2 * time.Minute)
	a := ask("max-age=180")
	a.is(t, "hit")
	if a.header.Get("Age") != "120" {
		t.Errorf("got Age %q, want 120", a.header.Get("Age"))
	}
	ask("max-age=60").is(t, "miss")
	r.stored(4)
	age(2 * time.Minute)
	r.org.Cache.MaxAge = time.Minute // a reload
	ask("max-age=180").is(t, "miss")
	r.stored(5)
	age(time.Hour - time.Millisecond)
	r.until("the answer expires", func() bool { return ask("max-age=180").header.Get(guard.HeaderCache) == "miss" })
}

// TestCacheTakesNoQuota: an answer from the cache needs none of the pool's quota, live and as a job.
func TestCacheTakesNoQuota(t *testing.T) {
	r := newRig(t, single, nil, window(roomy, time.Hour))
	r.org.Cache = settings.Cache{MaxAge: time.Hour, Always: true}
	r.org.OverLimit = "refuse"
	body := prompt("hi", `"max_tokens":9`)
	r.chat(body).is(t, "miss")
	r.stored(1)
	release := r.occupy()
	r.chat(prompt("other", `"max_tokens":9`)).fails(t, 429, "rate_limit_exceeded")
	r.chat(body).is(t, "hit")
	release()

	r.org.OverLimit = "wait"
	r.worker(nil)
	sent := r.provided()
	a := r.chat(body, "Prefer", "respond-async, wait=60")
	if a.status != 200 || !strings.Contains(a.body, `"choices"`) || r.provided() != sent {
		t.Errorf("got status %d, %s, and %d requests at the provider; want 200 and none", a.status, a.body, r.provided()-sent)
	}
	if e := r.ledger(3)[2]; e.Outcome != "cached" || e.Cost != 0 || e.JobID == "" {
		t.Errorf("got entry %+v; want a cached job without a cost", e)
	}
	g := r.occupy() // the claim's slot is free again
	g()
}

// TestCacheObeysLimits: an answer that costs something is held within the limits, and a stop stops it.
func TestCacheObeysLimits(t *testing.T) {
	requests := budget.Limit{ID: "n", Subject: budget.User, Metric: budget.Requests, Shape: budget.Shape{Kind: budget.ExactWindow, Amount: 2, Window: time.Hour}}
	r := newRig(t, queue.Pool{}, nil, requests)
	r.org.Cache = settings.Cache{MaxAge: time.Hour, Cost: 100, Always: true}
	r.org.OverLimit = "refuse"
	body := prompt("hi", `"max_tokens":9`)
	r.chat(body).is(t, "miss")
	r.stored(1)
	original := r.ledger(1)[0].Cost
	r.chat(body).is(t, "hit")
	r.ledger(2)
	r.chat(body).fails(t, 429, "rate_limit_exceeded")

	r.org.Limits = []budget.Limit{window(int64(original), time.Hour)}
	r.chat(body).is(t, "hit")
	r.ledger(3)
	r.chat(body).fails(t, 429, "rate_limit_exceeded")
	r.org.Limits[0].Shape.Amount = int64(original) - 1
	r.chat(body).fails(t, 402, "insufficient_quota")

	r.org.Limits = nil
	p := *r.guard.Policy()
	p.Stopped = true
	r.guard.SetPolicy(&p)
	if a := r.chat(body); a.status == 200 || a.header.Get(guard.HeaderCache) != "" {
		t.Errorf("got status %d, %v while spending is stopped; want a refusal", a.status, a.header)
	}
}

// TestCacheWithIdempotencyKey: a repetition with the same key gets the hit's answer, charged once.
func TestCacheWithIdempotencyKey(t *testing.T) {
	r := newRig(t, queue.Pool{}, nil)
	r.org.Cache = settings.Cache{MaxAge: time.Hour, Cost: 100, Always: true}
	body := prompt("hi", `"max_tokens":9`)
	first := r.chat(body)
	first.is(t, "miss")
	r.stored(1)
	hit := r.chat(body, keyHeader, "a")
	hit.is(t, "hit")
	again := r.chat(body, keyHeader, "a")
	if again.body != first.body || again.header.Get(headerReplayed) != "true" || again.header.Get(guard.HeaderCall) != hit.header.Get(guard.HeaderCall) {
		t.Errorf("got %v, %s; want the answer of the hit", again.header, again.body)
	}
	if n := len(r.ledger(2)); n != 2 {
		t.Errorf("got %d ledger entries, want 2", n)
	}
}
