package admin_test

import (
	"context"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/tenants"
)

// between runs a function once, before the client's next script.
type between struct{ do func() }

func (b *between) DialHook(next redis.DialHook) redis.DialHook { return next }

func (b *between) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if do := b.do; do != nil && strings.HasPrefix(cmd.Name(), "eval") {
			b.do = nil
			do()
		}
		return next(ctx, cmd)
	}
}

func (b *between) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// If two clients change the same thing concurrently, the slower one is rejected, changes
// nothing, and succeeds when it reads again.
func TestChangedMeanwhile(t *testing.T) {
	for _, tc := range []struct{ method, path, body, other string }{
		{"PATCH", "/orgs/acme", `{"name":"slow"}`, "org acme acme"},
		{"DELETE", "/orgs/acme", "", "org acme acme"},
		{"PATCH", "/orgs/acme/users/alice", `{"name":"slow"}`, "user acme alice"},
		{"PATCH", "/orgs/acme/keys/k1", `{"name":"slow"}`, "key acme k1"},
		{"POST", "/orgs/acme/keys/k1/rotate", `{}`, "key acme k1"},
		{"DELETE", "/orgs/acme/keys/k1", "", "key acme k1"},
		{"PATCH", "/orgs/acme/limits/month", `{"mode":"off"}`, "limit acme month"},
		{"DELETE", "/orgs/acme/limits/month", "", "limit acme month"},
	} {
		d := deploy(t)
		hook := &between{}
		d.rdb.AddHook(hook)
		d.expect(200, "PATCH", "/orgs/acme", `{"name":"A"}`, "")
		d.expect(200, "PATCH", "/orgs/acme/users/alice", `{"name":"A"}`, "")
		d.expect(200, "PATCH", "/orgs/acme/keys/k1", `{"name":"A"}`, "")
		d.expect(200, "PATCH", "/orgs/acme/limits/month", `{"mode":"shadow"}`, "")
		direct := shared.Client()
		hook.do = func() {
			direct.HSet(t.Context(), "lg:{identity:}:records", tc.other, `{"name":"fast","mode":"off","user":"alice"}`)
		}
		d.refused(409, "changed_meanwhile", "", tc.method, tc.path, tc.body)
		want := 200
		if tc.method == "DELETE" {
			want = 204
		}
		d.expect(want, tc.method, tc.path, tc.body, "")
	}
}

// A removal is all or nothing: if one of several records changed meanwhile, none is removed.
func TestRemovalIsAllOrNothing(t *testing.T) {
	d := deploy(t)
	hook := &between{}
	d.rdb.AddHook(hook)
	d.globex()
	direct := shared.Client()
	hook.do = func() { direct.HSet(t.Context(), "lg:{identity:}:records", "user globex gus", `{"name":"fast"}`) }
	d.refused(409, "changed_meanwhile", "", "DELETE", "/orgs/globex", "")
	d.expect(200, "GET", "/orgs/globex", "", `{"users":1,"keys":1}`)
}

// While Redis is unavailable, cached data is still served, and requests that need Redis report
// that a change may have been made.
func TestRedisIsUnavailable(t *testing.T) {
	own := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: own.Addr, MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = rdb.Close() })
	d := &deployment{t: t, api: serve(t, fileText(), rdb), rdb: rdb, key: opsKey}
	d.expect(200, "PATCH", "/orgs/acme", `{"name":"Recorded"}`, "")
	own.Kill()
	d.expect(200, "GET", "/orgs/acme", "", `{"name":"Recorded"}`)
	d.expect(200, "GET", "/orgs", "", "")
	d.expect(200, "GET", "/orgs/acme/users", "", "")
	for _, tc := range []struct{ method, path, body string }{
		{"GET", "/audit", ""},
		{"GET", "/orgs/acme/keys", ""},
		{"GET", "/orgs/acme/limits", ""},
		{"GET", "/orgs/acme/usage", ""},
		{"GET", "/orgs/acme/unresolved", ""},
		{"GET", "/refusals", ""},
		{"GET", "/why/alice", ""},
		{"GET", "/why/job_puyzj01m7x3vb350ckcmq65wwmswwsz", ""},
		{"GET", "/why/01m7x425asv4hapb0hzey6k903", ""},
		{"GET", "/queue", ""},
		{"GET", "/queue/dead", ""},
		{"GET", "/jobs", ""},
		{"GET", "/jobs/job_puyzj01m7x3vb350ckcmq65wwmswwsz", ""},
		{"POST", "/jobs/job_puyzj01m7x3vb350ckcmq65wwmswwsz/replay", "{}"},
		{"GET", "/batches", ""},
		{"GET", "/webhooks/dead", ""},
		{"GET", "/top", ""},
		{"GET", "/calibration", ""},
		{"PATCH", "/orgs/acme", `{"name":"Late"}`},
		{"POST", "/orgs", `{"id":"globex"}`},
		{"DELETE", "/orgs/acme", ""},
	} {
		w := d.send(tc.method, tc.path, tc.body)
		if w.Code != 503 || w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), "may have been applied") {
			t.Errorf("%s %s: got %d %s, Retry-After %q; want 503 and a time", tc.method, tc.path, w.Code, w.Body,
				w.Header().Get("Retry-After"))
		}
		if strings.Contains(w.Body.String(), "127.0.0.1") {
			t.Errorf("%s %s: got the address of Redis in %s", tc.method, tc.path, w.Body)
		}
	}
	d.expect(200, "GET", "/orgs/acme", "", `{"name":"Recorded"}`)
}

// A record that cannot be parsed does not hide the others.
func TestRecordThatIsNotUnderstood(t *testing.T) {
	d := deploy(t)
	d.globex()
	d.commit(tenants.Ref{Kind: tenants.KindUser, Org: "globex", ID: "odd"}, "no object")
	d.commit(tenants.Ref{Kind: "robot", Org: "globex", ID: "r2"}, map[string]string{"of": "a newer version"})
	d.api = serve(t, fileText(), d.rdb)
	got := d.names("/orgs/globex/users", "id")
	if got != "gus" {
		t.Errorf("got the users %q, want gus", got)
	}
}
