package config

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

// reloadCase is a change of the file and its expected result.
type reloadCase struct{ text, changed, restart string }

func checkReload(t *testing.T, base string, cases []reloadCase) {
	t.Helper()
	running := read(t, base)
	for _, c := range cases {
		next := read(t, c.text)
		got := running.Reload(next)
		if !reflect.DeepEqual(running, read(t, base)) || !reflect.DeepEqual(next, read(t, c.text)) {
			t.Errorf("%s\nthe reload changed one of the two", c.text)
		}
		if changed := strings.Join(got.Changed, " "); changed != c.changed {
			t.Errorf("%s\nchanged: got %q, want %q", c.text, changed, c.changed)
		}
		if restart := strings.Join(got.NeedsRestart, " "); restart != c.restart {
			t.Errorf("%s\nneeds a restart: got %q, want %q", c.text, restart, c.restart)
		}
	}
}

func TestWhatAReloadTakes(t *testing.T) {
	hooks := "webhooks: [{url: \"https://a.example\", secrets: [whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw]}]"
	checkReload(t, "", []reloadCase{
		{"admin: {keys: [{id: root, hash: " + aHash + "}]}", "admin.keys", ""},
		{"auth: {peppers: [{id: p, secret: \"${PEPPER}\"}]}", "auth.peppers", ""},
		{"kill_switch: shadow", "kill_switch", ""},
		{"spend_caps: [{name: a, amount: $5, window: 1h}]", "spend_caps", ""},
		{"unknown_model_price: {max_output: 1, prices: [{input: 1, output: 2}]}", "unknown_model_price", ""},
		{"prices: [{model: m, prices: [{input: 1, output: 2}]}]", "prices", ""},
		{"providers: [{id: openai, base_url: \"https://b.example/v1\"}]", "providers", ""},
		{"orgs: [{id: acme, disabled: true}]", "orgs", ""},
		{"orgs: [{id: acme, " + hooks + "}]", "orgs", ""},
		{"queue: {seal_keys: [{id: a, secret: \"${PEPPER}\"}]}", "queue.seal_keys", ""},
		{"queue: {blob_above: 1MB}", "queue.blob_above", ""},
		{
			"queue: {org_share: 50, user_share: 50, memory_share: 50}",
			"queue.org_share queue.user_share queue.memory_share", "",
		},
		{
			"queue: {shares: {interactive: 1, async: 2, batch: 3}}",
			"queue.shares.interactive queue.shares.async queue.shares.batch", "",
		},
		{
			"queue: {max_attempts: 5, dead_letters: 5, dead_ttl: 1d}",
			"queue.max_attempts queue.dead_letters queue.dead_ttl", "",
		},
		{"conversations: {ttl: 1d, max_size: 2MB}", "conversations.ttl conversations.max_size", ""},
		{"alerts: {url: \"https://a.example/x\", thresholds: [80%]}", "alerts.url alerts.thresholds", ""},
		{"log: {level: debug}", "log.level", ""},
		// A change of what all orgs inherit changes them.
		{"store: {on_failure: allow, journal_dir: j}", "store.on_failure orgs", "store.journal_dir"},
	})
}

func TestWhatNeedsARestart(t *testing.T) {
	checkReload(t, "", []reloadCase{
		{"listen: 127.0.0.1:1", "", "listen"},
		{"admin: {listen: \"127.0.0.1:1\"}", "", "admin.listen"},
		{"redis: {addresses: [\"a:1\"], username: u, db: 3}", "", "redis.addresses redis.username redis.db"},
		{"redis: {url: \"redis://a\", prefix: \"staging:\"}", "", "redis.url redis.prefix"},
		{
			"redis: {addresses: [\"a:1\"], tls: {enabled: true, ca_file: ca.pem}}", "",
			"redis.addresses redis.tls.enabled redis.tls.ca_file",
		},
		{"trusted_proxies: [10.0.0.0/8]", "", "trusted_proxies"},
		{
			"requests: {max_body: 1MB, max_depth: 5, max_json_tokens: 5}", "",
			"requests.max_body requests.max_depth requests.max_json_tokens",
		},
		{"timeouts: {read_header: 1s, write: 1s, drain: 0s}", "", "timeouts.read_header timeouts.write timeouts.drain"},
		{
			"store: {local_share: 50%, deadline: 1s, journal_dir: j}", "",
			"store.local_share store.deadline store.journal_dir",
		},
		{"ledger: {export_dir: l, max_entries: 5}", "", "ledger.export_dir ledger.max_entries"},
		{"queue: {result_ttl: 1h, lease: 1s, hold: 1s}", "", "queue.result_ttl queue.lease queue.hold"},
		{"files: {store: d, max_file: 1MB}", "", "files.store files.max_file"},
		{"batches: {max_lines: 5, over_budget: refuse}", "", "batches.max_lines batches.over_budget"},
		{"webhooks: {allow_networks: [10.0.0.0/8], timeout: 1s}", "", "webhooks.allow_networks webhooks.timeout"},
		{"log: {format: text}", "", "log.format"},
		{"store: {hold_lease: 30s}\ntimeouts: {idle: 1s}\nbatches: {poll: 1s}", "", "timeouts.idle store.hold_lease batches.poll"},
		{"files: {store: d}\ncache: {store: files}\ntracing: {sample_ratio: 5%}", "", "files.store cache.store tracing.sample_ratio"},
		{"tracing: {endpoint: \"http://c:4318\", headers: {x-tenant: a}}", "", "tracing.endpoint tracing.headers"},
	})
}

// TestReloadComparesMeaning: only changes of meaning count, not comments, order or spelling.
func TestReloadComparesMeaning(t *testing.T) {
	checkReload(t, "queue: {dead_ttl: 7d}\nprices:\n  - {model: m, prices: [{input: 1, output: 2}]}\n", []reloadCase{
		{"\n# new\nprices:\n  - {model: m, prices: [{input: 1, output: 2}]}\nqueue: {dead_ttl: 168h}\n", "", ""},
		{"prices:\n  - {model: m, prices: [{input: 1, output: 2}]}\n", "", ""},
		{"x-note: [1]\nprices:\n  - {model: m, prices: [{input: 1, output: 2}]}\n", "", ""},
		{"prices:\n  - {model: m, prices: [{input: 1, output: 3}]}\n", "prices", ""},
		{"", "prices", ""},
	})
}

// TestReloadMerges: the result keeps the fields that need a restart and takes all others. The sum
// is that of the new file, so that a later reload compares with it.
func TestReloadMerges(t *testing.T) {
	running := read(t, "listen: 127.0.0.1:1\nlog: {level: info, format: json}\n")
	next := read(t, "listen: 127.0.0.1:2\nlog: {level: warn, format: text}\norgs: [{id: globex}]\n")
	got := running.Reload(next).Config
	if got.Listen != "127.0.0.1:1" || got.Log != (Log{Level: "warn", Format: "json"}) ||
		got.Orgs[0].ID != "globex" {
		t.Errorf("got %s, %+v, %s", got.Listen, got.Log, got.Orgs[0].ID)
	}
	if got.Sum != next.Sum {
		t.Error("got the sum of the old file, want that of the new one")
	}
	if again := got.Reload(next); len(again.Changed) != 0 || !slices.Equal(again.NeedsRestart, []string{
		"listen",
		"log.format",
	}) {
		t.Errorf("a second time: got %v and %v, want nothing changed, listen and log.format to restart",
			again.Changed, again.NeedsRestart)
	}
}
