package diagnose

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/providers"
)

func policyOf(t *testing.T, base string) *guard.Policy {
	t.Helper()
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	set, err := providers.NewSet([]*providers.Provider{{
		ID: "openai", BaseURL: u, APIKey: "sk-canary", Pools: []providers.Pool{{ID: "p", Models: []string{"gpt-*", "odd-*"}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(set.Close)
	catalogue, err := pricing.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	return &guard.Policy{Providers: set, Catalogue: catalogue}
}

func upstreams(ctx context.Context, policy *guard.Policy) []Finding {
	var r Report
	Upstreams(ctx, &r, policy)
	return r.Findings
}

func TestUpstreams(t *testing.T) {
	f := func(level Level, want string, answer http.HandlerFunc) {
		t.Helper()
		srv := httptest.NewServer(answer)
		defer srv.Close()
		found := upstreams(t.Context(), policyOf(t, srv.URL+"/v1"))
		text := fmt.Sprint(found)
		if len(found) == 0 || found[0].Level != level || !strings.Contains(text, want) {
			t.Errorf("got %s, want %s %q", text, level, want)
		}
		if strings.Contains(text, "canary") {
			t.Errorf("the findings repeat a key: %s", text)
		}
	}
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "sk-canary", code) }
	}
	f(OK, "accepts the API key", func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.Path != "/v1/models" || r.Header.Get("Authorization") != "Bearer sk-canary" {
			t.Errorf("asked %s %s", r.Method, r.URL)
		}
		fmt.Fprint(w, `{"data":[{"id":"gpt-4o"},{"id":"llama-of-others"}]}`)
	})
	f(OK, "1 of its 2 models have no price, and calls to them are refused: odd-one", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"data":[{"id":"gpt-4o"},{"id":"odd-one"}]}`)
	})
	f(Error, "rejects the API key (status 401)", status(401))
	f(Error, "rejects the API key (status 403)", status(403))
	f(Warning, "does not list models (status 404)", status(404))
	f(Warning, "refuses requests right now", status(429))
	f(Error, "status 500", status(500))
	f(Warning, "clock is", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat))
		fmt.Fprint(w, `{"data":[]}`)
	})
	gone := httptest.NewServer(status(200))
	gone.Close()
	found := upstreams(t.Context(), policyOf(t, gone.URL))
	if len(found) != 1 || found[0].Level != Error || !strings.Contains(found[0].What, "connection refused") || found[0].Fix == "" {
		t.Errorf("nobody listens: %v", found)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if found := upstreams(ctx, policyOf(t, gone.URL)); len(found) != 1 || found[0].Level != Error {
		t.Errorf("cancelled: %v", found)
	}
}
