package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
)

// TestRestrictionsOutliveLostData: Redis is emptied, or a replica takes over that does not have the last
// writes. A subject that a brake stopped, one that an operator stopped, a disabled key and an org whose
// spending is stopped stay refused at both proxies until they are released.
func TestRestrictionsOutliveLostData(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(t *testing.T, s *stack) (lost func()){
		"emptied": func(_ *testing.T, s *stack) func() { return s.redis.FlushAll },
		"an older replica": func(t *testing.T, s *stack) func() {
			rdb, older := s.redis.Client(), redistest.Start(t)
			follow := func(from, to *redis.Client, addr string) {
				host, port, _ := strings.Cut(addr, ":")
				if err := to.Do(t.Context(), "REPLICAOF", host, port).Err(); err != nil {
					t.Fatal(err)
				}
				redistest.Eventually(t, "the replica follows", func() bool {
					return strings.Contains(to.Info(t.Context(), "replication").Val(), "master_link_status:up")
				})
				if err := to.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err(); err != nil {
					t.Fatal(err)
				}
			}
			follow(rdb, older.Client(), s.redis.Addr)
			return func() { follow(older.Client(), rdb, older.Addr) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStack(t, fakeprovider.Options{}, `
providers:
  - {id: openai, base_url: "${provider}", api_key: "${provider_key}"}
brakes: [{name: many, by: user, when: {calls: {more_than: 3, window: 1h}}}]
orgs:
  - id: acme
    limits: [{name: open, metric: concurrency, subject: user, amount: 9}]
    users:
      - {id: alice, keys: [{id: k1, hash: "${key:alice}"}]}
      - {id: bob, keys: [{id: k2, hash: "${key:bob}"}]}
      - {id: carol, keys: [{id: k3, hash: "${key:carol}"}]}
      - {id: erin, keys: [{id: k5, hash: "${key:erin}"}]}
  - id: other
    limits: [{name: open, metric: concurrency, subject: user, amount: 9}]
    users: [{id: dave, keys: [{id: k4, hash: "${key:dave}"}]}]
`)
			proxies := []*process{s.proxy(), s.proxy()}
			call := func(p *process, user string) answer {
				return post(p.URL+"/chat/completions", s.keys[user], chat("gpt-4o", "hi", small))
			}
			want(t, "a call of another user", call(proxies[0], "erin"), 200, "")
			lost := lose(t, s)
			until(t, "fires", func() bool { return call(proxies[0], "alice").status == http.StatusForbidden })
			s.llmguard("brakes", "stop", "--org", "acme", "--brake", "many", "user=bob", "--reason", "test")
			s.llmguard("keys", "disable", "--org", "acme", "k3", "--reason", "test")
			s.llmguard("stop", "--org", "other", "--reason", "test")
			codes := map[string]int{"alice": 403, "bob": 403, "carol": 401, "dave": 403}
			for user, status := range codes {
				for _, p := range proxies {
					until(t, "refuses "+user, func() bool { return call(p, user).status == status })
				}
			}
			lost()
			rdb := s.redis.Client()
			until(t, "written again", func() bool {
				done := rdb.HLen(t.Context(), "lg:{identity:}:records").Val() == int64(len(codes))
				for user, status := range codes {
					for _, p := range proxies {
						if status == http.StatusUnauthorized { // wrong keys have a rate
							continue
						}
						if a := call(p, user); a.status != status && a.status < 500 {
							t.Fatalf("after the loss: a call of %s got %d %s, want %d", user, a.status, a.body, status)
						}
					}
				}
				return done
			})
			fresh := s.proxy()
			for user, status := range codes {
				if a := call(fresh, user); a.status != status {
					t.Errorf("at a new process: a call of %s got %d, want %d", user, a.status, status)
				}
			}
			want(t, "a call of another user after the loss", call(fresh, "erin"), 200, "")
			for _, user := range []string{"alice", "bob"} {
				s.llmguard("brakes", "release", "--org", "acme", "--brake", "many", "user="+user, "--reason", "test")
			}
			s.llmguard("keys", "enable", "--org", "acme", "k3", "--reason", "test")
			s.llmguard("resume", "--org", "other")
			for user := range codes {
				for _, p := range append(proxies, fresh) {
					until(t, "runs "+user, func() bool { return call(p, user).status == http.StatusOK })
				}
			}
		})
	}
}
