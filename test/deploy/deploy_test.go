// Package deploy_test checks what is shipped in addition to the binaries: the compose file, the
// Dockerfile, and the files they mount.
package deploy_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/goccy/go-yaml"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/auth/keys"
)

func load(env ...string) (*types.Project, error) {
	o, err := cli.NewProjectOptions([]string{"../docker-compose.yml"}, cli.WithEnv(env), cli.WithResolvedPaths(true))
	if err != nil {
		return nil, err
	}
	return o.LoadProject(context.Background())
}

func project(t *testing.T) *types.Project {
	t.Helper()
	p, err := load("OPENAI_API_KEY=sk-test", "LLMGUARD_KEY_HASH=x")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestComposeNeedsTheKey(t *testing.T) {
	_, err := load()
	if err == nil || !strings.Contains(err.Error(), "OPENAI_API_KEY") || !strings.Contains(err.Error(), ".env") {
		t.Errorf("got %v", err)
	}
}

func TestComposeIsSafe(t *testing.T) {
	p := project(t)
	for name, s := range p.Services {
		for _, port := range s.Ports {
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s publishes %s beyond this machine", name, port.Published)
			}
		}
		if s.Build == nil && !regexp.MustCompile(`:v?\d+\.\d+\.\d+[^@]*@sha256:`).MatchString(s.Image) {
			t.Errorf("%s: image %s does not name a version and its digest", name, s.Image)
		}
		if s.Restart == "" || s.Logging == nil || s.Logging.Options["max-size"] == "" {
			t.Errorf("%s: no restart policy, or logs without bound", name)
		}
		for _, v := range s.Volumes {
			if v.Type != "bind" {
				continue
			}
			if !v.ReadOnly {
				t.Errorf("%s can write to %s", name, v.Source)
			}
			if _, err := os.Stat(v.Source); err != nil {
				t.Errorf("%s mounts what is not there: %v", name, err)
			}
		}
	}
	for _, name := range []string{"llmguard", "worker"} {
		s := p.Services[name]
		if !s.ReadOnly || !slices.Contains(s.CapDrop, "ALL") || !slices.Contains(s.SecurityOpt, "no-new-privileges:true") {
			t.Errorf("%s has more rights than it needs", name)
		}
		if s.DependsOn["redis"].Condition != types.ServiceConditionHealthy {
			t.Errorf("%s does not wait for Redis", name)
		}
	}
}

func TestComposeStoreKeepsEverything(t *testing.T) {
	redis := project(t).Services["redis"]
	command := strings.Join(redis.Command, " ")
	for _, want := range []string{"--appendonly yes", "--appendfsync everysec", "--maxmemory-policy noeviction"} {
		if !strings.Contains(command, want) {
			t.Errorf("redis runs without %s: %s", want, command)
		}
	}
	if redis.HealthCheck == nil || len(redis.HealthCheck.Test) == 0 || len(redis.Ports) > 0 {
		t.Error("redis has no health check, or is published")
	}
	if !slices.ContainsFunc(redis.Volumes, func(v types.ServiceVolumeConfig) bool { return v.Type == "volume" && v.Target == "/data" }) {
		t.Error("redis keeps its data in the container")
	}
	if !project(t).Networks["store"].Internal {
		t.Error("the store's network has a way out")
	}
}

// TestComposeKeepsFiles: uploads are on one volume shared by the proxy and the workers, to
// which the image's user can write, and all of them have a health check.
func TestComposeKeepsFiles(t *testing.T) {
	p, cfg := project(t), composeConfig(t)
	for _, name := range []string{"llmguard", "worker"} {
		s := p.Services[name]
		shared := func(v types.ServiceVolumeConfig) bool {
			return v.Type == "volume" && v.Source == "files" && v.Target == cfg.Files.Store
		}
		if !slices.ContainsFunc(s.Volumes, shared) {
			t.Errorf("%s has no volume for %s", name, cfg.Files.Store)
		}
		if s.HealthCheck == nil || strings.Join(s.HealthCheck.Test, " ") != "CMD /llmguard doctor --ready --config /etc/llmguard/llmguard.yaml" {
			t.Errorf("%s has no health check: %+v", name, s.HealthCheck)
		}
	}
	for _, image := range []string{"../Dockerfile", "Dockerfile.release"} {
		if !regexp.MustCompile(`(?s)\nUSER 65532:65532\n.*\nWORKDIR ` + regexp.QuoteMeta(cfg.Files.Store) + `\n`).MatchString(read(t, image)) {
			t.Errorf("%s: %s does not belong to the image's user", image, cfg.Files.Store)
		}
	}
	if !slices.ContainsFunc(p.Services["llmguard"].Ports, func(port types.ServicePortConfig) bool {
		return port.Target == 9090 && port.HostIP == "127.0.0.1"
	}) {
		t.Error("the console is not published on this machine")
	}
}

// The image's grace period must cover llmguard's shutdown.
func TestGraceCoversShutdown(t *testing.T) {
	p, cfg := project(t), composeConfig(t)
	for name, need := range map[string]time.Duration{
		"llmguard": cfg.Timeouts.Drain + cfg.Timeouts.Shutdown + 13*time.Second,
		"worker":   cfg.Queue.Shutdown + 13*time.Second,
	} {
		if grace := time.Duration(*p.Services[name].StopGracePeriod); grace < need {
			t.Errorf("%s is killed after %s, but may take %s", name, grace, need)
		}
	}
}

func composeConfig(t *testing.T) *config.Config {
	t.Helper()
	env := map[string]string{"OPENAI_API_KEY": "sk-test", "LLMGUARD_KEY_HASH": keys.Hash(keys.Pepper{}, keys.New(keys.Live))}
	data, err := os.ReadFile("compose/llmguard.yaml")
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Parse("compose/llmguard.yaml", data, func(name string) (string, bool) { v, ok := env[name]; return v, ok })
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// References between files match: addresses in one file are services and ports in another.
func TestPartsFitTogether(t *testing.T) {
	p, cfg := project(t), composeConfig(t)
	if got := cfg.Redis.Addresses; !slices.Equal(got, []string{"redis:6379"}) || p.Services["redis"].Name == "" {
		t.Errorf("redis is expected at %v", got)
	}
	if cfg.Listen != "0.0.0.0:8080" || p.Services["llmguard"].Ports[0].Target != 8080 {
		t.Errorf("the proxy listens on %s and publishes %d", cfg.Listen, p.Services["llmguard"].Ports[0].Target)
	}
	if r := p.Services["worker"].Deploy.Replicas; r == nil || *r != 2 {
		t.Error("not two workers")
	}
	prometheus := read(t, "compose/prometheus.yml")
	for _, want := range []string{"names: [llmguard]", "names: [worker]", "port: 9090", "job_name: llmguard-proxy", "job_name: llmguard-worker"} {
		if !strings.Contains(prometheus, want) {
			t.Errorf("prometheus.yml lacks %s", want)
		}
	}
	if !strings.HasSuffix(cfg.Admin.Listen, ":9090") {
		t.Errorf("metrics are on %s, scraped at 9090", cfg.Admin.Listen)
	}
	alerting := `targets: ["alertmanager:9093"]`
	if !strings.Contains(prometheus, alerting) || p.Services["alertmanager"].Ports[0].Target != 9093 {
		t.Errorf("prometheus.yml lacks %s, or Alertmanager publishes another port", alerting)
	}
	for _, name := range []string{"alertmanager.yml", "prometheus.yml", "grafana/datasource.yaml", "grafana/dashboards.yaml"} {
		var any map[string]any
		if err := yaml.Unmarshal([]byte(read(t, "compose/"+name)), &any); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	mounts := map[string]string{}
	for _, s := range p.Services {
		for _, v := range s.Volumes {
			mounts[v.Target] = filepath.Base(v.Source)
		}
	}
	for target, want := range map[string]string{
		"/etc/prometheus/alerts.yaml":                         "alerts.yaml",
		"/etc/prometheus/prometheus.yml":                      "prometheus.yml",
		"/etc/alertmanager/alertmanager.yml":                  "alertmanager.yml",
		"/var/lib/grafana/dashboards":                         "dashboards",
		"/etc/llmguard/llmguard.yaml":                         "llmguard.yaml",
		"/etc/grafana/provisioning/datasources/llmguard.yaml": "datasource.yaml",
		"/etc/grafana/provisioning/dashboards/llmguard.yaml":  "dashboards.yaml",
	} {
		if mounts[target] != want {
			t.Errorf("%s is %q, want %s", target, mounts[target], want)
		}
	}
}

// TestComposeAlertmanager: the webhook comes from the environment only, and without one the shell
// cuts a receiver that has no destination off a configuration that stays valid.
func TestComposeAlertmanager(t *testing.T) {
	s := project(t).Services["alertmanager"]
	if url := s.Environment["ALERT_WEBHOOK_URL"]; url == nil || *url != "" {
		t.Errorf("got ALERT_WEBHOOK_URL %v, want it empty without .env", url)
	}
	var cfg struct {
		Route     struct{ Receiver string }
		Receivers []struct {
			Name  string
			Slack []struct {
				File string `yaml:"api_url_file"`
			} `yaml:"slack_configs"`
		}
	}
	whole := read(t, "compose/alertmanager.yml")
	for text, want := range map[string]int{whole: 1, whole[:strings.Index(whole, "    slack_configs:")]: 0} {
		if err := yaml.Unmarshal([]byte(text), &cfg); err != nil {
			t.Fatal(err)
		}
		if len(cfg.Receivers) != 1 || cfg.Receivers[0].Name != cfg.Route.Receiver || len(cfg.Receivers[0].Slack) != want {
			t.Errorf("got %+v, want one receiver with %d destinations", cfg, want)
		}
		if want == 1 && !strings.Contains(s.Command[0], ">"+cfg.Receivers[0].Slack[0].File+"\n") {
			t.Errorf("got %q, want that it writes %s", s.Command[0], cfg.Receivers[0].Slack[0].File)
		}
		cfg.Receivers = nil
	}
	if !strings.Contains(s.Command[0], "sed '/slack_configs:/,$") || strings.Contains(whole, "api_url:") {
		t.Error("the receiver is not cut off, or the URL is in a file of the repository")
	}
}

// TestDockerfile keeps the image small, pinned and without root. Its first stage needs images that cannot be downloaded
// everywhere; the release's image is built by TestRelease.
func TestDockerfile(t *testing.T) {
	text := read(t, "../Dockerfile")
	froms := regexp.MustCompile(`(?m)^FROM .*?(\S+?)(?: AS \S+)?$`).FindAllStringSubmatch(text, -1)
	if len(froms) != 2 {
		t.Fatalf("%d stages", len(froms))
	}
	for _, f := range froms[:1] {
		if !strings.Contains(f[1], ":") || strings.HasSuffix(f[1], ":latest") {
			t.Errorf("base image %s is not pinned", f[1])
		}
	}
	last := text[strings.LastIndex(text, "\nFROM "):]
	if !strings.HasPrefix(last, "\nFROM scratch\n") || !strings.Contains(last, "USER 65532:65532") || strings.Contains(last, "RUN ") {
		t.Errorf("the last stage is more than binaries run by nobody:\n%s", last)
	}
	if regexp.MustCompile(`(?m)^ADD `).MatchString(text) {
		t.Error("ADD fetches from anywhere; use COPY")
	}
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, "../go.mod"))[1]
	if !strings.Contains(text, "golang:"+version) {
		t.Errorf("the image is not built with Go %s", version)
	}
	if !slices.Contains(strings.Split(read(t, "../.dockerignore"), "\n"), ".env") {
		t.Error(".env would be sent to the builder")
	}
}

// TestMain changes to the folder of the tested files, so that the paths start there.
func TestMain(m *testing.M) {
	if err := os.Chdir("../../deploy"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
