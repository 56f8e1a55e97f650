package diagnose

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/llmguard/llmguard/budget/outage"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/providers"
)

const upstreamTime = 15 * time.Second

// Upstreams requests the list of models from every provider, which costs nothing. It checks
// that the provider responds and accepts the credential, that the clocks agree, and that the
// models in the pools have prices.
func Upstreams(ctx context.Context, r *Report, policy *guard.Policy) {
	all := policy.Providers.All()
	found := make([]Report, len(all))
	var wg sync.WaitGroup
	for i, p := range all {
		found[i].Area = "provider " + p.ID
		wg.Go(func() { upstream(ctx, &found[i], policy, p) })
	}
	wg.Wait()
	for _, one := range found {
		r.Findings = append(r.Findings, one.Findings...)
	}
}

func upstream(ctx context.Context, r *Report, policy *guard.Policy, p *providers.Provider) {
	ctx, cancel := context.WithTimeout(ctx, upstreamTime)
	defer cancel()
	asked := time.Now()
	resp, err := p.Send(ctx, providers.Request{Method: http.MethodGet, Path: "/models"})
	if err != nil {
		what, fix := unreachable(err)
		r.Add(Error, fmt.Sprintf("%s is unreachable: %s", p.BaseURL.Host, what), fix)
		return
	}
	defer resp.Body.Close()
	took := time.Since(asked).Round(time.Millisecond)
	if there, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		// The header has whole seconds, and caches in between make it older.
		if skew := outage.ClockSkew(asked.Add(-2*time.Second), time.Now().Add(time.Second), there); skew.Abs() > time.Minute {
			r.Add(Warning, fmt.Sprintf("its clock is %s ahead of this machine's", skew.Round(time.Second)),
				"Synchronize this machine's clock (NTP): prices and key expiry depend on it.")
		}
	}
	switch s := resp.StatusCode; {
	case s == http.StatusUnauthorized, s == http.StatusForbidden:
		r.Add(Error, fmt.Sprintf("it rejects the API key (status %d)", s),
			"Check that api_key is a key of this account and not revoked.")
	case s == http.StatusNotFound, s == http.StatusMethodNotAllowed:
		r.Add(Warning, fmt.Sprintf("it answers in %s, but does not list models (status %d), so the API key was not tested",
			took, s), "Check base_url: it ends with the version segment, such as https://api.openai.com/v1.")
	case s == http.StatusTooManyRequests:
		r.Add(Warning, "it answers, but refuses requests right now (status 429)", "Its quota is exhausted, by llmguard or "+
			"others.")
	case s >= 300:
		r.Add(Error, fmt.Sprintf("it answers with status %d", s), "Check base_url and the provider's status page.")
	default:
		listed(r, policy, p, resp.Body, took)
	}
}

func unreachable(err error) (what, fix string) {
	text := err.Error()
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer within " + upstreamTime.String(), "Check for a firewall or proxy in between. llmguard uses " +
			"HTTPS_PROXY if it is set."
	case strings.Contains(text, "no such host"):
		return "DNS lookup failed", "Check the spelling of base_url and the DNS settings of this machine."
	case strings.Contains(text, "connection refused"):
		return "connection refused", "Check that the server is running at base_url."
	case strings.Contains(text, "certificate"), strings.Contains(text, "tls:"):
		return text, "Check that the certificate is valid for this name and that this machine trusts its issuer."
	case strings.Contains(text, "server gave HTTP response to HTTPS client"):
		return "it speaks HTTP, not HTTPS", "Write http:// in base_url."
	}
	return text, "Check that this machine can reach it."
}

// listed checks for models that would be accepted but have no price.
func listed(r *Report, policy *guard.Policy, p *providers.Provider, body io.Reader, took time.Duration) {
	f := r.Add(OK, fmt.Sprintf("%s answers in %s and accepts the API key", p.BaseURL.Host, took), "")
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if json.NewDecoder(io.LimitReader(body, 8<<20)).Decode(&list) != nil || policy.UnknownPrice != nil {
		return
	}
	var without []string
	for _, m := range list.Data {
		var unknown *pricing.UnknownModelError
		_, err := policy.Catalogue.Lookup(p.ID, m.ID, time.Now())
		if errors.As(err, &unknown) && slices.ContainsFunc(p.Pools, func(pool providers.Pool) bool {
			return providers.MatchAny(pool.Models, m.ID)
		}) {
			without = append(without, m.ID)
		}
	}
	if len(without) > 0 {
		slices.Sort(without)
		text := strings.Join(without[:min(5, len(without))], ", ")
		if n := len(without) - 5; n > 0 {
			text += fmt.Sprintf(" and %d more", n)
		}
		f.What += fmt.Sprintf("; %d of its %d models have no price, and calls to them are refused: %s", len(without),
			len(list.Data), text)
		f.Fix = "If you need them, add prices or set unknown_model_price."
	}
}
