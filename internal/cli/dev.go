package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/internal/app/front"
	"github.com/llmguard/llmguard/internal/devstore"
	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/keys"
)

type devOptions struct {
	listen, admin, redis, data string
	fake                       bool
}

func devCommand() *cobra.Command {
	var o devOptions
	c := &cobra.Command{
		Use: "dev", Short: "Run everything on this machine, with a key ready to use", Args: cobra.NoArgs,
		Long: "Runs proxy and worker with two example users, on a Redis given by --redis or REDIS_URL, else on a child\n" +
			"redis-server, else in memory. Calls go to OpenAI when OPENAI_API_KEY is set, else to a built-in fake provider.",
		RunE: func(c *cobra.Command, _ []string) error {
			if !c.Flags().Changed("redis") {
				o.redis = os.Getenv("REDIS_URL")
			}
			return runDev(c.Context(), o, c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	f := c.Flags()
	f.StringVar(&o.listen, "listen", "127.0.0.1:8080", "address for callers")
	f.StringVar(&o.admin, "admin", "127.0.0.1:9090", "address for health and metrics")
	// REDIS_URL is no default here: the help would show a password in it.
	f.StringVar(&o.redis, "redis", "", "Redis URL (default: REDIS_URL, or a child redis-server)")
	f.StringVar(&o.data, "data", "", "directory for files and the child server's data; default: a new one, removed at the end")
	f.BoolVar(&o.fake, "fake", false, "use the fake provider even when OPENAI_API_KEY is set")
	return c
}

// devConfig is an ordinary configuration, so that what dev shows is what a
// file can do.
var devConfig = template.Must(template.New("dev").Parse(`
listen: {{.Listen}}
admin: {listen: "{{.Admin}}", keys: [{id: dev, hash: "{{.AdminKey}}"}]}
timeouts: {drain: 0s, shutdown: 10s}
log: {format: text}
redis: {{.Redis}}
files: {store: {{printf "%q" .Files}}}
providers:
  - id: openai
    base_url: {{.BaseURL}}
    api_key: {{.Key}}
    pools:
      - {id: openai, rpm: 500, tpm: 2M, concurrency: 100}
orgs:
  - id: dev
    default_output_limit: 4096
    limits:
      - {name: org-bucket, subject: org, metric: cost, bucket: {capacity: $10, refill: $10/1h}}
      - {name: user-window, subject: user, metric: cost, amount: $2, window: 1h}
    users:
      - id: alice
        keys: [{id: alice-dev, hash: "{{.Alice}}"}]
      - id: bob
        limits:
          - {name: user-window, subject: user, metric: cost, amount: $0.0001, window: 10s}
        keys: [{id: bob-dev, hash: "{{.Bob}}"}]
`))

func runDev(ctx context.Context, o devOptions, stdout, stderr io.Writer) (err error) {
	fmt.Fprintln(stderr, "llmguard is starting: waiting for its store"+startingStore(o)+" ...")
	base, key, provider, stop, err := devProvider(o)
	if err != nil {
		return err
	}
	defer stop()
	alice, bob, operator := keys.New(keys.Live), keys.New(keys.Live), keys.New(keys.Admin)
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
	path, cfg, err := writeDev(dir, map[string]string{
		"Listen": o.listen, "Admin": o.admin, "Redis": store.config, "BaseURL": base, "Key": key, "Files": filepath.Join(dir, "files"),
		"Alice": keys.Hash(keys.Pepper{}, alice), "Bob": keys.Hash(keys.Pepper{}, bob), "AdminKey": keys.Hash(keys.Pepper{}, operator),
	})
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
	welcome(stdout, a, path, store.kind, provider, alice, bob, operator)
	return a.Run(ctx)
}

// startingStore names the store that dev is about to wait for.
func startingStore(o devOptions) string {
	if o.redis != "" {
		return ", the given Redis"
	}
	if _, err := exec.LookPath("redis-server"); err == nil {
		return ", a redis-server of its own"
	}
	return " in memory (no redis-server on the PATH)"
}

func devProvider(o devOptions) (base, key, text string, stop func(), err error) {
	if real := os.Getenv("OPENAI_API_KEY"); real != "" && !o.fake {
		return "https://api.openai.com/v1", "${OPENAI_API_KEY}", "OpenAI, with the key in OPENAI_API_KEY: calls cost real money", func() {}, nil
	}
	fake := fakeprovider.New(fakeprovider.Options{Cadence: fakeprovider.DevCadence()})
	if err := fake.Start(); err != nil {
		return "", "", "", nil, err
	}
	return fake.BaseURL(), "fake", "built-in fake (set OPENAI_API_KEY to use OpenAI): nothing costs money", func() { _ = fake.Close() }, nil
}

// writeDev puts the configuration into a file, so that the other commands can be
// tried on what runs.
func writeDev(dir string, values map[string]string) (path string, cfg *config.Config, err error) {
	var text strings.Builder
	if err := devConfig.Execute(&text, values); err != nil {
		return "", nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", nil, err
	}
	path = filepath.Join(dir, "llmguard.yaml")
	if err := os.WriteFile(path, []byte(strings.TrimLeft(text.String(), "\n")), 0o600); err != nil {
		return "", nil, err
	}
	cfg, err = config.Load(path)
	return path, cfg, err
}

// devData is the directory for files and for the child server's data. With a
// Redis that outlives this process it stays the same, because files do so too.
func devData(o devOptions) (dir string, clean func() error, err error) {
	keep := func() error { return nil }
	if o.data != "" {
		return o.data, keep, nil
	}
	if o.redis != "" {
		cache, err := os.UserCacheDir()
		return filepath.Join(cache, "llmguard-dev"), keep, err
	}
	if dir, err = os.MkdirTemp("", "llmguard-data-"); err != nil {
		return "", nil, err
	}
	return dir, func() error { return os.RemoveAll(dir) }, nil
}

// devRedis is the store that was found: for people, and for the configuration.
type devRedis struct{ kind, config string }

func devStore(ctx context.Context, o devOptions, dir string) (redis.UniversalClient, devRedis, func() error, error) {
	if o.redis != "" {
		rdb, err := app.Connect(config.Redis{URL: config.Secret(o.redis)})
		if err != nil {
			return nil, devRedis{}, nil, err
		}
		return rdb, devRedis{"the given Redis", fmt.Sprintf("{url: %q}", o.redis)}, rdb.Close, nil
	}
	store, err := devstore.Start(ctx, dir)
	if err != nil {
		return nil, devRedis{}, nil, err
	}
	kind := store.Kind
	if !store.Durable {
		kind += ". WARNING: budgets and jobs are forgotten when this process ends; install redis-server to keep them"
	}
	rdb := redis.NewClient(store.Options)
	return rdb, devRedis{kind, fmt.Sprintf("{addresses: [%q]}", store.Options.Addr)}, func() error { return errors.Join(rdb.Close(), store.Close()) }, nil
}

func welcome(w io.Writer, a *app.App, path, store, provider, alice, bob, operator string) {
	url := a.URL() + "/v1"
	fmt.Fprintf(w, `llmguard is ready
  base URL   %[1]s
  API key    %[2]s
  provider   %[3]s
  store      %[4]s
  metrics    %[5]s/metrics
  console    %[5]s/console/
  admin API  %[5]s/admin/v1
  admin key  %[7]s
  config     %[8]s

One call, with its cost and what is left in the headers:
  curl -i %[1]s/chat/completions -H 'Authorization: Bearer %[2]s' -H 'Content-Type: application/json' -d '{"model":"gpt-4o-mini","max_tokens":100,"messages":[{"role":"user","content":"Say hello"}]}'

A stream:
  curl -N %[1]s/chat/completions -H 'Authorization: Bearer %[2]s' -H 'Content-Type: application/json' -d '{"model":"gpt-4o-mini","stream":true,"messages":[{"role":"user","content":"Tell me a story"}]}'

Over the limit: bob may spend $0.0001 in 10 s, so his calls wait in the queue instead of failing:
  for i in 1 2 3; do curl -s -o /dev/null -w '%%{http_code} after %%{time_total}s\n' %[1]s/chat/completions -H 'Authorization: Bearer %[6]s' -H 'Content-Type: application/json' -d '{"model":"gpt-4o-mini","max_tokens":100,"messages":[{"role":"user","content":"Say hello"}]}'; done

An org, a user and a key of your own, from another terminal:
  export LLMGUARD_ADMIN_URL=%[5]s LLMGUARD_ADMIN_KEY=%[7]s
  llmguard orgs create acme && llmguard users create carol --org acme && llmguard keys create --org acme --user carol

What happens now, and what was spent, from another terminal:
  llmguard top -c %[8]s
  llmguard usage -c %[8]s

Ctrl-C ends it.

`, url, alice, provider, store, a.AdminURL(), bob, operator, path)
}
