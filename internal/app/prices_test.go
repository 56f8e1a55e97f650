package app

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/redisconn/driver"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/pricing"
)

const minimal = `
listen: 127.0.0.1:0
admin: {listen: "127.0.0.1:0"}
providers: [{id: house, base_url: "http://127.0.0.1:1"}]
orgs: [{id: acme}]
`

func parse(t *testing.T, text string) *config.Config {
	t.Helper()
	cfg, err := config.Parse("llmguard.yaml", []byte(minimal+text), func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestConvertPrices(t *testing.T) {
	s, err := convert(parse(t, `
prices: [{model: house-7b, provider: house, prices: [{input: 1, output: 2}]}]
unknown_model_price: {max_output: 9, prices: [{input: 15, output: 75}]}
`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.policy.Catalogue.Lookup("house", "house-7b", time.Time{}); err != nil {
		t.Error(err)
	}
	if u := s.policy.UnknownPrice; u == nil || u.Model != config.UnknownModel || u.MaxOutput != 9 {
		t.Errorf("price of unknown models %+v", u)
	}
	if s, err = convert(parse(t, "")); err != nil || s.policy.UnknownPrice != nil {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestPricesAreMeasured(t *testing.T) {
	cfg := parse(t, `
prices: [{model: house-7b, as_of: 2020-01-01, prices: [{input: 1, output: 2}]}]
`)
	var logged bytes.Buffer
	rdb := driver.Open(driver.Single, driver.Options("127.0.0.1:1")) // no price metric needs it
	defer rdb.Close()
	a, err := New(Options{Config: cfg, Redis: redistest.DB(rdb), Roles: Worker, Log: slog.New(slog.NewTextHandler(&logged, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer a.admin.Close()
	if !strings.Contains(logged.String(), "oldest=2020-01-01") {
		t.Errorf("no warning of old prices in %q", logged.String())
	}
	w := httptest.NewRecorder()
	a.adminHandler().ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), http.MethodGet, "http://localhost/metrics", nil))
	for _, want := range []string{"\nllmguard_pricing_age_seconds ", "\nllmguard_pricing_models "} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("no %s among the metrics", want)
		}
	}
}

func TestWarnOldPrices(t *testing.T) {
	checked := time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)
	list, err := pricing.ParseEntries([]byte("[{model: m, as_of: 2026-10-01, prices: [{input: 1, output: 2}]}]"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := pricing.New("", list)
	if err != nil {
		t.Fatal(err)
	}
	for days, want := range map[int]bool{0: false, 90: false, 91: true, 400: true} {
		var logged strings.Builder
		warnOldPrices(c, checked.AddDate(0, 0, days), slog.New(slog.NewTextHandler(&logged, nil)))
		if got := logged.Len() > 0; got != want {
			t.Errorf("after %d days: %q", days, logged.String())
		}
	}
	warnOldPrices(new(pricing.Catalogue), checked, slog.New(slog.DiscardHandler))
}
