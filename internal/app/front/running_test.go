package front_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/internal/app/front"
	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redisconn/driver"
	"github.com/llmguard/llmguard/internal/redistest"
)

func TestMain(m *testing.M) {
	logging.Disable() // as in the commands
	os.Exit(m.Run())
}

// running is an App with its parts.
type running struct {
	*app.App
	redis *redistest.Server
	fake  *fakeprovider.Server
	store *budget.Store
	front *app.Front
	rdb   redis.UniversalClient
	file  *config.Config // what a reload reads
	key   string
	stop  context.CancelFunc
	ended chan error
}

const base = `
listen: 127.0.0.1:0
admin: {listen: "127.0.0.1:0"}
redis: {addresses: ["%s"]}
providers: [{id: openai, base_url: "%s"}]
orgs:
  - id: acme
    limits: [{name: w, amount: $1000, window: 1h}]
    users: [{id: alice, keys: [{id: k1, hash: "%s"}]}]
`

// start runs an App with its own Redis and provider until the test ends. It stops without a
// pause for load balancers unless the text sets timeouts.
func start(t *testing.T, roles app.Role, text string) *running {
	t.Helper()
	return startWith(t, roles, text, fakeprovider.Options{})
}

// startWith is start with other provider options.
func startWith(t *testing.T, roles app.Role, text string, provider fakeprovider.Options) *running {
	t.Helper()
	return launch(t, roles, base, text, provider)
}

// startAdmin is start of a proxy with further settings of the admin listener.
func startAdmin(t *testing.T, admin, text string) *running {
	t.Helper()
	return launch(t, app.Proxy, strings.Replace(base, "admin: {", "admin: {"+admin+", ", 1), text, fakeprovider.Options{})
}

// launch starts an App with a configuration that begins like base.
func launch(t *testing.T, roles app.Role, base, text string, provider fakeprovider.Options) *running {
	t.Helper()
	r := &running{
		redis: redistest.Start(t), fake: fakeprovider.New(provider),
		key: keys.New(keys.Live), ended: make(chan error, 1),
	}
	if err := r.fake.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.fake.Close() })
	if !strings.Contains(text, "timeouts:") {
		text += "timeouts: {drain: 0s}\n"
	}
	r.file = parse(t, fmt.Sprintf(base, r.redis.Addr, r.fake.BaseURL(), keys.Hash(keys.Pepper{}, r.key))+text)
	rdb, err := app.Connect(r.file.Redis)
	if err != nil {
		t.Fatal(err)
	}
	r.rdb = driver.Client(rdb)
	t.Cleanup(func() { _ = r.rdb.Close() })
	r.store = budget.New(r.redis.DB(), budget.Options{})
	r.App, err = app.New(app.Options{
		Config: r.file, Redis: rdb, Roles: roles, Front: r.newFront, Log: slog.New(slog.DiscardHandler),
		Load: func() (*config.Config, error) { return r.file, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	go func() { r.ended <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := redistest.Came(t, r.ended); err != nil {
			t.Error(err)
		}
	})
	await(t, "ready", r.ready)
	return r
}

// ready asks the process whether it is ready, with any certificate.
func (r *running) ready() bool {
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	resp, err := (&http.Client{Timeout: redistest.Bound, Transport: transport}).Get(r.AdminURL() + "/readyz")
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

func (r *running) newFront(p *app.Parts) (*app.Front, error) {
	var err error
	r.front, err = front.New(p)
	return r.front, err
}

func parse(t *testing.T, text string) *config.Config {
	t.Helper()
	c, err := config.Parse("llmguard.yaml", []byte(text), func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// end waits until a stopped process has ended.
func (r *running) end(t *testing.T) {
	t.Helper()
	if err := redistest.Came(t, r.ended); err != nil {
		t.Error(err)
	}
	r.ended <- nil
}

// await waits until a condition is true.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if is() {
			return
		}
	}
	t.Fatalf("not true within 2 minutes: %s", what)
}

// reply is a fully read answer.
type reply struct {
	status int
	header http.Header
	body   string
}

// send makes a request over a new connection, as load balancers do. A connection left open
// would delay the shutdown.
func send(req *http.Request) (reply, error) {
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return reply{status: resp.StatusCode, header: resp.Header, body: string(body)}, err
}

// get sends a GET with a caller's key.
func get(t *testing.T, url, key string) reply {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	got, err := send(req)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// status returns the status of a GET; 0 means no answer.
func (r *running) status(url string) int {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return 0
	}
	req.Header.Set("Authorization", "Bearer "+r.key)
	got, err := send(req)
	if err != nil {
		return 0
	}
	return got.status
}

// call makes alice's chat call and returns its status and body, or the error.
func (r *running) call(text, extra string) (int, string, error) {
	body := fmt.Sprintf(`{"model":"gpt-4o","messages":[{"role":"user","content":%q}],"max_tokens":50%s}`, text, extra)
	got, err := r.chat(r.key, body)
	return got.status, got.body, err
}

// chat sends the body of a chat call with a key; header lists names and values.
func (r *running) chat(key, body string, header ...string) (reply, error) {
	req, err := http.NewRequest(http.MethodPost, r.URL()+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return send(req)
}

// small is the body of a cheap call.
const small = `{"model":"gpt-4o-mini","max_tokens":10,"messages":[{"role":"user","content":"hi"}]}`

// keyAnswers requires the status that a caller's key gets.
func (r *running) keyAnswers(t *testing.T, want int, key string) {
	t.Helper()
	if got := get(t, r.URL()+"/v1/models", key); got.status != want {
		t.Fatalf("the key gets %d, want %d", got.status, want)
	}
}

func (r *running) entries(t *testing.T) []ledger.Entry {
	t.Helper()
	var out []ledger.Entry
	err := r.store.Ledger.Entries(t.Context(), "acme", time.Unix(0, 0), time.Now().Add(time.Hour), func(e ledger.Entry) error {
		out = append(out, e)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// operator sends requests to the admin listener of an App.
type operator struct {
	t        *testing.T
	url, key string
}

// operator creates an administrator's key.
func (r *running) operator(t *testing.T) *operator {
	t.Helper()
	return &operator{t: t, url: r.AdminURL() + "/admin/v1", key: r.newAdminKey(t, `{"id":"ops"}`)}
}

// newAdminKey creates an administrator as on the machine with the configuration, and
// returns the key.
func (r *running) newAdminKey(t *testing.T, body string) string {
	t.Helper()
	api, err := front.Admin(t.Context(), r.Config(), redistest.DB(r.rdb), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	req := httptest.NewRequest(http.MethodPost, "/admin/v1/admins", strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	api.As("test").ServeHTTP(w, req)
	var made struct{ Secret string }
	err = json.Unmarshal(w.Body.Bytes(), &made)
	if err != nil || w.Code != http.StatusCreated {
		t.Fatalf("POST /admins: got status %d, %s, %v; want 201", w.Code, w.Body, err)
	}
	return made.Secret
}

// ask sends a request, requires a status, and decodes the answer into out.
func (o *operator) ask(want int, method, path, body string, out any) string {
	o.t.Helper()
	req, err := http.NewRequestWithContext(o.t.Context(), method, o.url+path, bytes.NewReader([]byte(body)))
	if err != nil {
		o.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+o.key)
	got, err := send(req)
	if err != nil || got.status != want {
		o.t.Fatalf("%s %s: got status %d, %s, %v; want %d", method, path, got.status, got.body, err, want)
	}
	if out != nil {
		if err := json.Unmarshal([]byte(got.body), out); err != nil {
			o.t.Fatal(err)
		}
	}
	return got.body
}
