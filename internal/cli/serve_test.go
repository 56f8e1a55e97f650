package cli_test

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/internal/app/front"
	"github.com/llmguard/llmguard/internal/redistest"
)

// start runs a llmguard process until the test ends.
func (s *site) start(roles app.Role) *app.App {
	s.t.Helper()
	cfg := s.config()
	rdb, err := app.Connect(cfg.Redis)
	if err != nil {
		s.t.Fatal(err)
	}
	a, err := app.New(app.Options{
		Config: cfg, Redis: rdb, Roles: roles, Front: front.New, Log: slog.New(slog.DiscardHandler),
		Load: func() (*config.Config, error) { return config.Load(s.file) },
	})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	s.t.Cleanup(func() {
		stop()
		if err := redistest.Came(s.t, ended); err != nil {
			s.t.Error(err)
		}
		_ = rdb.Close()
	})
	await(s.t, "the process is ready", func() bool { return status(a.AdminURL()+"/readyz", "") == http.StatusOK })
	return a
}

// await waits for a condition.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for range 24_000 {
		if is() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("it never happened that %s", what)
}

// status returns the HTTP status of a URL for a key; 0 means no response.
func status(url, key string) int {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return 0
	}
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := (&http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}).RoundTrip(req)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}
