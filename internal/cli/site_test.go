package cli_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/internal/cli"
	"github.com/llmguard/llmguard/internal/redistest"
)

// process is a testing.TB that lives as long as the package's tests.
type process struct {
	testing.TB
	dir      string
	cleanups []func()
}

func (p *process) Helper()          {}
func (p *process) TempDir() string  { return p.dir }
func (p *process) Cleanup(f func()) { p.cleanups = append(p.cleanups, f) }

func (p *process) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

var (
	shared   process
	database atomic.Int64
	server   = sync.OnceValue(func() *redistest.Server {
		return redistest.Start(&shared, redistest.WithArgs("--databases", "1000"))
	})
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "cli-redis-")
	if err != nil {
		panic(err)
	}
	shared.dir = dir
	os.Setenv("XDG_CONFIG_HOME", filepath.Join(dir, "config")) // ignore the contexts of the developer
	logging.Disable()
	for _, name := range []string{"LLMGUARD_ADMIN_KEY", "LLMGUARD_ADMIN_URL", "LLMGUARD_CONTEXT", "OPENAI_API_KEY", "OPENAI_BASE_URL", "REDIS_URL"} {
		os.Unsetenv(name)
	}
	code := m.Run()
	for _, f := range shared.cleanups {
		f()
	}
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// site is a configuration file with a Redis database of its own.
type site struct {
	t     *testing.T
	file  string
	url   string
	redis *redis.Client
}

// orgs is the configuration that most tests use.
const orgs = `
orgs:
  - id: acme
    limits: [{name: daily, subject: user, amount: "$5", window: 1d}, {name: calls, metric: requests, amount: 100, window: 1h}]
    users: [{id: alice}, {id: bob}]
  - {id: globex, users: [{id: gus}]}
`

// newSite writes a configuration: text, plus a Redis, plus a provider unless text has one.
func newSite(t *testing.T, text string) *site {
	t.Helper()
	n := database.Add(1)
	s := &site{t: t, file: filepath.Join(t.TempDir(), "llmguard.yaml"), url: fmt.Sprintf("redis://%s/%d", server().Addr, n)}
	s.redis = redis.NewClient(&redis.Options{Addr: server().Addr, DB: int(n)})
	t.Cleanup(func() { _ = s.redis.Close() })
	if !strings.Contains(text, "providers:") {
		text += "providers: [{id: openai, base_url: \"http://127.0.0.1:1\"}]\n"
	}
	s.write(text)
	return s
}

func (s *site) write(text string) {
	s.t.Helper()
	if err := os.WriteFile(s.file, []byte("redis: {url: \""+s.url+"\"}\n"+text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) config() *config.Config {
	s.t.Helper()
	cfg, err := config.Load(s.file)
	if err != nil {
		s.t.Fatal(err)
	}
	return cfg
}

// llmguard runs a command line.
func llmguard(t *testing.T, args ...string) (out, notes string, code int) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = cli.Main(t.Context(), args, &stdout, &stderr)
	return stdout.String(), stderr.String(), code
}

// must runs a command with the site's file, and returns its output.
func (s *site) must(args ...string) string {
	s.t.Helper()
	out, notes, code := llmguard(s.t, append(args, "-c", s.file)...)
	if code != 0 {
		s.t.Fatalf("llmguard %s: exit code %d\n%s%s", strings.Join(args, " "), code, out, notes)
	}
	return out
}

// refuses runs a command that must fail with these words and print nothing else. Exit code 2 is
// for usage errors.
func (s *site) refuses(want string, args ...string) {
	s.t.Helper()
	refuses(s.t, want, append(args, "-c", s.file)...)
}

func refuses(t *testing.T, want string, args ...string) {
	t.Helper()
	out, notes, code := llmguard(t, args...)
	if code != 1 && code != 2 || !strings.HasPrefix(notes, "llmguard: ") || !strings.Contains(notes, want) || out != "" {
		t.Errorf("llmguard %s: exit code %d, output %q, error %q; want 1 or 2, none, %q", strings.Join(args, " "), code, out, notes, want)
	}
}

// read decodes a command's -o json output.
func (s *site) read(into any, args ...string) {
	s.t.Helper()
	text := s.must(append(args, "-o", "json")...)
	if err := json.Unmarshal([]byte(text), into); err != nil {
		s.t.Fatalf("llmguard %s -o json: %v in\n%s", strings.Join(args, " "), err, text)
	}
}

var spaces = regexp.MustCompile(` +`)

// has fails unless text contains all of these; runs of spaces count as one.
func has(t *testing.T, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(spaces.ReplaceAllString(text, " "), want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// serve runs a real llmguard with the site's file and returns it, with an administrator's key.
func (s *site) serve(roles app.Role) (a *app.App, admin string) {
	s.t.Helper()
	var made struct{ Secret string }
	s.read(&made, "admins", "create", "ops")
	return s.start(roles), made.Secret
}

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
