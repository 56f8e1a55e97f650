package console_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/internal/app/front"
	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/batch"
	"github.com/llmguard/llmguard/internal/console"
	"github.com/llmguard/llmguard/internal/diagnose"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/simulate"
	"github.com/llmguard/llmguard/internal/storage/blob"
	"github.com/llmguard/llmguard/internal/storage/files"
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/queue"
)

var shared *redistest.Server

func TestMain(m *testing.M) { os.Exit(redistest.ForPackage(m, &shared)) }

const dollar = pricing.Nano(1_000_000_000)

// Keys of the administrators in the file, and one of a caller.
var (
	opsKey    = keys.New(keys.Admin)
	viewerKey = keys.New(keys.Admin)
	callerKey = keys.New(keys.Live)
)

// acme is an org with two users and limits of every kind that pages show.
const acme = `
  - id: acme
    name: Acme
    limits:
      - {name: month, amount: $100, calendar: month}
      - {name: daily, subject: user, amount: $10, window: 24h}
      - {name: rate, subject: user, metric: requests, amount: 60, window: 1m}
    users: [{id: alice, keys: [{id: k1, hash: "HASH"}]}, {id: bob}]
`

// rig is a console with a Redis, the admin API and a clock.
type rig struct {
	t       *testing.T
	rdb     *redis.Client
	cfg     *config.Config
	books   *budget.Store
	queue   *queue.Queue
	files   *files.Store
	batches *batch.Store
	api     http.Handler
	site    *httptest.Server
	ahead   atomic.Int64 // offset of the console's clock

	findings []diagnose.Finding // of the checks
}

// newRig starts with an empty Redis and a file with these orgs.
func newRig(t *testing.T, orgs string) *rig {
	t.Helper()
	r := &rig{t: t, rdb: shared.Client()}
	r.must(r.rdb.FlushDB(t.Context()).Err())
	r.books = budget.New(redistest.DB(r.rdb), budget.Options{})
	hash := func(key string) string { return keys.Hash(keys.Pepper{}, key) }
	text := fmt.Sprintf(`
listen: 127.0.0.1:0
redis: {addresses: ["%s"]}
admin: {listen: "127.0.0.1:0", keys: [{id: ops, hash: "%s"}, {id: viewer, hash: "%s", read_only: true}]}
providers: [{id: openai, base_url: "http://127.0.0.1:9/v1", pools: [{id: main, models: ["*"], rpm: 500, tpm: 100000}]}]
labels: [{name: run, from: [header X-Run]}]
orgs: %s`, shared.Addr, hash(opsKey), hash(viewerKey), strings.ReplaceAll(orgs, "HASH", hash(callerKey)))
	cfg, err := config.Parse("llmguard.yaml", []byte(text), os.LookupEnv)
	r.must(err)
	r.cfg = cfg
	r.another()
	return r
}

// another adds a second console, like another proxy's, and directs browsers to it.
func (r *rig) another() (site *httptest.Server) {
	r.t.Helper()
	r.site = httptest.NewServer(r.console(r.cfg))
	r.t.Cleanup(r.site.Close)
	return r.site
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// console builds the console like the real process, but with its own clock, and without caching
// the configuration in effect.
func (r *rig) console(cfg *config.Config) http.Handler {
	r.t.Helper()
	ctx, log := context.WithoutCancel(r.t.Context()), slog.New(slog.DiscardHandler)
	q, _, err := app.Queue(ctx, cfg, redistest.DB(r.rdb), log)
	r.must(err)
	base, err := app.Policy(cfg, 1)
	r.must(err)
	blobs, err := blob.Open(ctx, r.t.TempDir())
	r.must(err)
	r.t.Cleanup(func() { _ = blobs.Close() })
	r.queue, r.files = q, files.New(redistest.DB(r.rdb), blobs, files.Options{})
	r.batches = batch.NewStore(redistest.DB(r.rdb), r.files, log)
	api, err := front.Admin(ctx, cfg, redistest.DB(r.rdb), log)
	r.must(err)
	r.api = api
	policy := func() *guard.Policy {
		p := *base.Guard
		ids, err := app.LoadIdentities(ctx, cfg, redistest.DB(r.rdb), log)
		if err == nil {
			p.Orgs = ids.Policy().Orgs
		}
		return &p
	}
	effective := func() *config.Config {
		now, err := app.Effective(ctx, cfg, redistest.DB(r.rdb), log)
		if err == nil {
			return now
		}
		return cfg
	}
	ids, err := app.LoadIdentities(ctx, cfg, redistest.DB(r.rdb), log)
	r.must(err)
	c, err := console.New(console.Options{
		API: api, Tenants: func() settings.Set { return effective().Tenants() }, Policy: policy, Budget: r.books, Queue: q, Pools: q.Pools, Batches: r.batches, Redis: redistest.DB(r.rdb), Log: log,
		Simulate: func() (simulate.Policy, error) { return app.Policy(effective(), 1) },
		Snapshot: func() *tenants.Snapshot {
			if ids.Refresh(ctx) != nil {
				return &tenants.Snapshot{}
			}
			return ids.Store.Snapshot()
		},
		Stopped:  func(context.Context) []string { return nil },
		Findings: func(context.Context) []diagnose.Finding { return slices.Clone(r.findings) },
		Now:      func() time.Time { return time.Now().Add(time.Duration(r.ahead.Load())) },
	})
	r.must(err)
	return c
}

// later advances the console's clock.
func (r *rig) later(d time.Duration) { r.ahead.Add(int64(d)) }

// spend charges a call.
func (r *rig) spend(org, user string, cost pricing.Nano) {
	r.t.Helper()
	limits := []budget.Limit{
		{
			ID: "month", Subject: budget.Org, Metric: budget.Cost,
			Shape: budget.Shape{Kind: budget.Calendar, Amount: int64(100 * dollar), Calendar: "month"},
		},
		{
			ID: "daily", Subject: budget.User, Metric: budget.Cost,
			Shape: budget.Shape{Kind: budget.Window, Amount: int64(10 * dollar), Window: 24 * time.Hour},
		},
	}
	call := ledger.Call{
		ID: wire.NewCallID(), Org: org, User: user, Key: "k1", Model: "gpt-4o", Provider: "openai",
		Endpoint: "chat.completions",
	}
	h, err := r.books.Hold(r.t.Context(), budget.Terms{Limits: limits, Call: call, Max: budget.Amounts{Cost: cost}})
	r.must(err)
	_, err = r.books.Settle(r.t.Context(), h, budget.Settlement{
		Actual: budget.Amounts{Cost: cost},
		Usage:  pricing.Usage{Input: 1200, Output: 30},
	})
	r.must(err)
}

// put adds a job to the queue.
func (r *rig) put(org, user, model string, change ...func(*queue.Job)) *queue.Job {
	r.t.Helper()
	j := &queue.Job{
		ID: r.queue.NewID("main"), Pool: "main", Org: org, User: user, Key: "k1", Class: queue.Async,
		Endpoint: wire.ChatCompletions,
		Model:    model, Tokens: 10, Cost: 1000, CallID: wire.NewCallID(), Header: http.Header{},
	}
	for _, f := range change {
		f(j)
	}
	r.must(r.queue.Put(r.t.Context(), j, []byte(`{"secret-of-the-request":1}`)))
	return j
}

// browser is a client that keeps cookies and does not follow redirects.
type browser struct {
	*rig
	http.Client
	live bool // sends the header of a page that refreshes itself
}

func (r *rig) browser() *browser {
	r.t.Helper()
	jar, err := cookiejar.New(nil)
	r.must(err)
	b := &browser{rig: r, Client: http.Client{Jar: jar, Timeout: redistest.Bound}}
	b.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return b
}

// signedIn returns a browser signed in with the key.
func (r *rig) signedIn(key string) *browser {
	r.t.Helper()
	b := r.browser()
	a := b.post("/console/login", url.Values{"key": {key}})
	if a.status != http.StatusSeeOther {
		r.t.Fatalf("signing in: got %d %s", a.status, a.text)
	}
	return b
}

// answer is a received page.
type answer struct {
	status int
	header http.Header
	text   string
}

func (b *browser) do(method, path string, form url.Values, change ...func(*http.Request)) answer {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), method, b.site.URL+path, strings.NewReader(form.Encode()))
	b.must(err)
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if b.live {
		req.Header.Set("X-Llmguard-Live", "1")
	}
	for _, f := range change {
		f(req)
	}
	resp, err := b.Do(req)
	b.must(err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	b.must(err)
	return answer{resp.StatusCode, resp.Header, string(text)}
}

func (b *browser) post(path string, form url.Values, change ...func(*http.Request)) answer {
	b.t.Helper()
	return b.do(http.MethodPost, path, form, change...)
}

// page gets a page with status 200, and retries while the page says that figures are still
// being read.
func (b *browser) page(path string) string {
	b.t.Helper()
	for range 600 {
		a := b.do(http.MethodGet, path, nil)
		if a.status != http.StatusOK {
			b.t.Fatalf("GET %s: got %d %.500s, want 200", path, a.status, a.text)
		}
		if !strings.Contains(a.text, "being read") {
			return a.text
		}
		time.Sleep(20 * time.Millisecond)
	}
	b.t.Fatalf("GET %s: its figures are never complete", path)
	return ""
}

// has checks that a page contains texts.
func (b *browser) has(path string, want ...string) string {
	b.t.Helper()
	text := b.page(path)
	for _, w := range want {
		if !strings.Contains(text, w) {
			b.t.Errorf("GET %s: got no %q in %s", path, w, content(text))
		}
	}
	return text
}

// hasNot checks that a page does not contain texts.
func (b *browser) hasNot(path string, unwanted ...string) {
	b.t.Helper()
	text := b.page(path)
	for _, w := range unwanted {
		if strings.Contains(text, w) {
			b.t.Errorf("GET %s: got %q in %s", path, w, content(text))
		}
	}
}

// content returns the page without the layout.
func content(page string) string {
	_, rest, _ := strings.Cut(page, "<main")
	main, _, _ := strings.Cut(rest, "</main>")
	return main
}

var tokens = regexp.MustCompile(`name="token" value="([^"]+)"`)

// token returns the session's form token.
func (b *browser) token() string {
	b.t.Helper()
	m := tokens.FindStringSubmatch(b.page("/console/audit"))
	if m == nil {
		b.t.Fatal("got a page without a form")
	}
	return m[1]
}

// act submits the form of an action with the token, confirmed or not.
func (b *browser) act(name string, confirmed bool, fields ...string) answer {
	b.t.Helper()
	form := url.Values{"token": {b.token()}, "back": {"/console/orgs/acme"}}
	for i := 0; i+1 < len(fields); i += 2 {
		form.Set(fields[i], fields[i+1])
	}
	if confirmed {
		form.Set("confirm", "yes")
	}
	return b.post("/console/act/"+name, form)
}

// changes returns the number of audit entries.
func (r *rig) changes() int64 {
	r.t.Helper()
	n, err := r.rdb.XLen(r.t.Context(), "lg:{identity:}:audit").Result()
	r.must(err)
	return n
}

// ask sends a request to the admin API and returns the response.
func (r *rig) ask(method, path, body string) string {
	r.t.Helper()
	req := httptest.NewRequestWithContext(r.t.Context(), method, "/admin/v1"+path, strings.NewReader(body))
	req.Header.Set("Authorization", "Bearer "+opsKey)
	req.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	r.api.ServeHTTP(w, req)
	if w.Code >= 300 {
		r.t.Fatalf("%s %s: got %d %s", method, path, w.Code, w.Body)
	}
	return w.Body.String()
}

// hear makes the API read changes of other processes, which a running process does
// automatically.
func (r *rig) hear() {
	r.t.Helper()
	r.ask("PATCH", "/orgs/acme", "{}")
}

// record commits a change as another process.
func (r *rig) record(ref tenants.Ref, record any) {
	r.t.Helper()
	other := tenants.New(redistest.DB(r.rdb), tenants.Options{})
	r.must(other.Commit(r.t.Context(), tenants.AuditEntry{Action: "test"}, tenants.Change{Ref: ref, New: record}))
}
