package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/internal/auth/keys"
)

func initCommand() *cobra.Command {
	var path string
	var force bool
	c := &cobra.Command{
		Use: "init", Short: "Write a configuration to start from, with a first key", Args: cobra.NoArgs,
		Long: "Writes a commented configuration that passes `llmguard check`, and its JSON Schema for editors beside it. It has the\n" +
			"providers whose keys are in the environment (OPENAI_API_KEY, GEMINI_API_KEY, MISTRAL_API_KEY, DEEPSEEK_API_KEY,\n" +
			"GROQ_API_KEY), refers to those keys without writing them down, and takes Redis from REDIS_URL when that is set.\n" +
			"It overwrites nothing without --force. The key of the first user is shown once.",
		RunE: func(c *cobra.Command, _ []string) error {
			return runInit(path, force, os.LookupEnv, c.OutOrStdout())
		},
	}
	c.Flags().StringVarP(&path, "config", "c", "llmguard.yaml", "the file to write")
	c.Flags().BoolVar(&force, "force", false, "overwrite the file if it is there")
	return c
}

// defaultAdmin is the address of the admin listener, unless it is taken.
const defaultAdmin = "127.0.0.1:9090"

// schemaName is the schema's file, beside the configuration.
const schemaName = "llmguard.schema.json"

// known are the providers that a key in the environment stands for.
var known = []starter{
	{
		"OPENAI_API_KEY", "openai", "", "https://api.openai.com/v1",
		`["gpt-*", "o1*", "o3*", "o4*", "text-embedding-*", "whisper-*", "tts-*"]`,
	},
	{"GEMINI_API_KEY", "google", "gemini", "https://generativelanguage.googleapis.com/v1beta/openai", `["gemini-*"]`},
	{
		"MISTRAL_API_KEY", "mistral", "mistral", "https://api.mistral.ai/v1",
		`["mistral-*", "codestral*", "ministral-*", "magistral-*"]`,
	},
	{"DEEPSEEK_API_KEY", "deepseek", "", "https://api.deepseek.com/v1", `["deepseek-*"]`},
	{"GROQ_API_KEY", "groq", "", "https://api.groq.com/openai/v1", `["llama-3.*", "openai/gpt-oss-*", "qwen/*"]`},
}

// starter is a provider of the starter file.
type starter struct{ Env, ID, Kind, URL, Models string }

// starterFile is what init writes. Every line of it is a good value to keep.
var starterFile = template.Must(template.New("starter").Parse(`# yaml-language-server: $schema={{.Schema}}
#
# llmguard's configuration. After a change: llmguard check, then reload (SIGHUP).
# All settings: docs/config.md, or this file in an editor that knows the schema.
# "${NAME}" is taken from the environment, "file:/run/secrets/NAME" from a file.

# Where callers call. Give it a certificate (tls), or keep it behind a TLS proxy and name that in trusted_proxies.
listen: 127.0.0.1:8080

# Health, metrics, administration. Keep it off the internet. Each process on this
# machine needs its own: set ADMIN_LISTEN for the others.
admin:
  listen: "${ADMIN_LISTEN:-{{.Admin}}}"

# Limits, jobs and the ledger live here: maxmemory-policy noeviction, appendonly yes.
redis:
{{- if .RedisURL}}
  url: ${REDIS_URL}
{{- else}}
  addresses: ["127.0.0.1:6379"]
  # password: ${REDIS_PASSWORD}
{{- end}}

# What becomes of calls while Redis is away: deny, local or allow. The ends of calls
# are kept in journal_dir until it is back: a disk that outlives the process.
store:
  on_failure: deny
  # journal_dir: /var/lib/llmguard/journal

# Secrets that bind the hashes of keys. Make one (openssl rand -hex 32) before you
# make keys for others; hashes made without it go on working.
# auth:
#   peppers:
#     - {id: p1, secret: "${LLMGUARD_PEPPER}"}

# The bodies of waiting jobs are encrypted in Redis with this (openssl rand -hex 32).
# queue:
#   seal_keys:
#     - {id: s1, secret: "${LLMGUARD_SEAL_KEY}"}

# The accounts calls go to. A model goes to the first pool with a pattern that fits.
providers:
{{- range .Providers}}
  - id: {{.ID}}
{{- if .Kind}}
    kind: {{.Kind}}
{{- end}}
    base_url: {{.URL}}
    api_key: ${ {{- .Env}}{{if $.Missing}}:-put-a-key-here{{end -}} }
    pools:
      # Your quota there, kept by all processes together: copy the numbers from the
      # account's limits page. What the provider says in its answers counts, too.
      - id: {{.ID}}
        models: {{.Models}}
        # rpm: 500
        # tpm: 500k
        # concurrency: 100
{{- end}}

# A model without a price is refused. Prices of your own, in USD per million tokens:
# prices:
#   - {model: our-own-70b, provider: house, max_output: 16384, prices: [{input: 0.2, output: 0.6}]}

# Stops for everybody together, whatever the orgs' limits say.
spend_caps:
  - {name: month, amount: $1000, calendar: month}

# The tenants, with their limits, users and keys. More are made while it runs, with
# llmguard orgs, users and keys, and live in Redis.
orgs:
  - id: {{.Org}}
    # Calls that name no output limit get this one; without it each holds the model's maximum.
    default_output_limit: 4096
    limits:
      # All users together: $50 at once, refilled by $10 an hour.
      - {name: org-bucket, bucket: {capacity: $50, refill: $10/1h}}
      # Each user: at most $5 in any hour. What does not fit waits (over_limit: wait).
      - {name: user-hour, subject: user, amount: $5, window: 1h}
      # Only counted and reported, so that you see what a limit would do.
      - {name: user-day, subject: user, metric: tokens, amount: 5M, window: 1d, mode: shadow}
    users:
      - id: {{.User}}
        keys:
          # The key itself is stored nowhere. Another one: llmguard keys new --help
          - {id: {{.User}}-1, hash: "{{.Hash}}"}
`))

func runInit(path string, force bool, getenv func(string) (string, bool), w io.Writer) error {
	key := keys.New(keys.Live)
	var text strings.Builder
	chosen, missing := starters(getenv)
	redisURL, _ := getenv("REDIS_URL")
	admin := freeAddress(defaultAdmin)
	if err := starterFile.Execute(&text, map[string]any{
		"Schema": schemaName, "Admin": admin, "Providers": chosen, "Missing": missing, "RedisURL": redisURL != "",
		"Org": "acme", "User": "alice", "Hash": keys.Hash(keys.Pepper{}, key),
	}); err != nil {
		return err
	}
	if err := create(path, []byte(text.String()), force); err != nil {
		return err
	}
	schema := filepath.Join(filepath.Dir(path), schemaName)
	if err := os.WriteFile(schema, config.Schema(), 0o644); err != nil {
		return err
	}
	if _, _, err := app.Check(path); err != nil {
		return err
	}
	return (&start{path, key, freeAddress(nextAddress(admin)), chosen, missing}).nextSteps(w)
}

// starters are the providers whose keys there are, or the first one, whose key is
// then missing.
func starters(getenv func(string) (string, bool)) (chosen []starter, missing bool) {
	for _, s := range known {
		if value, _ := getenv(s.Env); value != "" {
			chosen = append(chosen, s)
		}
	}
	if len(chosen) == 0 {
		return known[:1], true
	}
	return chosen, false
}

// create writes a file that only its owner may read, and no other's over it.
func create(path string, data []byte, force bool) error {
	how := os.O_WRONLY | os.O_CREATE | os.O_EXCL
	if force {
		how = os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	}
	f, err := os.OpenFile(path, how, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is there already; --force overwrites it, --config names another file", path)
	}
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// start is what the first steps with a new configuration need.
type start struct {
	path, key, worker string
	chosen            []starter
	missing           bool // the first one's key
}

func (f *start) nextSteps(w io.Writer) error {
	var names []string
	for _, s := range f.chosen {
		names = append(names, s.ID)
	}
	hint := ""
	if f.missing {
		hint = "\nNo provider's key is in the environment: set " + f.chosen[0].Env + " before you start it.\n"
	}
	_, err := fmt.Fprintf(w, `wrote %[1]s (%[2]s) and %[3]s
%[4]s
The key of the first user, shown only now:

  %[5]s

Next:

  %[6]s check --live -c %[1]s
  %[6]s serve -c %[1]s
  ADMIN_LISTEN=%[7]s %[6]s worker -c %[1]s

  curl http://127.0.0.1:8080/v1/models -H 'Authorization: Bearer %[5]s'
`, shellWord(f.path), strings.Join(names, ", "), schemaName, hint, f.key, called(), f.worker)
	return err
}
