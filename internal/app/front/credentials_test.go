package front_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/queue"
)

const ownSecret = "sk-acme-own-0123456789"

// sealed returns an App whose org acme has a credential of its own.
func sealed(t *testing.T) (*running, *operator) {
	t.Helper()
	return sealedWith(t, fakeprovider.Options{})
}

// sealedWith is sealed with other provider options.
func sealedWith(t *testing.T, provider fakeprovider.Options) (*running, *operator) {
	t.Helper()
	r := startWith(t, app.Proxy|app.Worker, "queue: {seal_keys: [{id: s1, secret: a-secret-of-16-characters}]}\n", provider)
	o := r.operator(t)
	o.ask(200, "PUT", "/orgs/acme/credentials/openai", `{"secret":"`+ownSecret+`"}`, nil)
	return r, o
}

// wantStatus makes a call with a key and requires its status.
func (r *running) wantStatus(t *testing.T, want int, key string, header ...string) {
	t.Helper()
	got, err := r.chat(key, small, header...)
	if err != nil || got.status != want {
		t.Errorf("a call: got status %d, %s, %v; want %d", got.status, got.body, err, want)
	}
}

// newCaller creates a user of another org, and returns its key.
func (o *operator) newCaller() string {
	o.t.Helper()
	o.ask(201, "POST", "/orgs", `{"id":"globex","over_limit":"refuse"}`, nil)
	o.ask(201, "POST", "/orgs/globex/users", `{"id":"gus"}`, nil)
	var made struct{ Secret string }
	o.ask(201, "POST", "/orgs/globex/keys", `{"user":"gus"}`, &made)
	return made.Secret
}

// withOwn counts the provider's requests that had the org's own credential.
func (r *running) withOwn() (n int) {
	for _, e := range r.fake.Log() {
		if e.Header.Get("Authorization") == "Bearer "+ownSecret {
			n++
		}
	}
	return n
}

// TestOwnCredential checks that an org's own credential is used for its calls and jobs, and
// for no other org's.
func TestOwnCredential(t *testing.T) {
	r, o := sealed(t)
	other := o.newCaller()
	r.wantStatus(t, 200, r.key)
	if got := r.withOwn(); got != 1 {
		t.Errorf("after acme's call: %d requests with its credential, want 1", got)
	}
	r.wantStatus(t, 200, other)
	if got := r.withOwn(); got != 1 {
		t.Errorf("after globex's call: %d requests with acme's credential, want 1", got)
	}
	r.wantStatus(t, 202, r.key, "Prefer", "respond-async")
	await(t, "acme's job uses its credential", func() bool { return r.withOwn() == 2 })
}

// TestOwnAccountTeachesOnlyItself checks that the limits and refusals of an org's own
// account affect only that org, and that its calls do not use up the deployment's quota.
func TestOwnAccountTeachesOnlyItself(t *testing.T) {
	r, o := sealedWith(t, fakeprovider.Options{
		Quota:    fakeprovider.Quota{RPM: 1000},
		KeyQuota: map[string]fakeprovider.Quota{ownSecret: {RPM: 2}},
	})
	other := o.newCaller()
	for range 5 { // the own account has room for two
		r.wantStatus(t, 202, r.key, "Prefer", "respond-async")
	}
	await(t, "the own account has refused, or its quota is learned", func() bool { return r.withOwn() >= 2 })
	for range 20 {
		r.wantStatus(t, 200, other)
	}
	limit := r.redis.Client().HGetAll(t.Context(), "lg:{openai@acme}:quota").Val()
	if len(limit) == 0 {
		t.Error("nothing is known of acme's own account, want its own quota")
	}
	if known := r.redis.Client().HGetAll(t.Context(), "lg:{openai}:quota").Val(); known["rn"] == "2" {
		t.Errorf("the deployment's pool has learned from acme's account: %v", known)
	}
}

// TestOwnPoolOutlivesItsCredential checks that jobs waiting in an org's own pool are found
// and run after its credential is removed and the process restarts.
func TestOwnPoolOutlivesItsCredential(t *testing.T) {
	r, o := sealed(t)
	var removed atomic.Bool
	r.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour {
		if removed.Load() {
			return fakeprovider.Behaviour{}
		}
		return fakeprovider.Behaviour{Status: http.StatusTooManyRequests, RetryAfter: "1"}
	})
	var ids []string
	for range 3 {
		got, err := r.chat(r.key, small, "Prefer", "respond-async")
		if err != nil || got.status != 202 {
			t.Fatalf("a job: %d, %v", got.status, err)
		}
		var job struct{ ID string }
		if err := json.Unmarshal([]byte(got.body), &job); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, job.ID)
	}
	o.ask(204, "DELETE", "/orgs/acme/credentials/openai", "", nil)
	removed.Store(true)
	q, err := queue.New(redistest.DB(r.rdb), []queue.Pool{{ID: "openai"}}, queue.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if _, err := q.Job(t.Context(), "acme", id); err != nil {
			t.Errorf("job %s as a process that just started sees it: %v", id, err)
		}
		if _, err := q.Job(t.Context(), "globex", id); !errors.Is(err, queue.ErrNotFound) {
			t.Errorf("job %s as another org sees it: %v, want ErrNotFound", id, err)
		}
	}
	if got := len(q.Pools()); got != 2 {
		t.Errorf("got %d pools, want the configured one and acme's", got)
	}
	for _, id := range ids {
		await(t, "job "+id+" ends", func() bool {
			j, err := q.Job(t.Context(), "acme", id)
			return err == nil && j.State == queue.Succeeded
		})
	}
}

// TestCredentialIsSealed checks that Redis never holds a credential in the clear.
func TestCredentialIsSealed(t *testing.T) {
	r, _ := sealed(t)
	rdb := r.redis.Client()
	kept := fmt.Sprint(rdb.HVals(t.Context(), "lg:{identity:}:records").Val(),
		rdb.XRange(t.Context(), "lg:{identity:}:audit", "-", "+").Val())
	for _, clear := range []string{ownSecret, base64.StdEncoding.EncodeToString([]byte(ownSecret))} {
		if strings.Contains(kept, clear) {
			t.Errorf("Redis has %q: %s", clear, kept)
		}
	}
	if !strings.Contains(kept, `"sealed"`) {
		t.Errorf("Redis has no sealed credential: %s", kept)
	}
}

// TestCredentialWithoutSealKey checks that a process that cannot decrypt an org's
// credential does not use the deployment's instead.
func TestCredentialWithoutSealKey(t *testing.T) {
	r, _ := sealed(t)
	without := *r.file
	without.Queue.SealKeys = nil
	without.Sum[0]++ // a file with other bytes
	r.file = &without
	_, err := r.Reload(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.wantStatus(t, 503, r.key)
	if got := len(r.fake.Log()); got != 0 {
		t.Errorf("%d requests reached the provider, want 0", got)
	}
}
