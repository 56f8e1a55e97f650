package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/pricing"
)

// takeover is a deployment on a dump of the previous version.
type takeover struct {
	*stack
	upgradeDump
	p    *process
	live int // calls made by this test
}

// TestTakesOverThePreviousVersionsRedis: the processes of the previous version were killed
// while working. With what they left in Redis, every job and line runs once, completed results
// are readable, keys and overrides apply, interrupted calls are charged what they held, and the
// ledger matches the bills of both providers. The dump keeps its timestamps, so this is an
// outage as long as the dump is old.
func TestTakesOverThePreviousVersionsRedis(t *testing.T) {
	t.Parallel()
	h := newUpgradeHooks(t, http.StatusOK)
	u := loadUpgrade(t)
	u.p = u.proxy()
	u.checkLimits()
	u.checkRead()
	u.checkKeys()
	u.worker()
	u.checkJobs()
	u.checkLedger()
	for _, id := range append(u.Waiting, u.Ended) {
		h.await(t, time.Minute, id, "/acme", "job.succeeded")
	}
	for _, id := range []string{u.EndedBatch, u.HalfBatch} {
		h.await(t, time.Minute, id, "/acme", "batch.completed")
	}
	u.checkKeysOfRedis()
}

// loadUpgrade loads the dump into a new Redis and adapts its configuration to the present
// addresses.
func loadUpgrade(t *testing.T) *takeover {
	t.Helper()
	u := &takeover{stack: newStack(t, fakeprovider.Options{}, "")}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(filepath.Join(upgradeData, "expected.json"))
	check(err)
	check(json.Unmarshal(text, &u.upgradeDump))
	u.keys, u.files = u.Keys, t.TempDir()
	check(os.CopyFS(u.files, os.DirFS(filepath.Join(upgradeData, "files"))))
	text, err = os.ReadFile(filepath.Join(upgradeData, "llmguard.yaml"))
	check(err)
	now := strings.NewReplacer(u.Redis, u.redis.Addr, u.Provider, u.fake.BaseURL(), u.Files, u.files)
	check(os.WriteFile(u.path, []byte(now.Replace(string(text))), 0o600))
	text, err = os.ReadFile(filepath.Join(upgradeData, "redis.jsonl.gz"))
	check(err)
	zip, err := gzip.NewReader(bytes.NewReader(text))
	check(err)
	c := u.redis.Client()
	for lines := json.NewDecoder(zip); lines.More(); {
		var k redisKey
		check(lines.Decode(&k))
		check(c.Restore(t.Context(), k.Key, k.TTL, string(k.Value)).Err())
	}
	u.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour { return fakeprovider.Behaviour{Fill: true} })
	return u
}

// checkLimits compares the usage with that before the upgrade. Interrupted calls are charged
// what they held.
func (u *takeover) checkLimits() {
	u.t.Helper()
	type limit struct {
		Limit        string
		Used, Amount int64
	}
	read := func(text string) map[string]limit {
		var list []limit
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			u.t.Fatal(err)
		}
		all := map[string]limit{}
		for _, l := range list {
			all[l.Limit] = l
		}
		return all
	}
	before := read(u.Limits)
	compare := func(when string) {
		u.t.Helper()
		now := read(standing(u.t, u.p, u.keys["alice"]))
		names := []string{"prepaid"}
		if time.Since(u.At) < 350*24*time.Hour { // after that the window has passed and the override has expired
			names = append(names, "year")
		} else {
			before["prepaid"] = limit{"prepaid", before["prepaid"].Used, 50e9}
		}
		for _, name := range names {
			if now[name] != before[name] || before[name].Used == 0 {
				u.t.Errorf("%s limit %s is %+v, and was %+v", when, name, now[name], before[name])
			}
		}
	}
	compare("at first")
	until(u.t, "calls of dead processes are ended", func() bool {
		time.Sleep(200 * time.Millisecond) // a key's rate limit is lower than the polling rate of until
		return read(standing(u.t, u.p, u.keys["alice"]))["open"].Used == 0
	})
	compare("when dead calls have ended")
}

// checkRead reads what had completed before the upgrade.
func (u *takeover) checkRead() {
	u.t.Helper()
	alice := u.keys["alice"]
	var b struct {
		Status string
		Output string `json:"output_file_id"`
	}
	if err := json.Unmarshal([]byte(get(u.p.URL+"/batches/"+u.EndedBatch, alice).body), &b); err != nil || b.Status != "completed" {
		u.t.Errorf("the ended batch: %+v %v", b, err)
	}
	for what, c := range map[string]struct {
		got  answer
		want string
	}{
		"the job's answer":   {get(u.p.URL+"/jobs/"+u.Ended+"/result", alice), u.Result},
		"the batch's output": {get(u.p.URL+"/files/"+b.Output+"/content", alice), u.Output},
		"the repeated call":  {post(u.p.URL+"/chat/completions", alice, u.Repeated, "Idempotency-Key", "once"), u.Answer},
	} {
		if c.got.status != http.StatusOK || c.got.body != c.want {
			u.t.Errorf("%s: %d %s\nwant %s", what, c.got.status, c.got.body, c.want)
		}
	}
	var response struct{ ID string }
	if err := json.Unmarshal([]byte(u.Response), &response); err != nil {
		u.t.Fatal(err)
	}
	get(u.p.URL+"/responses/"+response.ID, u.keys["bob"])
	get(u.p.URL+"/responses/"+response.ID, alice) // the provider is asked only for responses of the caller's org
	asked := 0
	for _, r := range u.fake.Log() {
		if strings.HasSuffix(r.Path, response.ID) {
			asked++
		}
	}
	if asked != 1 {
		u.t.Errorf("the provider was asked %d times for the response, want once, for its owner", asked)
	}
}

// checkKeys calls with the key of a user that was created by a command.
func (u *takeover) checkKeys() {
	u.t.Helper()
	u.live++
	a := post(u.p.URL+"/chat/completions", u.keys["carol"], chat("gpt-4o-mini", "hi", `"max_tokens":50`))
	if a.status != http.StatusOK {
		u.t.Errorf("carol's call: %d %s", a.status, a.body)
	}
	if a := get(u.p.URL+"/files", u.keys["carol"]); a.status != http.StatusForbidden {
		u.t.Errorf("carol's key is not for files: %d %s", a.status, a.body)
	}
	text := u.run("limits", "get", "own", "--org", "late", "--user", "carol", "-o", "json")
	if !strings.Contains(text, `"amount": 2000000000`) {
		u.t.Errorf("carol's limit: %s", text)
	}
}

// checkJobs waits for all jobs and lines. Jobs over the limit run once it is raised.
func (u *takeover) checkJobs() {
	u.t.Helper()
	ended := func(user string, ids []string) {
		u.t.Helper()
		for _, id := range ids {
			if j := awaitJob(u.t, u.p.URL, u.keys[user], id, time.Minute); j.Status != "succeeded" {
				u.t.Errorf("job %s ended as %s: %+v", id, j.Status, j.Error)
			}
		}
	}
	ended("alice", u.Waiting)
	u.run("limits", "set", "year", "--org", "tight", "--amount", "$1")
	ended("bob", u.Parked)
	b := awaitBatch(u.t, goClient(u.p, u.keys["alice"]), u.HalfBatch)
	if b.Status != "completed" || b.OutputFileID == nil || b.RequestCounts.Completed != u.Lines || b.RequestCounts.Total != u.Lines {
		u.t.Fatalf("the half done batch: %+v", b)
	}
	seen := map[string]bool{}
	if u.eachLine(u.t, u.p, *b.OutputFileID, seen); len(seen) != u.Lines {
		u.t.Errorf("%d results of %d lines", len(seen), u.Lines)
	}
	calls := 0
	for _, r := range u.fake.Log() {
		if r.Method == http.MethodPost {
			calls++
		}
	}
	// Two lines were answered before the upgrade.
	if want := len(u.Waiting) + len(u.Parked) + u.Lines - 2 + u.live; calls != want {
		u.t.Errorf("%d calls reached the provider, want %d", calls, want)
	}
}

// checkLedger compares the ledger with its earlier state and with the bills of both providers.
func (u *takeover) checkLedger() {
	u.t.Helper()
	paid, dead, entries := u.Paid+bill(u.t, u.fake.Log()), 0, map[string]map[string]any{}
	until(u.t, fmt.Sprintf("the ledger has %v and %d calls of dead processes", paid, u.UnderWay), func() bool {
		var sum pricing.Nano
		dead = 0
		for line := range strings.Lines(u.run("usage", "export", "--from", u.At.AddDate(0, 0, -1).Format(time.DateOnly))) {
			e := map[string]any{}
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				u.t.Fatal(err)
			}
			id, _ := e["ledger_id"].(string)
			entries[fmt.Sprint(e["org"], id)] = e
			if e["estimated"] != true {
				cost, _ := e["cost_nano"].(float64)
				sum += pricing.Nano(cost)
			}
			if e["kind"] == "expire" {
				dead++
			}
		}
		return sum == paid && dead == u.UnderWay
	})
	for _, line := range u.Ledger {
		old := map[string]any{}
		if err := json.Unmarshal([]byte(line), &old); err != nil {
			u.t.Fatal(err)
		}
		now := entries[fmt.Sprint(old["org"], old["ledger_id"])]
		for field, value := range old {
			if !reflect.DeepEqual(now[field], value) {
				u.t.Errorf("%s of an entry is %v, and was %v", field, now[field], value)
			}
		}
	}
}

var (
	// keyForms match the keys that may remain when all work has ended.
	keyForms = regexp.MustCompile(`^(asynq:.*|lg:(epoch|files:store|orgs|ledger-orgs|pools|seen|processes|\{(` +
		`[a-z]+\}:(batches:\w+|cost:\w+|done:\d+|endedbatches|epoch|file:[\w-]+|files:\w+|filesizes|holds|leases|jobs(:\w+)?|kept:\w+|l:.*|ledger|once:\w+|` +
		`openbatches(:\w+)?|owned:\w+|shadow_since|(sums|refusals)(-by-hour)?:\d+|refusals-of:\w+|refused|refused-at|` +
		`claimed|claims|due|fair|proc:\w+|quota|slots|size|ended|dead|(orgs|users|wait):(async|batch|interactive)|shut|parked|probes|present|cancels|turns|job:\w+|weights:.*)|` +
		`cap:deployment\}:(done:\d+|epoch|holds|leases|l:.*)|batch_\w+\}:(batch|lines|chunks)|batches\}:open|capacity\}:(ends|entries|sums)|` +
		`files\}:due|console:\}:.*|calib\}:.*|identity:\}:\w+|\w+\}:out:\d+))|.*servers.*)$`)
	// keysOfWork match keys that exist while there is work.
	keysOfWork = regexp.MustCompile(`(\}:(in|holds|leases|claims|claimed|present|parked|shut|cancels|probes|ended|open|lines|chunks|` +
		`wait:.*|retry|scheduled|pending|active)|small\}:due)$`)
)

// checkKeysOfRedis waits until all work is done, and looks for keys that this version would
// never delete.
func (u *takeover) checkKeysOfRedis() {
	u.t.Helper()
	c, ctx := u.redis.Client(), u.t.Context()
	var left []string
	for range 1500 {
		left = nil
		for _, key := range c.Keys(ctx, "*").Val() {
			if keysOfWork.MatchString(key) {
				left = append(left, key)
			} else if !keyForms.MatchString(key) {
				u.t.Errorf("a key of unknown form is left: %s", key)
			}
		}
		if len(left) == 0 || u.t.Failed() {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	u.t.Errorf("left: %v", left)
}
