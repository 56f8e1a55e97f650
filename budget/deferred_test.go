package budget

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget/journal"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/redisconn/driver"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/pricing"
)

// journaled is the Store of one process, with a journal on disk.
type journaled struct {
	*Store
	journal *journal.Journal
}

func openJournaled(t *testing.T, server *redistest.Server, dir string, o Options) journaled {
	t.Helper()
	j, err := journal.Open(dir, journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	o.Journal = j
	rdb := driver.Open(driver.Single, driver.Options(server.Addr))
	t.Cleanup(func() { _ = rdb.Close() })
	return journaled{New(redistest.DB(rdb), o), j}
}

func (j journaled) replay(t *testing.T, left int) {
	t.Helper()
	if n, err := j.Deferred.Replay(t.Context()); n != left || left == 0 && err != nil {
		t.Fatalf("%d are left, want %d: %v", n, left, err)
	}
}

// dead leaves the journal as a killed process does: unlocked and without cleanup.
func (j journaled) dead(t *testing.T) {
	t.Helper()
	if err := j.journal.Close(); err != nil {
		t.Fatal(err)
	}
}

func (j journaled) take(t *testing.T, id string, most int64) *Hold {
	t.Helper()
	h, err := j.Hold(t.Context(), Terms{Limits: journalLimits, Call: ledger.Call{ID: id, Org: "acme", User: "ann", Model: "m"}, Max: cost(most), Expected: cost(most)})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

var journalLimits = []Limit{
	costLimit("hour", User, hour(1_000_000)),
	costLimit("purse", Org, Shape{Kind: Bucket, Amount: 1_000_000}),
	{ID: "par", Subject: Org, Metric: Concurrency, Shape: Shape{Kind: Concurrent, Amount: 100}},
}

// stands checks the use of the limits and the ledger's total.
func stands(t *testing.T, s *Store, want int64, entries int) {
	t.Helper()
	list, err := s.Peek(t.Context(), journalLimits, ledger.Call{Org: "acme", User: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	if list[0].Used != want || list[0].Held != 0 || list[1].Used != want || list[1].Held != 0 || list[2].Used != 0 {
		t.Errorf("limits stand at %+v, want %d", list, want)
	}
	sum, n := pricing.Nano(0), 0
	err = s.Ledger.Entries(t.Context(), "acme", time.Time{}, time.Time{}, func(e ledger.Entry) error {
		sum, n = sum+e.Cost, n+1
		return nil
	})
	if err != nil || int64(sum) != want || n != entries {
		t.Errorf("the ledger has %d in %d entries, want %d in %d: %v", sum, n, want, entries, err)
	}
}

// TestJournalOutlivesTheProcess: settles and voids that Redis did not accept are written by the
// next process, once, however often it restarts.
func TestJournalOutlivesTheProcess(t *testing.T) {
	server := redistest.Start(t, redistest.WithAOF(), redistest.WithArgs("--appendfsync", "always"))
	dir := t.TempDir()
	a := openJournaled(t, server, dir, Options{})
	settled, voided, lost := a.take(t, idAt(time.Now(), 1), 100), a.take(t, idAt(time.Now(), 2), 200), idAt(time.Now(), 3)
	_ = a.take(t, lost, 300)
	server.Kill()
	endings := []Settle{
		{settled, &Settlement{Actual: cost(60), Usage: pricing.Usage{Input: 5, Output: 7, Requests: 1}, Outcome: "completed", Status: 200}},
		{voided, nil},
		{Lost(ledger.Call{ID: lost, Org: "acme"}), nil},
	}
	for _, done := range a.SettleAll(t.Context(), endings) {
		if !errors.Is(done.Err, ErrUnavailable) {
			t.Fatalf("ended without a store: %+v", done)
		}
	}
	if err := a.Later(t.Context(), endings, func(Settle, Receipt) { t.Error("a dead process is told") }); err != nil {
		t.Fatal(err)
	}
	a.replay(t, 3) // Redis is unreachable
	a.dead(t)
	left, err := os.ReadFile(filepath.Join(dir, "settles-0.journal"))
	if err != nil || len(left) == 0 {
		t.Fatalf("the file has %d bytes: %v", len(left), err)
	}
	server.Restart()
	b := openJournaled(t, server, dir, Options{})
	b.replay(t, 0)
	stands(t, b.Store, 60, 1)
	b.dead(t)
	if err := os.WriteFile(filepath.Join(dir, "settles-0.journal"), left, 0o600); err != nil { // truncation undone by a crash
		t.Fatal(err)
	}
	c := openJournaled(t, server, dir, Options{})
	if n, _ := c.Deferred.Kept(); n != 3 {
		t.Fatalf("%d are found, want 3", n)
	}
	c.replay(t, 0)
	stands(t, c.Store, 60, 1)
}

// TestWrittenIsTold: the process is notified of each kept ending that is written, once.
func TestWrittenIsTold(t *testing.T) {
	server := redistest.Start(t)
	a := openJournaled(t, server, t.TempDir(), Options{})
	h := a.take(t, idAt(time.Now(), 1), 100)
	told := 0
	err := a.Later(t.Context(), []Settle{{h, &Settlement{Actual: cost(60)}}}, func(e Settle, r Receipt) {
		if told++; e.Hold.ID != h.ID || e.Hold.Statuses != nil || r.Charged != 60 || e.Settlement.Actual.Cost != 60 {
			t.Errorf("told of %+v, %+v", e, r)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		a.replay(t, 0)
	}
	if told != 1 {
		t.Errorf("told %d times", told)
	}
	stands(t, a.Store, 60, 1)
}

// TestJournalTooLate: an ending that comes after the horizon, when its outcome is no longer known,
// is listed for a person to decide.
func TestJournalTooLate(t *testing.T) {
	server := redistest.Start(t)
	dir := t.TempDir()
	a := openJournaled(t, server, dir, Options{Horizon: time.Minute})
	c := ledger.Call{ID: idAt(time.Now().Add(-time.Hour), 1), Org: "acme", User: "ann"}
	h := &Hold{ID: c.HoldID(), Call: c, Max: cost(100)}
	if err := a.Later(t.Context(), []Settle{{h, &Settlement{Actual: cost(60)}}}, nil); err != nil {
		t.Fatal(err)
	}
	a.dead(t)
	a = openJournaled(t, server, dir, Options{Horizon: time.Minute})
	a.replay(t, 0)
	stands(t, a.Store, 0, 0)
	list, err := a.Ledger.Reconcile(t.Context(), "acme", 10)
	if err != nil || len(list) != 1 || list[0].Cost != 60 || list[0].ID != c.ID {
		t.Errorf("listed %+v, %v", list, err)
	}
}

// TestJournalLongOutage: however long the store is down, a running process that keeps retrying
// charges what it admitted without the store.
func TestJournalLongOutage(t *testing.T) {
	a := openJournaled(t, redistest.Start(t), t.TempDir(), Options{Horizon: time.Minute})
	c := ledger.Call{ID: idAt(time.Now().Add(-time.Hour), 1), Org: "acme", User: "ann"}
	h := &Hold{ID: c.HoldID(), Call: c, Max: cost(100), At: time.Now().Add(-time.Hour), without: true}
	var err error
	if _, h.states, err = a.binder.bind(journalLimits, c); err != nil {
		t.Fatal(err)
	}
	if err := a.Later(t.Context(), []Settle{{h, &Settlement{Actual: cost(60)}}}, nil); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		a.replay(t, 0)
	}
	stands(t, a.Store, 60, 1)
}

// TestJournalInTrouble: when the disk is full, endings stay in memory; an unreadable record and one
// that Redis refuses do not stop the others.
func TestJournalInTrouble(t *testing.T) {
	server := redistest.Start(t)
	a := openJournaled(t, server, t.TempDir(), Options{})
	good, bad := a.take(t, idAt(time.Now(), 1), 100), idAt(time.Now(), 2)
	if err := a.journal.PutAll(t.Context(), []journal.Record{{ID: "noise", Data: []byte("{]")}}); err != nil {
		t.Fatal(err)
	}
	refused := Settle{Lost(ledger.Call{ID: bad, Org: "other"}), nil}
	if err := server.Client().Set(t.Context(), ledger.Key("other", chunkOf(refused.Hold.Call)), "no hash", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := a.Later(t.Context(), []Settle{refused, {good, &Settlement{Actual: cost(60)}}}, nil); err != nil {
		t.Fatal(err)
	}
	if n, err := a.Deferred.Replay(t.Context()); n != 2 || err != nil {
		t.Errorf("%d are left: %v", n, err)
	}
	stands(t, a.Store, 60, 1)
	a.dead(t)
	other := a.take(t, idAt(time.Now(), 3), 100)
	if err := a.Later(t.Context(), []Settle{{other, &Settlement{Actual: cost(5)}}}, nil); err != nil {
		t.Errorf("not kept in memory: %v", err)
	}
	if _, err := a.Deferred.Replay(t.Context()); err != nil {
		t.Error(err)
	}
	stands(t, a.Store, 65, 2)
}

// TestRunReplays: Run writes kept endings as soon as the store is back.
func TestRunReplays(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithAOF(), redistest.WithArgs("--appendfsync", "always"))
	a := openJournaled(t, server, t.TempDir(), Options{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	h := a.take(t, idAt(time.Now(), 1), 100)
	server.Kill()
	if err := a.Later(t.Context(), []Settle{{h, &Settlement{Actual: cost(60)}}}, nil); err != nil {
		t.Fatal(err)
	}
	server.Restart()
	redistest.Eventually(t, "all is written", func() bool { n, _ := a.Deferred.Kept(); return n == 0 })
	cancel()
	redistest.Came(t, ended)
	stands(t, a.Store, 60, 1)
}

// TestJournalFormat: journals of older versions stay readable forever.
func TestJournalFormat(t *testing.T) {
	const old = `{"call":{"id":"01jd0000000000000000000001","attempt":1,"org":"acme","user":"ann"},"max":{"Cost":100,"Tokens":9},` +
		`"at":"2026-11-20T10:00:00.000001Z","states":[{"Key":"l:hour:user-cost-w3600000000:ann","Kind":"w","Metric":"cost","P1":"60000000","P2":""}],` +
		`"settlement":{"Actual":{"Cost":60,"Tokens":12},"Usage":{"Input":5,"CachedInput":0,"CacheWrite":0,"CacheWrite1h":0,"AudioIn":0,"ImageIn":0,` +
		`"Output":7,"Reasoning":0,"AudioOut":0,"ImageOut":0,"Requests":1,"ToolCalls":0},"Split":{"Input":20,"CachedInput":0,"CacheWrite":0,"Output":40,"Fees":0},` +
		`"Estimated":true,"Outcome":"completed","Status":200,"UpstreamID":"req_1","ServiceTier":"flex","Waited":1000000,"Took":2000000}}`
	var k walRecord
	if err := json.Unmarshal([]byte(old), &k); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(k)
	if err != nil || string(text) != old {
		t.Errorf("written as\n%s\nnot\n%s\n%v", text, old, err)
	}
	again := walRecordOf(k.ending())
	again.Open = k.Open
	if !reflect.DeepEqual(again, k) {
		t.Errorf("ends as %+v, not %+v", again, k)
	}
	if strings.Contains(string(text), "prompt") {
		t.Error("content in the journal")
	}
}
