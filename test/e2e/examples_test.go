package e2e

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/redistest"
)

// notRun are the examples that cannot run here, with the reasons.
var notRun = []struct{ pattern, reason string }{
	{`^llmguard (serve|worker|dev|docs)\b|^watch `, "runs until it is ended"},
	{`^llmguard top( --org acme --interval 5s)?$`, "needs a terminal"},
	{`systemctl|kill -HUP|kubectl|docker|/etc/llmguard`, "is for a machine with services of its own"},
	{`proxy-1`, "asks processes on machines that are the reader's"},
	{`ca\.pem`, "reads the certificate of an authority that is the reader's"},
	{`prices update (litellm|https)`, "fetches a price feed from the internet"},
	{`webhooks enable`, "needs an endpoint that was switched off after days of failures"},
	{`webhooks replay evt_`, "needs a delivery that failed for days"},
	{`batch (cancel|fetch) batch_`, "needs a batch that is under way, or has ended"},
	{`limits requests (get|approve|deny)`, "needs a request of a caller for more of a limit"},
	{`s3://finance`, "writes to a bucket that is the reader's"},
	{`--subject \S*session|--filter .run=|^llmguard usage (focus )?--.*label:session`, "needs labels in the configuration of the process"},
	{`users update .*--group research|brakes (release|stop) |why brake:`, "needs groups, and brakes that fired, in the configuration of the process"},
	{`--plan (free|pro)`, "needs plans in the configuration of the process"},
	{`config reload( --all)?$`, "needs a process that was started with a configuration file"},
	{`^llmguard jobs replay job_`, "needs a dead letter"},
	{`usage reconcile (charge|drop)`, "needs a call whose end came too late to be charged"},
	{`credentials (set|delete)`, "needs a configuration with a key that seals secrets"},
	{`^llmguard doctor$`, "reads the addresses of the processes in the file, and here they are chosen as they start"},
}

var (
	shellBlock = regexp.MustCompile("(?ms)^```([^\n]*)\n(.*?)^```")
	inline     = regexp.MustCompile("`(llmguard [a-z][^`]*)`")
	comment    = regexp.MustCompile(`\s+#.*$`)
)

// fixtures replace the placeholders in examples; those for ids are added by seed.
var fixtures = []string{
	"ORG", "acme", "USER", "alice", "LIMIT", "daily", "acme/user-5m", "acme/daily", "--pool gpt", "--pool openai", "NAME", "daily",
	"MODEL", "gpt-4o", "-c FILE", "-c llmguard.yaml", "verify FILE", "verify litellm.json", "model_prices_and_context_window.json", "litellm.json",
	"verify litellm.json models.json", "verify litellm.json", "litellm.json --model 'mistral-large*'", "litellm.json --model 'claude-*'", "-c llmguard.yaml --org acme -o json", "-c llmguard.yaml --org dev -o json",
	"--amount '-$0.40'", "--amount '-$0.000001'", "--amount '-$1.20'", "--amount '-$0.000001'", // calls here cost less
	"explain --user alice", "explain --org acme --user alice", // in the example two orgs have one
}

// TestExamplesRun runs every command line of the help, the documents and the runbooks with sh
// against a running llmguard, and expects success. For each example that is not run it prints
// the reason.
func TestExamplesRun(t *testing.T) {
	examples := slices.Compact(slices.Sorted(slices.Values(append(examplesOfHelp(), examplesOfDocs(t)...))))
	purges := func(line string) int { // purges run last, because they delete what the others use
		if strings.Contains(line, "orgs purge") {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(examples, func(a, b string) int { return purges(a) - purges(b) })
	d := startExamples(t)
	ran, why := 0, map[string]int{}
	for _, line := range examples {
		at := slices.IndexFunc(notRun, func(n struct{ pattern, reason string }) bool { return regexp.MustCompile(n.pattern).MatchString(line) })
		if at >= 0 {
			why[notRun[at].reason]++
			t.Logf("not run: %s (%s)", line, notRun[at].reason)
			continue
		}
		if out, err := d.sh(d.fresh(line) + d.fixtures.Replace(line) + d.after(line)); err != nil && !planned(line, err) {
			t.Errorf("%s: %v\n%s", line, err, out)
		}
		ran++
	}
	for _, n := range notRun {
		if why[n.reason] == 0 && !strings.Contains(n.pattern, "systemctl") {
			t.Errorf("nothing is left out by %s: take it out", n.pattern)
		}
	}
	if left := len(examples) - ran; left > len(examples)/6 {
		t.Errorf("%d of %d examples did not run, want a sixth or fewer: %v", left, len(examples), why)
	}
}

// planned reports whether a command exited with the code for planned changes.
func planned(line string, err error) bool {
	var code *exec.ExitError
	return strings.Contains(line, "--dry-run") && asExit(err, &code) && code.ExitCode() == 2
}

func asExit(err error, code **exec.ExitError) bool {
	e, ok := err.(*exec.ExitError) //nolint:errorlint // of CombinedOutput, which wraps none
	*code = e
	return ok
}

// exampleDesk is a running `llmguard dev` with the orgs used in examples.
type exampleDesk struct {
	t        *testing.T
	dir      string
	env      []string
	fixtures *strings.Replacer
	changed  bool // since the state was restored
}

// sh runs a line in a shell, in a directory with the files that the examples read.
func (d *exampleDesk) sh(line string) (string, error) {
	ctx, cancel := context.WithTimeout(d.t.Context(), time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, "sh", "-c", line)
	c.Dir, c.Env = d.dir, d.env
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) } // what the shell started, too
	out, err := c.CombinedOutput()
	return string(out), err
}

// exampleOrgs is the state before each example; `apply --prune` restores it.
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

// reads are examples that change nothing.
var reads = regexp.MustCompile(`^llmguard (check|simulate|why|version|audit|(\w+ )?(list|get|show|diff|verify|suggest|refusals|overrides)|` +
	`usage( (entries|caps|audit|export))?( -|$)|usage$|queue( dead)?( -|$))`)

// fresh restores the state that examples start from, if the examples before have changed it.
func (d *exampleDesk) fresh(line string) string {
	text := ""
	if d.changed {
		text = "llmguard apply -f example-orgs.yaml --prune --replay-days 0\n"
	}
	d.changed = !reads.MatchString(line)
	for _, org := range []string{"acme", "globex"} {
		if strings.Contains(line, "orgs create "+org) {
			text += "llmguard orgs delete " + org + " --yes\n"
		}
	}
	for user, org := range map[string]string{"alice": "acme", "nightly": "acme", "hank": "globex"} {
		if strings.Contains(line, "users create "+user) {
			text += "llmguard users delete " + user + " --org " + org + " --yes\n"
		}
	}
	if strings.Contains(line, exampleRun) {
		giver := ofAcme(line)
		if giver != "" {
			giver += " --parent alice-1"
		}
		text += "RUN=$(llmguard keys child --amount '$0.01' -o json" + giver + " | grep -o 'run_[a-z0-9]*' | head -1)\n"
	}
	switch {
	case strings.HasPrefix(line, "llmguard resume"):
		text += "llmguard stop" + ofAcme(line) + " --reason example\n"
	case strings.Contains(line, "orgs purge"):
		text += "llmguard orgs disable acme\n"
	case strings.Contains(line, "limits unset daily"):
		text += "llmguard limits set daily --org acme --user alice --amount '$5'\n"
	case strings.Contains(line, "admins disable"), strings.Contains(line, "admins enable"), strings.Contains(line, "admins delete"):
		text += "llmguard admins create dashboard -c llmguard.yaml\n"
	case strings.Contains(line, "admins create ops"):
		text += "llmguard admins delete ops --yes -c llmguard.yaml\n"
	case strings.HasPrefix(line, "llmguard init"):
		text += "cd $(mktemp -d -p .)\n"
	}
	if strings.Contains(line, "context") {
		for _, name := range []string{"prod", "staging"} {
			text += "llmguard context add " + name + " --url $LLMGUARD_ADMIN_URL\n"
		}
	}
	return "{\n:\n" + text + "} >/dev/null 2>&1\n"
}

// exampleRun is the run in examples, in whose place a new one is used.
const exampleRun = "run_k3v5hd7q2mzx4abc"

// after lets calls go on that an example has stopped.
func (d *exampleDesk) after(line string) string {
	if !strings.HasPrefix(line, "llmguard stop ") {
		return ""
	}
	return " && llmguard resume" + ofAcme(line) + " --reason example"
}

func ofAcme(line string) string {
	if strings.Contains(line, "--org acme") {
		return " --org acme"
	}
	return ""
}

// seed creates what examples refer to by id: a call, a job and a batch of alice's, and the
// access log of her calls.
func (d *exampleDesk) seed(baseURL string) {
	d.t.Helper()
	try := func(line string) string {
		out, err := d.sh(line)
		if err != nil {
			d.t.Fatalf("%s: %v\n%s", line, err, out)
		}
		return out
	}
	id := func(name, pattern, text string) string {
		m := regexp.MustCompile(pattern).FindStringSubmatch(text)
		if m == nil {
			d.t.Fatalf("no %s in %s", name, text)
		}
		return m[1]
	}
	key := id("key", `key alice-1 .*: (lg_live_\w+)`, try("llmguard apply -f example-orgs.yaml --replay-days 0"))
	body := `{"model":"gpt-4o-mini","max_tokens":20,"messages":[{"role":"user","content":"hi"}]}`
	d.post(baseURL, key, body)
	job := id("job", `"id":"(job_\w+)"`, d.post(baseURL, key, body, "Prefer", "respond-async"))
	batch := id("batch", `(batch_\w+)`, try("OPENAI_API_KEY="+key+" llmguard batch submit in.jsonl"))
	var entries string
	until(d.t, "the call is in the ledger", func() bool {
		entries, _ = d.sh("llmguard usage entries --org acme -o json")
		return strings.Contains(entries, `"id": "`)
	})
	try("llmguard limits override --org acme --user alice --limit daily --add '$1' --until 24h --reason seed")
	override := id("override", `"id": ?"(\w+)"`, try("llmguard limits overrides --org acme -o json"))
	call := id("call", `"id": "(\w+)"`, entries)
	try("for f in november night calls; do llmguard usage entries --org acme -o jsonl > $f.jsonl; done")
	d.fixtures = strings.NewReplacer(append([]string{
		"llmguard batch status --watch batch_...", "OPENAI_API_KEY=" + key + " llmguard batch status " + batch,
		"llmguard batch status batch_5ycmz7yqwdzcprxg5kzvw2xkfe", "OPENAI_API_KEY=" + key + " llmguard batch status " + batch,
		exampleRun, "$RUN", "01m84kynm3jp5p1nr8mr0yampe", override, "job_puyzj...", job,
		"batch_5ycmz7yqwdzcprxg5kzvw2xkfe", batch, "batch_lttwdb...", batch, "batch_...", batch, "job_puyzj01m7x3vb350ckcmq65wwmswwsz", job,
		"01m7x425asv4hapb0hzey6k903", call, "--call ID", "--call " + call,
	}, fixtures...)...)
}

// post makes a call and returns the response.
func (d *exampleDesk) post(baseURL, key, body string, header ...string) string {
	d.t.Helper()
	r, err := http.NewRequestWithContext(d.t.Context(), http.MethodPost, baseURL+"/chat/completions", strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := client.Do(r)
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= 300 {
		d.t.Fatalf("got status %d, %s, %v", resp.StatusCode, text, err)
	}
	return string(text)
}

// plainBinary returns llmguard without the race detector, which would make each of the hundreds of
// short commands take seconds. The process that they talk to has the detector.
func plainBinary(t *testing.T) string {
	t.Helper()
	if !raceEnabled {
		return binary
	}
	path := filepath.Join(t.TempDir(), "llmguard")
	out, err := redistest.Command(t, "go", "-C", "../..", "build", "-o", path, "./cmd/llmguard").CombinedOutput()
	if err != nil {
		t.Fatalf("build llmguard: %v\n%s", err, out)
	}
	return path
}

func startExamples(t *testing.T) *exampleDesk {
	t.Helper()
	dir := t.TempDir()
	c := redistest.Process(t, binary, "dev", "--fake", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data", filepath.Join(dir, "data"))
	c.Env = append(os.Environ(), "OPENAI_API_KEY=", "REDIS_URL=")
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Signal(os.Interrupt); redistest.Wait(t, func() { _ = c.Wait() }) })
	said := map[string]string{}
	for lines := bufio.NewScanner(out); len(said["config"]) == 0 && lines.Scan(); {
		for _, name := range []string{"base URL", "API key", "admin API", "admin key", "config"} {
			if value, ok := strings.CutPrefix(strings.TrimSpace(lines.Text()), name+" "); ok {
				said[name] = strings.TrimSpace(value)
			}
		}
	}
	go func() { _, _ = io.Copy(io.Discard, out) }() // otherwise it would block on its output
	d := &exampleDesk{t: t, dir: dir}
	d.env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "PATH="+dir+":"+filepath.Dir(plainBinary(t))+":"+os.Getenv("PATH"),
		"LLMGUARD_ADMIN_URL="+strings.TrimSuffix(said["admin API"], "/admin/v1"), "LLMGUARD_ADMIN_KEY="+said["admin key"],
		"OPENAI_BASE_URL="+said["base URL"], "OPENAI_API_KEY="+said["API key"])
	config, err := os.ReadFile(said["config"])
	if err != nil {
		t.Fatal(err, said)
	}
	const embedding = `{"custom_id":"a","method":"POST","url":"/v1/embeddings","body":{"model":"text-embedding-3-small","input":"hi"}}` + "\n"
	request := `{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{"model":"gpt-4o-mini","max_tokens":20,"messages":[{"role":"user","content":"hi"}]}}` + "\n"
	for name, text := range map[string]string{
		"llmguard.yaml": string(config) + "\nprices_file: prices.yaml\n", "prices.yaml": "[]\n", "new.yaml": string(config), "stricter.yaml": string(config), "in.jsonl": request, "prompts.jsonl": request, "admin-key.txt": said["admin key"] + "\n",
		"example-orgs.yaml": exampleOrgs, "prices.csv": "model,provider,input,output\ngpt-4o,openai,2.5,10.5\n", "orgs.yaml": "orgs: [{id: acme, users: [{id: alice}]}]\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.CopyFS(dir, os.DirFS("../../examples/windows")); err != nil {
		t.Fatal(err)
	}
	for name, from := range map[string]string{"litellm.json": "litellm.json", "genai-prices.json": "genai.json"} {
		text, err := os.ReadFile("../../pricing/testdata/" + from)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "make-requests"), []byte("#!/bin/sh\ncat <<'END'\n"+embedding+"END\n"), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	d.seed(said["base URL"])
	return d
}
