package grafana

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/auth"
	"github.com/llmguard/llmguard/internal/cache"
	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/webhook"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/proxy"
	"github.com/llmguard/llmguard/queue"
)

var update = flag.Bool("update", false, "write dashboards/*.json anew")

// TestDashboards compares the files with the code; go generate writes them.
func TestDashboards(t *testing.T) {
	for name, d := range All() {
		path := filepath.Join("dashboards", name)
		var want bytes.Buffer
		enc := json.NewEncoder(&want)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		if err := enc.Encode(d); err != nil {
			t.Fatal(err)
		}
		if *update {
			if err := os.WriteFile(path, want.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(got, want.Bytes()) {
			t.Errorf("%s is not what the code makes (%v); run make generate", path, err)
		}
	}
	files, err := filepath.Glob("dashboards/*.json")
	if err != nil || len(files) != len(All()) {
		t.Errorf("%d files for %d dashboards (%v)", len(files), len(All()), err)
	}
}

// TestConventions holds every dashboard to the rules of Grafana's linter.
func TestConventions(t *testing.T) {
	for name, d := range All() {
		if d.Editable || d.UID == "" || d.Title == "" || d.Description == "" {
			t.Errorf("%s: editable, or without uid, title or description", name)
		}
		if len(d.Links) != 1 || !slices.Equal(d.Links[0].Tags, d.Tags) || !d.Links[0].IncludeVars || !d.Links[0].KeepTime {
			t.Errorf("%s does not lead to the others: %+v", name, d.Links)
		}
		taken := map[string]string{}
		for _, p := range d.Panels {
			at := fmt.Sprintf("%s: panel %q", name, p.Title)
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
					cell := fmt.Sprint(x, ",", y)
					if other := taken[cell]; other != "" || x >= gridWidth {
						t.Fatalf("%s lies over %q or outside the grid", at, other)
					}
					taken[cell] = p.Title
				}
			}
			if p.Type == "row" {
				continue
			}
			if p.Title == "" || p.Description == "" || p.FieldConfig.Defaults.Unit == "" || len(p.Targets) == 0 {
				t.Errorf("%s has no title, description, unit or query", at)
			}
			for _, q := range p.Targets {
				if q.Datasource != source || !strings.Contains(q.Expr, `job=~"$job"`) || !strings.Contains(q.Expr, `instance=~"$instance"`) {
					t.Errorf("%s does not follow the variables: %s", at, q.Expr)
				}
				if counter.MatchString(q.Expr) && !strings.Contains(q.Expr, "rate(") && !strings.Contains(q.Expr, "increase(") {
					t.Errorf("%s shows a counter without its rate: %s", at, q.Expr)
				}
			}
		}
	}
}

var counter = regexp.MustCompile(`_(total|bucket|count|sum)\b`)

// expressions are the queries of all dashboards and alert rules, by where
// they stand.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for name, d := range All() {
		for _, p := range d.Panels {
			for _, q := range p.Targets {
				out[name+" "+p.Title+" "+q.RefID] = q.Expr
			}
		}
		for _, a := range d.Annotations.List {
			out[name+" annotation "+a.Name] = a.Expr
		}
		for _, v := range d.Templating.List {
			if v.Definition != "" {
				out[name+" $"+v.Name] = v.Definition
			}
		}
	}
	data, err := os.ReadFile("alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	if err := yaml.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			out["alert "+r.Alert] = r.Expr
		}
	}
	return out
}

// described collects what collectors say they will report.
type described struct{ labels map[string][]string }

var descText = regexp.MustCompile(`fqName: "([^"]+)".*variableLabels: \{([^}]*)\}`)

func (d described) Register(c prometheus.Collector) error {
	ch := make(chan *prometheus.Desc)
	go func() { c.Describe(ch); close(ch) }()
	for desc := range ch {
		m := descText.FindStringSubmatch(desc.String())
		if m == nil {
			return fmt.Errorf("not understood: %s", desc)
		}
		d.labels[m[1]] = strings.Split(m[2], ",")
	}
	return nil
}

func (d described) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		if err := d.Register(c); err != nil {
			panic(err)
		}
	}
}

func (d described) Unregister(prometheus.Collector) bool { return false }

// metrics registers every package's metrics and returns their labels by name.
func metrics(t *testing.T) map[string][]string {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // never asked
	t.Cleanup(func() { _ = rdb.Close() })
	d := described{map[string][]string{}}
	config.NewMetrics(d)
	store := budget.New(redistest.DB(rdb), budget.Options{Metrics: d})
	if err := budget.RegisterCaps(t.Context(), d, store, func() []budget.Cap { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := budget.RegisterOrgs(t.Context(), d, store, func() map[string][]budget.Limit { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := guard.RegisterBounds(d, func() map[string]guard.Bound { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := redisconn.Register(t.Context(), d, redistest.DB(rdb)); err != nil {
		t.Fatal(err)
	}
	cache.New(redistest.DB(rdb), cache.Options{Metrics: d})
	g := guard.New(guard.Options{Budget: store, Policy: &guard.Policy{}, Metrics: d})
	q, err := queue.New(redistest.DB(rdb), []queue.Pool{{ID: "p"}}, queue.Options{Metrics: d})
	if err != nil {
		t.Fatal(err)
	}
	if err := pricing.Register(d, func() *pricing.Catalogue { return nil }, time.Now); err != nil {
		t.Fatal(err)
	}
	if _, err := webhook.New(redistest.DB(rdb), webhook.Options{Metrics: d}); err != nil {
		t.Fatal(err)
	}
	proxy.New(proxy.Options{Guard: g, Queue: q, Directory: &auth.Directory{}, Metrics: d})
	return d.labels
}

var (
	metricUse = regexp.MustCompile(`\b((?:llmguard|process|go)_[a-z0-9_]+)(?:\{([^}]*)\})?`)
	labelUse  = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!~|!=|=)`)
	grouping  = regexp.MustCompile(`\b(?:by|on) \(([^)]*)\)`)
	fromJob   = []string{"job", "instance", "le"} // labels that Prometheus adds
)

// TestMetricsExist catches misspelt metrics and labels in every query.
func TestMetricsExist(t *testing.T) {
	known := metrics(t)
	if len(known) < 25 {
		t.Fatalf("only %d metrics found", len(known))
	}
	used := map[string]bool{}
	for where, expr := range expressions(t) {
		labels := slices.Clone(fromJob)
		for _, m := range metricUse.FindAllStringSubmatch(expr, -1) {
			name := m[1]
			if !strings.HasPrefix(name, "llmguard_") {
				continue
			}
			base := name
			for _, suffix := range []string{"_bucket", "_count", "_sum"} {
				if _, ok := known[base]; !ok {
					base = strings.TrimSuffix(name, suffix)
				}
			}
			own, ok := known[base]
			if !ok {
				t.Errorf("%s: no metric is called %s", where, name)
				continue
			}
			used[base] = true
			labels = append(labels, own...)
			for _, l := range labelUse.FindAllStringSubmatch(m[2], -1) {
				if !slices.Contains(append(own, fromJob...), l[1]) {
					t.Errorf("%s: %s has no label %s", where, name, l[1])
				}
			}
		}
		for _, by := range grouping.FindAllStringSubmatch(expr, -1) {
			for _, l := range strings.Split(by[1], ",") {
				if l = strings.TrimSpace(l); !slices.Contains(labels, l) {
					t.Errorf("%s: groups by %s, which no metric in it has", where, l)
				}
			}
		}
	}
	for name, labels := range known {
		for _, l := range labels {
			if slices.Contains([]string{"user", "key", "call", "request"}, l) {
				t.Errorf("%s has a label without bound: %s", name, l)
			}
		}
	}
	t.Logf("%d of %d metrics are on a dashboard or in an alert", len(used), len(known))
}

func promtool(t *testing.T, args ...string) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed (Debian: apt-get install prometheus); rules and queries were not run")
	}
	if out, err := redistest.Command(t, path, args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// TestRunbooks: every alert has a page that says what to do.
func TestRunbooks(t *testing.T) {
	alerts, err := os.ReadFile("alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	rules := regexp.MustCompile(`(?s)- alert: (\w+)\n(.*?)(?:\n\n|$)`).FindAllStringSubmatch(string(alerts), -1)
	if len(rules) < 25 {
		t.Fatalf("only %d alerts found", len(rules))
	}
	index, err := os.ReadFile("../docs/operations/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rules {
		page := "docs/operations/" + r[1] + ".md"
		if !strings.Contains(r[2], "runbook_url: https://github.com/llmguard/llmguard/blob/main/"+page+"\n") {
			t.Errorf("%s does not link to its runbook", r[1])
		}
		text, err := os.ReadFile("../" + page)
		fixed := strings.Contains(string(text), "**Mend.**") || strings.Contains(string(text), "**Fix.**")
		if err != nil || !fixed || !strings.Contains(string(index), "]("+r[1]+".md)") {
			t.Errorf("%s has no runbook, or is not in the index (%v)", r[1], err)
		}
	}
}

func TestAlerts(t *testing.T) {
	promtool(t, "check", "rules", "alerts.yaml")
	promtool(t, "test", "rules", "alerts_test.yaml", "alerts_day_test.yaml")
}

// TestQueriesParse has Prometheus itself read every panel's query.
func TestQueriesParse(t *testing.T) {
	type rule struct {
		Record string `yaml:"record"`
		Expr   string `yaml:"expr"`
	}
	var rules []rule
	for where, expr := range expressions(t) {
		if strings.HasPrefix(expr, "label_values(") {
			continue
		}
		for from, to := range map[string]string{"$__rate_interval": "1m", "$__range": "1h", "$job": ".*", "$instance": ".*", "$org": ".*"} {
			expr = strings.ReplaceAll(expr, from, to)
		}
		if strings.Contains(expr, "$") {
			t.Errorf("%s: unknown variable in %s", where, expr)
		}
		rules = append(rules, rule{fmt.Sprintf("test:panel:%d", len(rules)), expr})
	}
	data, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "panels", "rules": rules}}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "panels.yaml")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", path)
}
