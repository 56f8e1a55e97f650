package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/hostile"
	"github.com/llmguard/llmguard/internal/redistest"
)

// TestHostileTenants: three orgs occupy all the connections they can, with bodies that never
// arrive or never end and responses that they do not read. A fourth org is served as if it were
// alone, and memory stays within its bound. Latency is measured by `go -C bench run . hostile`.
func TestHostileTenants(t *testing.T) {
	t.Parallel()
	orgs := ""
	for _, org := range []string{"honest", "bad1", "bad2", "bad3"} {
		orgs += fmt.Sprintf(`
  - id: %[1]s
    limits: [{name: w, subject: org, amount: $1000, window: 1h}]
    users: [{id: %[1]s, keys: [{id: %[1]s, hash: "${key:%[1]s}"}]}]`, org)
	}
	s := newStack(t, fakeprovider.Options{}, `
memory: {bodies: 64MB, spool: 128MB}
connections: {total: 2000, per_address: 2000}
providers:
  - {id: openai, base_url: "${provider}", api_key: "${provider_key}"}
orgs:`+orgs+"\n")
	s.env = []string{"GOMEMLIMIT=300MiB"}
	p := s.proxy()
	call := func() int {
		return post(p.URL+"/chat/completions", s.keys["honest"], chat("gpt-4o", "hi", `"max_tokens":5`)).status
	}
	if status := call(); status != http.StatusOK {
		t.Fatalf("status %d before the attack", status)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var attack sync.WaitGroup
	defer redistest.Wait(t, attack.Wait)
	defer cancel()
	crowd := hostile.Crowd{Absent: either(36, 120), Unfinished: either(8, 32), Unread: either(6, 15), Size: 16_000_000}
	address := strings.TrimSuffix(strings.TrimPrefix(p.URL, "http://"), "/v1")
	for _, org := range []string{"bad1", "bad2", "bad3"} {
		attack.Go(func() { crowd.Attack(ctx, address, s.keys[org]) })
	}
	until(t, "the attack uses up what it can", func() bool {
		return p.value(`llmguard_spool_used_bytes{place="disk"}`) > 80_000_000
	})
	for n := range either(30, 300) {
		if status := call(); status != http.StatusOK {
			t.Errorf("call %d: status %d, want 200 as without the attack", n, status)
		}
	}
	t.Logf("%d kB of memory", p.rss())
	// The heap, at most twice the budget for bodies, and the memory of 500 connections.
	if rss := p.rss(); rss > 400_000 && !raceEnabled {
		t.Errorf("%d kB of memory are used", rss)
	}
}
