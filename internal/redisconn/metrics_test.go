package redisconn_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/redisconn/driver"
	"github.com/llmguard/llmguard/internal/redistest"
)

// scrape returns all samples by "name{node,...}", read for the first time.
func scrape(t *testing.T, rdb redis.UniversalClient) map[string]float64 {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	if err := redisconn.Register(t.Context(), reg, redistest.DB(rdb)); err != nil {
		t.Fatal(err)
	}
	return gather(t, reg)
}

func gather(t *testing.T, reg prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			out[sample(f.GetName(), m)] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return out
}

// sample names a sample without the prefix of all these metrics.
func sample(name string, m *dto.Metric) string {
	labels := make([]string, 0, 2)
	for _, l := range m.GetLabel() {
		labels = append([]string{l.GetValue()}, labels...) // mode comes before node
	}
	return fmt.Sprintf("%s{%s}", strings.TrimPrefix(name, "llmguard_redis_"), strings.Join(labels, ","))
}

// open returns a client with the program's options.
func open(t *testing.T, addr string, change ...func(*redis.UniversalOptions)) redis.UniversalClient {
	t.Helper()
	o := driver.Options(addr)
	for _, f := range change {
		f(o)
	}
	rdb := driver.Open(driver.Single, o)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// TestMetrics checks the samples of one server against what is known about it.
func TestMetrics(t *testing.T) {
	s := redistest.Start(t, redistest.WithAOF(), redistest.WithArgs("--maxmemory", "50mb", "--maxclients", "100"))
	rdb := open(t, s.Addr)
	for i := range 7 {
		rdb.Set(t.Context(), fmt.Sprint("k", i), "v", time.Duration(i/5)*time.Hour) // two of them expire
	}
	got := scrape(t, rdb)
	at := "{" + s.Addr + "}"
	for name, want := range map[string]float64{
		"up": 1, "memory_max_bytes": 50 << 20, "keys": 7, "expiring_keys": 2, "evicted_keys_total": 0, "blocked_clients": 0,
		"max_clients": 100, "primary": 1, "connected_replicas": 0, "aof_enabled": 1, "aof_write_ok": 1, "aof_rewrite_ok": 1,
		"rdb_save_ok": 1, "slowlog_entries": 0,
	} {
		if n, ok := got[name+at]; !ok || n != want {
			t.Errorf("%s is %v (%v), want %v", name, n, ok, want)
		}
	}
	for _, name := range []string{
		"ping_seconds", "memory_used_bytes", "memory_peak_bytes", "memory_fragmentation_ratio", "connected_clients",
		"commands_total", "aof_size_bytes",
	} {
		if got[name+at] <= 0 {
			t.Errorf("%s is %v", name, got[name+at])
		}
	}
	for _, mode := range []string{"system", "user", "system_children", "user_children"} {
		if _, ok := got["cpu_seconds_total{"+s.Addr+","+mode+"}"]; !ok {
			t.Errorf("no CPU time for %s", mode)
		}
	}
	if _, ok := got["operations_per_second"+at]; !ok {
		t.Error("no operations per second")
	}
	for name := range got {
		if strings.HasPrefix(name, "replica_lag") {
			t.Errorf("%s without a replica", name)
		}
	}
}

// TestMetricsOfAManagedServer: what a server hides has no sample, and it still counts as
// reachable.
func TestMetricsOfAManagedServer(t *testing.T) {
	s := redistest.Start(t)
	admin := s.Client()
	err := admin.Do(t.Context(), "acl", "setuser", "app", "on", ">secret", "~*", "+@all", "-info", "-slowlog").Err()
	if err != nil {
		t.Fatal(err)
	}
	got := scrape(t, open(t, s.Addr, func(o *redis.UniversalOptions) { o.Username, o.Password = "app", "secret" }))
	if len(got) != 2 || got["up{"+s.Addr+"}"] != 1 || got["ping_seconds{"+s.Addr+"}"] <= 0 {
		t.Errorf("got %v, want up and ping_seconds alone", got)
	}
	if err := admin.Do(t.Context(), "acl", "setuser", "app", "+info").Err(); err != nil {
		t.Fatal(err)
	}
	got = scrape(t, open(t, s.Addr, func(o *redis.UniversalOptions) { o.Username, o.Password = "app", "secret" }))
	_, slow := got["slowlog_entries{"+s.Addr+"}"]
	if _, memory := got["memory_used_bytes{"+s.Addr+"}"]; slow || !memory {
		t.Errorf("got %v, want all but the slow log", got)
	}
}

// TestMetricsWithoutRedis: a server that is down, and one that hangs, are reported as such, and
// a scrape ends. No gauge keeps its last value.
func TestMetricsWithoutRedis(t *testing.T) {
	for name, take := range map[string]func(*testing.T, *redistest.Server){
		"down": func(_ *testing.T, s *redistest.Server) { s.Kill() },
		"hung": func(t *testing.T, s *redistest.Server) {
			if err := s.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Signal(syscall.SIGCONT) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := redistest.Start(t)
			rdb := open(t, s.Addr, func(o *redis.UniversalOptions) {
				o.ReadTimeout, o.WriteTimeout = time.Hour, time.Hour // only the scrape's own timeout helps
			})
			if got := scrape(t, rdb); got["up{"+s.Addr+"}"] != 1 {
				t.Fatalf("got %v", got)
			}
			take(t, s)
			got := scrape(t, rdb)
			if up, ok := got["up{"+s.Addr+"}"]; !ok || up != 0 || len(got) != 1 {
				t.Errorf("got %v, want up 0 alone", got)
			}
		})
	}
}

// TestMetricsOfACluster: every primary has its own samples. One that is gone does not take the
// others with it.
func TestMetricsOfACluster(t *testing.T) {
	g := redistest.StartCluster(t, 3, 1)
	rdb := g.Client()
	keys := 0.0
	for i := range 30 {
		rdb.Set(t.Context(), fmt.Sprint("k", i), "v", 0)
	}
	redistest.Eventually(t, "every primary to report its replica", func() bool {
		got := scrape(t, rdb)
		keys = 0
		for _, n := range g.Nodes[:3] {
			keys += got["keys{"+n.Addr+"}"]
			if _, lag := got["replica_lag_bytes{"+n.Addr+"}"]; !lag || got["up{"+n.Addr+"}"] != 1 {
				return false
			}
		}
		for _, n := range g.Nodes[3:] {
			if _, ok := got["up{"+n.Addr+"}"]; ok {
				t.Errorf("the replica %s has samples: %v", n.Addr, got)
			}
		}
		return true
	})
	if keys != 30 {
		t.Errorf("the primaries have %v keys together, want 30", keys)
	}
	gone := g.Nodes[0]
	gone.Kill()
	got := scrape(t, rdb)
	if got["up{"+gone.Addr+"}"] != 0 || got["up{"+g.Nodes[1].Addr+"}"]+got["up{"+g.Nodes[2].Addr+"}"] != 2 {
		t.Errorf("got %v, want one primary down and two up", got)
	}
}

// TestMetricsOfSentinel: the primary that the sentinels name, with its replica's lag.
func TestMetricsOfSentinel(t *testing.T) {
	g := redistest.StartSentinel(t, 1, func(addr string) string { return addr })
	rdb := g.Client()
	redistest.Eventually(t, "the replica's lag", func() bool {
		got := scrape(t, rdb)
		_, bytes := got["replica_lag_bytes{primary}"]
		_, seconds := got["replica_lag_seconds{primary}"]
		return got["up{primary}"] == 1 && got["connected_replicas{primary}"] == 1 && bytes && seconds
	})
}

// asked counts INFO commands.
type asked struct{ n atomic.Int64 }

func (a *asked) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (a *asked) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (a *asked) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() == "info" {
			a.n.Add(1)
		}
		return next(ctx, cmds)
	}
}

// TestMetricsAreShared: scrapes in quick succession share one reading, even if they overlap.
func TestMetricsAreShared(t *testing.T) {
	rdb := open(t, redistest.Start(t).Addr)
	count := &asked{}
	rdb.AddHook(count)
	reg := prometheus.NewRegistry()
	if err := redisconn.Register(t.Context(), reg, redistest.DB(rdb)); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 3)
	for range cap(done) {
		go func() { _, err := reg.Gather(); done <- err }()
	}
	for range cap(done) {
		if err := redistest.Came(t, done); err != nil {
			t.Error(err)
		}
	}
	if count.n.Load() != 1 {
		t.Errorf("%d readings for %d scrapes", count.n.Load(), cap(done))
	}
}
