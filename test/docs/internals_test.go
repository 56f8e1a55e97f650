package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	internals = root + "/docs/internals"
	mostStops = 60 // of a walk; a longer one suggests that a call takes too many detours
)

var (
	// place is "file.go: Func" or "file.lua" in backquotes.
	place = regexp.MustCompile("`([\\w./-]+\\.(?:go|lua))(?:: (\\w+))?`")
	stop  = regexp.MustCompile("^(\\d+)\\. `")
)

// TestWalks: every file named in docs/internals exists and contains the function or method
// named with it. Stops are numbered, and limited in number.
func TestWalks(t *testing.T) {
	for _, path := range files(t, ".md") {
		if filepath.Dir(path) != filepath.Clean(internals) {
			continue
		}
		stops := 0
		for i, line := range strings.Split(read(t, path), "\n") {
			for _, m := range place.FindAllStringSubmatch(line, -1) {
				if !strings.Contains(m[1], "/") { // a file name without a path
					continue
				}
				if err := names(filepath.Join(root, m[1]), m[2]); err != "" {
					t.Errorf("%s:%d: %s %s: %s", filepath.Base(path), i+1, m[1], m[2], err)
				}
			}
			if strings.HasPrefix(line, "## ") {
				stops = 0
			}
			if m := stop.FindStringSubmatch(line); m != nil {
				if stops++; filepath.Base(path) == "walks.md" && (strconv.Itoa(stops) != m[1] || stops > mostStops) {
					t.Errorf("%s:%d: stop %s is number %d, of at most %d", filepath.Base(path), i+1, m[1], stops, mostStops)
				}
			}
		}
	}
}

// names returns what is wrong with a file and a function, if anything.
func names(path, function string) string {
	if _, err := os.Stat(path); err != nil {
		return "there is no such file"
	}
	if function == "" {
		return ""
	}
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		return err.Error()
	}
	has := func(d ast.Decl) bool {
		fn, ok := d.(*ast.FuncDecl)
		return ok && fn.Name.Name == function
	}
	if !slices.ContainsFunc(f.Decls, has) {
		return "it has no such function"
	}
	return ""
}

var (
	floor    = regexp.MustCompile(`^ {8}floor-(\d+)-`)
	onFloor  = regexp.MustCompile(`^ {12}- "\*\*/([\w/]+)/\*\.go"`)
	heading3 = regexp.MustCompile(`^### Floor (\d+)`)
	row      = regexp.MustCompile("^\\| `([\\w/]+)` \\|")
)

// TestFloorsAreDrawn: docs/internals/README.md has every package, on the same floor as
// .golangci.yml.
func TestFloorsAreDrawn(t *testing.T) {
	drawn := packagesBy(t, internals+"/README.md", heading3, row)
	stated := packagesBy(t, root+"/.golangci.yml", floor, onFloor)
	for name, at := range stated {
		if drawn[name] != at {
			t.Errorf("%s is on floor %s in .golangci.yml, and on %q in the drawing", name, at, drawn[name])
		}
	}
	for _, path := range files(t, ".go") {
		name := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), root+"/")
		if name == root {
			name = "llmguard"
		}
		first, _, _ := strings.Cut(name, "/")
		if strings.HasSuffix(path, "_test.go") || slices.Contains([]string{"bench", "examples", "test"}, first) {
			continue
		}
		if _, ok := drawn[name]; !ok {
			t.Errorf("docs/internals/README.md does not say what %s is for", name)
			drawn[name] = ""
		}
	}
}

// packagesBy reads packages with the floor under which each is listed.
func packagesBy(t *testing.T, path string, section, item *regexp.Regexp) map[string]string {
	t.Helper()
	out, at := map[string]string{}, ""
	for line := range strings.Lines(read(t, path)) {
		switch {
		case section.MatchString(line):
			at = section.FindStringSubmatch(line)[1]
		case strings.HasPrefix(line, "##") || strings.HasPrefix(line, "        app:"):
			at = ""
		}
		if m := item.FindStringSubmatch(line); m != nil {
			out[m[1]] = at
		}
	}
	return out
}

var (
	comment = regexp.MustCompile(`(?m)^\s*(?://|--) ?(.*)$|\s(?://|--) (.*)$`)
	cited   = regexp.MustCompile(`(docs/[\w/]+\.md), ([A-Z][^\n]{0,80})`)
	private = regexp.MustCompile(`\b(?:contract|rules?) R?\d+(?:\.\d+)*\b|\bR\d{1,2}\b|\bDESIGN\b`)
)

// TestCommentsCiteTheRepository: a section that a comment cites, as in "docs/errors.md, Retry
// advice", is a heading of that document, and no comment cites numbered rules of a text that is
// not in the repository.
func TestCommentsCiteTheRepository(t *testing.T) {
	headings := map[string][]string{}
	for _, path := range slices.Concat(files(t, ".go"), files(t, ".lua")) {
		if filepath.Base(path) == "internals_test.go" {
			continue
		}
		var text strings.Builder // of all comments, because a citation may span lines
		for _, m := range comment.FindAllStringSubmatch(read(t, path), -1) {
			text.WriteString(m[1] + m[2] + " ")
		}
		if m := private.FindString(text.String()); m != "" {
			t.Errorf("%s cites %s: cite a section of docs/wire.md", path, m)
		}
		for _, m := range cited.FindAllStringSubmatch(text.String(), -1) {
			if headings[m[1]] == nil {
				for _, h := range heading.FindAllStringSubmatch(read(t, filepath.Join(root, m[1])), -1) {
					headings[m[1]] = append(headings[m[1]], h[1])
				}
			}
			if !slices.ContainsFunc(headings[m[1]], func(h string) bool { return strings.HasPrefix(m[2], h) }) {
				t.Errorf("%s cites %s, %.40s: there is no such section", path, m[1], m[2])
			}
		}
	}
}

// TestPromisesHaveTests: docs/internals/evidence.md has tests of every promise, and TestNames checks that they exist.
func TestPromisesHaveTests(t *testing.T) {
	evidence := read(t, internals+"/evidence.md")
	promises := regexp.MustCompile(`(?m)^## (P\d+): `).FindAllStringSubmatch(read(t, root+"/docs/promises.md"), -1)
	for _, m := range promises {
		if !strings.Contains(evidence, "| "+m[1]+" | `Test") {
			t.Errorf("docs/internals/evidence.md has no test of %s", m[1])
		}
	}
	if len(promises) != 10 {
		t.Errorf("docs/promises.md has %d promises, want 10", len(promises))
	}
}
