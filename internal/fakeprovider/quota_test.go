package fakeprovider

import (
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestQuotaSteps(t *testing.T) {
	m := &meter{quota: Quota{RPM: 4, TPM: 100}.withDefaults()}
	t0 := time.Now()
	f := func(at time.Duration, tokens int64, wantRefused string, wantWait time.Duration) {
		t.Helper()
		v := m.admit(t0.Add(at), tokens)
		if v.refused != wantRefused || v.wait != wantWait {
			t.Errorf("at %v: refused %q wait %v, want %q %v", at, v.refused, v.wait, wantRefused, wantWait)
		}
	}
	f(0, 60, "", 0)
	f(10*time.Second, 41, "tokens per min (TPM)", 50*time.Second)
	f(11*time.Second, 40, "", 0)
	f(12*time.Second, 0, "", 0)
	f(13*time.Second, 0, "requests per min (RPM)", 47*time.Second) // the rejected one counts
	f(time.Minute-1, 0, "requests per min (RPM)", 10*time.Second+1)
	f(71*time.Second+1, 100, "", 0)
	if m.peakRequests != 3 || m.peakTokens != 100 {
		t.Errorf("peaks %d, %d; want 3, 100", m.peakRequests, m.peakTokens)
	}
}

// Brute force over the admitted requests: no window holds more than the quota.
func TestQuotaNeverExceeded(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	m := &meter{quota: Quota{RPM: 20, TPM: 300, FreeRefusal: true}.withDefaults()}
	type admitted struct {
		at     time.Duration
		tokens int64
	}
	var all []admitted
	t0, at := time.Now(), time.Duration(0)
	for range 3000 {
		at += time.Duration(rng.Int64N(int64(4 * time.Second)))
		tokens := rng.Int64N(40)
		if m.admit(t0.Add(at), tokens).refused == "" {
			all = append(all, admitted{at, tokens})
		}
	}
	for i, last := range all {
		requests, tokens := 0, int64(0)
		for j := i; j >= 0 && last.at-all[j].at < time.Minute; j-- {
			requests++
			tokens += all[j].tokens
		}
		if requests > 20 || tokens > 300 {
			t.Fatalf("the minute up to %v holds %d requests, %d tokens", last.at, requests, tokens)
		}
	}
	if len(all) < 500 {
		t.Errorf("only %d of 3000 admitted", len(all))
	}
}

func TestQuotaOverHTTP(t *testing.T) {
	s := New(Options{
		Quota:      Quota{TPM: 1000},
		ModelQuota: map[string]Quota{"own": {RPM: 1}},
	})
	defer s.Close()
	t0 := time.Now()
	s.now = func() time.Time { return t0 }
	f := func(model, limit string, wantStatus int, wantHeader ...string) {
		t.Helper()
		body := `{"model":"` + model + `","max_tokens":` + limit + `,"messages":[{"role":"user","content":"12345678"}]}`
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(body)))
		if w.Code != wantStatus {
			t.Fatalf("%s %s: status %d: %s", model, limit, w.Code, w.Body)
		}
		for _, h := range wantHeader {
			name, value, _ := strings.Cut(h, ": ")
			if got := w.Header().Get(name); got != value {
				t.Errorf("%s %s: header %s %q, want %q", model, limit, name, got, value)
			}
		}
	}
	f("m", "600", 200, "X-Ratelimit-Limit-Tokens: 1000", "X-Ratelimit-Remaining-Tokens: 400", "X-Ratelimit-Reset-Tokens: 1m0s")
	f("m", "600", 429, "Retry-After: 60", "X-Ratelimit-Remaining-Tokens: 400")
	f("m", "400", 200, "X-Ratelimit-Remaining-Tokens: 0")
	f("own", "5", 200, "X-Ratelimit-Limit-Requests: 1", "X-Ratelimit-Remaining-Requests: 0")
	f("own", "5", 429, "Retry-After: 60")
	got := s.Totals()
	if got.Outcomes[Limited] != 2 || got.PeakTokens != 1000 || s.Log()[1].Requested != 600 {
		t.Errorf("totals %+v", got)
	}
}
