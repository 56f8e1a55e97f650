package world_test

import (
	"flag"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/world"
)

var walks = flag.Bool("walks", false, "count the code that a call and a job run through")

// TestWalkLength prints how many packages, files and functions every plain call with one limit runs through, and how
// many files a job adds. It compares the counters of a binary with coverage after many calls and after none.
func TestWalkLength(t *testing.T) {
	if !*walks {
		t.Skip("builds a binary with coverage: `make walks`")
	}
	counting := filepath.Join(t.TempDir(), "llmguard")
	goTool(t, "build", "-cover", "-covermode=count", "-coverpkg=../../...", "-o", counting, "../../cmd/llmguard")
	none := run(t, counting, nil)
	call, job := run(t, counting, (*coster).call).since(t, none), run(t, counting, (*coster).job).since(t, none)
	packages, files := map[string]int{}, map[string]int{}
	for _, f := range call {
		packages[path.Dir(f.file)]++
		files[f.file]++
	}
	added := map[string]int{}
	for _, f := range job {
		if files[f.file] == 0 {
			added[f.file]++
		}
	}
	t.Logf("a plain call: %d packages, %d files, %d functions; a job: %d files more", len(packages), len(files), len(call), len(added))
}

// walked is how often each block of code ran, by file, line and column.
type walked struct {
	profile string
	runs    map[block]int
}

type block struct {
	file         string
	line, column int
}

type function struct {
	file string
	line int
	name string
}

// rounds is how many calls are made, of which timers make no difference.
const rounds = 100

var profileLine = regexp.MustCompile(`^(.+):(\d+)\.(\d+),\S+ \d+ (\d+)$`)

// run starts a deployment of the binary, makes calls, and ends it.
func run(t *testing.T, binary string, call func(*coster)) walked {
	t.Helper()
	counters, dir := t.TempDir(), t.TempDir()
	t.Setenv("GOCOVERDIR", counters)
	if err := os.WriteFile(filepath.Join(dir, "llmguard.yaml"), []byte(costly), 0o600); err != nil {
		t.Fatal(err)
	}
	w := world.Start(t, binary, dir)
	w.StartWorker()
	c := &coster{t: t, w: w, client: &http.Client{Timeout: redistest.Bound}, redis: w.Redis.Client()}
	for range rounds {
		if call != nil {
			call(c)
		}
	}
	w.Restart() // processes write their counters when they end
	out := walked{filepath.Join(t.TempDir(), "profile"), map[block]int{}}
	goTool(t, "tool", "covdata", "textfmt", "-i="+counters, "-o="+out.profile)
	text, err := os.ReadFile(out.profile)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if m := profileLine.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			out.runs[block{m[1], number(m[2]), number(m[3])}] += number(m[4])
		}
	}
	return out
}

// since returns the functions that every call has run.
func (w walked) since(t *testing.T, before walked) []function {
	t.Helper()
	all := map[string][]function{} // by file, in order of their lines
	for line := range strings.Lines(goTool(t, "tool", "cover", "-func="+w.profile)) {
		var f function
		fields := strings.Fields(line)
		if place, _, ok := strings.Cut(fields[0], ".go:"); ok {
			f.file, f.name = place+".go", fields[1]
			f.line = number(strings.Trim(strings.TrimPrefix(fields[0], f.file), ":"))
			all[f.file] = append(all[f.file], f)
		}
	}
	seen := map[function]bool{}
	for b, n := range w.runs {
		if n-before.runs[b] < rounds*9/10 {
			continue
		}
		in := all[b.file]
		i, exact := slices.BinarySearchFunc(in, b.line, func(f function, line int) int { return f.line - line })
		if exact {
			i++
		}
		if i > 0 {
			seen[in[i-1]] = true
		}
	}
	out := make([]function, 0, len(seen))
	for f := range seen {
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b function) int { return strings.Compare(a.file+a.name, b.file+b.name) })
	return out
}

func number(text string) int {
	n, _ := strconv.Atoi(text) // only digits match
	return n
}

func goTool(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs strings.Builder
	cmd := redistest.Command(t, "go", args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("go %s: %v\n%s", args[0], err, errs.String())
	}
	return out.String()
}
