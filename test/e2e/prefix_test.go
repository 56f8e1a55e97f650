package e2e

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	openai "github.com/sashabaranov/go-openai"

	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
)

// TestPrefix: deployments with different prefixes share one Redis and know nothing of each
// other, although their orgs and users have the same names.
func TestPrefix(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	testPrefix(t, fmt.Sprintf("addresses: [%q]", server.Addr), server)
}

// TestPrefixCluster is TestPrefix on a Redis Cluster.
func TestPrefixCluster(t *testing.T) {
	t.Parallel()
	group := redistest.StartCluster(t, 3, 0)
	testPrefix(t, fmt.Sprintf("mode: cluster, addresses: [%q]", group.Nodes[0].Addr), group.Nodes...)
}

func testPrefix(t *testing.T, connection string, servers ...*redistest.Server) {
	staging := newTenant(t, connection, "staging:")
	production := newTenant(t, connection, "eu/prod.")
	for _, d := range []*tenant{staging, production} {
		d.work()
	}
	// The two leave nothing outside their prefixes: neither keys nor channels.
	names := namesIn(t, servers)
	for _, d := range []*tenant{staging, production} {
		names = slices.DeleteFunc(names, func(name string) bool { return d.owns(name) })
	}
	if len(names) > 0 {
		t.Errorf("keys and channels without a prefix: %q", names)
	}
	plain := newTenant(t, connection, "")
	plain.work()
	staging.purge()
	names = namesIn(t, servers)
	for _, d := range []*tenant{staging, production, plain} {
		d.wantNames(names, d != staging)
	}
	for _, d := range []*tenant{production, plain} {
		if a := post(d.proxy.URL+"/chat/completions", d.leaver, d.body()); a.status != 200 {
			t.Errorf("%q: status %d after another deployment purged its org: %s", d.prefix, a.status, a.body)
		}
	}
}

// tenant is one of several deployments on a Redis.
type tenant struct {
	*stack
	prefix string
	proxy  *process
	hooks  *hooks
	leaver string // key of a user of org leaver
}

func newTenant(t *testing.T, connection, prefix string) *tenant {
	t.Helper()
	h := newHooks(t)
	_, port, err := net.SplitHostPort(h.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if prefix != "" {
		connection += fmt.Sprintf(", prefix: %q", prefix)
	}
	s := sharingStack(t, "{"+connection+"}", fakeprovider.Options{},
		fmt.Sprintf("files: {store: %q}", t.TempDir())+fmt.Sprintf(`
providers:
  - {id: openai, base_url: "${provider}", api_key: "${provider_key}"}
webhooks: {allow_networks: [127.0.0.1/32], allow_http: [localhost]}
orgs:
  - id: acme
    limits: [{name: small, subject: user, amount: $0.0006, window: 1h}]
    webhooks:
      - {url: "http://localhost:%[1]s/org", secrets: [%[2]s], events: [job.*, batch.*]}
    users:
      - {id: alice, keys: [{id: k1, hash: "${key:alice}"}]}
      - {id: bob, keys: [{id: k2, hash: "${key:bob}"}]}
      - {id: carol, keys: [{id: k3, hash: "${key:carol}"}]}
`, port, hookSecret))
	s.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour { return fakeprovider.Behaviour{Fill: true} })
	d := &tenant{stack: s, prefix: prefix, hooks: h}
	d.proxy = s.proxy()
	s.worker()
	return d
}

func (d *tenant) body() string { return chat("gpt-4o", "hi", oneCall) }

// work uses a limit, the queue, batches, webhooks, and changes at runtime.
func (d *tenant) work() {
	d.t.Helper()
	url := d.proxy.URL + "/chat/completions"
	if a := post(url, d.keys["alice"], d.body()); a.status != 200 {
		d.t.Fatalf("%q: first call has status %d: %s\n%s", d.prefix, a.status, a.body, d.proxy.log())
	}
	if a := post(url, d.keys["alice"], d.body()); a.status != 429 {
		d.t.Errorf("%q: second call has status %d, want 429: %s", d.prefix, a.status, a.body)
	}
	j := submit(d.t, func() string { return d.proxy.URL }, d.keys["bob"], d.body())
	if done := awaitJob(d.t, d.proxy.URL, d.keys["bob"], j.ID, time.Minute); done.Status != "succeeded" {
		d.t.Errorf("%q: job %+v", d.prefix, done)
	}
	d.hooks.await(d.t, time.Minute, j.ID, "/org", "job.succeeded")

	c := goClient(d.proxy, d.keys["carol"])
	req := openai.CreateBatchWithUploadFileRequest{Endpoint: openai.BatchEndpointChatCompletions, CompletionWindow: "24h"}
	req.AddChatCompletion("line", openai.ChatCompletionRequest{
		Model: openai.GPT4oMini, MaxTokens: 10, Messages: []openai.ChatCompletionMessage{{Role: "user", Content: "hello"}},
	})
	made, err := c.CreateBatchWithUploadFile(context.Background(), req)
	if err != nil {
		d.t.Fatal(err)
	}
	if b := awaitBatch(d.t, c, made.ID); b.Status != "completed" {
		d.t.Errorf("%q: batch %+v", d.prefix, b)
	}
	d.hooks.await(d.t, time.Minute, made.ID, "/org", "batch.completed")
	if n := len(d.hooks.got()); n != 2 {
		d.t.Errorf("%q: got %d webhooks, want 2: those of others may be among them", d.prefix, n)
	}

	d.run("orgs", "create", "leaver")
	d.run("users", "create", "lea", "--org", "leaver")
	d.leaver = strings.TrimSpace(d.run("keys", "create", "--org", "leaver", "--user", "lea", "-o", "json"))
	_, rest, _ := strings.Cut(d.leaver, `"secret":`)
	d.leaver = strings.Split(rest, `"`)[1]
	for range 100 {
		if a := post(url, d.leaver, d.body()); a.status == 200 {
			return
		}
		time.Sleep(100 * time.Millisecond) // until the proxy knows the key
	}
	d.t.Errorf("%q: a key made at runtime is not accepted", d.prefix)
}

// run runs a command that works on Redis itself.
func (d *tenant) run(args ...string) string {
	d.t.Helper()
	cmd := redistest.Command(d.t, binary, append(args, "-c", d.path)...)
	out, err := cmd.Output()
	if err != nil {
		d.t.Fatalf("%q: llmguard %s: %v\n%s", d.prefix, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (d *tenant) purge() {
	d.t.Helper()
	d.run("orgs", "disable", "leaver")
	d.run("orgs", "purge", "leaver", "--ledger", "--yes")
}

// owns reports whether a key or channel has the deployment's prefix.
func (d *tenant) owns(name string) bool {
	return strings.HasPrefix(name, d.prefix+"lg:") || strings.HasPrefix(name, d.prefix+"asynq:")
}

// wantNames checks that the deployment has keys of each kind, and those of org leaver only if
// it still exists.
func (d *tenant) wantNames(names []string, leaver bool) {
	d.t.Helper()
	for name, want := range map[string]bool{
		"lg:{acme}:ledger": true, "lg:{openai}:quota": true, "lg:{identity:}:audit": true, "lg:epoch": true,
		"asynq:queues": true, "lg:{leaver}:ledger": leaver,
	} {
		if got := slices.Contains(names, d.prefix+name); got != want {
			d.t.Errorf("%q: existence of %s is %v, want %v", d.prefix, name, got, want)
		}
	}
}

// namesIn returns all keys, and all channels with a subscriber.
func namesIn(t *testing.T, servers []*redistest.Server) (names []string) {
	t.Helper()
	for _, s := range servers {
		rdb := redis.NewClient(&redis.Options{Addr: s.Addr})
		defer rdb.Close()
		keys, err := rdb.Keys(t.Context(), "*").Result()
		if err != nil {
			t.Fatal(err)
		}
		channels, err := rdb.PubSubChannels(t.Context(), "*").Result()
		if err != nil {
			t.Fatal(err)
		}
		names = append(append(names, keys...), channels...)
	}
	return names
}
