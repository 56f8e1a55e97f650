package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/fakeprovider"
)

// TestIdleProcessesAskLittle: an idle process sends Redis few commands, and no more with 48
// pools than with 3.
func TestIdleProcessesAskLittle(t *testing.T) {
	t.Parallel()
	const most, seconds = 20, 3 // every loop runs within three seconds, except those for leases
	for _, role := range []string{"serve", "worker"} {
		for _, pools := range []int{3, 48} {
			t.Run(fmt.Sprintf("%s with %d pools", role, pools), func(t *testing.T) {
				t.Parallel()
				s := newStack(t, fakeprovider.Options{}, manyPools(pools))
				s.start(role)
				rdb := redis.NewClient(&redis.Options{Addr: s.redis.Addr})
				defer rdb.Close()
				n, sent := 0, map[string]int(nil)
				// A slow machine takes long to start. A process that never becomes idle exceeds
				// the limit every time.
				for range 15 {
					n, sent = sentIn(t, rdb, seconds*time.Second)
					if n <= most*seconds {
						return
					}
				}
				t.Errorf("%d commands in %d s, want at most %d a second: %v", n, seconds, most, sent)
			})
		}
	}
}

// manyPools is a configuration with one org and n pools of one model each.
func manyPools(n int) string {
	var pools strings.Builder
	for i := range n {
		fmt.Fprintf(&pools, "      - {id: pool-%d, models: [\"model-%d-*\"]}\n", i, i)
	}
	return `
providers:
  - id: openai
    base_url: "${provider}"
    api_key: "${provider_key}"
    pools:
` + pools.String() + `
orgs:
  - id: acme
    webhooks: [{url: "https://hooks.example/llmguard", secrets: [whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw]}]
    limits: [{name: w, amount: $1000, window: 1h}]
    users: [{id: alice, keys: [{id: k1, hash: "${key:alice}"}]}]
`
}

// sentIn returns how many commands Redis executes within d, in total and by name.
func sentIn(t *testing.T, rdb *redis.Client, d time.Duration) (int, map[string]int) {
	t.Helper()
	before := commands(t, rdb)
	time.Sleep(d) // the duration is part of what is measured
	sent := commands(t, rdb)
	n := -1 // excludes the first INFO
	for name, count := range sent {
		sent[name] = count - before[name]
		n += sent[name]
	}
	return n, sent
}

// commands returns how many commands Redis has executed, by name, including those in scripts.
func commands(t *testing.T, rdb *redis.Client) map[string]int {
	t.Helper()
	text, err := rdb.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for line := range strings.Lines(text) {
		if name, rest, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls="); ok {
			number, _, _ := strings.Cut(rest, ",")
			counts[name], _ = strconv.Atoi(number)
		}
	}
	return counts
}
