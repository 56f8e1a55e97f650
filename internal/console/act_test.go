package console_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/batch"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/storage/files"
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/queue"
)

// scene is a rig with a target for every action.
type scene struct {
	*rig
	job, dead *queue.Job
	batch     *batch.Batch
	override  string
	run       string
}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{rig: newRig(t, acme)}
	s.dead = s.put("acme", "alice", "gpt-4o")
	s.fail(s.dead)
	s.job = s.put("acme", "alice", "gpt-4o")
	s.batch = s.makeBatch("acme", "alice")
	until := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	made := s.ask("POST", "/orgs/acme/overrides", `{"limit":"month","add":"$1","until":"`+until+`","reason":"r"}`)
	var o struct{ ID string }
	s.must(json.Unmarshal([]byte(made), &o))
	s.override = o.ID
	s.run = s.newRun("k1", `{"amount":"$5","name":"nightly","labels":{"run":"nightly"}}`)
	return s
}

// fail runs a worker that fails the job for a reason other than its request.
func (r *rig) fail(j *queue.Job) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	broken := func(ctx context.Context, c *queue.Claim) queue.Verdict {
		err := c.Start(ctx)
		if err != nil {
			return queue.Verdict{Kind: queue.Requeue, Unused: true}
		}
		return queue.Verdict{
			Kind: queue.Fail, Status: http.StatusBadGateway,
			Error: &wire.Error{Status: http.StatusBadGateway, Message: "the provider is down"},
		}
	}
	var running sync.WaitGroup
	running.Go(func() { _ = r.queue.Run(ctx) })
	running.Go(func() {
		o := queue.WorkerOptions{Concurrency: map[string]int{"main": 1}, ShutdownTimeout: time.Second}
		_ = queue.NewWorker(r.queue, broken, o).Run(ctx)
	})
	for range 3000 {
		now, err := r.queue.Job(r.t.Context(), j.Org, j.ID)
		if err == nil && now.State == queue.Failed {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	cancel()
	redistest.Wait(r.t, running.Wait)
}

func (r *rig) makeBatch(org, user string) *batch.Batch {
	r.t.Helper()
	u, err := r.files.Begin(r.t.Context(), files.Owner{Org: org, User: user}, files.NewID())
	r.must(err)
	_, err = u.Write([]byte("{}\n"))
	r.must(err)
	f, err := u.Commit(r.t.Context(), "in.jsonl", files.Batch, 0)
	r.must(err)
	owner := batch.Owner{Org: org, User: user, Key: "k1"}
	b, err := r.batches.Create(r.t.Context(), batch.Request{Owner: owner, File: f, Endpoint: wire.ChatCompletions})
	r.must(err)
	return b
}

// forms returns all actions, with the fields of their forms.
func (s *scene) forms() map[string][]string {
	return map[string][]string{
		"cancel-job":   {"org", "acme", "job", s.job.ID},
		"replay-job":   {"job", s.dead.ID},
		"pause-pool":   {"pool", "main"},
		"resume-pool":  {"pool", "main"},
		"cancel-batch": {"org", "acme", "user", "alice", "batch", s.batch.ID},
		"create-key":   {"org", "acme", "user", "alice", "name", "ci", "reason", "why not"},
		"disable-key":  {"org", "acme", "key", "k1", "reason", "why not"},
		"enable-key":   {"org", "acme", "key", "k1", "reason", "why not"},
		"rotate-key":   {"org", "acme", "key", "k1", "overlap", "1h", "reason", "why not"},
		"raise-limit":  {"org", "acme", "user", "", "limit", "month", "add", "$200", "until", "1 hour", "reason", "why not"},
		"top-up-run":   {"org", "acme", "run", s.run, "add", "$1", "reason", "why not"},
		"end-run":      {"org", "acme", "run", s.run, "reason", "why not"},
		"end-override": {"org", "acme", "override", s.override, "reason", "why not"},
	}
}

// state returns everything that actions can change.
func (s *scene) state() string {
	s.t.Helper()
	ctx := s.t.Context()
	job, err := s.queue.Job(ctx, "acme", s.job.ID)
	s.must(err)
	dead, err := s.queue.Job(ctx, "acme", s.dead.ID)
	s.must(err)
	b, err := s.batches.Batch(ctx, "acme", "alice", s.batch.ID)
	s.must(err)
	return fmt.Sprint(job.State, dead.Replay, b.Status, s.changes(),
		len(s.rdb.HGetAll(ctx, "lg:{identity:}:records").Val()))
}

// homes are the pages that show what operations change, by the last part of the path that is listed here.
var homes = map[string]string{
	"{org}": "org", "{user}": "user", "keys": "user", "{key}": "user", "{limit}": "org", "overrides": "user", "{brake}": "org",
	"{override}": "org", "{run}": "runs", "{pool}": "queue", "{job}": "job", "{batch}": "batch", "{target}": "../incident_kinds.go",
	"{request}": "requests",
}

// Every page that calls an operation has a button that leads to it, on the page that shows what the operation changes.
func TestEveryActionHasAButton(t *testing.T) {
	read := func(name string) string {
		if !strings.HasSuffix(name, ".go") {
			name += ".html"
		}
		text, err := os.ReadFile("templates/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	parts := strings.Split(read("parts"), `{{define "`)
	for _, op := range admin.Operations() {
		home := ""
		for part := range strings.SplitSeq(op.Path, "/") {
			home = cmp.Or(homes[part], home)
		}
		for i := range op.Pages {
			text := read(home)
			for _, part := range parts {
				if name, _, _ := strings.Cut(part, `"`); strings.Contains(text, `{{template "`+name+`"`) {
					text += part
				}
			}
			if name := op.Pages[i].Path(&op); !strings.Contains(text, `"`+name+`"`) {
				t.Errorf("%s: %s has no button for %s", op.Name, home, name)
			}
		}
	}
}

// Every action is described and confirmed on a page of its own before it is done.
func TestActionsAreConfirmed(t *testing.T) {
	s := newScene(t)
	b := s.signedIn(opsKey)
	before := s.state()
	for name, fields := range s.forms() {
		a := b.act(name, false, fields...)
		if a.status != http.StatusOK || !strings.Contains(a.text, `name="confirm" value="yes"`) ||
			!strings.Contains(a.text, `action="/console/act/`+name+`"`) {
			t.Errorf("%s: got %d %s, want a page that asks", name, a.status, content(a.text))
		}
		for i := 0; i+1 < len(fields); i += 2 {
			if !strings.Contains(a.text, `name="`+fields[i]+`"`) {
				t.Errorf("%s: got no field %s in the page that asks", name, fields[i])
			}
		}
	}
	now := s.state()
	if now != before {
		t.Errorf("got %s, want %s: nothing was confirmed", now, before)
	}
}

// A form without the session's token does nothing, whoever sends it.
func TestForgedFormsDoNothing(t *testing.T) {
	s := newScene(t)
	b, other := s.signedIn(opsKey), s.signedIn(opsKey)
	before, token := s.state(), b.token()
	for name, fields := range s.forms() {
		form := url.Values{"confirm": {"yes"}}
		for i := 0; i+1 < len(fields); i += 2 {
			form.Set(fields[i], fields[i+1])
		}
		for what, tc := range map[string]struct {
			token  string
			change func(*http.Request)
		}{
			"no token":                   {"", func(*http.Request) {}},
			"a guessed token":            {"guessed", func(*http.Request) {}},
			"the token of another":       {other.token(), func(*http.Request) {}},
			"from another site":          {token, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }},
			"from another origin":        {token, func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }},
			"the token in the query":     {"", func(r *http.Request) { r.URL.RawQuery = "token=" + token }},
			"a form of another encoding": {token, func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }},
		} {
			form.Set("token", tc.token)
			a := b.post("/console/act/"+name, form, tc.change)
			if a.status != http.StatusForbidden {
				t.Errorf("%s with %s: got %d, want 403", name, what, a.status)
			}
		}
	}
	now := s.state()
	if now != before {
		t.Errorf("got %s, want %s: every form was forged", now, before)
	}
}

// A read-only administrator can see everything and change nothing.
func TestViewerDoesNothing(t *testing.T) {
	s := newScene(t)
	b := s.signedIn(viewerKey)
	before := s.state()
	for name, fields := range s.forms() {
		a := b.act(name, true, fields...)
		if a.status != http.StatusForbidden || !strings.Contains(a.text, "is read-only") ||
			!strings.Contains(a.text, `name="confirm"`) {
			t.Errorf("%s: got %d %s, want 403, why, and the form again", name, a.status, content(a.text))
		}
	}
	now := s.state()
	if now != before {
		t.Errorf("got %s, want %s", now, before)
	}
	b.has("/console/orgs/acme/users/alice", "k1", "daily")
}

var secret = regexp.MustCompile(`id="secret">(lg_[^<]+)<`)

// A new key is shown once, only to the session that created it.
func TestNewKeysAreShownOnce(t *testing.T) {
	s := newScene(t)
	b, other := s.signedIn(opsKey), s.signedIn(opsKey)
	for _, name := range []string{"create-key", "rotate-key"} {
		b.act(name, true, s.forms()[name]...)
		other.hasNot("/console/orgs/acme/users/alice", `id="secret"`)
		m := secret.FindStringSubmatch(b.page("/console/orgs/acme/users/alice"))
		if m == nil {
			t.Fatalf("%s: got no key", name)
		}
		class, err := keys.Check(m[1])
		if err != nil || class != keys.Live {
			t.Errorf("%s: got %q, %v, want a key of a caller", name, class, err)
		}
		b.hasNot("/console/orgs/acme/users/alice", m[1])
	}
}

// An override made in the console expires after the chosen time, and applies to the user on
// whose page it was made.
func TestChangeOfALimitUntilATime(t *testing.T) {
	s := newScene(t)
	b := s.signedIn(opsKey)
	for lasts, d := range map[string]time.Duration{
		"1 hour": time.Hour, "8 hours": 8 * time.Hour,
		"24 hours": 24 * time.Hour, "7 days": 7 * 24 * time.Hour,
	} {
		began := time.Now()
		b.act("raise-limit", true, "org", "acme", "user", "alice", "limit", "daily", "add", "-$5", "until", lasts, "reason",
			lasts)
		list, _, err := tenants.New(redistest.DB(s.rdb), tenants.Options{}).Audit(t.Context(),
			tenants.AuditFilter{Action: "limit.override"}, 1)
		s.must(err)
		var o tenants.Override
		_, err = tenants.New(redistest.DB(s.rdb), tenants.Options{}).Get(t.Context(),
			tenants.Ref{Kind: tenants.KindOverride, Org: "acme", ID: list[0].Target}, &o)
		s.must(err)
		if o.Only != "alice" || o.Add != -5*int64(dollar) || o.Until.Before(began.Add(d-time.Second)) ||
			o.Until.After(time.Now().Add(d)) {
			t.Errorf("%s: got %+v, want -$5 for alice until then", lasts, o)
		}
	}
	b.has("/console/orgs/acme/users/alice", "-$5.00", "8 hours")
	b.hasNot("/console/orgs/acme/users/bob", "-$5.00")
}

// After an action the browser is redirected to a page of the console, whatever the form says.
func TestActionsLeadBackToTheConsole(t *testing.T) {
	s := newScene(t)
	b := s.signedIn(opsKey)
	for back, want := range map[string]string{
		"/console/queue?x=1": "/console/queue?x=1", "https://evil.example/": "/console/",
		"//evil.example/console/": "/console/", "": "/console/",
		"/admin/v1/orgs": "/console/",
	} {
		form := url.Values{"token": {b.token()}, "back": {back}, "confirm": {"yes"}, "org": {"acme"}, "key": {"k1"}}
		got := b.post("/console/act/enable-key", form).header.Get("Location")
		if got != want {
			t.Errorf("back to %q: got %q, want %q", back, got, want)
		}
	}
}
