package orgdata_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/batch"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/tenants/orgdata"
)

func TestLookCounts(t *testing.T) {
	h := newFixture(t)
	found, err := h.purge("acme", true).Look(t.Context())
	if err != nil || found.Any() {
		t.Errorf("of an org without anything: got %+v, %v, want nothing", found, err)
	}
	h.populate("acme")
	h.populate("globex")
	h.job("globex", "x", true)
	got, err := h.purge("acme", false).Look(t.Context())
	if err != nil || got.Records != 3 || got.Jobs != 3 || got.Batches != 1 || got.Files != 1 || !got.Any() {
		t.Errorf("got %+v, %v, want 3 records, 3 jobs, a batch and a file", got, err)
	}
	all, err := h.purge("acme", true).Look(t.Context())
	if err != nil || all.Keys < got.Keys+2 {
		t.Errorf("got %d keys with the ledger, %v, want more than the %d without it", all.Keys, err, got.Keys)
	}
}

// An org with work that may still be charged or written is not purged.
func TestLookRefusesWhatIsOpen(t *testing.T) {
	for want, open := range map[string]func(*fixture, string){
		"1 calls of org acme are still open": func(h *fixture,
			org string,
		) {
			h.must(h.rdb.HSet(h.t.Context(), "lg:{"+org+"}:holds", "a/0", "x").Err())
		},
		"1 jobs of org acme are waiting or running": func(h *fixture, org string) { h.job(org, "x", false) },
		"1 batches of org acme have not finished":   func(h *fixture, org string) { h.batch(org, batch.InProgress) },
	} {
		h := newFixture(t)
		h.populate("acme")
		open(h, "globex")
		_, err := h.purge("acme", false).Look(t.Context())
		if err != nil {
			t.Errorf("%s: while only globex has something open: got %v, want no error", want, err)
		}
		open(h, "acme")
		_, err = h.purge("acme", false).Look(t.Context())
		if !errors.Is(err, orgdata.ErrOpen) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want ErrOpen and %q", err, want)
		}
	}
}

// A purge keeps the ledger and nothing else, and does not affect other orgs.
func TestPurgeKeepsTheBooks(t *testing.T) {
	h := newFixture(t)
	h.populate("globex")
	kept := h.dump()
	h.populate("acme")
	h.must(h.run("acme", false))
	other := slices.DeleteFunc(differ(h.dump(), kept), func(key string) bool {
		return key == "lg:{acme}:ledger" || key == ledger.OrgsKey+" acme" || strings.HasPrefix(key, "lg:{acme}:sums:")
	})
	if len(other) > 0 {
		t.Errorf("got left or changed %v, want the ledger and the sums of acme alone", other)
	}
	n := h.rdb.XLen(t.Context(), "lg:{acme}:ledger").Val()
	if n != 1 {
		t.Errorf("got %d entries of the ledger, want the one", n)
	}
}

func TestPurgeWithTheLedger(t *testing.T) {
	h := newFixture(t)
	h.populate("globex")
	kept := h.dump()
	h.populate("acme")
	h.must(h.run("acme", true))
	other := differ(h.dump(), kept)
	if len(other) > 0 {
		t.Errorf("got left or changed %v, want nothing", other)
	}
	found, err := h.purge("acme", true).Look(t.Context())
	if err != nil || found.Any() {
		t.Errorf("after it: got %+v, %v, want nothing", found, err)
	}
}

// The audit has the start of a purge, what it found, and its end.
func TestPurgeIsAudited(t *testing.T) {
	h := newFixture(t)
	h.populate("acme")
	h.must(h.run("acme", true))
	list, _, err := h.ids.Audit(t.Context(), tenants.AuditFilter{Org: "acme"}, 10)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range list {
		got = append(got, e.Action)
		if e.Actor != "ops" || e.Reason != "contract ended" || e.Target != "acme" {
			t.Errorf("got the entry %+v, want who, why and what", e)
		}
	}
	if text := strings.Join(got, " "); text != "org.purge org.purge.records org.purge.begin" {
		t.Errorf("got the actions %s", text)
	}
	if after := string(list[len(list)-1].After); !strings.Contains(after, `"ledger":true`) ||
		!strings.Contains(after, `"jobs":3`) {
		t.Errorf("got the beginning %s, want what was found", after)
	}
}

// An interrupted purge leaves the org's own record, which keeps it disabled, and the next purge
// completes it.
func TestPurgeThatWasCutOff(t *testing.T) {
	h := newFixture(t)
	h.populate("globex")
	kept := h.dump()
	h.populate("acme")
	ctx := t.Context()
	err := h.rdb.Do(ctx, "acl", "setuser", "default", "-unlink").Err()
	if err != nil {
		t.Fatal(err)
	}
	err = h.run("acme", true)
	h.must(h.rdb.Do(ctx, "acl", "setuser", "default", "+unlink").Err())
	if err == nil {
		t.Fatal("without the right to remove keys: got no error")
	}
	if h.purge("acme", true).Tenants.Snapshot().Tenants["acme"].Org == nil {
		t.Error("got no record of the org, want it to be there until the end")
	}
	h.must(h.run("acme", true))
	other := differ(h.dump(), kept)
	if len(other) > 0 {
		t.Errorf("got left or changed %v, want nothing", other)
	}
	h.must(h.run("acme", true)) // repeating it is harmless
}

// If the blob store is unavailable, the purge fails before it changes the list of files.
func TestPurgeWithoutTheBlobStore(t *testing.T) {
	h := newFixture(t)
	h.populate("acme")
	p := h.purge("acme", true)
	p.Blobs = nil
	err := p.Run(t.Context(), tenants.AuditEntry{}, orgdata.Found{})
	if err == nil || !strings.Contains(err.Error(), "files.store") {
		t.Errorf("got %v, want an error that names files.store", err)
	}
	found, err := h.purge("acme", true).Look(t.Context())
	if err != nil || found.Files != 1 || found.Records != 3 {
		t.Errorf("got %+v, %v, want the file and the records still there", found, err)
	}
	h.must(h.run("acme", true))
}

// More records than one write deletes are all deleted.
func TestPurgeOfManyRecords(t *testing.T) {
	h := newFixture(t)
	var changes []tenants.Change
	for i := range 1200 {
		ref := tenants.Ref{Kind: tenants.KindUser, Org: "acme", ID: fmt.Sprintf("u%d", i)}
		changes = append(changes, tenants.Change{Ref: ref, New: tenants.User{}})
	}
	h.must(h.ids.Commit(t.Context(), tenants.AuditEntry{}, changes...))
	h.record(tenants.KindOrg, "acme", "acme")
	h.record(tenants.KindUser, "globex", "gus")
	h.must(h.run("acme", false))
	left := h.rdb.HKeys(t.Context(), "lg:{identity:}:records").Val()
	if len(left) != 1 || left[0] != "user globex gus" {
		t.Errorf("got %d records, want globex's alone", len(left))
	}
}

// names returns the names of an org's own keys.
func (h *fixture) names(org, prefix string) string {
	h.t.Helper()
	seen := map[string]bool{}
	h.must(orgdata.Names(h.t.Context(), redistest.DB(h.rdb), org, prefix, func(names []string) error {
		for _, n := range names {
			seen[n] = true
		}
		return nil
	}))
	return strings.Join(slices.Sorted(maps.Keys(seen)), " ")
}

// An org's keys are distinguished from those of orgs with a common id prefix, of pools with the
// same id, and of shared lists.
func TestNames(t *testing.T) {
	h := newFixture(t)
	for _, key := range []string{
		"lg:{acme}:ledger", "lg:{acme}:sums:20261101", "lg:{acme}:jobs", "lg:{acme2}:ledger", "lg:{ac}:ledger",
		"other:{acme}:x",
		"lg:{acme}:job:123", "lg:{acme}:proc:7", "lg:{acme}:dead", // of a pool with the same id
		"lg:{files}:due", "lg:{files}:ledger", "lg:{batches}:open", "lg:{batches}:ledger", "lg:{calib}:openai",
	} {
		h.must(h.rdb.Set(t.Context(), key, "x", 0).Err())
	}
	for _, tc := range []struct{ org, prefix, want string }{
		{"acme", "", "jobs ledger sums:20261101"},
		{"acme", "sums:", "sums:20261101"},
		{"acme", "nothing", ""},
		{"acme2", "", "ledger"},
		{"files", "", "ledger"},
		{"batches", "", "ledger"},
		{"calib", "", ""},
		{"nobody", "", ""},
	} {
		got := h.names(tc.org, tc.prefix)
		if got != tc.want {
			t.Errorf("%s %q: got %q, want %q", tc.org, tc.prefix, got, tc.want)
		}
	}
}

// Purging an org whose id equals the name of a shared list keeps the list.
func TestPurgeOfAnOrgWithASharedName(t *testing.T) {
	h := newFixture(t)
	h.populate("globex")
	h.must(h.rdb.ZAdd(t.Context(), "lg:{batches}:open", redis.Z{Score: 1, Member: "batch_1"}).Err())
	kept := h.dump()
	for _, org := range []string{"files", "batches", "main"} { // main is the pool
		h.populate(org)
		h.must(h.run(org, true))
	}
	other := differ(h.dump(), kept)
	if len(other) > 0 {
		t.Errorf("got left or changed %v, want nothing", other)
	}
}

// More keys than one scan step reads are all found, and an error from the callback stops the
// scan.
func TestNamesOfManyKeys(t *testing.T) {
	h := newFixture(t)
	pipe := h.rdb.Pipeline()
	for i := range 2500 {
		pipe.Set(t.Context(), fmt.Sprintf("lg:{acme}:sums:%d", i), "x", 0)
	}
	_, err := pipe.Exec(t.Context())
	h.must(err)
	if got := len(strings.Fields(h.names("acme", ""))); got != 2500 {
		t.Errorf("got %d names, want 2500", got)
	}
	stop, calls := errors.New("enough"), 0
	err = orgdata.Names(t.Context(), redistest.DB(h.rdb), "acme", "", func([]string) error { calls++; return stop })
	if !errors.Is(err, stop) || calls != 1 {
		t.Errorf("got %v after %d calls, want the caller's error after one", err, calls)
	}
}
