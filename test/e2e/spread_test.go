package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	openai "github.com/sashabaranov/go-openai"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
)

// spreadUsers is how many users the org of these tests has.
const spreadUsers = 12

// spreadStack is a stack whose org is spread over 16 parts, on a cluster of three masters.
func spreadStack(t *testing.T, more string) (*stack, *redistest.Group) {
	var users strings.Builder
	for i := range spreadUsers {
		fmt.Fprintf(&users, "      - {id: user%[1]d, keys: [{id: k%[1]d, hash: \"${key:user%[1]d}\"}]}\n", i)
	}
	s := newStack(t, fakeprovider.Options{}, `
providers:
  - {id: openai, base_url: "${provider}", api_key: "${provider_key}"}
orgs:
  - id: acme
    spread: 16
    limits: [{name: day, subject: user, amount: $1, window: 1d}]
    users:
`+users.String()+"store: {deadline: 10s, hold_lease: 10s}\n"+more)
	group := redistest.StartCluster(t, 3, 0)
	s.replace(fmt.Sprintf(`redis: {addresses: ["%s"]}`, s.redis.Addr),
		fmt.Sprintf(`redis: {mode: cluster, addresses: ["%s"]}`, group.Nodes[0].Addr))
	return s, group
}

// TestSpreadOrg: the money of one org is on all masters of a cluster. A killed proxy's open calls
// expire in their parts and are charged, calls in flight while the spread changes are charged once,
// and usage and ledger are complete.
func TestSpreadOrg(t *testing.T) {
	t.Parallel()
	s, group := spreadStack(t, "")
	rdb := group.Client()
	g := s.gate(nil)
	call := func(p *process, user int, text string) answer {
		return post(p.URL+"/chat/completions", s.keys[fmt.Sprintf("user%d", user)], chat("gpt-4o-mini", text, `"max_tokens":20`))
	}
	killed, proxy := s.proxy(), s.proxy()
	var lost sync.WaitGroup
	for user := range spreadUsers {
		lost.Go(func() { call(killed, user, gated) })
		g.awaitHeld()
	}
	killed.kill()
	redistest.Wait(t, lost.Wait)

	answered := 0
	var calls sync.WaitGroup
	statuses := make(chan answer, 4*spreadUsers)
	round := func() {
		for user := range spreadUsers {
			calls.Go(func() { statuses <- call(proxy, user, "hi") })
			answered++
		}
	}
	round()
	hash := s.rewrite(func(text string) string { return strings.Replace(text, "spread: 16", "spread: 4", 1) })
	round()
	proxy.hangUp()
	round()
	proxy.awaitValue("llmguard_config_hash", hash)
	round()
	redistest.Wait(t, calls.Wait)
	for range answered {
		if a := redistest.Came(t, statuses); a.err != nil || a.status != http.StatusOK {
			t.Errorf("status %d, %v: %s", a.status, a.err, a.body)
		}
	}

	begin, end := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	store := budget.New(redistest.DB(rdb), budget.Options{})
	var entries []ledger.Entry
	until(t, "the killed proxy's holds expired", func() bool {
		entries = nil
		err := store.Ledger.Entries(context.Background(), "acme", begin, end, func(e ledger.Entry) error {
			entries = append(entries, e)
			return nil
		})
		return err == nil && len(entries) >= answered+spreadUsers
	})
	kinds, ids, sum := map[string]int{}, map[string]bool{}, int64(0)
	for _, e := range entries {
		kinds[e.Kind]++
		ids[e.ID] = true
		sum += int64(e.Cost)
	}
	if kinds[ledger.KindSettle] != answered || kinds[ledger.KindExpire] != spreadUsers || len(ids) != len(entries) {
		t.Errorf("ledger: got %v of %d calls, want %d settled and %d expired", kinds, len(ids), answered, spreadUsers)
	}
	list, err := store.Ledger.Rollups(t.Context(), "acme", begin, end)
	var total ledger.Sums
	for i := range list {
		total.Add(list[i].Sums)
	}
	if err != nil || int64(total.Cost) != sum || total.Calls != int64(len(entries)) {
		t.Errorf("usage: got %d nano-USD of %d calls, %v; want %d of %d", total.Cost, total.Calls, err, sum, len(entries))
	}
	if lines := strings.Count(s.run("usage", "export", "--org", "acme", "--from", "1h"), "\n"); lines != len(entries) {
		t.Errorf("export: got %d lines, want %d", lines, len(entries))
	}
	wantOnAllMasters(t, group)
}

// TestSpreadJobs: jobs and the lines of a batch of a spread org are charged in their parts. Commands
// that connect to Redis directly read, correct and reset what the processes count.
func TestSpreadJobs(t *testing.T) {
	t.Parallel()
	s, group := spreadStack(t, fmt.Sprintf(`files: {store: %q}
queue: {seal_keys: [{id: s1, secret: 0123456789abcdef0123456789abcdef}]}
`, t.TempDir()))
	p := s.proxy()
	s.worker()
	s.keys["alice"] = s.keys["user3"] // of the batch
	var jobs [spreadUsers]string
	for user := range jobs {
		key := s.keys[fmt.Sprint("user", user)]
		jobs[user] = submit(t, func() string { return p.URL }, key, chat("gpt-4o-mini", "hi", `"max_tokens":20`)).ID
	}
	lines := strings.Repeat(`{"custom_id":"%d","method":"POST","url":"/v1/chat/completions","body":{"model":"gpt-4o-mini",`+
		`"max_tokens":5,"messages":[{"role":"user","content":"hi"}]}}`+"\n", 2)
	a := post(p.URL+"/batches", s.keys["alice"], fmt.Sprintf(`{"input_file_id":%q,"endpoint":"/v1/chat/completions",`+
		`"completion_window":"24h"}`, s.uploadText(p, fmt.Sprintf(lines, 1, 2))))
	want(t, "a batch", a, http.StatusOK, "")
	var b openai.Batch
	if err := json.Unmarshal([]byte(a.body), &b); err != nil {
		t.Fatal(err)
	}
	if b = s.awaitBatch(p, b.ID, func(b openai.Batch) bool { return terminal(b.Status) }); b.Status != "completed" {
		t.Fatalf("the batch is %s: %+v", b.Status, b.Errors)
	}
	for user, id := range jobs {
		p.awaitJob(s.keys[fmt.Sprint("user", user)], id)
	}

	spent := map[string]int64{}
	until(t, "all calls are in the ledger", func() bool {
		n := 0
		clear(spent)
		err := budget.New(redistest.DB(group.Client()), budget.Options{}).Ledger.Entries(context.Background(), "acme", time.Time{},
			time.Time{}, func(e ledger.Entry) error {
				n++
				spent[e.User] += int64(e.Cost)
				return nil
			})
		return err == nil && n == spreadUsers+2
	})
	wantUsed := func(what string, user int, want int64) {
		t.Helper()
		var list []struct{ Used int64 }
		text := s.run("limits", "get", "day", "--org", "acme", "--user", fmt.Sprint("user", user), "-o", "json")
		if err := json.Unmarshal([]byte(text), &list); err != nil || len(list) != 1 || list[0].Used != want {
			t.Errorf("%s: got %+v of user%d, %v; want %d", what, list, user, err, want)
		}
	}
	for user := range spreadUsers {
		wantUsed("after jobs and a batch", user, spent[fmt.Sprint("user", user)])
	}
	s.run("usage", "adjust", "--org", "acme", "--user", "user5", "--amount", "$0.25", "--limits", "--reason", "test")
	wantUsed("after a correction", 5, spent["user5"]+250_000_000)
	s.run("limits", "reset", "day", "--org", "acme", "--user", "user5", "--reason", "test")
	wantUsed("after a reset of one", 5, 0)
	s.run("limits", "reset", "--org", "acme", "--all", "--reason", "test", "--yes")
	for user := range spreadUsers {
		wantUsed("after a reset of all", user, 0)
	}
}

// wantOnAllMasters checks that every master has ledger entries of the org.
func wantOnAllMasters(t *testing.T, group *redistest.Group) {
	t.Helper()
	for _, n := range group.Nodes {
		c := redis.NewClient(&redis.Options{Addr: n.Addr})
		keys, err := c.Keys(t.Context(), "lg:{acme[#}]*ledger").Result()
		_ = c.Close()
		if err != nil || len(keys) == 0 {
			t.Errorf("the master %s has the ledgers %v, %v; want some", n.Addr, keys, err)
		}
	}
}
