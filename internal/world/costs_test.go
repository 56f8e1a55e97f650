package world_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/world"
)

// costly has one user with a limit that never refuses.
const costly = `orgs:
  - id: acme
    limits: [{name: daily, subject: user, amount: $5000, window: 1d}]
    users: [{id: alice, keys: [{id: k1, hash: "${key:alice}"}]}]
log: {level: info}
`

// TestCallCosts compares what a call, a stream and a job cost with .ci/call-costs: allocations, commands of
// Redis and bytes sent to it. None of these depends on how fast the machine is, or on what else it does.
func TestCallCosts(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "llmguard.yaml"), []byte(costly), 0o600); err != nil {
		t.Fatal(err)
	}
	w := world.Start(t, binary, dir)
	w.StartWorker()
	c := &coster{t: t, w: w, client: &http.Client{Timeout: redistest.Bound}, redis: w.Redis.Client()}
	text, err := os.ReadFile("../../.ci/call-costs")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		var name string
		var most costs
		if _, err := fmt.Sscan(line, &name, &most.allocations, &most.commands, &most.sent); err != nil {
			t.Fatalf(".ci/call-costs: %q: expected a name and three numbers: %v", line, err)
		}
		run, ok := map[string]func(){"call": c.call, "stream": c.stream, "job": c.job}[name]
		if !ok {
			t.Fatalf(".ci/call-costs: no way to measure %q", name)
		}
		c.processes = []*world.Process{w.Proxy}
		if name == "job" {
			c.processes = append(c.processes, w.Worker)
		}
		now := c.costs(run)
		t.Logf("%s: %.0f allocations, %.1f commands and %.0f bytes to Redis", name, now.allocations, now.commands, now.sent)
		for _, f := range []struct {
			name      string
			now, most float64
		}{
			{"allocations", now.allocations, most.allocations},
			{"commands of Redis", now.commands, most.commands},
			{"bytes to Redis", now.sent, most.sent},
		} {
			switch {
			case f.now > f.most:
				t.Errorf("a %s has %.1f %s, above its ceiling of %.0f: remove some, or raise it in .ci/call-costs and say why in the "+
					"commit", name, f.now, f.name, f.most)
			case f.now < f.most*0.7:
				t.Errorf("a %s has %.1f %s, far below its ceiling of %.0f: lower it in .ci/call-costs", name, f.now, f.name, f.most)
			}
		}
	}
}

// costs are what one call costs: allocations of llmguard's processes, commands of Redis (those inside scripts included), and bytes
// sent to it.
type costs struct{ allocations, commands, sent float64 }

func (c costs) plus(factor float64, o costs) costs {
	return costs{
		c.allocations + factor*o.allocations, c.commands + factor*o.commands, c.sent + factor*o.sent,
	}
}

type coster struct {
	t         *testing.T
	w         *world.World
	client    *http.Client
	redis     *redis.Client
	processes []*world.Process // whose allocations count
}

// costs returns what one run costs: the middle of five rounds, without the costs of reading the figures and of the timers that
// ran meanwhile.
func (c *coster) costs(run func()) costs {
	const runs, warm, rounds = 100, 30, 5
	for range warm { // connections, scripts, buffers and pools
		run()
	}
	first := c.total()
	start := c.total()
	reading := start.plus(-1, first)
	began := time.Now()
	time.Sleep(3 * time.Second)
	idle := costs{}.plus(1/time.Since(began).Seconds(), c.total().plus(-1, start).plus(-1, reading)) // a second
	var all [rounds]costs
	for i := range all {
		began, start = time.Now(), c.total()
		for range runs {
			run()
		}
		time.Sleep(300 * time.Millisecond) // settles follow their calls
		used := c.total().plus(-1, start).plus(-1, reading).plus(-time.Since(began).Seconds(), idle)
		all[i] = costs{}.plus(1.0/runs, used)
	}
	middle := func(of func(costs) float64) float64 {
		slices.SortFunc(all[:], func(a, b costs) int { return cmp.Compare(of(a), of(b)) })
		return of(all[rounds/2])
	}
	return costs{
		middle(func(c costs) float64 { return c.allocations }), middle(func(c costs) float64 { return c.commands }),
		middle(func(c costs) float64 { return c.sent }),
	}
}

// total returns what has been used since the start of all processes.
func (c *coster) total() (sum costs) {
	c.t.Helper()
	for _, p := range c.processes {
		page := c.get(p.Admin+"/metrics", "")
		sum.allocations += figure(c.t, page, "go_memstats_mallocs_total ")
	}
	page, err := c.redis.Info(c.t.Context(), "stats").Result()
	if err != nil {
		c.t.Fatal(err)
	}
	sum.commands, sum.sent = figure(c.t, page, "total_commands_processed:"), figure(c.t, page, "total_net_input_bytes:")
	return sum
}

func figure(t *testing.T, page, name string) float64 {
	t.Helper()
	_, rest, _ := strings.Cut("\n"+page, "\n"+name)
	line, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.ParseFloat(strings.TrimSpace(line), 64)
	if err != nil {
		t.Fatalf("no figure %q in:\n%.2000s", name, page)
	}
	return n
}

func (c *coster) call() { c.post("", "") }

func (c *coster) stream() { c.post(`"stream":true,`, "") }

// job submits a job and follows its events to the end.
func (c *coster) job() {
	var job struct{ ID string }
	if err := json.Unmarshal([]byte(c.post("", "respond-async")), &job); err != nil {
		c.t.Fatal(err)
	}
	c.get(c.w.Proxy.URL+"/jobs/"+job.ID+"/events", c.w.Keys["alice"])
}

func (c *coster) post(members, prefer string) string {
	c.t.Helper()
	body := `{"model":"gpt-4o",` + members + `"max_tokens":50,"messages":[{"role":"user","content":"Say hello"}]}`
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, c.w.Proxy.URL+"/chat/completions", strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	if prefer != "" {
		req.Header.Set("Prefer", prefer)
	}
	return c.do(req, c.w.Keys["alice"])
}

func (c *coster) get(url, key string) string {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, url, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	return c.do(req, key)
}

func (c *coster) do(req *http.Request, key string) string {
	c.t.Helper()
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := c.client.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode > 299 {
		c.t.Fatalf("%s %s: %s %.500s (%v)", req.Method, req.URL, resp.Status, text, err)
	}
	return string(text)
}
