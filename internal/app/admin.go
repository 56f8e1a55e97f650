package app

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/lua"
)

// adminHandler serves health, metrics and the front's pages for operators. It never serves
// models.
func (a *App) adminHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "ok\n")
	})
	mux.HandleFunc("GET /readyz", a.readyz)
	if a.front != nil {
		a.front.Operators(mux)
	}
	mux.HandleFunc("/v1/", func(w http.ResponseWriter, r *http.Request) {
		e := wire.NotFound("", "unknown_url", "This is the admin listener; send calls to the proxy's (listen)")
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(e.Status)
		_, _ = w.Write(e.JSON())
	})
	mux.Handle("GET /metrics", a.metricsHandler())
	return private(a.allowedHosts(mux))
}

// private keeps answers from being cached or interpreted as another type. The console lets
// browsers cache its own files.
func private(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		next.ServeHTTP(w, r)
	})
}

// readyz reports whether this process should get calls: it is not shutting down, and Redis
// answers or some org's calls continue without it.
func (a *App) readyz(w http.ResponseWriter, r *http.Request) {
	if !a.ready.Load() {
		headerRules(a.Config()).RetryAfter(w.Header(), time.Second)
		http.Error(w, "shutting down", http.StatusServiceUnavailable)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), time.Second)
	defer cancel()
	err := a.rdb.Ping(ctx).Err()
	if lua.Full(err) { // with a full disk Redis does not answer pings
		_, _ = io.WriteString(w, "ready, but redis rejects writes because its disk is full: calls get 503 store_full\n")
		return
	}
	if on := a.withoutStore(); err != nil && len(on) > 0 {
		_, _ = fmt.Fprintf(w, "ready, but redis does not answer: only calls of %s are accepted, unchecked or within local "+
			"shares, and charged later\n",
			strings.Join(on, ", "))
		return
	}
	if err != nil {
		headerRules(a.Config()).RetryAfter(w.Header(), time.Second)
		http.Error(w, "redis does not answer", http.StatusServiceUnavailable)
		return
	}
	_, _ = io.WriteString(w, "ready\n")
}

// withoutStore lists the orgs whose live calls continue while Redis is unavailable.
func (a *App) withoutStore() []string {
	var out []string
	if a.callers == nil { // workers cannot work then
		return nil
	}
	for id, o := range a.guard.Policy().Orgs {
		if o.WithoutStore() {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}

// adminRead bounds how long an operator's request may take to arrive.
const adminRead = 5 * time.Second

// serveAdmin keeps serving until everything else has ended, so that the last metrics can be
// scraped and readiness reports the shutdown.
func (a *App) serveAdmin(ctx, background context.Context) error {
	srv := a.server(a.adminHandler(), adminRead)
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(a.admin) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		context.AfterFunc(background, func() { _ = srv.Close() })
		return nil
	}
}
