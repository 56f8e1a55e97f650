package console

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/llmguard/llmguard/internal/redisconn"
)

// session is a signed-in administrator. The browser has only a random id for it.
type session struct {
	key   string // the administrator's
	Token string // required in every form
	began time.Time

	mu     sync.Mutex
	used   time.Time
	shared time.Time // last use written to Redis
	told   *done     // for the next page
}

const (
	sessionLife = 12 * time.Hour
	sessionIdle = time.Hour
	maxSessions = 1000
)

// sessions are stored in Redis for all proxies; this process caches those that it has seen.
type sessions struct {
	rdb redisconn.DB // nil: sessions are local to this process
	now func() time.Time
	mu  sync.Mutex
	all map[string]*session
}

func newSessions(rdb redisconn.DB, now func() time.Time) *sessions {
	return &sessions{rdb: rdb, now: now, all: map[string]*session{}}
}

// begin starts a session and returns the cookie's value.
func (s *sessions) begin(key string) (string, *session) {
	now := s.now()
	id, one := rand.Text()+rand.Text(), &session{key: key, Token: rand.Text(), began: now, used: now}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep(now)
	s.all[id] = one
	return id, one
}

// sweep removes expired sessions, and if there are too many, the one unused for longest.
func (s *sessions) sweep(now time.Time) {
	oldest, at := "", now
	for id, one := range s.all {
		switch used, over := one.lastUse(now); {
		case over:
			delete(s.all, id)
		case used.Before(at):
			oldest, at = id, used
		}
	}
	if len(s.all) >= maxSessions {
		delete(s.all, oldest)
	}
}

func (one *session) lastUse(now time.Time) (used time.Time, over bool) {
	one.mu.Lock()
	defer one.mu.Unlock()
	return one.used, now.Sub(one.began) > sessionLife || now.Sub(one.used) > sessionIdle
}

// of returns the session of a request's cookie, or nil.
func (s *sessions) of(id string, r *http.Request) *session {
	one := s.find(r.Context(), id)
	if one == nil {
		return nil
	}
	now := s.now()
	if _, over := one.lastUse(now); over {
		s.end(r.Context(), id)
		return nil
	}
	if r.Header.Get("X-Llmguard-Live") == "" { // an open page that refreshes itself does not extend the session
		one.mu.Lock()
		one.used = now
		one.mu.Unlock()
		if one.stale() {
			_ = s.share(r.Context(), id, one) // the next request tries again
		}
	}
	return one
}

// end ends a session at all proxies.
func (s *sessions) end(ctx context.Context, id string) {
	s.forget(id)
	if s.rdb == nil || id == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shareTime)
	defer cancel()
	_ = s.unshare(ctx, sharedKey(id)) // without Redis it expires when idle
}

func (s *sessions) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, id)
}

// stillWelcome checks with the API that the key is still valid, because a session ends with its
// administrator. Any response other than 200 ends it.
func (v *visit) stillWelcome() bool {
	if status, _ := v.ask(v.r.Context(), http.MethodGet, "/self", nil, nil); status == http.StatusOK {
		return true
	}
	v.drop()
	return false
}

// drop ends the visit's session.
func (v *visit) drop() {
	v.sessions.end(v.r.Context(), v.sent(v.r))
	cookie := v.cookie(v.r)
	cookie.MaxAge = -1
	http.SetCookie(v.w, cookie)
}

// next returns where to go after signing in.
func next(r *http.Request) string {
	if r.Method != http.MethodGet {
		return ""
	}
	return url.Values{"next": {r.URL.RequestURI()}}.Encode()
}

// nextOf returns a path within the console, whatever the request says.
func nextOf(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.IsAbs() || u.Host != "" || !strings.HasPrefix(u.Path, Path) || strings.HasPrefix(text, "//") ||
		strings.Contains(text, "\\") {
		return Path
	}
	return u.RequestURI()
}

type loginView struct{ Next, Problem string }

func (c *Console) loginPage(w http.ResponseWriter, r *http.Request) {
	c.showLogin(&visit{Console: c, w: w, r: r}, http.StatusOK, loginView{Next: nextOf(r.URL.Query().Get("next"))})
}

func (c *Console) showLogin(v *visit, status int, view loginView) {
	v.w.WriteHeader(status)
	if err := c.pages.write(v, "login", "Sign in", view); err != nil {
		c.o.Log.Error("console page write failed", "err", err)
	}
}

// login signs in with an administrator's key. The API checks the key and rate-limits wrong
// ones.
func (c *Console) login(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 4096)
	v := &visit{Console: c, w: w, r: r}
	view := loginView{Next: nextOf(r.PostFormValue("next"))}
	if !sameSite(r) {
		view.Problem = "This form came from another site."
		c.showLogin(v, http.StatusForbidden, view)
		return
	}
	v.session = &session{key: strings.TrimSpace(r.PostFormValue("key"))}
	status, answer := v.ask(r.Context(), http.MethodPost, "/session", nil, nil)
	if status != http.StatusOK {
		view.Problem = problem(answer, "The key was not accepted.")
		v.session = nil
		c.showLogin(v, status, view)
		return
	}
	id, one := c.sessions.begin(v.session.key)
	if err := c.sessions.share(r.Context(), id, one); err != nil {
		c.o.Log.Warn("console session limited to this process", "err", err)
	}
	cookie := c.cookie(r)
	cookie.Value, cookie.MaxAge = id, int(sessionLife/time.Second)
	http.SetCookie(w, cookie)
	http.Redirect(w, r, view.Next, http.StatusSeeOther)
}

func (c *Console) logout(v *visit) error {
	if !v.genuine() {
		v.fail(http.StatusForbidden, "This form is invalid or has expired. Go back and try again.")
		return nil
	}
	_, _ = v.ask(v.r.Context(), http.MethodDelete, "/session", nil, nil) // only for the audit; the session ends anyway
	v.drop()
	http.Redirect(v.w, v.r, Path+"login", http.StatusSeeOther)
	return nil
}

// genuine reports whether a form belongs to this session.
func (v *visit) genuine() bool {
	return sameSite(v.r) && subtle.ConstantTimeCompare([]byte(v.r.PostFormValue("token")), []byte(v.session.Token)) == 1
}

// sameSite rejects requests that a browser sends on behalf of another site.
func sameSite(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		return false
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && u.Host == r.Host
}

// problem returns the message of an API error.
func problem(answer []byte, otherwise string) string {
	var e struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(answer, &e) != nil || e.Error.Message == "" {
		return otherwise
	}
	return e.Error.Message
}
