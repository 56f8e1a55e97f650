package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/template"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/internal/auth/keys"
)

func initCommand() *cobra.Command {
	var path string
	var force bool
	c := &cobra.Command{
		Use: "init", Short: "Write a starter configuration with a first key", Args: cobra.NoArgs,
		Example: "  llmguard init\n" +
			"  llmguard init --config prod.yaml",
		Long: "Writes a commented configuration that passes `llmguard check`, and its JSON Schema for editors next to it. The\n" +
			"configuration includes the providers whose keys are in the environment (OPENAI_API_KEY, ANTHROPIC_API_KEY,\n" +
			"GEMINI_API_KEY, MISTRAL_API_KEY, DEEPSEEK_API_KEY, GROQ_API_KEY). It refers to these keys without copying them, and uses\n" +
			"REDIS_URL if that is set. Existing files are kept unless you use --force. The key of the first user is shown once.",
		RunE: func(c *cobra.Command, _ []string) error {
			return runInit(path, force, os.LookupEnv, c.OutOrStdout())
		},
	}
	c.Flags().StringVarP(&path, "config", "c", "llmguard.yaml", "file to write")
	c.Flags().BoolVar(&force, "force", false, "overwrite an existing file")
	return c
}

// defaultAdmin is the preferred address of the admin listener.
const defaultAdmin = "127.0.0.1:9090"

// schemaName is the file name of the schema, next to the configuration.
const schemaName = "llmguard.schema.json"

// known are the providers that init detects by a key in the environment.
var known = []starter{
	{
		"OPENAI_API_KEY", "openai", "", "https://api.openai.com/v1",
		`["gpt-*", "o1*", "o3*", "o4*", "text-embedding-*", "whisper-*", "tts-*"]`,
	},
	{"ANTHROPIC_API_KEY", "anthropic", "anthropic", "https://api.anthropic.com/v1", `["claude-*"]`},
	{"GEMINI_API_KEY", "google", "gemini", "https://generativelanguage.googleapis.com/v1beta/openai", `["gemini-*"]`},
	{
		"MISTRAL_API_KEY", "mistral", "mistral", "https://api.mistral.ai/v1",
		`["mistral-*", "codestral*", "ministral-*", "magistral-*"]`,
	},
	{"DEEPSEEK_API_KEY", "deepseek", "", "https://api.deepseek.com/v1", `["deepseek-*"]`},
	{"GROQ_API_KEY", "groq", "", "https://api.groq.com/openai/v1", `["llama-3.*", "openai/gpt-oss-*", "qwen/*"]`},
}

type starter struct{ Env, ID, Kind, URL, Models string }

// starterFile is the file that init writes. Every value in it is a good default.
var starterFile = template.Must(template.New("starter").Parse(`# yaml-language-server: $schema={{.Schema}}
#
# llmguard's configuration. After a change: llmguard check, then reload (SIGHUP).
# All settings: docs/config, or this file in an editor that knows the schema.
# "${NAME}" is read from the environment, "file:/run/secrets/NAME" from a file.

# The address for callers. Set a certificate (tls), or run it behind a TLS proxy and list that in trusted_proxies.
listen: 127.0.0.1:8080

# Health, metrics and administration. Keep it off the internet. Each process on this
# machine needs its own address: set ADMIN_LISTEN for the others.
admin:
  listen: "${ADMIN_LISTEN:-{{.Admin}}}"

# Redis stores limits, jobs and the ledger. Set maxmemory-policy noeviction and appendonly yes there.
redis:
{{- if .RedisURL}}
  url: ${REDIS_URL}
{{- else}}
  addresses: ["127.0.0.1:6379"]
  # password: ${REDIS_PASSWORD}
{{- end}}

# What happens to calls while Redis is unavailable: deny, local or allow. Charges are
# kept in journal_dir until Redis is back; put it on persistent storage.
store:
  on_failure: deny
  # journal_dir: /var/lib/llmguard/journal

# Secrets mixed into the hashes of keys. Generate one (openssl rand -hex 32) before you
# create keys for others. Hashes made without it keep working.
# auth:
#   peppers:
#     - {id: p1, secret: "${LLMGUARD_PEPPER}"}

# Encrypts the bodies of waiting jobs in Redis (openssl rand -hex 32).
# queue:
#   seal_keys:
#     - {id: s1, secret: "${LLMGUARD_SEAL_KEY}"}

# Uploads and batches: a directory that all proxies and workers share, or a bucket.
files:
  store: {{.Files}}

# The provider accounts. A call goes to the first pool with a pattern that matches its model.
providers:
{{- range .Providers}}
  - id: {{.ID}}
{{- if .Kind}}
    kind: {{.Kind}}
{{- end}}
    base_url: {{.URL}}
    api_key: ${ {{- .Env}}{{if $.Missing}}:-put-a-key-here{{end -}} }
    pools:
      # Your quota, shared by all processes. Copy the numbers from the account's limits
      # page. Lower limits in the provider's responses also apply.
      - id: {{.ID}}
        models: {{.Models}}
        # rpm: 500
        # tpm: 500k
        # concurrency: 100
{{- end}}

# Calls to a model without a price are refused. Your own prices, in USD per million tokens:
# prices:
#   - {model: our-own-70b, provider: house, max_output: 16384, prices: [{input: 0.2, output: 0.6}]}

# A cap on total spending, in addition to the orgs' limits.
spend_caps:
  - {name: month, amount: $1000, calendar: month}

# Tenants with their limits, users and keys. Create more at runtime with llmguard orgs,
# users and keys; those are stored in Redis.
orgs:
  - id: {{.Org}}
    # The output limit of calls that set none. Without it, they reserve the model's maximum.
    default_output_limit: 4096
    limits:
      # All users together: bursts of up to $50, refilled at $10 per hour.
      - {name: org-bucket, bucket: {capacity: $50, refill: $10/1h}}
      # Each user: at most $5 in any hour. Calls over the limit wait (over_limit: wait).
      - {name: user-hour, subject: user, amount: $5, window: 1h}
      # Shadow mode: counted and reported, not enforced.
      - {name: user-day, subject: user, metric: tokens, amount: 5M, window: 1d, mode: shadow}
    users:
      - id: {{.User}}
        keys:
          # Only the hash is stored. To create another key: llmguard keys new --help
          - {id: {{.User}}-1, hash: "{{.Hash}}"}
`))

func runInit(path string, force bool, getenv func(string) (string, bool), w io.Writer) error {
	key := keys.New(keys.Live)
	var text strings.Builder
	chosen, missing := starters(getenv)
	redisURL, _ := getenv("REDIS_URL")
	admin := freeAddress(defaultAdmin)
	dir, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return err
	}
	if err := starterFile.Execute(&text, map[string]any{
		"Schema": schemaName, "Admin": admin, "Providers": chosen, "Missing": missing, "RedisURL": redisURL != "",
		"Org": "acme", "User": "alice", "Hash": keys.Hash(keys.Pepper{}, key), "Files": strconv.Quote(filepath.Join(dir, "llmguard-files")),
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
	if _, _, err := app.Check(path, config.LoadOperator); err != nil {
		return err
	}
	return (&start{path, key, freeAddress(nextAddress(admin)), chosen, missing}).nextSteps(w)
}

// starters returns the providers with a key in the environment. If there is none, it returns
// the first known provider and missing is true.
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

// create writes a file that only its owner can read. It overwrites an existing file only with
// force.
func create(path string, data []byte, force bool) error {
	if force {
		return intoFile(path, copyOf(bytes.NewReader(data)))
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s already exists. Overwrite it with --force, or choose another file with --config", path)
	}
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// start holds what the next steps after init mention.
type start struct {
	path, key, worker string
	chosen            []starter
	missing           bool // the first provider's key is missing
}

func (f *start) nextSteps(w io.Writer) error {
	var names []string
	for _, s := range f.chosen {
		names = append(names, s.ID)
	}
	hint := ""
	if f.missing {
		hint = "\nNo provider key found in the environment. Set " + f.chosen[0].Env + " before you start it.\n"
	}
	_, err := fmt.Fprintf(w, `wrote %[1]s (%[2]s) and %[3]s
%[4]s
The key of the first user (shown only once):

  %[5]s

Next:

  %[6]s check --live -c %[1]s
  %[6]s serve -c %[1]s
  ADMIN_LISTEN=%[7]s %[6]s worker -c %[1]s

  curl http://127.0.0.1:8080/v1/models -H 'Authorization: Bearer %[5]s'
`, admin.ShellWord(f.path), strings.Join(names, ", "), schemaName, hint, f.key, called(), f.worker)
	return err
}
