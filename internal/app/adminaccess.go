package app

import (
	"crypto/subtle"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/llmguard/llmguard/internal/auth"
	"github.com/llmguard/llmguard/internal/listen"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/providers"
)

// allowedHosts refuses requests for host names that a web page could have resolved to this
// listener. Probes of load balancers may use any name; they reveal nothing.
func (a *App) allowedHosts(next http.Handler) http.Handler {
	machine, _ := os.Hostname()
	own := []string{strings.ToLower(machine), listen.HostName(a.cfg.Admin.Listen)}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		probe := r.URL.Path == "/healthz" || r.URL.Path == "/readyz"
		name := listen.HostName(r.Host)
		if !probe && !listen.PrivateHost(name) && !slices.Contains(own, name) && !listed(a.Config().Admin.Hosts, name) {
			refuse(w, headerRules(a.Config()), &wire.Error{
				Status: http.StatusMisdirectedRequest, Type: "invalid_request_error", Code: "host_not_allowed",
				Message: fmt.Sprintf("The admin listener does not serve the host %.100q. Add it to admin.hosts in the "+
					"configuration", name),
			})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// listed reports whether a host matches one of the patterns.
func listed(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		return providers.Match(strings.ToLower(p), name)
	})
}

// metricsHandler serves the metrics, only with the token if one is configured.
func (a *App) metricsHandler() http.Handler {
	metrics := promhttp.HandlerFor(a.registry, promhttp.HandlerOpts{})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := a.Config().Admin.MetricsToken.Reveal()
		sent, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if token == "" || ok && subtle.ConstantTimeCompare([]byte(sent), []byte(token)) == 1 {
			metrics.ServeHTTP(w, r)
			return
		}
		if !a.failures.Attempt(r.Context(), peer(r), time.Now()) {
			e := wire.RateLimited("Too many requests with an incorrect token", auth.FailureRetryAfter)
			refuse(w, headerRules(a.Config()), e)
			return
		}
		e := wire.InvalidKey("Send admin.metrics_token of the configuration as `Authorization: Bearer TOKEN`")
		e.Header = http.Header{"Www-Authenticate": {"Bearer"}}
		refuse(w, headerRules(a.Config()), e)
	})
}

// peer returns the remote address of the connection.
func peer(r *http.Request) netip.Addr {
	a, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return a.Addr().Unmap()
}

// refuse answers with an error.
func refuse(w http.ResponseWriter, rules wire.HeaderRules, e *wire.Error) {
	h := w.Header()
	rules.Advise(h, e)
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(e.Status)
	_, _ = w.Write(append(e.JSON(), '\n'))
}
