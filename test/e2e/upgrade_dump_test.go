package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/pricing"
)

// dumpBinary is the llmguard binary of the previous version, see docs/internals/testing.md.
var dumpBinary = flag.String("dump-binary", "", "llmguard binary that TestWriteUpgradeDump lets write the dump")

// upgradeData is named after the commit whose binary wrote it.
const upgradeData = "testdata/upgrade-053dd08"

// hooksAddr is the target of the dump's webhooks. Deliveries are found by URL, so the address
// must be the same when the dump is read.
const hooksAddr = "127.53.8.1:18053"

// upgradeConfig has very long retention and limits that never refill, so that the dump means
// the same years later. Loading it is like ending a long outage.
const upgradeConfig = `
store: {deadline: 10s, hold_lease: 3s}
files: {store: "${files}", ttl: 3650d}
queue:
  {lease: 3s, max_attempts: 20, result_ttl: 3650d, retry_for: 3650d, dead_ttl: 3650d, seal_keys: [{id: s1, secret: 0123456789abcdef0123456789abcdef}]}
webhooks: {allow_networks: [127.53.8.1/32], allow_http: [127.53.8.1], give_up: 30d}
conversations: {ttl: 3650d}
spend_caps: [{name: everybody, bucket: {capacity: $1000}}]
providers:
  - id: openai
    base_url: "${provider}"
    api_key: "${provider_key}"
    pools:
      - {id: small, models: [gpt-4o-mini], rpm: 600, tpm: 1000000, concurrency: 40, max_age: 3650d, worker_concurrency: 4}
      - {id: large, models: ["*"], max_age: 3650d}
orgs:
  - id: acme
    webhooks: [{url: "http://` + hooksAddr + `/acme", secrets: [whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw], events: [job.*, batch.*]}]
    limits:
      - {name: prepaid, bucket: {capacity: $50}}
      - {name: year, subject: user, amount: $40, window: 366d}
      - {name: exact, subject: user, metric: tokens, amount: 1000000, window: 1h, exact: true}
      - {name: month, subject: key, amount: $30, calendar: month}
      - {name: open, subject: user, metric: concurrency, amount: 50}
    users:
      - {id: alice, keys: [{id: k1, hash: "${key:alice}"}]}
  - id: tight
    limits: [{name: year, amount: $0.00004, window: 366d}]
    users:
      - {id: bob, keys: [{id: k2, hash: "${key:bob}"}]}
  - id: brief
    limits: [{name: few, metric: requests, amount: 1, window: 4m}]
    users:
      - {id: dave, keys: [{id: k3, hash: "${key:dave}"}]}
`

// upgradeDump describes a dump.
type upgradeDump struct {
	At time.Time `json:"at"`
	// Redis, Provider and Files are the addresses in the configuration.
	Redis    string            `json:"redis"`
	Provider string            `json:"provider"`
	Files    string            `json:"files"`
	Keys     map[string]string `json:"keys"` // API keys by user
	// Waiting are jobs that run as soon as there is a worker; Parked are jobs of an org over
	// its limit.
	Waiting    []string `json:"waiting"`
	Parked     []string `json:"parked"`
	Ended      string   `json:"ended"` // job id
	Result     string   `json:"result"`
	EndedBatch string   `json:"ended_batch"`
	Output     string   `json:"output"` // of the completed batch
	HalfBatch  string   `json:"half_batch"`
	Lines      int      `json:"lines"` // of the batch in progress
	Response   string   `json:"response"`
	Repeated   string   `json:"repeated"` // request with the Idempotency-Key "once"
	Answer     string   `json:"answer"`   // its response
	Ledger     []string `json:"ledger"`
	Limits     string   `json:"limits"` // alice's
	// Paid is what the provider has billed. UnderWay calls were in progress at the provider at
	// the end.
	Paid     pricing.Nano `json:"paid"`
	UnderWay int          `json:"under_way"`
}

// redisKey is a key of a dump, in the form of DUMP and RESTORE.
type redisKey struct {
	Key   string        `json:"key"`
	TTL   time.Duration `json:"ttl"` // at the time of the dump; 0: none
	Value []byte        `json:"value"`
}

// dumper fills a Redis with every kind of data.
type dumper struct {
	*stack
	upgradeDump
	p, w *process
}

// TestWriteUpgradeDump writes the dump that TestTakesOverThePreviousVersionsRedis reads.
func TestWriteUpgradeDump(t *testing.T) {
	if *dumpBinary == "" {
		t.Skip("no -dump-binary")
	}
	newUpgradeHooks(t, http.StatusInternalServerError)
	files := t.TempDir()
	d := &dumper{stack: newStack(t, fakeprovider.Options{}, strings.ReplaceAll(upgradeConfig, "${files}", files))}
	script, lines := d.dumpScript()
	d.fake.Script(script)
	d.Redis, d.Provider, d.Files, d.Keys = d.redis.Addr, d.fake.BaseURL(), files, d.keys
	d.p, d.w = d.startBinary(*dumpBinary, "serve"), d.startBinary(*dumpBinary, "worker")
	d.administer()
	d.finishCalls()
	d.finishBatch()
	d.leaveJobs()
	lines.Store(0) // the first two lines of the next batch are answered
	d.Lines = 8
	d.HalfBatch = d.batch(d.p, d.uploadLines(d.p, d.Lines, "half"))
	d.expireNever(d.HalfBatch)
	d.leaveCalls()
	d.note()
	d.w.kill()
	d.p.kill()
	d.save()
}

// dumpScript answers calls, unless their text says otherwise, and counts batch lines.
func (d *dumper) dumpScript() (func(*fakeprovider.Request) fakeprovider.Behaviour, *atomic.Int64) {
	done, lines := make(chan struct{}), &atomic.Int64{}
	d.t.Cleanup(func() { close(done) })
	return func(q *fakeprovider.Request) fakeprovider.Behaviour {
		switch {
		case strings.Contains(q.UserText, "[fails]"):
			return fakeprovider.Behaviour{Status: http.StatusInternalServerError}
		case strings.Contains(q.UserText, gated), strings.Contains(q.UserText, "half") && lines.Add(1) > 2:
			redistest.Came(d.t, done)
		}
		return fakeprovider.Behaviour{Fill: true}
	}, lines
}

func newUpgradeHooks(t *testing.T, status int) *hooks {
	t.Helper()
	var l net.Listener
	until(t, hooksAddr+" is free", func() (ok bool) {
		var err error
		l, err = net.Listen("tcp", hooksAddr)
		return err == nil
	})
	h := &hooks{}
	h.Server = &httptest.Server{Listener: l, Config: &http.Server{Handler: h.handler(t, status)}}
	h.Server.Start()
	t.Cleanup(h.Close)
	return h
}

func (d *dumper) run(args ...string) string {
	d.t.Helper()
	return d.runBinary(*dumpBinary, args...)
}

// administer creates records with the admin commands.
func (d *dumper) administer() {
	var made struct{ Secret, ID string }
	d.run("orgs", "create", "late", "--name", "Made while it ran")
	d.run("users", "create", "carol", "--org", "late")
	text := d.run("keys", "create", "--org", "late", "--user", "carol", "--scopes", "calls,jobs", "-o", "json")
	if err := json.Unmarshal([]byte(text), &made); err != nil || made.Secret == "" {
		d.t.Fatalf("no key: %v %s", err, text)
	}
	d.keys["carol"] = made.Secret
	d.run("limits", "set", "own", "--org", "late", "--subject", "user", "--capacity", "$3")
	d.run("limits", "set", "own", "--org", "late", "--user", "carol", "--capacity", "$2")
	d.run("limits", "override", "--org", "acme", "--limit", "prepaid", "--amount", "$60", "--until", "360d", "--reason", "launch")
	until(d.t, "the proxy knows carol's key", func() bool { return d.live("carol", "gpt-4o-mini", "hello").status == http.StatusOK })
}

func (d *dumper) live(user, model, text string, header ...string) answer {
	return post(d.p.URL+"/chat/completions", d.keys[user], chat(model, text, `"max_tokens":50`), header...)
}

func (d *dumper) job(user, text string) string {
	d.t.Helper()
	return submit(d.t, func() string { return d.p.URL }, d.keys[user], chat("gpt-4o-mini", text, `"max_tokens":50`)).ID
}

// finishCalls makes calls of each kind that complete.
func (d *dumper) finishCalls() {
	ok := func(a answer) string {
		d.t.Helper()
		if a.status != http.StatusOK || a.err != nil {
			d.t.Fatalf("%d %v %s", a.status, a.err, a.body)
		}
		return a.body
	}
	for i := range 3 {
		ok(d.live("alice", "gpt-4o", fmt.Sprint("call ", i)))
	}
	ok(d.live("bob", "gpt-4o-mini", "all that fits"))
	ok(d.live("dave", "gpt-4o-mini", "all that fits"))
	d.Repeated = chat("gpt-4o", "only once", `"max_tokens":50`)
	d.Answer = ok(post(d.p.URL+"/chat/completions", d.keys["alice"], d.Repeated, "Idempotency-Key", "once"))
	d.Response = ok(post(d.p.URL+"/responses", d.keys["alice"], `{"model":"gpt-4o-mini","input":"hi","max_output_tokens":20,"store":true}`))
	d.Ended = d.job("alice", "ends")
	if j := awaitJob(d.t, d.p.URL, d.keys["alice"], d.Ended, time.Minute); j.Status != "succeeded" {
		d.t.Fatalf("%+v", j)
	}
	d.Result = ok(get(d.p.URL+"/jobs/"+d.Ended+"/result", d.keys["alice"]))
}

func (d *dumper) finishBatch() {
	d.EndedBatch = d.batch(d.p, d.uploadLines(d.p, 3, "whole"))
	b := awaitBatch(d.t, goClient(d.p, d.keys["alice"]), d.EndedBatch)
	if b.Status != "completed" {
		d.t.Fatalf("%+v", b)
	}
	d.Output = get(d.p.URL+"/files/"+*b.OutputFileID+"/content", d.keys["alice"]).body
}

// expireNever moves the expiry of a batch, normally a day after its creation, ten years ahead.
// It is the only data in the dump that was not written by llmguard.
func (d *dumper) expireNever(id string) {
	at := time.Now().AddDate(10, 0, 0).Unix()
	if err := d.redis.Client().HSet(d.t.Context(), "lg:{"+id+"}:batch", "expires", at).Err(); err != nil {
		d.t.Fatal(err)
	}
}

// leaveJobs leaves jobs behind: two of an org over its limit, one that waits for its next
// attempt, one in progress.
func (d *dumper) leaveJobs() {
	d.Parked = []string{d.job("bob", "parked 1"), d.job("bob", "parked 2")}
	until(d.t, "jobs are parked", func() bool {
		c := d.redis.Client()
		return c.ZCard(d.t.Context(), "lg:{small}:parked").Val()+c.ZCard(d.t.Context(), "lg:{small}:shut").Val() > 0
	})
	failing := d.job("alice", "tried again [fails]")
	until(d.t, "an attempt has failed four times", func() bool {
		n := 0
		for _, r := range d.fake.Log() {
			if r.Status == http.StatusInternalServerError {
				n++
			}
		}
		return n >= 4
	})
	d.Waiting = append(d.Waiting, failing, d.job("alice", gated))
	until(d.t, "a job is at the provider", func() bool { return d.fake.Totals().InFlight == 1 })
}

// leaveCalls leaves live calls in progress, one of which waits for capacity, and jobs that the
// worker has no slot for.
func (d *dumper) leaveCalls() {
	until(d.t, "the worker has all the jobs it takes", func() bool { return d.fake.Totals().InFlight == 4 })
	for i := range 3 {
		d.Waiting = append(d.Waiting, d.job("alice", fmt.Sprint("waits ", i)))
	}
	go d.live("alice", "gpt-4o", "live"+gated)
	go post(d.p.URL+"/chat/completions", d.keys["alice"], chat("gpt-4o", "stream"+gated, `"max_tokens":50,"stream":true`))
	d.UnderWay = 6
	until(d.t, "all calls are at the provider", func() bool { return d.fake.Totals().InFlight == int64(d.UnderWay) })
	go d.live("dave", "gpt-4o-mini", "waits connected")
	until(d.t, "a caller waits", func() bool { return d.redis.Client().ZCard(d.t.Context(), "lg:{small}:present").Val() > 0 })
}

// note records what the previous version reports about all this.
func (d *dumper) note() {
	d.At = time.Now().UTC().Truncate(time.Second)
	until(d.t, "the ledger has all calls that ended", func() bool {
		d.Ledger = strings.Split(strings.TrimSpace(d.run("usage", "export", "--from", "1h")), "\n")
		return len(d.Ledger) == len(d.fake.Log())-d.UnderWay
	})
	d.Limits = standing(d.t, d.p, d.keys["alice"])
	d.Paid = bill(d.t, d.fake.Log())
}

// save writes the dump.
func (d *dumper) save() {
	d.t.Helper()
	check := func(err error) {
		if err != nil {
			d.t.Fatal(err)
		}
	}
	check(os.RemoveAll(upgradeData))
	check(os.MkdirAll(upgradeData, 0o755))
	check(os.CopyFS(filepath.Join(upgradeData, "files"), os.DirFS(d.Files)))
	text, err := os.ReadFile(d.path)
	check(err)
	check(os.WriteFile(filepath.Join(upgradeData, "llmguard.yaml"), text, 0o644))
	text, err = json.MarshalIndent(d.upgradeDump, "", "  ")
	check(err)
	check(os.WriteFile(filepath.Join(upgradeData, "expected.json"), append(text, '\n'), 0o644))
	check(os.WriteFile(filepath.Join(upgradeData, "redis.jsonl.gz"), d.readRedis(), 0o644))
}

// readRedis returns all keys, one JSON line each, compressed.
func (d *dumper) readRedis() []byte {
	ctx, c := d.t.Context(), d.redis.Client()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	lines := json.NewEncoder(zip)
	for keys := c.Scan(ctx, 0, "*", 100).Iterator(); keys.Next(ctx); {
		k := redisKey{Key: keys.Val(), TTL: max(0, c.PTTL(ctx, keys.Val()).Val())}
		value, err := c.Dump(ctx, k.Key).Result()
		if err != nil {
			d.t.Fatal(err)
		}
		k.Value = []byte(value)
		if err := lines.Encode(k); err != nil {
			d.t.Fatal(err)
		}
	}
	if err := zip.Close(); err != nil {
		d.t.Fatal(err)
	}
	return out.Bytes()
}
