// Package world runs llmguard for tests as its users do: a redis-server, a provider, and the processes of
// `llmguard serve` and `llmguard worker`. Scripts, such as those in testdata, say what users do with it and see.
package world

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
)

// ProviderKey is the key of llmguard at the provider.
const ProviderKey = "sk-provider-canary-7f3a"

// World is one deployment. Its methods are for one goroutine.
type World struct {
	Redis    *redistest.Server
	Provider *fakeprovider.Server
	Config   string            // path of the configuration
	Keys     map[string]string // of users, and of the administrator ops
	Proxy    *Process
	Worker   *Process // nil before StartWorker

	t       testing.TB
	binary  string
	browser *browser
	before  []*Process   // proxies before a restart
	status  atomic.Int32 // with which the receiver of webhooks answers
}

// sections are the parts of a configuration that a script leaves out.
var sections = []struct{ name, text string }{
	{"listen", `127.0.0.1:0`},
	{"admin", `{listen: "127.0.0.1:0", keys: [{id: ops, hash: "${key:ops}"}, {id: viewer, hash: "${key:viewer}", read_only: true}]}`},
	{"redis", `{addresses: ["${redis}"]}`},
	{"timeouts", `{drain: 0s, shutdown: 20s}`},
	{"store", `{deadline: 10s}`}, // the machine may be busy
	{"files", `{store: "${files}"}`},
	{"log", `{level: debug}`}, // the lines of getSelf
	{"providers", `[{id: openai, base_url: "${provider}", api_key: "${provider_key}"}]`},
	{"orgs", `
  - id: acme
    limits: [{name: daily, subject: user, amount: $5, window: 1d}]
    users: [{id: alice, keys: [{id: k1, hash: "${key:alice}"}]}, {id: bob, keys: [{id: k2, hash: "${key:bob}"}]}]`},
}

var placeholder = regexp.MustCompile(`\$\{(key:)?(\w+)\}`)

// Start runs a deployment of a binary, without a worker, until the end of the test. The configuration is llmguard.yaml
// in the directory, completed by the sections that it lacks: `${key:alice}` in it becomes the hash of a new key,
// `${provider}` the address of the provider, and `${hooks}` that of a receiver of webhooks.
func Start(t testing.TB, binary, dir string) *World {
	t.Helper()
	w := &World{
		Redis: redistest.Start(t), Provider: fakeprovider.New(fakeprovider.Options{Key: ProviderKey}),
		Config: filepath.Join(dir, "llmguard.yaml"), Keys: map[string]string{}, t: t, binary: binary,
	}
	if err := w.Provider.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Provider.Close() })
	text, err := os.ReadFile(w.Config)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	whole := w.completed(string(text), t.TempDir())
	if err := os.WriteFile(w.Config, []byte(whole), 0o600); err != nil {
		t.Fatal(err)
	}
	w.Proxy = w.launch("serve")
	w.Proxy.awaitReady()
	return w
}

// StartWorker starts the worker.
func (w *World) StartWorker() {
	w.t.Helper()
	w.Worker = w.launch("worker")
	w.Worker.awaitReady()
}

func (w *World) completed(text, files string) string {
	for _, s := range sections {
		if !strings.Contains("\n"+text, "\n"+s.name+":") {
			text += s.name + ": " + s.text + "\n"
		}
	}
	values := map[string]string{
		"redis": w.Redis.Addr, "hooks": w.receiver(), "provider": w.Provider.BaseURL(), "provider_key": ProviderKey,
		"files": files,
	}
	return placeholder.ReplaceAllStringFunc(text, func(m string) string {
		p := placeholder.FindStringSubmatch(m)
		if p[1] == "" {
			return values[p[2]]
		}
		kind := keys.Live
		if p[2] == "ops" || p[2] == "viewer" {
			kind = keys.Admin
		}
		key := keys.New(kind)
		w.Keys[p[2]] = key
		return keys.Hash(keys.Pepper{}, key)
	})
}

// receiver starts a server that takes webhooks, and returns its address.
func (w *World) receiver() string {
	w.status.Store(http.StatusOK)
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.WriteHeader(int(w.status.Load()))
	}))
	w.t.Cleanup(server.Close)
	return strings.Replace(server.URL, "127.0.0.1", "localhost", 1)
}

// Restart ends the proxy and the worker, if there is one, and starts them again.
func (w *World) Restart() {
	w.t.Helper()
	w.before = append(w.before, w.Proxy)
	w.Proxy.end()
	w.Proxy, w.browser = w.launch("serve"), nil
	w.Proxy.awaitReady()
	if w.Worker != nil {
		w.Worker.end()
		w.StartWorker()
	}
}

// end ends the proxy, and returns the names of the operations that the administrators' API has served.
func (w *World) end() []string {
	var out []string
	w.Proxy.end()
	for _, p := range append(w.before, w.Proxy) {
		for _, line := range p.Lines("admin") {
			if name := fmt.Sprint(line["route"]); fmt.Sprint(line["status"]) < "300" {
				out = append(out, name)
			}
		}
	}
	return out
}

// pause is the time between attempts, of which there are enough for a busy machine.
const pause, attempts = 20 * time.Millisecond, 6000
