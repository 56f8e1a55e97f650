// Package console implements the web console on the operators' listener. It shows the spend
// against every limit, waiting users and their waiting times, pools and their quota, jobs and
// batches, keys and limits.
//
// It reads the stores directly but makes no changes on its own: every change goes through the
// admin API, with the key the administrator signed in with, so that permissions and audit are
// the same as for the command line. Pages are rendered on the server; without JavaScript
// everything except charts and live updates works.
package console

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"net/netip"
	"runtime/debug"
	"slices"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/batch"
	"github.com/llmguard/llmguard/internal/diagnose"
	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/simulate"
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/queue"
)

// Path is the console's path on the operators' listener.
const Path = "/console/"

//go:embed assets templates
var files embed.FS

// Options configure a Console. Batches, TrustedProxies, Simulate, Redis, Log and Now may be nil; the others are
// required.
type Options struct {
	// API is the handler of the admin API, with its full paths.
	API http.Handler
	// Tenants returns the orgs in effect, and Policy the limits. Both are read-only.
	Tenants func() settings.Set
	Policy  func() *guard.Policy
	Budget  *budget.Store
	Queue   *queue.Queue
	// Pools returns the pools in effect.
	Pools   func() []queue.Pool
	Batches *batch.Store
	// TrustedProxies are trusted when X-Forwarded-Proto says that the browser's connection is
	// encrypted.
	TrustedProxies []netip.Prefix
	// Simulate returns the current policy for a simulation; nil disables what-if.
	Simulate func() (simulate.Policy, error)
	// Findings runs the checks.
	Findings func(context.Context) []diagnose.Finding
	// Stopped describes what spending is stopped, for a banner on every page.
	Stopped func(context.Context) []string
	// Snapshot returns the stops, fired brakes and limit requests, which the overview lists.
	Snapshot func() *tenants.Snapshot

	// Redis stores the sessions for all proxies; if nil, each process has its own.
	Redis redisconn.DB
	Log   *slog.Logger
	Now   func() time.Time // nil: time.Now
}

// orgs returns the ids of the orgs in effect.
func (o *Options) orgs() []string {
	var out []string
	for _, one := range o.Tenants().Orgs {
		out = append(out, one.ID)
	}
	slices.Sort(out)
	return out
}

// pendingRequests returns the limit requests that need a decision.
func (o *Options) pendingRequests() []tenants.RaiseRequest {
	return slices.DeleteFunc(o.Snapshot().RaiseRequests(""), func(r tenants.RaiseRequest) bool {
		return r.Status(o.Now()) != tenants.RaisePending
	})
}

// Console serves the pages below Path. It is safe for concurrent use.
type Console struct {
	o        Options
	mux      *http.ServeMux
	pages    *pages
	sessions *sessions
	history  *history
	calls    *callPage
	whatIf   *whatIfPage

	incidents *fresh[[]*incident]
	hours     *fresh[*hourly]
	flows     *fresh[map[string][]queue.Waiting]

	version string
}

// New returns a Console.
func New(o Options) (*Console, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	c := &Console{
		o: o, mux: http.NewServeMux(), pages: newPages(o.Now), sessions: newSessions(o.Redis, o.Now),
		history: newHistory(o.Budget, o.Now, o.Log),
	}
	c.calls, c.whatIf = &callPage{&c.o}, &whatIfPage{&c.o, make(chan struct{}, 1)}
	c.incidents = &fresh[[]*incident]{age: incidentsAge, get: c.findIncidents}
	c.flows = &fresh[map[string][]queue.Waiting]{age: flowAge, get: c.waiting}
	c.hours = &fresh[*hourly]{age: hoursAge, get: func(ctx context.Context) (*hourly, error) {
		return c.history.hourly(ctx, c.o.orgs())
	}}
	if info, ok := debug.ReadBuildInfo(); ok {
		c.version = info.Main.Version
	}
	return c, c.routes()
}

func (c *Console) routes() error {
	assets, err := fs.Sub(files, "assets")
	if err != nil {
		return err
	}
	c.mux.Handle("GET "+Path+"assets/", http.StripPrefix(Path+"assets/", cached(http.FileServerFS(assets))))
	c.mux.HandleFunc("GET "+Path+"login", c.loginPage)
	c.mux.HandleFunc("POST "+Path+"login", c.login)
	spending := spendPages{&c.o}
	for pattern, page := range map[string]func(*visit) error{
		"GET " + Path + "{$}":                          c.overview,
		"GET " + Path + "orgs/{org}":                   c.org,
		"GET " + Path + "orgs/{org}/what-if":           c.whatIf.show,
		"GET " + Path + "orgs/{org}/users/{user}":      c.user,
		"GET " + Path + "orgs/{org}/runs":              c.runList,
		"GET " + Path + "runs":                         c.runList,
		"GET " + Path + "queue":                        c.queuePage,
		"GET " + Path + "jobs":                         c.jobs,
		"GET " + Path + "jobs/{org}/{job}":             c.job,
		"GET " + Path + "batches":                      c.batches,
		"GET " + Path + "batches/{org}/{user}/{batch}": c.batch,
		"GET " + Path + "calls/{org}/{call}":           c.calls.show,
		"GET " + Path + "spend":                        spending.spend,
		"GET " + Path + "spend/export":                 spending.saveSpend,
		"GET " + Path + "calls":                        spending.searchCalls,
		"GET " + Path + "calls/export":                 spending.saveCalls,
		"GET " + Path + "search":                       c.search,
		"GET " + Path + "limit-requests":               c.limitRequests,
		"GET " + Path + "audit":                        c.audit,
		"POST " + Path + "act/{action}":                c.act,
		"POST " + Path + "logout":                      c.logout,
	} {
		c.mux.HandleFunc(pattern, c.signedIn(page))
	}
	c.mux.HandleFunc(Path, func(w http.ResponseWriter, r *http.Request) {
		v := &visit{Console: c, w: w, r: r, session: c.sessions.of(c.sent(r), r)}
		v.fail(http.StatusNotFound, "Check the address.")
	})
	return nil
}

// ServeHTTP serves one page.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy",
		"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "+
			"form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	c.mux.ServeHTTP(w, r)
}

// cached lets browsers cache static files for an hour.
func cached(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "private, max-age=3600")
		next.ServeHTTP(w, r)
	})
}

// visit is one request of a signed-in administrator. It is used by one goroutine.
type visit struct {
	*Console
	w       http.ResponseWriter
	r       *http.Request
	session *session
}

// errNotFound makes a page a 404.
var errNotFound = errors.New("console: not found")

// signedIn restricts a page to signed-in administrators.
func (c *Console) signedIn(page func(*visit) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v := &visit{Console: c, w: w, r: r, session: c.sessions.of(c.sent(r), r)}
		if v.session == nil || !v.stillWelcome() {
			http.Redirect(w, r, Path+"login?"+next(r), http.StatusSeeOther)
			return
		}
		switch err := page(v); {
		case errors.Is(err, errNotFound):
			v.fail(http.StatusNotFound, "It may have been deleted.")
		case err != nil:
			c.o.Log.Error("console page failed", "path", r.URL.Path, "err", err)
			c.o.Policy().Headers.RetryAfter(w.Header(), time.Second)
			v.fail(http.StatusServiceUnavailable,
				"Cannot read limits, jobs and spending: "+err.Error()+
					". Check that Redis is running, or run llmguard doctor.")
		}
	}
}

// fail renders an error page.
func (v *visit) fail(status int, text string) {
	title := map[int]string{
		http.StatusNotFound:           "Page not found",
		http.StatusServiceUnavailable: "Redis did not answer",
	}[status]
	v.w.WriteHeader(status)
	if err := v.pages.write(v, "error", cmp.Or(title, "Nothing was changed"), text); err != nil {
		v.o.Log.Error("console page write failed", "err", err)
	}
}
