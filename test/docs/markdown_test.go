package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/wire"
)

// root is the root of the repository.
const root = "../.."

// files lists the repository's files with a suffix, without third-party files.
func files(t *testing.T, suffix string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || path == filepath.Join(root, "dist") || len(d.Name()) > 2 && d.Name()[0] == '.'):
			return fs.SkipDir
		case !d.IsDir() && strings.HasSuffix(path, suffix):
			out = append(out, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var fence = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```")

// TestConfigurations parses every complete configuration in the documents.
func TestConfigurations(t *testing.T) {
	getenv := func(name string) (string, bool) {
		if strings.HasSuffix(name, "URL") {
			return "redis://127.0.0.1:6379/0", true
		}
		if strings.HasSuffix(name, "HOOK_SECRET") {
			return "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", true
		}
		return "0123456789abcdef", true
	}
	for _, path := range files(t, ".md") {
		for _, m := range fence.FindAllStringSubmatch(read(t, path), -1) {
			if m[1] != "yaml" || !strings.Contains(m[2], "providers:\n") || !strings.Contains(m[2], "orgs:\n") {
				continue
			}
			text := strings.ReplaceAll(m[2], "sha256:...", "sha256:"+strings.Repeat("0", 64))
			if _, err := config.Parse(path, []byte(text), getenv); err != nil {
				t.Errorf("the configuration is wrong:\n%v", err)
			}
		}
	}
}

var (
	testName   = regexp.MustCompile("`((?:Test|Fuzz)[A-Z]\\w+)`")
	testFunc   = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Z]\w+)\(`)
	metricName = regexp.MustCompile("`(llmguard_[a-z_]+)")
	metricDef  = regexp.MustCompile(`(?:Name:\s+|counter\(|desc\()"(?:llmguard_([a-z]+)_)?([a-z_]*[a-z])"`)
)

// metricOf returns a metric's name without llmguard_. It starts with the package name unless
// the definition says otherwise.
func metricOf(path string, m []string) string {
	if m[1] == "" {
		return filepath.Base(filepath.Dir(path)) + "_" + m[2]
	}
	return m[1] + "_" + m[2]
}

// TestNames checks that every test and metric named in the documents exists.
func TestNames(t *testing.T) {
	tests, metrics := map[string]bool{}, map[string]bool{}
	for _, path := range files(t, ".go") {
		text := read(t, path)
		if strings.HasSuffix(path, "_test.go") {
			for _, m := range testFunc.FindAllStringSubmatch(text, -1) {
				tests[m[1]] = true
			}
		}
		if strings.HasPrefix(filepath.Base(path), "metrics") {
			for _, m := range metricDef.FindAllStringSubmatch(text, -1) {
				metrics[metricOf(path, m)] = true
			}
		}
	}
	for _, path := range files(t, ".md") {
		text := read(t, path)
		for _, m := range testName.FindAllStringSubmatch(text, -1) {
			if !tests[m[1]] {
				t.Errorf("%s: there is no test %s", path, m[1])
			}
		}
		for _, m := range metricName.FindAllStringSubmatch(text, -1) {
			if !metrics[strings.TrimPrefix(m[1], "llmguard_")] {
				t.Errorf("%s: there is no metric %s", path, m[1])
			}
		}
	}
}

var ownHeader = regexp.MustCompile(`"((?i:X-Llmguard)-[A-Za-z-]+)"`)

// TestHeadersAreExplained checks that docs/wire.md has every header of ours that the code can send.
func TestHeadersAreExplained(t *testing.T) {
	text := read(t, filepath.Join(root, "docs", "wire.md"))
	found := 0
	for _, dir := range []string{"proxy", "guard", "internal/wire"} {
		for _, path := range files(t, ".go") {
			if filepath.Dir(path) != filepath.Join(root, dir) || strings.HasSuffix(path, "_test.go") {
				continue
			}
			for _, m := range ownHeader.FindAllStringSubmatch(read(t, path), -1) {
				found++
				if !strings.Contains(text, "`"+m[1]+"`") {
					t.Errorf("docs/wire.md does not explain %s of %s", m[1], path)
				}
			}
		}
	}
	if found < 10 {
		t.Errorf("only %d headers found in the code", found)
	}
}

// TestEndpointsAreDocumented: docs/wire.md has the path and the name of every endpoint that costs money, and docs/batch.md
// those of batches.
func TestEndpointsAreDocumented(t *testing.T) {
	text, batches := read(t, filepath.Join(root, "docs", "wire.md")), read(t, filepath.Join(root, "docs", "batch.md"))
	for _, ep := range wire.Endpoints() {
		traits := ep.Traits()
		row := regexp.MustCompile("(?m)^\\| .*`POST /v1" + traits.Path + "`.* \\| .*`" + string(ep) + "`.* \\| ")
		if !row.MatchString(text) {
			t.Errorf("docs/wire.md has no row with the path and name of %s", ep)
		}
		if traits.Batched && !strings.Contains(batches, "`/v1"+traits.Path+"`") {
			t.Errorf("docs/batch.md does not say that lines may use %s", traits.Path)
		}
	}
}

// TestObjectsAreDocumented: docs/openai-api.md has a row with the path and the scope of every kind of object, or docs/wire.md
// has those that this proxy stores itself.
func TestObjectsAreDocumented(t *testing.T) {
	text, own := read(t, filepath.Join(root, "docs", "openai-api.md")), read(t, filepath.Join(root, "docs", "wire.md"))
	for _, o := range wire.Objects() {
		row := regexp.MustCompile("(?m)^\\| .*`" + o.Path + "`.* \\| `" + o.Scope + "` \\| ")
		if o.Path != "" && !row.MatchString(text) && !(o.Here && strings.Contains(own, "/v1"+o.Path+"/{id}`")) {
			t.Errorf("docs/openai-api.md has no row with the path and scope of %s", o.Kind)
		}
	}
}

// TestAlertsAreExplained checks that docs/operations/README.md has every alert.
func TestAlertsAreExplained(t *testing.T) {
	text := read(t, filepath.Join(root, "docs", "operations", "README.md"))
	for _, m := range regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(read(t, filepath.Join(root, "grafana", "alerts.yaml")), -1) {
		if !strings.Contains(text, "["+m[1]+"]") {
			t.Errorf("docs/operations/README.md does not list the alert %s", m[1])
		}
	}
}

// TestMetricsAreExplained checks that docs/operations.md has every metric.
func TestMetricsAreExplained(t *testing.T) {
	text := read(t, filepath.Join(root, "docs", "operations.md"))
	found := 0
	for _, path := range files(t, "metrics.go") {
		for _, m := range metricDef.FindAllStringSubmatch(read(t, path), -1) {
			found++
			name := "llmguard_" + metricOf(path, m)
			if !strings.Contains(text, "`"+name+"`") {
				t.Errorf("docs/operations.md does not explain %s", name)
			}
		}
	}
	if found < 30 {
		t.Errorf("only %d metrics found in the code", found)
	}
}
