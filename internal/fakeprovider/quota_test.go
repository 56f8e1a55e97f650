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
	m := &meter{quota: Quota{RPM: 4, TPM: 100, OTPM: 10}}
	t0 := time.Now()
	f := func(at time.Duration, tokens int64, wantRefused string, wantWait time.Duration) {
		t.Helper()
		v, refused := m.admit(t0.Add(at), tokens), ""
		if v.refused {
			refused = rates[v.rate].anthropic
		}
		if refused != wantRefused || v.wait != wantWait {
			t.Errorf("at %v: refused %q wait %v, want %q %v", at, refused, v.wait, wantRefused, wantWait)
		}
	}
	f(0, 60, "", 0)
	f(10*time.Second, 41, "input tokens", 50*time.Second)
	f(11*time.Second, 40, "", 0)
	m.generated(t0.Add(11*time.Second), 9)
	f(12*time.Second, 0, "", 0)
	f(13*time.Second, 0, "requests", 47*time.Second) // the rejected one counts
	f(time.Minute-1, 0, "requests", 10*time.Second+1)
	m.generated(t0.Add(71*time.Second), 10)
	f(80*time.Second, 0, "output tokens", 51*time.Second)
	f(131*time.Second, 100, "", 0)
}

// Brute force over the admitted requests: no minute holds more than the quota.
func TestQuotaNeverExceeded(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	m := &meter{quota: Quota{RPM: 20, TPM: 300}}
	var all []entry
	at := time.Now()
	for range 3000 {
		at = at.Add(time.Duration(rng.Int64N(int64(8 * time.Second))))
		tokens := rng.Int64N(40)
		if !m.admit(at, tokens).refused {
			all = append(all, entry{at, amounts{1, tokens}})
		}
	}
	for i, last := range all {
		requests, tokens := int64(0), int64(0)
		for j := i; j >= 0 && last.at.Sub(all[j].at) < time.Minute; j-- {
			requests += all[j].amounts[0]
			tokens += all[j].amounts[1]
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
	s := New(Options{Quota: Quota{TPM: 1000}, KeyQuota: map[string]Quota{"own": {RPM: 1}}})
	defer s.Close()
	t0 := time.Now()
	s.now = func() time.Time { return t0 }
	f := func(key, limit string, wantStatus int, wantHeader ...string) {
		t.Helper()
		body := `{"model":"m","max_tokens":` + limit + `,"messages":[{"role":"user","content":"12345678"}]}`
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer "+key)
		s.Handler().ServeHTTP(w, r)
		if w.Code != wantStatus {
			t.Fatalf("%s %s: status %d: %s", key, limit, w.Code, w.Body)
		}
		for _, h := range wantHeader {
			name, value, _ := strings.Cut(h, ": ")
			if got := w.Header().Get(name); got != value {
				t.Errorf("%s %s: header %s %q, want %q", key, limit, name, got, value)
			}
		}
	}
	f("k", "600", 200, "X-Ratelimit-Limit-Tokens: 1000", "X-Ratelimit-Remaining-Tokens: 400", "X-Ratelimit-Reset-Tokens: 1m0s")
	f("k", "600", 429, "Retry-After: 60", "X-Ratelimit-Remaining-Tokens: 400")
	f("k", "400", 200, "X-Ratelimit-Remaining-Tokens: 0")
	f("own", "5", 200, "X-Ratelimit-Limit-Requests: 1", "X-Ratelimit-Remaining-Requests: 0")
	f("own", "5", 429, "Retry-After: 60")
	got := s.Totals()
	if got.Outcomes[Limited] != 2 || s.Log()[1].Requested != 600 {
		t.Errorf("totals %+v", got)
	}
}
