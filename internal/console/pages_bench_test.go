package console

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/diagnose"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/providers"
	"github.com/llmguard/llmguard/queue"
)

const (
	benchUsers = 10_000
	benchJobs  = 100_000
)

// BenchmarkPages measures the server's time for each page, with 10,000 users who spent on each
// of 30 days, and 100,000 waiting jobs. It also reports the first view, before anything is
// cached, which may still have incomplete sums.
func BenchmarkPages(b *testing.B) {
	c := benchConsole(b)
	for _, path := range []string{
		"", "orgs/acme", "orgs/acme?q=user-04&page=3", "orgs/acme/users/user-00042", "queue", "jobs?org=acme", "jobs?org=acme&user=user-00042&status=queued", "batches", "audit",
	} {
		b.Run("page="+strings.NewReplacer("/", "_", "?", "_", "&", "_", "=", "-").Replace(path), func(b *testing.B) {
			id, _ := c.sessions.begin("k")
			view := func() time.Duration {
				r := httptest.NewRequest(http.MethodGet, Path+path, nil)
				r.AddCookie(&http.Cookie{Name: cookieName, Value: id})
				w, began := httptest.NewRecorder(), time.Now()
				c.ServeHTTP(w, r)
				if w.Code != http.StatusOK {
					b.Fatalf("%s: %d %.300s", path, w.Code, w.Body)
				}
				return time.Since(began)
			}
			first := view()
			var times []time.Duration
			for b.Loop() {
				times = append(times, view())
			}
			slices.Sort(times)
			b.ReportMetric(float64(first)/1e6, "first-ms")
			b.ReportMetric(float64(times[len(times)/2])/1e6, "p50-ms")
			b.ReportMetric(float64(times[len(times)-1])/1e6, "max-ms")
		})
	}
}

// benchConsole returns a console on a large store.
func benchConsole(b *testing.B) *Console {
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(b).Addr, PoolSize: 64})
	b.Cleanup(func() { _ = rdb.Close() })
	books, pools := budget.New(redistest.DB(rdb), budget.Options{}), []queue.Pool{{ID: "openai", RPM: 500, TPM: 2_000_000, MaxJobs: 2 * benchJobs, MaxBytes: 1 << 30}}
	q, err := queue.New(redistest.DB(rdb), pools, queue.Options{OrgShare: 100, FlowShare: 100})
	if err != nil {
		b.Fatal(err)
	}
	org := settings.Org{ID: "acme"}
	for i := range benchUsers {
		org.Users = append(org.Users, settings.User{ID: fmt.Sprintf("user-%05d", i), Keys: []settings.Key{{ID: "k"}}})
	}
	window := func(amount int64) budget.Shape {
		return budget.Shape{Kind: budget.Window, Amount: amount, Window: time.Hour}
	}
	limits := []budget.Limit{
		{ID: "org-hour", Subject: budget.Org, Metric: budget.Cost, Shape: window(1e15)},
		{ID: "user-hour", Subject: budget.User, Metric: budget.Cost, Shape: window(2e9)},
	}
	policy := &guard.Policy{Providers: &providers.Set{}, Orgs: map[string]*guard.Org{"acme": {Org: settings.Org{ID: "acme"}, Limits: limits}}}
	fill(b, rdb, books, q, limits)
	api := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"data":[]}`)) })
	c, err := New(Options{
		API: api, Tenants: func() settings.Set { return settings.Set{Orgs: []settings.Org{org}} }, Policy: func() *guard.Policy { return policy },
		Budget: books, Queue: q, Pools: func() []queue.Pool { return pools },
		Findings: func(context.Context) []diagnose.Finding { return nil }, Stopped: func(context.Context) []string { return nil },
		Snapshot: func() *tenants.Snapshot { return &tenants.Snapshot{} },
	})
	if err != nil {
		b.Fatal(err)
	}
	return c
}

// fill makes every user spend once today, copies today's sums to the 29 days before, and adds
// the jobs.
func fill(b *testing.B, rdb *redis.Client, books *budget.Store, q *queue.Queue, limits []budget.Limit) {
	b.Helper()
	var work errgroup.Group
	work.SetLimit(64)
	for i := range benchUsers {
		work.Go(func() error {
			most := budget.Amounts{Cost: pricing.Nano(1_000_000 + i*1000), Tokens: 100}
			h, err := books.Hold(context.WithoutCancel(b.Context()), budget.Terms{Limits: limits, Call: ledger.Call{
				ID: wire.NewCallID(), Org: "acme", User: fmt.Sprintf("user-%05d", i), Key: "k", Model: []string{"gpt-4o", "gpt-4o-mini", "gpt-5"}[i%3],
				Provider: "openai", Endpoint: "chat.completions",
			}, Max: most, Expected: most})
			if err == nil {
				_, err = books.Settle(b.Context(), h, budget.Settlement{Actual: most})
			}
			return err
		})
	}
	for i := range benchJobs {
		work.Go(func() error {
			return q.Put(b.Context(), &queue.Job{
				ID: q.NewID("openai"), Pool: "openai", Org: "acme", User: fmt.Sprintf("user-%05d", i%1000), Key: "k", Class: queue.Class(1 + i%3),
				Endpoint: wire.ChatCompletions, Model: "gpt-4o", Tokens: 100, Cost: 1000, CallID: wire.NewCallID(), Header: http.Header{},
			}, []byte("{}"))
		})
	}
	redistest.Wait(b, func() {
		if err := work.Wait(); err != nil {
			b.Error(err)
		}
	})
	const stamp = "20060102" // as in the names of daily sums
	today := time.Now().UTC()
	sums, err := rdb.Keys(b.Context(), "*sums:"+today.Format(stamp)).Result()
	if err != nil || len(sums) == 0 {
		b.Fatalf("no sums of the day: %v, %v", sums, err)
	}
	for _, key := range sums {
		for ago := 1; ago < days; ago++ {
			then := strings.Replace(key, today.Format(stamp), today.AddDate(0, 0, -ago).Format(stamp), 1)
			if err := rdb.Copy(b.Context(), key, then, 0, true).Err(); err != nil {
				b.Fatal(err)
			}
		}
	}
}
