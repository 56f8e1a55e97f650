package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"text/template"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/internal/app/front"
	"github.com/llmguard/llmguard/internal/fakeprovider"
)

type devOptions struct {
	listen, admin, redis, data string
	real, demo                 bool
}

func devCommand() *cobra.Command {
	var o devOptions
	var fake bool
	c := &cobra.Command{
		Use: "dev", Short: "Run a proxy and a worker on this machine, with a key ready to use", Args: cobra.NoArgs,
		Long: "Runs a proxy and a worker with two example users. It uses the Redis given by --redis or REDIS_URL; otherwise it starts a\n" +
			"redis-server, or stores data in memory if there is none. Calls go to a built-in fake provider and cost nothing; with\n" +
			"--real they go to OpenAI with OPENAI_API_KEY. Keys and data are deleted on exit unless --data or --redis keeps them.",
		Example: "  llmguard dev --data ./llmguard-dev\n  llmguard dev --demo",
		RunE: func(c *cobra.Command, _ []string) error {
			if !c.Flags().Changed("redis") {
				o.redis = os.Getenv("REDIS_URL")
			}
			for _, a := range []struct {
				flag string
				at   *string
			}{{"listen", &o.listen}, {"admin", &o.admin}} {
				if !c.Flags().Changed(a.flag) {
					*a.at = announceMove(c.ErrOrStderr(), *a.at)
				} else if err := checkAddress(*a.at); err != nil {
					return misused("--%s %w", a.flag, err)
				}
			}
			return runDev(c.Context(), o, c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	f := c.Flags()
	f.StringVar(&o.listen, "listen", "127.0.0.1:8080", "address for callers; if the default is in use, the next free port")
	f.StringVar(&o.admin, "admin", defaultAdmin,
		"address for health, metrics and console; if the default is in use, the next free port")
	// REDIS_URL is not the default value here, because the help would show the password in it.
	f.StringVar(&o.redis, "redis", "", "Redis URL (default: REDIS_URL, or a new redis-server)")
	f.StringVar(&o.data, "data", "",
		"directory for keys, files and Redis data (default: a temporary one, deleted on exit)")
	f.BoolVar(&o.real, "real", false, "send calls to OpenAI with OPENAI_API_KEY; they cost money")
	f.BoolVar(&o.demo, "demo", false, "simulate 50 users in 5 orgs, one of them a runaway program")
	f.BoolVar(&fake, "fake", false, "use the fake provider")
	_ = f.MarkDeprecated("fake", "the fake provider is the default")
	c.MarkFlagsMutuallyExclusive("real", "demo")
	c.MarkFlagsMutuallyExclusive("real", "fake")
	return c
}

// announceMove returns an address to listen on, and prints a note if it is not the given one.
func announceMove(w io.Writer, address string) string {
	free := freeAddress(address)
	if free != address {
		fmt.Fprintf(w, "%s is in use; listening on %s\n", address, free)
	}
	return free
}

// devConfig is an ordinary configuration file, so that everything dev shows can be done with a
// file.
var devConfig = template.Must(template.New("dev").Parse(`
listen: {{.Listen}}
admin: {listen: "{{.Admin}}", keys: [{id: dev, hash: "{{.Hash "operator"}}"}]}
timeouts: {drain: 0s, shutdown: 10s}
log: {format: text{{if .Demo}}, level: warn{{end}}}
redis: {{.Redis}}
files: {store: {{printf "%q" .Files}}}
labels: [{name: project, from: [header X-Project, key], usage: true}]
providers:
{{- with .Claude}}
  - id: anthropic
    kind: anthropic
    base_url: {{.Base}}
    api_key: {{.Key}}
    pools:
      - {id: anthropic, models: [claude-*], rpm: 500, tpm: 2M, concurrency: 100}
{{- end}}
  - id: openai
    base_url: {{.BaseURL}}
    api_key: {{.Key}}
    pools:
      - {id: openai, rpm: {{if .Demo}}5000, tpm: 20M{{else}}500, tpm: 2M{{end}}, concurrency: 100}
orgs:
{{- if .Demo}}
{{- range .Demo}}
  - id: {{.ID}}
    name: {{.Name}}
    default_output_limit: 4096
    limits:
      - {name: org-bucket, subject: org, metric: cost, bucket: {capacity: $10, refill: $10/1h}}
      - {name: user-bucket, subject: user, metric: cost, bucket: {capacity: {{.Burst}}, refill: {{.PerHour}}/1h}}
    users:
    {{- range .Users}}
      - id: {{.}}
        keys: [{id: {{.}}-dev, hash: "{{$.Hash .}}"}]
    {{- end}}
{{- end}}
{{- else}}
  - id: dev
    default_output_limit: 4096
    limits:
      - {name: org-bucket, subject: org, metric: cost, bucket: {capacity: $10, refill: $10/1h}}
      - {name: user-window, subject: user, metric: cost, amount: $2, window: 1h}
    users:
      - id: alice
        keys: [{id: alice-dev, hash: "{{.Hash "alice"}}"}]
      - id: bob
        limits:
          - {name: user-window, subject: user, metric: cost, amount: $0.0001, window: 10s}
        keys: [{id: bob-dev, hash: "{{.Hash "bob"}}"}]
{{- end}}
`))

type devValues struct {
	Listen, Admin, Redis, Files, BaseURL, Key string
	Claude                                    *devClaude
	Demo                                      []demoOrg // if empty, two example users
	devKeys
}

type devClaude struct{ Base, Key string }

func runDev(ctx context.Context, o devOptions, stdout, stderr io.Writer) (err error) {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP)
	defer stop()
	stdout, stderr = untilClosed(stdout, stop), untilClosed(stderr, stop)
	provider, err := newDevProvider(o)
	if err != nil {
		return err
	}
	defer provider.stop()
	fmt.Fprintf(stderr, "Starting llmguard with %s ...\n", startingStore(o))
	dir, clean, err := devData(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, clean()) }()
	rdb, store, closeStore, err := devStore(ctx, o, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeStore()) }()
	values := devValues{
		Listen: o.listen, Admin: o.admin, Redis: store.config, Files: filepath.Join(dir, "files"),
		BaseURL: provider.base, Key: provider.key, Claude: provider.claude,
	}
	if o.demo {
		values.Demo = demoOrgs
	}
	values.devKeys, err = keepKeys(dir, values.users())
	if err != nil {
		return err
	}
	path, cfg, err := writeDev(dir, values)
	if err != nil {
		return err
	}
	log, _, flush := app.Logger(cfg.Log, stderr)
	defer flush()
	if err := app.CheckRedis(ctx, rdb, log); err != nil && o.redis != "" {
		return err
	}
	a, err := app.New(app.Options{Config: cfg, Redis: rdb, Roles: app.Proxy | app.Worker, Front: front.New, Log: log})
	if err != nil {
		return fmt.Errorf("%w (other addresses: --listen, --admin)", err)
	}
	if err := welcome(stdout, devRunning{
		URL: a.URL() + "/v1", Admin: a.AdminURL(), Config: admin.ShellWord(path), Provider: provider.text, Store: store.kind,
		Command: called(), devValues: values,
	}); err != nil {
		return err
	}
	if o.demo {
		go newDemoTraffic(a.URL(), values.devKeys).run(ctx)
	}
	return a.Run(ctx)
}

// untilClosed passes writes through and calls stop when nothing reads the output any more.
// Without it, SIGPIPE would kill the program and leave a child redis-server behind.
func untilClosed(w io.Writer, stop func()) io.Writer {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // from now on writes fail with EPIPE
	return closable{w, stop}
}

type closable struct {
	io.Writer
	stop func()
}

func (c closable) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	if errors.Is(err, syscall.EPIPE) {
		c.stop()
		return len(p), nil
	}
	return n, err
}

type devProvider struct {
	base, key string
	claude    *devClaude // nil: there are no Claude models
	text      string     // description to print
	stop      func()
}

func newDevProvider(o devOptions) (devProvider, error) {
	key := os.Getenv("OPENAI_API_KEY")
	switch {
	case o.real && key == "":
		return devProvider{}, errors.New("--real needs an OpenAI key in OPENAI_API_KEY")
	case o.real:
		return realProvider(), nil
	}
	cadence := fakeprovider.DevCadence()
	if o.demo {
		cadence = demoCadence
	}
	fake := fakeprovider.New(fakeprovider.Options{Cadence: cadence})
	if err := fake.Start(); err != nil {
		return devProvider{}, err
	}
	return devProvider{
		base: fake.BaseURL(), key: "fake", claude: &devClaude{fake.BaseURL(), "fake"}, stop: func() { _ = fake.Close() },
		text: "built-in fake; calls cost nothing (use --real for OpenAI)",
	}, nil
}

// realProvider is OpenAI, and Anthropic if there is a key for it.
func realProvider() devProvider {
	p := devProvider{
		base: "https://api.openai.com/v1", key: "${OPENAI_API_KEY}", stop: func() {},
		text: "OpenAI, with OPENAI_API_KEY; calls cost money",
	}
	if os.Getenv("ANTHROPIC_API_KEY") != "" {
		p.claude = &devClaude{"https://api.anthropic.com/v1", "${ANTHROPIC_API_KEY}"}
		p.text = "OpenAI, with OPENAI_API_KEY, and Anthropic, with ANTHROPIC_API_KEY; calls cost money"
	}
	return p
}

// writeDev writes the configuration to a file, so that the other commands can use it.
func writeDev(dir string, values devValues) (path string, cfg *config.Config, err error) {
	var text strings.Builder
	if err := devConfig.Execute(&text, values); err != nil {
		return "", nil, err
	}
	path = filepath.Join(dir, "llmguard.yaml")
	if err := os.WriteFile(path, []byte(strings.TrimLeft(text.String(), "\n")), 0o600); err != nil {
		return "", nil, err
	}
	cfg, err = config.Load(path)
	return path, cfg, err
}
