package diagnose

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/redisconn/driver"
	"github.com/llmguard/llmguard/internal/redistest"
)

// TestKeyPatterns compares the kinds of keys with docs/internals/redis-keys.md: all are there,
// and those without a lifetime are the same.
func TestKeyPatterns(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/internals/redis-keys.md")
	if err != nil {
		t.Fatal(err)
	}
	page, _, _ := strings.Cut(string(text), "\n## Channels")
	got := keyPatterns()
	lasting := regexp.MustCompile(`\bnone\b|\| [0-9,]+ entries \||by asynq|that of the object`)
	rows := regexp.MustCompile("(?m)^\\| `((?:lg|asynq):[^`]+)` (\\|.*)$").FindAllStringSubmatch(page, -1)
	for _, row := range rows {
		lasts, ok := got[row[1]]
		if want := lasting.MatchString(row[2]); !ok || lasts != want {
			t.Errorf("%s: listed is %v, may last is %v, want %v", row[1], ok, lasts, want)
		}
	}
	if len(rows) != len(got) {
		t.Errorf("got %d patterns, want the %d of the page", len(got), len(rows))
	}
}

func bounds() KeyBounds {
	return KeyBounds{MostKeys: 100_000, PerSecond: 1_000_000, Measure: 1_000, MostOrgs: 2}
}

func kindOf(r *KeyReport, name string) KindOfKeys {
	for _, k := range r.Kinds {
		if k.Kind == name {
			return k
		}
	}
	return KindOfKeys{}
}

// fill writes keys of two deployments and of another program.
func fill(t *testing.T, rdb redis.UniversalClient) {
	t.Helper()
	ctx := t.Context()
	set := func(key string, size int, ttl time.Duration) {
		if err := rdb.Set(ctx, key, strings.Repeat("x", size), ttl).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, prefix := range []string{"", "staging:"} {
		set(prefix+"lg:{acme}:ledger", 100_000, time.Hour)
		set(prefix+"lg:{acme}:owned:file-1", 10, 0)
		set(prefix+"lg:{globex}:ledger", 10_000, time.Hour)
		set(prefix+"lg:{tiny}:holds", 10, time.Hour)
		set(prefix+"lg:{globex}:sums:20261127", 10, 0)
		set(prefix+"lg:{openai}:size", 10, 0)
		set(prefix+"asynq:queues", 10, 0)
	}
	set("session:1", 10, 0)
}

// TestKeys checks counts, sizes, the largest orgs and suspects, of a deployment without and with
// a prefix.
func TestKeys(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	fill(t, s.Client())
	for prefix, others := range map[string]int64{"": 8, "staging:": 0} {
		rdb := driver.OpenPrefixed(driver.Single, driver.Options(s.Addr), prefix)
		defer rdb.Close()
		r, err := Keys(t.Context(), redistest.DB(rdb), bounds())
		if err != nil {
			t.Fatal(err)
		}
		if r.Keys != 7+others || !r.Complete || kindOf(r, "other").Keys != others {
			t.Errorf("%q: got %d keys, complete %v, others %d, want %d, true, %d",
				prefix, r.Keys, r.Complete, kindOf(r, "other").Keys, 7+others, others)
		}
		ledgers := kindOf(r, "lg:{<org>}:ledger")
		if ledgers.Keys != 2 || ledgers.Bytes < 110_000 || ledgers.Bytes > 150_000 {
			t.Errorf("%q: got %+v, want two ledgers of 110 kB", prefix, ledgers)
		}
		if len(r.Orgs) != 2 || r.Orgs[0].Org != "acme" || r.Orgs[0].Keys != 2 || r.Orgs[1].Org != "globex" {
			t.Errorf("%q: got orgs %+v, want acme with 2 keys, then globex", prefix, r.Orgs)
		}
		want := SuspectKeys{
			Kind: "lg:{<org>}:sums:<day>", Keys: 1, Measured: 1, Example: "lg:{globex}:sums:20261127",
		}
		if len(r.Suspects) != 1 || r.Suspects[0] != want {
			t.Errorf("%q: got suspects %+v, want %+v", prefix, r.Suspects, want)
		}
	}
}

// TestKeysSample: a large database is measured in part and read to the bound. The estimate is
// that of all keys.
func TestKeysSample(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	pipe, ctx := s.Client().Pipeline(), t.Context()
	for i := range 5000 {
		pipe.Set(ctx, "lg:{acme}:sums:"+string(rune('a'+i%26))+strings.Repeat("b", i/26), "x", time.Hour)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		t.Fatal(err)
	}
	b := bounds()
	b.Measure = 500
	all, err := Keys(ctx, s.DB(), b)
	if err != nil || all.Keys != 5000 || all.Measured < 300 || all.Measured > 800 || !all.Complete {
		t.Errorf("got %+v, %v, want 5000 keys and about 500 measured", all, err)
	}
	b.MostKeys = 2000
	part, err := Keys(ctx, s.DB(), b)
	if err != nil || part.Keys < 1500 || part.Keys > 2500 || part.Complete {
		t.Errorf("got %+v, %v, want a part of 2000 keys", part, err)
	}
}
