package openapi

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/internal/app/front"
	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/redistest"
)

// process is a running proxy with an administrator.
type process struct {
	url string // of the API
	key string // of the administrator ops
}

const file = `
listen: 127.0.0.1:0
admin: {listen: "127.0.0.1:0"}
timeouts: {drain: 0s}
redis: {addresses: ["%s"]}
providers: [{id: openai, base_url: "http://127.0.0.1:1"}]
brakes: [{name: wild, by: user, when: {calls: {more_than: 100}}}]
orgs: [{id: acme}]
`

// start runs a proxy until the test ends.
func start(t *testing.T) process {
	t.Helper()
	text := fmt.Sprintf(file, redistest.Start(t).Addr)
	cfg, err := config.Parse("llmguard.yaml", []byte(text), func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	rdb, err := app.Connect(cfg.Redis)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rdb.Close() })
	log := slog.New(slog.DiscardHandler)
	a, err := app.New(app.Options{Config: cfg, Redis: rdb, Roles: app.Proxy, Front: front.New, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := redistest.Came(t, ended); err != nil {
			t.Error(err)
		}
	})
	return process{url: a.AdminURL() + "/admin/v1", key: newKey(t, cfg, rdb, log)}
}

// newKey creates the administrator with local access to the configuration.
func newKey(t *testing.T, cfg *config.Config, rdb redisconn.DB, log *slog.Logger) string {
	t.Helper()
	api, err := front.Admin(t.Context(), cfg, rdb, log)
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	req := httptest.NewRequest(http.MethodPost, "/admin/v1/admins", strings.NewReader(`{"id":"ops"}`))
	req.Header.Set("Content-Type", "application/json")
	api.As("test").ServeHTTP(w, req)
	var made struct{ Secret string }
	err = json.Unmarshal(w.Body.Bytes(), &made)
	if err != nil || w.Code != http.StatusCreated {
		t.Fatalf("POST /admins: got status %d, %s, %v; want 201", w.Code, w.Body, err)
	}
	return made.Secret
}

// do sends a request with the administrator's key, and returns the status and the body.
func (p process) do(t *testing.T, method, path, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, p.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+p.key)
	req.Close = true // an open connection would delay the shutdown
	resp, err := (&http.Client{Timeout: redistest.Bound}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}
