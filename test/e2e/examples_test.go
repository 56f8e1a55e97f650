package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/internal/cli"
)

// notRun are the examples that cannot run here, each with its reason.
var notRun = []struct{ pattern, reason string }{
	{`^llmguard (serve|worker|dev|top)\b`, "runs until it is ended, or needs a terminal"},
	{`--once`, "top needs the terminal's size"},
	{`systemctl|kill -HUP|kubectl|docker|watch -n`, "is for a machine with services of its own, or runs until it is ended"},
	{`make-requests`, "stands for a program of the reader's"},
	{`proxy-1|staging|\.internal`, "names hosts that are the reader's"},
	{`litellm|FILE|models\.dev|models\.json|model_prices|genai|openrouter`, "reads a price feed that is not in the repository"},
	{`^llmguard init\b`, "writes a configuration where there is one already"},
	{`jobs (get|cancel|replay|watch)|why (job_|CALL|JOB|01m)|batch(es)? (show|cancel|status|fetch)|webhooks (replay|enable)|limits end`, "names a job, batch, delivery or override that is the reader's"},
	{`queue dead -o json \|`, "has dead letters to replay only where something failed"},
	{`--call |usage reconcile (charge|drop)`, "names a call that is the reader's"},
	{`orgs purge`, "purges an org that has just been disabled while its jobs may run"},
	{`--log (november|night|calls)`, "reads the records of a time that is over"},
	{`--policy|--plot`, "compares files that are the reader's"},
	{`credentials`, "needs the reader's secret and a seal key"},
	{`limits reopen|config reload`, "needs a Redis that lost its data, or a file that changed"},
	{`limits (shadow|suggest)`, "needs days of calls to learn from"},
	{`admins create`, "needs an id that is free, and is done once"},
	{`doctor|check --live|check -c|llmguard check`, "judges this machine, and exits with what it finds"},
}

// examplesOfHelp are the examples of all commands, without those that cannot run.
func examplesOfHelp() []string {
	var out []string
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		for line := range strings.Lines(c.Example) {
			out = append(out, strings.TrimSpace(line))
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(cli.Root())
	return out
}

var (
	shellBlock = regexp.MustCompile("(?ms)^```(?:sh|bash|console)?\n(.*?)^```")
	inline     = regexp.MustCompile("`(llmguard [a-z][^`]*)`")
	comment    = regexp.MustCompile(`\s+#.*$`)
)

// examplesOfDocs are the commands of the documents' shell blocks, and those that runbooks name in
// a sentence.
func examplesOfDocs(t *testing.T) []string {
	var out []string
	err := filepath.WalkDir("../../docs", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".md") || strings.Contains(path, "decisions") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, block := range shellBlock.FindAllStringSubmatch(string(text), -1) {
			whole := strings.ReplaceAll(block[1], "\\\n", " ")
			for line := range strings.Lines(whole) {
				if strings.HasPrefix(line, "llmguard ") && !strings.Contains(line, "UTC") {
					out = append(out, strings.TrimSpace(comment.ReplaceAllString(line, "")))
				}
			}
		}
		if strings.Contains(path, "operations/") {
			for _, m := range inline.FindAllStringSubmatch(string(text), -1) {
				if words := strings.Fields(m[1]); len(words) > 3 { // less is the name of a command
					out = append(out, strings.Join(words, " "))
				}
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// fixtures take the place of what readers put in.
var fixtures = strings.NewReplacer("ORG", "acme", "USER", "alice", "LIMIT", "daily", "acme/user-5m", "acme/daily", "--pool gpt", "--pool openai", "NAME", "daily", "MODEL", "gpt-4o")

// TestExamplesRun: every command line of the help, the documents and the runbooks is run by sh against a running
// llmguard, and does what it says; of each that is not run the reason is printed.
func TestExamplesRun(t *testing.T) {
	examples := slices.Compact(slices.Sorted(slices.Values(append(examplesOfHelp(), examplesOfDocs(t)...))))
	d := startExamples(t)
	ran, why := 0, map[string]int{}
	for _, line := range examples {
		at := slices.IndexFunc(notRun, func(n struct{ pattern, reason string }) bool { return regexp.MustCompile(n.pattern).MatchString(line) })
		if at >= 0 {
			why[notRun[at].reason]++
			t.Logf("not run: %s (%s)", line, notRun[at].reason)
			continue
		}
		if out, err := d.sh(d.fresh(line) + fixtures.Replace(line)); err != nil && !planned(line, err) {
			t.Errorf("%s: %v\n%s", line, err, out)
		}
		ran++
	}
	if ran < 60 {
		t.Errorf("%d of %d examples ran, want 60 or more; not run: %v", ran, len(examples), why)
	}
}

// planned reports whether a command found changes, as it was asked.
func planned(line string, err error) bool {
	var code *exec.ExitError
	return strings.Contains(line, "--dry-run") && asExit(err, &code) && code.ExitCode() == 2
}

func asExit(err error, code **exec.ExitError) bool {
	e, ok := err.(*exec.ExitError) //nolint:errorlint // of CombinedOutput, which wraps none
	*code = e
	return ok
}

// exampleDesk is a running `llmguard dev` with orgs that the examples are about.
type exampleDesk struct {
	t   *testing.T
	dir string
	env []string
}

// sh runs a line as a reader's shell does, in a directory with the files that examples read.
func (d *exampleDesk) sh(line string) (string, error) {
	ctx, cancel := context.WithTimeout(d.t.Context(), time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, "sh", "-c", line)
	c.Dir, c.Env = d.dir, d.env
	out, err := c.CombinedOutput()
	return string(out), err
}

// exampleOrgs is where each example begins: `apply --prune` makes it so again.
const exampleOrgs = `orgs:
  - id: acme
    disabled: false
    limits:
      - {name: daily, subject: user, amount: $20, window: 1d, mode: enforce}
      - {name: user-5m, subject: user, amount: $20, window: 5m, mode: enforce}
    users:
      - {id: alice, disabled: false, keys: [{id: alice-1, disabled: false}]}
      - {id: bob, keys: [{id: bob-1}]}
      - {id: nightly}
      - {id: bot}
  - id: globex
    limits: [{name: user-hour, subject: user, amount: $20, window: 1h}]
    users: [{id: hank, keys: [{id: key-e25ak4qf}]}]
`

// fresh puts what examples change back to where each of them begins.
func (d *exampleDesk) fresh(line string) string {
	text := "llmguard apply -f example-orgs.yaml --prune --replay-days 0\n"
	for _, org := range []string{"acme", "globex"} {
		if strings.Contains(line, "orgs create "+org) {
			text += "llmguard orgs delete " + org + " --yes\n"
		}
	}
	for user, org := range map[string]string{"alice": "acme", "hank": "globex"} {
		if strings.Contains(line, "users create "+user) {
			text += "llmguard users delete " + user + " --org " + org + " --yes\n"
		}
	}
	return "{\n" + text + "llmguard context add prod --url $LLMGUARD_ADMIN_URL\n} >/dev/null 2>&1\n"
}

func startExamples(t *testing.T) *exampleDesk {
	t.Helper()
	dir := t.TempDir()
	c := exec.CommandContext(t.Context(), binary, "dev", "--fake", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data", filepath.Join(dir, "data"))
	c.Env = append(os.Environ(), "OPENAI_API_KEY=", "REDIS_URL=")
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Signal(os.Interrupt); _ = c.Wait() })
	said := map[string]string{}
	for lines := bufio.NewScanner(out); len(said["config"]) == 0 && lines.Scan(); {
		for _, name := range []string{"base URL", "API key", "admin API", "admin key", "config"} {
			if value, ok := strings.CutPrefix(strings.TrimSpace(lines.Text()), name+" "); ok {
				said[name] = strings.TrimSpace(value)
			}
		}
	}
	go func() { _, _ = io.Copy(io.Discard, out) }() // or it would wait for a reader
	d := &exampleDesk{t: t, dir: dir}
	d.env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"),
		"LLMGUARD_ADMIN_URL="+strings.TrimSuffix(said["admin API"], "/admin/v1"), "LLMGUARD_ADMIN_KEY="+said["admin key"],
		"OPENAI_BASE_URL="+said["base URL"], "OPENAI_API_KEY="+said["API key"])
	config, err := os.ReadFile(said["config"])
	if err != nil {
		t.Fatal(err, said)
	}
	request := `{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{"model":"gpt-4o-mini","max_tokens":20,"messages":[{"role":"user","content":"hi"}]}}` + "\n"
	for name, text := range map[string]string{
		"llmguard.yaml": string(config) + "\nprices_file: prices.yaml\n", "prices.yaml": "[]\n", "new.yaml": string(config), "in.jsonl": request, "prompts.jsonl": request, "admin-key.txt": said["admin key"] + "\n",
		"example-orgs.yaml": exampleOrgs, "prices.csv": "model,provider,input,output\ngpt-4o,openai,2.5,10.5\n", "orgs.yaml": "orgs: [{id: acme, users: [{id: alice}]}]\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := d.sh("llmguard orgs list"); err != nil {
		t.Fatal(fmt.Errorf("%w: %s", err, out))
	}
	return d
}
