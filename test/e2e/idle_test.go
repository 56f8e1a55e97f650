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

// An idle process sends Redis few commands, and as many with 48 pools as with 3.
func TestIdleProcessesAskLittle(t *testing.T) {
	t.Parallel()
	const most, seconds = 20, 3 // all loops but those of leases run within three seconds
	for _, role := range []string{"serve", "worker"} {
		for _, pools := range []int{3, 48} {
			t.Run(fmt.Sprintf("%s with %d pools", role, pools), func(t *testing.T) {
				t.Parallel()
				s := newStack(t, fakeprovider.Options{}, manyPools(pools))
				s.start(role)
				rdb := redis.NewClient(&redis.Options{Addr: s.redis.Addr})
				defer rdb.Close()
				s.rest(rdb)
				before := commands(t, rdb)
				time.Sleep(seconds * time.Second) // what is counted is a rate
				n, sent := -1, commands(t, rdb)   // without the first look
				for name, count := range sent {
					sent[name] = count - before[name]
					n += sent[name]
				}
				if n > most*seconds {
					t.Errorf("%d commands in %d s, want at most %d a second: %v", n, seconds, most, sent)
				}
			})
		}
	}
}

// manyPools is a configuration of one org and as many pools of one model each.
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

// rest waits until a process that has just started has loaded what it needs.
func (s *stack) rest(rdb *redis.Client) {
	s.t.Helper()
	for range 30 {
		before := commands(s.t, rdb)
		time.Sleep(time.Second)
		if after := commands(s.t, rdb); after["script|load"] == before["script|load"] && after["subscribe"] == before["subscribe"] {
			return
		}
	}
}

// commands counts what Redis has executed, by command, those of scripts too.
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
