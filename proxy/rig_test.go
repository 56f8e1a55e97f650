package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/auth"
	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/cache"
	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/idempotency"
	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/redisconn/driver"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/providers"
	"github.com/llmguard/llmguard/queue"
)

// rig is a proxy with real components: Redis, a provider, a queue, and a worker if one is started.
type rig struct {
	t     *testing.T
	redis *redistest.Server
	rdb   redis.UniversalClient
	fake  *fakeprovider.Server
	store *budget.Store
	guard *guard.Guard
	queue *queue.Queue
	org   *guard.Org
	proxy *Server
	http  *httptest.Server
	key   string // alice's
	// hungUp receives a value for each caller that is known to have left.
	hungUp  chan struct{}
	answers *prometheus.Registry // metrics of the response cache
	child   string               // a run of its key

	mu      sync.Mutex
	log     bytes.Buffer
	reached []string // ids of runs that were reported to have reached their budget
}

// Write receives the log.
func (r *rig) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.Write(p)
}

// single is a pool for one call at a time, see occupy.
var single = queue.Pool{Concurrency: 1}

// newRig starts a rig; change may modify the options last.
func newRig(t *testing.T, pool queue.Pool, change func(*Options), limits ...budget.Limit) *rig {
	t.Helper()
	r := &rig{t: t, redis: redistest.Start(t), fake: fakeprovider.New(fakeprovider.Options{}), key: keys.New(keys.Live), hungUp: make(chan struct{}, 100), answers: prometheus.NewRegistry()}
	if err := r.fake.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.fake.Close() })
	r.org = &guard.Org{Org: settings.Org{ID: "acme"}, Limits: limits}
	other := &guard.Org{Org: settings.Org{ID: "other"}}
	pool.ID = "main"
	base, err := url.Parse(r.fake.BaseURL())
	if err != nil {
		t.Fatal(err)
	}
	set, err := providers.NewSet([]*providers.Provider{{ID: "openai", BaseURL: base, Pools: []providers.Pool{{ID: "main"}}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(set.Close)
	catalogue, err := pricing.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	rdb := driver.Open(driver.Single, driver.Options(r.redis.Addr)) // as in the program
	t.Cleanup(func() { _ = rdb.Close() })
	r.rdb = rdb
	line := redisconn.Joined(redistest.DB(rdb), budget.Join(redistest.DB(rdb)))
	log := slog.New(slog.NewJSONHandler(r, nil))
	memory := capacity.New(redistest.DB(rdb), line, capacity.Options{}, nil)
	r.store = budget.New(redistest.DB(rdb), budget.Options{
		Memory: memory, Scripts: line, Flights: func() budget.Flight { return line.Batch() },
	})
	queued := queue.Options{Log: log, Scripts: line, Memory: memory}
	if r.queue, err = queue.New(redistest.DB(rdb), []queue.Pool{pool}, queued); err != nil {
		t.Fatal(err)
	}
	r.guard = guard.New(guard.Options{
		Cache: cache.New(redistest.DB(rdb), cache.Options{Metrics: r.answers}),
		Quota: r.queue.Quota(), Budget: r.store, Memory: memory, StoreDeadline: 5 * time.Second, Log: log,
		RunReached: func(run budget.Run) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.reached = append(r.reached, run.ID())
		},
		Policy: &guard.Policy{Orgs: map[string]*guard.Org{"acme": r.org, "other": other}, Catalogue: catalogue, Providers: set},
	})
	r.background(r.queue.Run)
	o := Options{
		Guard: r.guard, Queue: r.queue, Idempotency: idempotency.New(redistest.DB(rdb), idempotency.Options{Log: log}), Log: log,
		Directory: &auth.Directory{ByHash: map[string]auth.Principal{keys.Hash(keys.Pepper{}, r.key): {Org: r.org, User: "alice", Key: "k1"}}},
	}
	if change != nil {
		change(&o)
	}
	r.proxy = New(o)
	r.http = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		defer context.AfterFunc(q.Context(), func() {
			select {
			case r.hungUp <- struct{}{}:
			default:
			}
		})()
		r.proxy.ServeHTTP(w, q)
	}))
	r.http.Client().Timeout = redistest.Bound
	t.Cleanup(func() {
		r.http.CloseClientConnections()
		r.http.Close()
		if err := r.guard.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return r
}

// background runs a function until the end of the test.
func (r *rig) background(run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = run(ctx) }()
	r.t.Cleanup(func() { cancel(); redistest.Came(r.t, done) })
}

// worker starts a worker with guard's runner, or another one.
func (r *rig) worker(run func(context.Context, *queue.Claim) queue.Verdict) {
	if run == nil {
		run = queue.NewRunner(r.queue, r.guard, wire.Limits{}, slog.New(slog.DiscardHandler), nil)
	}
	w := queue.NewWorker(r.queue, run, queue.WorkerOptions{ShutdownTimeout: 100 * time.Millisecond, Concurrency: map[string]int{"main": 4}})
	r.background(w.Run)
}

// stream is an answer that its caller reads piece by piece.
type stream struct {
	t    *testing.T
	resp *http.Response
}

// open makes a chat call and returns when the headers of its answer have arrived.
func (r *rig) open(ctx context.Context, body string, header ...string) stream {
	r.t.Helper()
	return r.openAt(ctx, "/v1/chat/completions", body, header...)
}

// openAt is open for another path.
func (r *rig) openAt(ctx context.Context, path, body string, header ...string) stream {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	r.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.http.URL+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+r.key)
	req.Header.Set("TE", "trailers")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := r.http.Client().Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = resp.Body.Close() })
	return stream{t: r.t, resp: resp}
}

// expect reads as many bytes as the text has and compares them.
func (s stream) expect(text string) {
	s.t.Helper()
	got := make([]byte, len(text))
	if n, err := io.ReadFull(s.resp.Body, got); err != nil || string(got) != text {
		s.t.Fatalf("got %q, %v; want %q", got[:n], err, text)
	}
}

// rest reads the stream to its end.
func (s stream) rest() answer {
	text, err := io.ReadAll(s.resp.Body)
	return answer{status: s.resp.StatusCode, header: s.resp.Header, trailer: s.resp.Trailer, body: string(text), err: err}
}

// answer is the response to a caller.
type answer struct {
	status  int
	header  http.Header
	trailer http.Header
	body    string
	err     error
}

// call sends a request with alice's key; header lists names and values.
func (r *rig) call(method, path, body string, header ...string) answer {
	r.t.Helper()
	return r.do(r.t.Context(), method, path, body, header...)
}

func (r *rig) do(ctx context.Context, method, path, body string, header ...string) answer {
	ctx, cancel := context.WithTimeout(ctx, time.Minute) // a hanging test shows where it hangs
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, r.http.URL+path, strings.NewReader(body))
	if err != nil {
		return answer{err: err}
	}
	req.Header.Set("Authorization", "Bearer "+r.key)
	req.Header.Set("TE", "trailers")
	for i := 0; i < len(header); i += 2 {
		req.Header.Del(header[i])
		if header[i+1] != "" {
			req.Header.Set(header[i], header[i+1])
		}
	}
	resp, err := r.http.Client().Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return answer{status: resp.StatusCode, header: resp.Header, trailer: resp.Trailer, body: string(text), err: err}
}

func (r *rig) chat(body string, header ...string) answer {
	r.t.Helper()
	return r.call(http.MethodPost, "/v1/chat/completions", body, header...)
}

// prompt returns a chat request with one message and more members.
func prompt(text, extra string) string {
	quoted, _ := json.Marshal(text)
	return fmt.Sprintf(`{"model":"gpt-4o","messages":[{"role":"user","content":%s}],%s}`, quoted, extra)
}

// fails asserts an error answer in OpenAI's format and returns its message.
func (a answer) fails(t *testing.T, status int, code string) string {
	t.Helper()
	var e struct {
		Error *struct {
			Message string  `json:"message"`
			Type    string  `json:"type"`
			Param   *string `json:"param"`
			Code    *string `json:"code"`
		} `json:"error"`
	}
	if err := json.Unmarshal([]byte(a.body), &e); err != nil || e.Error == nil || e.Error.Message == "" || e.Error.Type == "" {
		t.Fatalf("got %v, status %d, body %q; want status %d and the error %q", a.err, a.status, a.body, status, code)
	}
	got := ""
	if e.Error.Code != nil {
		got = *e.Error.Code
	}
	if a.status != status || got != code {
		t.Errorf("got status %d, code %q (%s); want %d, %q", a.status, got, e.Error.Message, status, code)
	}
	return e.Error.Message
}

// records waits for n access records and returns all.
func (r *rig) records(n int) []map[string]any {
	r.t.Helper()
	for range 12000 {
		var out []map[string]any
		r.mu.Lock()
		for line := range strings.Lines(r.log.String()) {
			var m map[string]any
			if json.Unmarshal([]byte(line), &m) == nil && m["msg"] == "call" {
				out = append(out, m)
			}
		}
		r.mu.Unlock()
		if len(out) >= n {
			return out
		}
		time.Sleep(5 * time.Millisecond)
	}
	r.t.Fatalf("fewer than %d access records", n)
	return nil
}

// window limits alice's spending per hour, in nano-USD.
func window(amount int64, span time.Duration) budget.Limit {
	return budget.Limit{ID: "w", Subject: budget.User, Metric: budget.Cost, Shape: budget.Shape{Kind: budget.ExactWindow, Amount: amount, Window: span}}
}

const roomy = 1 << 50

// until waits for a condition.
func (r *rig) until(what string, ok func() bool) {
	r.t.Helper()
	for range 12000 {
		if ok() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	r.t.Fatalf("never: %s", what)
}

// held is what alice's calls hold.
func (r *rig) held() (n int64) {
	r.t.Helper()
	statuses, err := r.guard.Status(r.t.Context(), guard.Caller{Org: r.org, User: "alice", Key: "k1"})
	if err != nil || len(statuses) == 0 {
		r.t.Fatalf("got %v, %v; want the limits", statuses, err)
	}
	for _, st := range statuses {
		n += st.Held
	}
	return n
}
