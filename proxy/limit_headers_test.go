package proxy

import (
	"errors"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/queue"
)

// reports checks the plain headers of an answer and returns the name of the limit and what is left.
func (a *answer) reports(t *testing.T, what string) (name string, left int64) {
	t.Helper()
	h := a.header
	limit, err1 := strconv.ParseInt(h.Get("X-RateLimit-Limit"), 10, 64)
	left, err2 := strconv.ParseInt(h.Get("X-RateLimit-Remaining"), 10, 64)
	reset, err3 := strconv.ParseInt(h.Get("X-RateLimit-Reset"), 10, 64)
	name = h.Get("X-RateLimit-Resource")
	if err := errors.Join(err1, err2, err3); err != nil || left < 0 || left > limit || reset < time.Now().Unix()-60 || name == "" {
		t.Errorf("%s: status %d, headers %v; want whole numbers, 0 to the limit, and a Unix time", what, a.status, h)
	}
	return name, left
}

// everyRoute calls each method of each route that needs a key.
func (r *rig) everyRoute(f func(what string, rt route, a answer)) {
	priced := calls(r.t)
	for pattern, rt := range r.proxy.routes {
		path := strings.ReplaceAll(pattern, "*", "x")
		if strings.HasSuffix(path, "/") {
			path += "x"
		}
		for _, method := range rt.methods {
			if rt.open {
				continue
			}
			body := [2]string{"", "application/json"}
			if rt.priced {
				body = priced[rt.name]
			}
			f(method+" "+pattern, rt, r.call(method, "/v1"+path, body[0], "Content-Type", body[1]))
		}
	}
}

// TestEveryRouteReportsItsLimit: every answer on every route with a key reports the limit that binds
// first: one of the org's, or the rate of free requests.
func TestEveryRouteReportsItsLimit(t *testing.T) {
	t.Parallel()
	r := newRig(t, queue.Pool{}, nil, window(roomy, time.Hour))
	r.org.OverLimit = "refuse"
	r.everyRoute(func(what string, rt route, a answer) {
		name, _ := a.reports(t, what)
		if paid := rt.priced && strings.HasPrefix(what, "POST "); paid && a.status == 200 && name != "w" || !paid && name == "w" {
			t.Errorf("%s: status %d, reports %s", what, a.status, name)
		}
	})
	if a := r.chat("{"); a.status == 400 {
		if name, _ := a.reports(t, "a bad request"); name != "free-requests" {
			t.Errorf("a bad request reports %s", name)
		}
	} else {
		t.Errorf("got status %d, want 400", a.status)
	}
}

// TestEveryRefusalReportsItsLimit: so do refusals, with nothing left.
func TestEveryRefusalReportsItsLimit(t *testing.T) {
	t.Parallel()
	once := budget.Limit{
		ID: "once", Subject: budget.Org, Metric: budget.Requests,
		Shape: budget.Shape{Kind: budget.ExactWindow, Amount: 1, Window: time.Hour},
	}
	r := newRig(t, queue.Pool{}, nil, once)
	r.org.OverLimit = "refuse"
	if a := r.chat(prompt("hi", `"max_tokens":5`)); a.status != 200 {
		t.Fatalf("got status %d, %s; want 200", a.status, a.body)
	}
	r.proxy.reads.exhaust()
	r.everyRoute(func(what string, rt route, a answer) {
		want, status := "free-requests", 429
		if rt.priced && strings.HasPrefix(what, "POST ") {
			want = "once"
		}
		if rt.name == "moderations" || rt.name == "responses.input_tokens" || rt.name == "messages.count_tokens" { // cost nothing
			want = "free-requests"
		}
		if rt.scope == holdScope { // the key does not have it
			want, status = "free-requests", 403
		}
		if name, left := a.reports(t, what); a.status != status || name != want || left != 0 {
			t.Errorf("%s: status %d, reports %s with %d left; want %d, %s, 0", what, a.status, name, left, status, want)
		}
	})
}

// obey changes the headers that answers have.
func (r *rig) obey(rules wire.HeaderRules) {
	policy := *r.guard.Policy()
	policy.Headers = rules
	r.guard.SetPolicy(&policy)
}

// TestWaitingReportsLimits: a stream that waited reports the limits while headers can be sent, and so
// do a job and its result, the latter the limit of the request that reads it.
func TestWaitingReportsLimits(t *testing.T) {
	t.Parallel()
	r := newRig(t, single, func(o *Options) { o.KeepAlive = 10 * time.Millisecond }, window(roomy, time.Hour))
	r.worker(nil)
	release := r.occupy()
	s := r.open(t.Context(), prompt("hi", streamed), "Prefer", "progress")
	open := answer{status: s.resp.StatusCode, header: s.resp.Header}
	if name, _ := open.reports(t, "a waiting stream"); name != "w" {
		t.Errorf("a waiting stream reports %s", name)
	}
	release()
	s.rest()
	a := r.chat(prompt("hi", `"max_tokens":5`), "Prefer", "respond-async")
	if name, _ := a.reports(t, "a 202"); a.status != 202 || name != "w" {
		t.Errorf("status %d reports %s", a.status, name)
	}
	a = r.chat(prompt("hi", streamed))
	if name, left := a.reports(t, "a stream"); a.status != 200 || name != "w" || left >= roomy/1000 {
		t.Errorf("status %d reports %s with %d left", a.status, name, left)
	}
}

// TestLimitStandards: the form is as configured, without a restart.
func TestLimitStandards(t *testing.T) {
	t.Parallel()
	r := newRig(t, queue.Pool{}, nil, window(roomy, time.Hour))
	item := regexp.MustCompile(`^"w";q=\d+;w=3600;qu="micro-usd"\n"w";r=\d+;t=\d+$`)
	free := regexp.MustCompile(`^"free-requests";q=500;w=5\n"free-requests";r=\d+;t=\d+$`)
	for _, c := range []struct {
		standard wire.Standard
		x, ietf  bool
	}{{wire.X, true, false}, {wire.IETF, false, true}, {wire.Both, true, true}, {wire.None, false, false}} {
		r.obey(wire.HeaderRules{Standard: c.standard})
		for form, a := range map[*regexp.Regexp]answer{
			item: r.chat(prompt("hi", `"max_tokens":5`)), free: r.call(http.MethodGet, "/v1/jobs", ""),
		} {
			fields := a.header.Get("RateLimit-Policy") + "\n" + a.header.Get("RateLimit")
			if form.MatchString(fields) != c.ietf || !c.ietf && fields != "\n" || (a.header.Get("X-RateLimit-Limit") != "") != c.x {
				t.Errorf("%s: headers %v", c.standard, a.header)
			}
		}
	}
}

// TestRefusedCallersSpread: 100 callers that one limit refuses are asked to return in several
// different seconds, none too early.
func TestRefusedCallersSpread(t *testing.T) {
	t.Parallel()
	r := newRig(t, queue.Pool{}, nil)
	r.obey(wire.HeaderRules{RetryJitter: 10})
	seen := map[string]int{}
	for range 100 {
		err := &guard.Refusal{ExceededError: &budget.ExceededError{Binding: budget.Status{LimitID: "w", Wait: 30 * time.Second}}}
		h := http.Header{}
		r.guard.Policy().Headers.Advise(h, r.proxy.refusal(err, nil))
		after, e := strconv.Atoi(h.Get("Retry-After"))
		if e != nil || after < 30 || after > 33 {
			t.Fatalf("headers %v, want 30 to 33", h)
		}
		seen[h.Get("Retry-After")]++
	}
	if len(seen) < 3 {
		t.Errorf("refused callers return after %v", seen)
	}
	r.proxy.reads.exhaust()
	if a := r.call(http.MethodGet, "/v1/jobs", ""); a.status != 429 || a.header.Get("Retry-After") == "" {
		t.Errorf("status %d, headers %v", a.status, a.header)
	}
}
