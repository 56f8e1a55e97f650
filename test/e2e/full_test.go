package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/fakeprovider"
)

// maxmemory limits the memory of Redis.
func (s *stack) maxmemory(most string) {
	s.t.Helper()
	if err := s.redis.Client().ConfigSet(s.t.Context(), "maxmemory", most).Err(); err != nil {
		s.t.Fatal(err)
	}
}

// TestFullStoreDenies: a Redis that answers but is full, in memory or on disk, is not treated
// as unavailable. No call goes out, whatever on_store_failure is, and once there is space again
// everything works as before.
func TestFullStoreDenies(t *testing.T) {
	t.Parallel()
	for what, set := range map[string]func(s *stack, full bool){
		"memory": func(s *stack, full bool) { s.maxmemory(map[bool]string{true: "1", false: "0"}[full]) },
		"disk": func(s *stack, full bool) {
			if full {
				s.redis.FillDisk()
			} else {
				s.redis.FreeDisk()
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			fullStoreDenies(t, set)
		})
	}
}

func fullStoreDenies(t *testing.T, set func(s *stack, full bool)) {
	s := outage(t, `[{name: w, subject: user, amount: "$1", window: 1h}]`, "{id: openai}")
	p := s.proxy()
	body := chat("gpt-4o", "hi", `"max_tokens":5`)
	users := []string{"alice", "otto", "stan"}
	set(s, true)
	for range 5 {
		for _, user := range users {
			a := post(p.URL+"/chat/completions", s.keys[user], body)
			if _, code, _ := errorOf(t, a); a.status != http.StatusServiceUnavailable || code != "store_full" || a.header.Get("Retry-After") == "" {
				t.Errorf("%s: %d %s", user, a.status, a.body)
			}
		}
	}
	if n := s.fake.Totals().Requests; n != 0 {
		t.Errorf("%d calls reached the provider", n)
	}
	for _, mode := range []string{"deny", "local", "allow"} {
		if n := p.value(`llmguard_guard_store_away_orgs{mode="` + mode + `"}`); n != 0 {
			t.Errorf("the store counts as unavailable for %v orgs with %s", n, mode)
		}
	}
	set(s, false)
	for _, user := range users {
		if a := post(p.URL+"/chat/completions", s.keys[user], body); a.status != http.StatusOK || a.header.Get("X-Llmguard-Without-Store") != "" {
			t.Errorf("%s with room again: %d %s", user, a.status, a.body)
		}
	}
}

// TestAnswersOfOneOrgStopNobody: the responses of one org's jobs together exceed the memory of
// Redis. Calls and jobs of another org continue, and so do the org's own calls.
func TestAnswersOfOneOrgStopNobody(t *testing.T) {
	t.Parallel()
	s := newStack(t, fakeprovider.Options{}, `
providers:
  - {id: openai, base_url: "${provider}", api_key: "${provider_key}", pools: [{id: openai, worker_concurrency: 4}]}
orgs:
  - {id: acme, users: [{id: alice, keys: [{id: k1, hash: "${key:alice}"}]}], limits: [{name: w, amount: "$1", window: 1h}]}
  - {id: hog, users: [{id: hugo, keys: [{id: k2, hash: "${key:hugo}"}]}], limits: [{name: w, amount: "$1", window: 1h}]}
`)
	s.maxmemory("24mb")
	p := s.proxy()
	s.worker()
	vectors := `{"model":"text-embedding-3-large","input":["` + strings.Repeat(`x","`, 29) + `x"]}` // 30 vectors, ~60 KB
	var ids []string
	for range 16 {
		if a := post(p.URL+"/embeddings", s.keys["hugo"], vectors, "Prefer", "respond-async"); a.status == http.StatusAccepted {
			ids = append(ids, jobOf(t, a))
		}
	}
	if len(ids) == 0 {
		t.Fatal("no job was taken in")
	}
	done := func(user, id string) bool {
		return strings.Contains(get(p.URL+"/jobs/"+id, s.keys[user]).body, `"status":"succeeded"`)
	}
	until(t, "as many of its answers are kept as have room", func() bool {
		n := 0
		for _, id := range ids {
			if done("hugo", id) {
				n++
			}
		}
		return n >= 2
	})
	for range 10 {
		for _, user := range []string{"alice", "hugo"} {
			if a := post(p.URL+"/chat/completions", s.keys[user], chat("gpt-4o", "hi", `"max_tokens":5`)); a.status != http.StatusOK {
				t.Fatalf("%s: %d %s", user, a.status, a.body)
			}
		}
		a := post(p.URL+"/embeddings", s.keys["alice"], `{"model":"text-embedding-3-large","input":"x"}`, "Prefer", "respond-async")
		if a.status != http.StatusAccepted {
			t.Fatalf("alice's job: %d %s", a.status, a.body)
		}
		id := jobOf(t, a)
		until(t, "alice's job ends", func() bool { return done("alice", id) })
	}
	if used, most := s.info("memory", "used_memory"), s.info("memory", "maxmemory"); used > most*9/10 {
		t.Errorf("Redis has %d bytes of %d", used, most)
	}
}

// jobOf returns the id of the job in a response.
func jobOf(t *testing.T, a answer) string {
	t.Helper()
	var j struct{ ID string }
	if err := json.Unmarshal([]byte(a.body), &j); err != nil || j.ID == "" {
		t.Fatalf("no job: %d %s", a.status, a.body)
	}
	return j.ID
}

// TestKeptAnswersAreUnderTheQuota: responses kept for Idempotency-Keys count towards the org's
// quota in files.store. If one was not kept, a later request with its key reports that.
func TestKeptAnswersAreUnderTheQuota(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "files")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s := newStack(t, fakeprovider.Options{}, fmt.Sprintf("files: {store: %s, max_org_bytes: 1MB}\n", dir)+simple(`[{name: w, amount: "$1", window: 1h}]`))
	p := s.proxy()
	body := `{"model":"text-embedding-3-large","input":["a","b","c","d","e","f"]}` // about 360 KB
	call := func(key string) answer {
		return post(p.URL+"/embeddings", s.keys["alice"], body, "Idempotency-Key", key)
	}
	for i := range 8 {
		if a := call(fmt.Sprint(i)); a.status != http.StatusOK || len(a.body) < 200_000 {
			t.Fatalf("call %d: %d with %d bytes", i, a.status, len(a.body))
		}
	}
	again := func(key string) (a answer) { // its key is locked until the response is stored
		until(t, "call "+key+" is known", func() bool { a = call(key); return a.status != http.StatusConflict })
		return a
	}
	if a := again("0"); a.status != http.StatusOK || a.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the first one again: %d", a.status)
	}
	a := again("7")
	if _, code, _ := errorOf(t, a); a.status != http.StatusGone || code != "answer_not_kept" {
		t.Errorf("the last one again: %d %s", a.status, a.body)
	}
	if n := s.fake.Totals().Requests; n != 8 {
		t.Errorf("%d calls reached the provider, want 8", n)
	}
	var bytes int64
	err := filepath.Walk(dir, func(_ string, f os.FileInfo, err error) error {
		if err == nil && !f.IsDir() {
			bytes += f.Size()
		}
		return err
	})
	if err != nil || bytes > 1_000_000+10_000 {
		t.Errorf("%d bytes are in files.store under a quota of 1 MB, %v", bytes, err)
	}
}

// TestFullStoreTakesOrders: while Redis refuses writes for lack of memory, an operator can sign in to the
// console, and end, stop, reset, disable and delete there and on the command line.
func TestFullStoreTakesOrders(t *testing.T) {
	t.Parallel()
	s, admin, _ := consoleStack(t)
	p := s.proxy()
	for _, args := range [][]string{{"orgs", "create", "extra"}, {"users", "create", "eve"}, {"keys", "create", "e1", "--user", "eve"}, {"keys", "create", "e2", "--user", "eve"}} {
		if args[0] != "orgs" {
			args = append(args, "--org", "extra")
		}
		s.llmguard(args...)
	}
	var jobs, runs []string
	for range 2 {
		jobs = append(jobs, submit(t, func() string { return p.URL }, s.keys["alice"], chat("gpt-4o", "hi", oneCall)).ID)
		runs = append(runs, jobOf(t, post(p.URL+"/keys/children", s.keys["alice"], `{"amount":"$0.0001"}`)))
	}
	until(t, "the proxy knows the key", func() bool {
		return strings.Contains(s.llmguard("keys", "list", "--org", "extra"), "e2")
	})
	s.maxmemory("1")
	if out, err := s.try("doctor"); err == nil || !strings.Contains(out, "redis has no memory left") {
		t.Errorf("doctor does not name the cause: %v, %s", err, out)
	}
	b := newBrowser(t, p.Admin)
	b.signIn(admin)
	for _, one := range []struct {
		page, action string
		form         url.Values
	}{
		{"/console/jobs/acme/" + jobs[0], "cancel-job", url.Values{"org": {"acme"}, "job": {jobs[0]}}},
		{"/console/orgs/acme/runs", "end-run", url.Values{"org": {"acme"}, "run": {runs[0]}, "reason": {"x"}}},
		{"/console/orgs/extra/users/eve", "disable-key", url.Values{"org": {"extra"}, "key": {"e1"}}},
		{"/console/orgs/acme/users/alice", "reset-limit", url.Values{"org": {"acme"}, "limit": {"slow"}, "user": {"alice"}, "reason": {"x"}}},
	} {
		if status, text := b.act(one.page, one.action, one.form); status != http.StatusOK {
			t.Errorf("console: %s: status %d: %.600s", one.action, status, text)
		}
	}
	for _, line := range []string{
		"jobs cancel " + jobs[1], "runs end --org acme " + runs[1], "limits reset slow --org acme --user alice --reason x",
		"stop --org extra --reason x", "resume --org extra --reason x", "stop --reason x", "resume --reason x",
		"keys disable e2 --org extra", "keys delete e1 --org extra --yes", "users delete eve --org extra --yes",
		"orgs disable extra", "orgs delete extra --yes", "orgs disable acme",
	} {
		if out, err := s.try(strings.Fields(line)...); err != nil {
			t.Errorf("llmguard %s: %v, %s", line, err, out)
		}
	}
	for _, id := range jobs {
		if out := s.llmguard("jobs", "get", id); !strings.Contains(out, "cancelled") {
			t.Errorf("job %s: %s, want cancelled", id, out)
		}
	}
	until(t, "the org's key ends", func() bool { return get(p.URL+"/models", s.keys["alice"]).status == http.StatusUnauthorized })
}
