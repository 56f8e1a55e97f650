package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"

	"github.com/llmguard/llmguard/grafana"
	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
)

// TestComposeTopology runs the services of docker-compose.yml without containers: the same
// commands and mounted files, with other names and ports. Then every dashboard panel must show
// data, and every alert must evaluate without an error.
func TestComposeTopology(t *testing.T) {
	prometheus, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("prometheus is not installed (Debian: apt-get install prometheus): dashboards and alerts are not tried on it")
	}
	t.Parallel()
	key := keys.New(keys.Live)
	env := []string{"OPENAI_API_KEY=" + providerKey, "LLMGUARD_KEY_HASH=" + keys.Hash(keys.Pepper{}, key)}
	c := loadCompose(t, env)
	s := c.stack(t, key)
	s.env = env
	proxy := s.proxy()
	workers := []*process{}
	for range *c.Services["worker"].Deploy.Replicas {
		workers = append(workers, s.worker())
	}
	p := c.prometheus(t, prometheus, proxy, workers)
	for missing := p.panels(); ; {
		s.traffic(proxy)
		if missing = slices.DeleteFunc(missing, func(q panelQuery) bool { return p.series(q.expr) > 0 }); len(missing) == 0 {
			break
		}
		if p.deadline.Before(time.Now()) {
			for _, q := range missing {
				t.Errorf("%s shows nothing: %s", q.where, q.expr)
			}
			break
		}
		time.Sleep(300 * time.Millisecond)
	}
	p.deadline = time.Now().Add(time.Minute)
	p.rulesAreWell()
}

// compose is docker-compose.yml.
type compose struct{ *types.Project }

func loadCompose(t *testing.T, env []string) compose {
	t.Helper()
	o, err := cli.NewProjectOptions([]string{"../../docker-compose.yml"}, cli.WithOsEnv, cli.WithEnv(env), cli.WithResolvedPaths(true))
	if err != nil {
		t.Fatal(err)
	}
	project, err := o.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return compose{project}
}

// mounted returns the local file that a service sees at a path.
func (c compose) mounted(t *testing.T, service, target string) string {
	t.Helper()
	for _, v := range c.Services[service].Volumes {
		if v.Target == target {
			return v.Source
		}
	}
	t.Fatalf("%s has nothing at %s", service, target)
	return ""
}

// adapt reads a mounted file and replaces names that exist only in containers. Each must occur.
func adapt(t *testing.T, path string, replace ...string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for i := 0; i < len(replace); i += 2 {
		if !strings.Contains(text, replace[i]) {
			t.Fatalf("%s has no %q", path, replace[i])
		}
		text = strings.ReplaceAll(text, replace[i], replace[i+1])
	}
	to := filepath.Join(t.TempDir(), filepath.Base(path))
	if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return to
}

// stack starts Redis as configured in the file, and a provider.
func (c compose) stack(t *testing.T, key string) *stack {
	t.Helper()
	command := c.Services["redis"].Command
	if len(command) < 2 || command[0] != "redis-server" {
		t.Fatalf("redis runs %v", command)
	}
	s := &stack{
		t: t, redis: redistest.Start(t, redistest.WithArgs(command[1:]...)), keys: map[string]string{"alice": key},
		fake: fakeprovider.New(fakeprovider.Options{Key: providerKey}),
	}
	host, port, _ := strings.Cut(s.redis.Addr, ":")
	redistest.Start(t, redistest.WithArgs("--replicaof", host+" "+port)) // the panels of replication show it
	if err := s.fake.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.fake.Close() })
	s.path = adapt(t, c.mounted(t, "llmguard", "/etc/llmguard/llmguard.yaml"), "redis:6379", `"`+s.redis.Addr+`"`,
		"https://api.openai.com/v1", s.fake.BaseURL(), "0.0.0.0:8080", "127.0.0.1:0", "0.0.0.0:9090", "127.0.0.1:0",
		"/var/lib/llmguard/journal", filepath.Join(t.TempDir(), "journal"),
		"/var/lib/llmguard-files", filepath.Join(t.TempDir(), "files"))
	return s
}

// traffic makes a call of each kind: a plain one, a stream, a job, one over the limit, and one
// with a wrong key.
func (s *stack) traffic(p *process) {
	s.t.Helper()
	for _, c := range []struct {
		key, body, prefer string
		want              int
	}{
		{s.keys["alice"], chat("gpt-4o-mini", "hi", `"max_tokens":10`), "", http.StatusOK},
		{s.keys["alice"], chat("gpt-4o-mini", "hi", `"max_tokens":10,"stream":true`), "", http.StatusOK},
		{s.keys["alice"], chat("gpt-4o-mini", "hi", `"max_tokens":10`), "respond-async", http.StatusAccepted},
		{s.keys["alice"], chat("o1", "hi", `"max_completion_tokens":100000`), "", http.StatusPaymentRequired},
		{"wrong", chat("gpt-4o-mini", "hi", `"max_tokens":10`), "", 0}, // 401, then 429 after too many attempts
	} {
		r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, p.URL+"/chat/completions", strings.NewReader(c.body))
		if err != nil {
			s.t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+c.key)
		r.Header.Set("Content-Type", "application/json")
		if c.prefer != "" {
			r.Header.Set("Prefer", c.prefer)
		}
		resp, err := client.Do(r)
		if err != nil {
			s.t.Fatal(err)
		}
		resp.Body.Close()
		if c.want != 0 && resp.StatusCode != c.want {
			s.t.Fatalf("status %d, want %d: %s", resp.StatusCode, c.want, c.body)
		}
	}
}

// scraper is a running Prometheus.
type scraper struct {
	t        *testing.T
	url      string
	deadline time.Time
}

// prometheus starts Prometheus with the mounted configuration. Container names are replaced by
// local addresses, and the scrape interval is one second.
func (c compose) prometheus(t *testing.T, program string, proxy *process, workers []*process) *scraper {
	t.Helper()
	targets := func(list ...*process) string {
		var hosts []string
		for _, p := range list {
			hosts = append(hosts, `"`+strings.TrimPrefix(p.Admin, "http://")+`"`)
		}
		return "static_configs: [{targets: [" + strings.Join(hosts, ", ") + "]}]"
	}
	const names = "dns_sd_configs:\n      - {names: [%s], type: A, port: 9090, refresh_interval: 10s}"
	config := adapt(t, c.mounted(t, "prometheus", "/etc/prometheus/prometheus.yml"), "interval: 10s\n", "interval: 1s\n",
		"alertmanager:9093", "127.0.0.1:1",
		"/etc/prometheus/alerts.yaml", c.mounted(t, "prometheus", "/etc/prometheus/alerts.yaml"),
		fmt.Sprintf(names, "llmguard"), targets(proxy), fmt.Sprintf(names, "worker"), targets(workers...))
	p := &scraper{t: t, deadline: time.Now().Add(5 * time.Minute)}
	args := []string{}
	for _, a := range c.Services["prometheus"].Command {
		a = strings.Replace(a, "/etc/prometheus/prometheus.yml", config, 1)
		args = append(args, strings.Replace(a, "path=/prometheus", "path="+t.TempDir(), 1))
	}
	for range 5 { // another program may take the port first
		if p.start(program, args) {
			return p
		}
	}
	t.Fatal("prometheus does not start")
	return nil
}

// start runs it on a free port, and returns false if it exits.
func (p *scraper) start(program string, args []string) bool {
	p.t.Helper()
	listen, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		p.t.Fatal(err)
	}
	p.url = "http://" + listen.Addr().String()
	listen.Close()
	cmd := redistest.Process(p.t, program, append(slices.Clone(args), "--web.listen-address="+listen.Addr().String())...)
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	p.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		redistest.Came(p.t, ended)
		if p.t.Failed() {
			p.t.Logf("prometheus said:\n%s", log.Bytes())
		}
	})
	for time.Now().Before(p.deadline) {
		select {
		case <-ended:
			return false
		default:
		}
		resp, err := client.Get(p.url + "/-/ready")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return true
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	p.t.Fatal("prometheus is not ready")
	return false
}

func (p *scraper) get(path string, out any) {
	p.t.Helper()
	resp, err := client.Get(p.url + path)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil || resp.StatusCode != http.StatusOK {
		p.t.Fatalf("%s: %d, %v, %v", path, resp.StatusCode, err, out)
	}
}

// series returns the number of series in the result of a query.
func (p *scraper) series(query string) int {
	var answer struct {
		Error string
		Data  struct{ Result []json.RawMessage }
	}
	p.get("/api/v1/query?query="+url.QueryEscape(query), &answer)
	return len(answer.Data.Result)
}

// panelQuery is a dashboard query with its variables filled in.
type panelQuery struct{ where, expr string }

// panels returns the queries of all panels and variables.
func (p *scraper) panels() []panelQuery {
	fill := strings.NewReplacer("$__rate_interval", "1m", "$__range", "1h", "$job", ".*", "$instance", ".*", "$org", ".*")
	var all []panelQuery
	for name, d := range grafana.All() {
		for _, one := range d.Panels {
			for _, q := range one.Targets {
				all = append(all, panelQuery{name + ", " + one.Title, fill.Replace(q.Expr)})
			}
		}
		for _, v := range d.Templating.List {
			if metric, _, ok := strings.Cut(strings.TrimPrefix(v.Definition, "label_values("), ","); ok {
				all = append(all, panelQuery{name + ", choice " + v.Name, fill.Replace(metric)})
			}
		}
	}
	if len(all) < 40 {
		p.t.Fatalf("only %d queries", len(all))
	}
	return all
}

// rulesAreWell waits until every alert has been evaluated, and fails on errors.
func (p *scraper) rulesAreWell() {
	p.t.Helper()
	for {
		var answer struct {
			Data struct {
				Groups []struct {
					Rules []struct{ Name, Health, LastError string }
				}
			}
		}
		p.get("/api/v1/rules", &answer)
		alerts, well := 0, 0
		for _, g := range answer.Data.Groups {
			for _, r := range g.Rules {
				alerts++
				if r.Health == "ok" {
					well++
				}
				if r.LastError != "" {
					p.t.Fatalf("alert %s: %s", r.Name, r.LastError)
				}
			}
		}
		if alerts > 0 && well == alerts {
			return
		}
		if p.deadline.Before(time.Now()) {
			p.t.Fatalf("%d of %d alerts are evaluated", well, alerts)
		}
		time.Sleep(200 * time.Millisecond)
	}
}
