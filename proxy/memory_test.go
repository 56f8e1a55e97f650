package proxy

import (
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/auth"
	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/storage/blob"
	"github.com/llmguard/llmguard/internal/storage/files"
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/queue"
)

// memoryRig is a rig on a Redis of 64 MB. Its key has all scopes and no bound on free requests; neighbor is such a
// key of another org.
func memoryRig(t *testing.T) (r *rig, neighbor string) {
	t.Helper()
	r = newRig(t, queue.Pool{}, nil, budget.Limit{
		ID: "month", Subject: budget.Org, Metric: budget.Cost, Mode: budget.Enforce,
		Shape: budget.Shape{Kind: budget.Window, Amount: 1000e9, Window: 30 * 24 * time.Hour},
	})
	r.memory("64mb")
	r.proxy.opts.Raises = tenants.New(redistest.DB(r.rdb), tenants.Options{})
	unbounded := newReads(readBounds{what: "requests", perSecond: 1e6, burst: 1e6, atOnce: 1000})
	r.proxy.reads, r.proxy.holds.changes = unbounded, unbounded
	r.proxy.routes = r.proxy.table()
	neighbor = keys.New(keys.Live)
	other := r.guard.Policy().Orgs["other"]
	for _, o := range []*guard.Org{r.org, other} {
		o.Runs = settings.Runs{MaxDepth: 3, MaxOpen: 100_000, MaxAmount: settings.Quantity{N: 50e9, Money: true}, MaxLife: 7 * 24 * time.Hour}
		o.RaiseRequests = settings.RaiseRequests{Mode: "allow", MaxAmount: settings.Quantity{N: 5e9, Money: true}, MaxFor: time.Hour}
	}
	all := []string{"calls", holdScope, runScope, "jobs", "files", "batches", "usage", "responses", "vector_stores", "containers", raiseScope, raiseOrgScope}
	r.proxy.SetDirectory(&auth.Directory{ByHash: map[string]auth.Principal{
		keys.Hash(keys.Pepper{}, r.key):    {Org: r.org, User: "alice", Key: "k1", Scopes: all},
		keys.Hash(keys.Pepper{}, neighbor): {Org: other, User: "carl", Key: "k2", Scopes: all},
	}})
	return r, neighbor
}

// memory limits the memory of Redis.
func (r *rig) memory(most string) {
	r.t.Helper()
	if err := r.rdb.ConfigSet(r.t.Context(), "maxmemory", most).Err(); err != nil {
		r.t.Fatal(err)
	}
}

// sizes returns the memory that Redis uses, how much of it counts for acme, and the number of keys.
func (r *rig) sizes() (used, counted, names int64) {
	r.t.Helper()
	ctx := r.t.Context()
	used, _, err := capacity.Usage(ctx, redistest.DB(r.rdb))
	if err == nil {
		names, err = r.rdb.DBSize(ctx).Result()
	}
	if err != nil {
		r.t.Fatal(err)
	}
	counted, _ = r.rdb.HGet(ctx, "lg:{capacity}:sums", "o acme").Int64()
	return used, counted, names
}

// attack sends the accepted requests of a route with the largest fields that it takes: path, body and headers.
type attack func(r *rig, i int) (path, body string, header []string)

// grows lists every route that changes something: how requests that it accepts make Redis grow, or why they do not.
var grows = map[string]struct {
	attack attack
	why    string
}{
	"POST /chat/completions": {attack: func(_ *rig, i int) (string, string, []string) {
		return "/chat/completions", prompt(strings.Repeat("x ", 1000), `"max_tokens":1`), []string{
			"Prefer", "respond-async", "Idempotency-Key", fmt.Sprint("job", i),
		}
	}},
	"POST /holds": {attack: func(_ *rig, i int) (string, string, []string) {
		return "/holds", fmt.Sprintf(`{"cost_usd":"0","expires_in":86400,"model":"m%d%s"}`, i, strings.Repeat("x", 250)),
			[]string{"Idempotency-Key", fmt.Sprint("hold", i)}
	}},
	"POST /keys/children": {attack: func(*rig, int) (string, string, []string) {
		return "/keys/children", `{"amount":"$0.01","expires_in":"7d","models":[` +
			strings.Repeat(`"`+strings.Repeat("x", 256)+`",`, 63) + `"y"]}`, nil
	}},
	"POST /keys/children/": {attack: func(r *rig, i int) (string, string, []string) {
		if i == 0 {
			r.child = r.run(r.key, "POST", "", `{"amount":"$0.01","expires_in":"7d"}`).ID
		}
		return "/keys/children/" + r.child, `{"add_amount":"$0.01"}`, nil
	}},
	"POST /limit_requests": {attack: func(*rig, int) (string, string, []string) {
		return "/limit_requests", `{"limit":"month","amount":"$1","reason":"` + strings.Repeat("x", 500) + `"}`, nil
	}},
	"POST /holds/*/extend": {why: "changes a hold that counts"},
	"POST /holds/*/settle": {why: "frees; the ledger has its own share"},
	"POST /holds/*/void":   {why: "frees"},

	"DELETE /keys/children/":   {why: "frees"},
	"DELETE /limit_requests/":  {why: "changes a record that counts"},
	"DELETE /responses/":       {why: "frees"},
	"POST /responses/*/cancel": {why: "frees"},
	"DELETE /jobs/":            {why: "frees"},
	"POST /jobs/*/cancel":      {why: "frees"},
	"DELETE /files/":           {why: "frees"},
	"POST /files":              {why: "its record counts: TestRecordsHaveRoom of internal/storage/files"},
	"POST /batches":            {why: "its record counts: internal/batch/memory.go"},
	"POST /batches/*/cancel":   {why: "frees"},

	"POST /messages/batches":          {why: "its records count like those of a file and a batch"},
	"POST /messages/batches/*/cancel": {why: "frees"},
	"DELETE /messages/batches/":       {why: "frees"},

	"POST /embeddings": {why: "as chat"}, "POST /completions": {why: "as chat"}, "POST /moderations": {why: "as chat"},
	"POST /messages": {why: "as chat"}, "POST /messages/count_tokens": {why: "writes nothing"},
	"POST /rerank": {why: "as chat"}, "POST /responses": {why: "as chat"}, "POST /responses/compact": {why: "as chat"},
	"POST /responses/input_tokens": {why: "as chat"}, "POST /images/generations": {why: "as chat"},
	"POST /images/edits": {why: "as chat"}, "POST /images/variations": {why: "as chat"},
	"POST /audio/speech": {why: "as chat"}, "POST /audio/transcriptions": {why: "as chat"},
	"POST /audio/translations": {why: "as chat"},
}

// refusedAlways are requests that each route refuses.
var refusedAlways = []string{
	"", `{"amount":0}`, `{"amount":"$51"}`, `{"cost_usd":"2000"}`, `{"model":5}`,
	`{"model":"` + strings.Repeat("x", 2000) + `","amount":"x"}`,
}

// TestEveryRouteIsAdmitted ranges over all routes that change something: what is refused leaves no key in Redis, and
// what is accepted makes Redis grow by no more than counts for the org.
func TestEveryRouteIsAdmitted(t *testing.T) {
	r, _ := memoryRig(t)
	relayed := map[string]bool{}
	for _, op := range wire.Operations() { // notes of what a provider stores count: see internal/ownership
		relayed[op.Method+" "+op.Path] = true
	}
	for path, to := range r.proxy.routes {
		for _, method := range to.methods {
			name := method + " " + path
			if method == http.MethodGet || method == http.MethodHead {
				continue
			}
			listed, ok := grows[name]
			if !ok && !relayed[name] {
				t.Errorf("%s is not listed in grows", name)
			}
			_, _, before := r.sizes()
			for i := range 30 {
				of := strings.ReplaceAll(path, "*", "none_"+strconv.Itoa(i))
				if strings.HasSuffix(path, "/") {
					of += "none_" + strconv.Itoa(i)
				}
				a := r.call(method, "/v1"+of, refusedAlways[i%len(refusedAlways)], "Idempotency-Key", fmt.Sprint(name, i))
				if a.status < 400 {
					t.Errorf("%s: got status %d, want a refusal", name, a.status)
				}
			}
			if _, _, after := r.sizes(); after > before+4 { // counts of the org
				t.Errorf("%s: 30 refused requests left %d keys", name, after-before)
			}
			if listed.attack != nil {
				r.hammer(name, listed.attack)
			}
		}
	}
}

// hammer fails the test if accepted requests make Redis grow by more than counts for their org.
func (r *rig) hammer(name string, send attack) {
	r.t.Helper()
	const slack = 200_000 // of tables that Redis resizes, of the ledger, and of what exists once
	const first = 20      // load scripts and open connections
	var was, counted int64
	for i := range first + 400 {
		if i == first {
			was, counted, _ = r.sizes()
		}
		path, body, header := send(r, i)
		if a := r.call(http.MethodPost, "/v1"+path, body, header...); a.status >= 400 && a.status != 429 {
			r.t.Fatalf("%s %d: got status %d, %s", name, i, a.status, a.body)
		}
	}
	used, count, _ := r.sizes()
	r.t.Logf("%s: Redis grew by %d bytes, %d of them count", name, used-was, count-counted)
	if used-was > count-counted+slack {
		r.t.Errorf("%s: Redis grew by %d bytes, and %d count", name, used-was, count-counted)
	}
}

// TestHostileOrgLeavesRoom: an org that creates as many of the largest runs and holds as it can gets 429; another org
// works as before.
func TestHostileOrgLeavesRoom(t *testing.T) {
	r, neighbor := memoryRig(t)
	for _, name := range []string{"POST /keys/children", "POST /holds", "POST /chat/completions"} {
		refused := 0
		for i := 0; i < 5000 && refused < 20; i++ {
			path, body, header := grows[name].attack(r, i)
			a := r.call(http.MethodPost, "/v1"+path, body, header...)
			if a.status == 429 {
				refused++
			} else if a.status >= 400 {
				t.Fatalf("%s %d: got status %d, %s", name, i, a.status, a.body)
			}
		}
		if refused == 0 {
			t.Errorf("%s: nothing was refused", name)
		}
	}
	used, most, err := capacity.Usage(t.Context(), redistest.DB(r.rdb))
	if err != nil || used > most*4/5 {
		t.Errorf("got %d bytes of %d in use, error %v, want at most 80%%", used, most, err)
	}
	for i := range 20 {
		for path, body := range map[string]string{
			"/chat/completions": prompt("hi", `"max_tokens":5`), "/holds": `{"cost_usd":"0.01"}`, "/keys/children": `{"amount":"$1"}`,
		} {
			a := r.as(neighbor, "POST", path, body)
			if a.status != 200 {
				t.Fatalf("%s %d of the other org: got status %d, %s", path, i, a.status, a.body)
			}
		}
	}
	a := r.call("POST", "/v1/chat/completions", prompt("hi", `"max_tokens":5`), "Authorization", "Bearer "+neighbor,
		"Prefer", "respond-async")
	if a.status != http.StatusAccepted {
		t.Errorf("a job of the other org: got status %d, %s", a.status, a.body)
	}
}

// TestFullMemoryTakesEnds: with no memory left, everything that ends, voids, cancels or deletes still works.
func TestFullMemoryTakesEnds(t *testing.T) {
	r, _ := memoryRig(t)
	type ending struct{ method, path, body string }
	var all []ending
	child := r.run(r.key, "POST", "", `{"amount":"$1"}`)
	all = append(all, ending{"DELETE", "/keys/children/" + child.ID, ""})
	for how, body := range map[string]string{"void": "", "settle": `{"cost_usd":"0.5"}`} {
		all = append(all, ending{"POST", "/holds/" + r.hold("", `{"cost_usd":"1"}`).ID + "/" + how, body})
	}
	job := func() string {
		return r.call("POST", "/v1/chat/completions", prompt("hi", `"max_tokens":5`), "Prefer", "respond-async").id()
	}
	all = append(all, ending{"POST", "/jobs/" + job() + "/cancel", ""})
	deleted := job()
	all = append(all, ending{"POST", "/jobs/" + deleted + "/cancel", ""}, ending{"DELETE", "/jobs/" + deleted, ""})
	ask := r.call("POST", "/v1/limit_requests", `{"limit":"month","amount":"$1","reason":"x"}`)
	all = append(all, ending{"DELETE", "/limit_requests/" + ask.id(), ""})
	blobs, err := blob.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer blobs.Close()
	r.proxy.opts.Files = files.New(redistest.DB(r.rdb), blobs, files.Options{Log: slog.New(slog.DiscardHandler), OrgBytes: 1500})
	file := r.upload(false, part{"purpose", "", "batch"}, part{"file", "x.jsonl", "{}"})
	all = append(all, ending{"DELETE", "/files/" + file.id(), ""})
	r.memory("1")
	for _, e := range all {
		if a := r.call(e.method, "/v1"+e.path, e.body); a.status != 200 {
			t.Errorf("%s %s: got status %d, %s", e.method, e.path, a.status, a.body)
		}
	}
	r.call("POST", "/v1/keys/children", `{"amount":"$1"}`).fails(t, 503, "store_full")
}

// TestWhatCostsNothingIsAFreeRequest ranges over all routes: each takes units of a rate, or costs money; and calls and
// holds that cost nothing count like the former.
func TestWhatCostsNothingIsAFreeRequest(t *testing.T) {
	r, _ := memoryRig(t)
	for path, to := range r.proxy.routes {
		for _, method := range to.methods {
			if !to.open && to.class(method) != guard.Spends && to.units(method) == 0 {
				t.Errorf("%s %s costs no money and takes no units", method, path)
			}
		}
	}
	p := *r.guard.Policy()
	p.RequestLimits = []guard.RequestLimit{
		{Class: guard.Writes, Limit: requestsPerDay("writes", 3)}, {Limit: requestsPerDay("all", 1000)},
	}
	r.guard.SetPolicy(&p)
	for path, body := range map[string]string{
		"/holds":                  `{"cost_usd":"0"}`,
		"/moderations":            `{"model":"omni-moderation-latest","input":"x"}`,
		"/responses/input_tokens": `{"model":"gpt-4o","input":"x"}`,
	} {
		r.proxy.reads = newReads(readBounds{name: "free", what: "requests", perSecond: 0.001, burst: 2, atOnce: 2})
		if a := r.call("POST", "/v1"+path, body); a.status == 429 {
			t.Errorf("%s: got %s at the first request", path, a.body)
		}
		r.call("POST", "/v1"+path, body).fails(t, 429, "rate_limit_exceeded")
	}
	r.proxy.reads = newReads(storeReads)
	message := r.call("POST", "/v1/holds", `{"cost_usd":"0"}`).fails(t, 429, "rate_limit_exceeded")
	if !strings.Contains(message, `"writes"`) {
		t.Errorf("got the message %q, want the limit writes in it", message)
	}
	if a := r.call("POST", "/v1/holds", `{"cost_usd":"0.01"}`); a.status != 200 {
		t.Errorf("a hold with a cost: got status %d, %s", a.status, a.body)
	}
}

func requestsPerDay(name string, n int64) budget.Limit {
	return budget.Limit{
		ID: name, Subject: budget.Key, Metric: budget.Requests, Mode: budget.Enforce,
		Shape: budget.Shape{Kind: budget.Window, Amount: n, Window: 24 * time.Hour},
	}
}
