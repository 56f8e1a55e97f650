package docs

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var updateWords = flag.Bool("words", false, "record the words that are there now in testdata/vocabulary.txt")

// avoid lists phrases that read as translated, with what to write instead.
var avoid = []struct {
	words *regexp.Regexp
	write string
}{
	{phrase(`tells?|told`), "report, return, show"},
	{phrase(`stands? (in|under|on|for|there|behind|above|below)`), "is in, is under, applies"},
	{phrase(`go(es)? on`), "continue"},
	{phrase(`at once`), "immediately; in one call"},
	{phrase(`by itself`), "automatically; on its own"},
	{phrase(`mend(s|ed|ing)?`), "fix"},
	{phrase(`anew`), "again"},
	{phrase(`beside`), "next to; alongside; in addition to"},
	{phrase(`nobody|somebody`), "no client; a caller"},
	{phrase(`puts? out`), "generate"},
	{phrase(`goes before|go before`), "takes precedence over"},
	{phrase(`in the shadow`), "in shadow mode"},
	{phrase(`(redis|store|provider) (is|goes|was) away`), "unavailable, unreachable"},
	{phrase(`asked for`), "requested"},
	{phrase(`kept places?`), "reserved place"},
	{phrase(`visitors?|errands?|sayings?`), "waiting caller; upstream call"},
	{phrase(`dear|dearest`), "expensive, highest price"},
}

func phrase(text string) *regexp.Regexp { return regexp.MustCompile(`(?i)\b(` + text + `)\b`) }

// TestVocabulary compares how often each file uses a phrase to avoid with
// testdata/vocabulary.txt. That list is what is left to reword: a file may not gain
// such a phrase, and one that loses some is recorded with
//
//	go -C test test ./docs -run TestVocabulary -words
func TestVocabulary(t *testing.T) {
	const path = "testdata/vocabulary.txt"
	found := map[string]map[string]int{}
	for file, text := range userTexts(t) {
		for _, a := range avoid {
			for _, m := range a.words.FindAllString(text, -1) {
				if found[file] == nil {
					found[file] = map[string]int{}
				}
				found[file][strings.ToLower(m)]++
			}
		}
	}
	if *updateWords {
		writeWords(t, path, found)
	}
	known := readWords(t, path)
	for _, file := range slices.Sorted(maps.Keys(found)) {
		for phrase, got := range found[file] {
			if want := known[file][phrase]; got > want {
				t.Errorf("%s: %q is used %d times, want at most %d: write %s", file, phrase, got, want, instead(phrase))
			}
		}
	}
	for file, phrases := range known {
		for phrase, want := range phrases {
			if got := found[file][phrase]; got < want {
				t.Errorf("%s: %q is used %d times, and testdata/vocabulary.txt allows %d: lower it with -words", file, phrase, got, want)
			}
		}
	}
}

func instead(phrase string) string {
	for _, a := range avoid {
		if a.words.MatchString(phrase) {
			return a.write
		}
	}
	return ""
}

// userTexts returns what people read, by file: documents, and the string literals in the
// product's Go code.
func userTexts(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, suffix := range []string{".md", ".html", ".yaml", ".yml"} {
		for _, path := range files(t, suffix) {
			out[name(t, path)] = read(t, path)
		}
	}
	for _, path := range files(t, ".go") {
		if !strings.HasSuffix(path, "_test.go") {
			out[name(t, path)] = literals(t, path)
		}
	}
	return out
}

// name returns a file's path from the root, with slashes.
func name(t *testing.T, path string) string {
	t.Helper()
	rel, err := filepath.Rel(root, path)
	if err != nil {
		t.Fatal(err)
	}
	return filepath.ToSlash(rel)
}

// literals returns the string literals of a Go file, one per line.
func literals(t *testing.T, path string) string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	ast.Inspect(file, func(n ast.Node) bool {
		lit, ok := n.(*ast.BasicLit)
		if ok && lit.Kind == token.STRING {
			text, _ := strconv.Unquote(lit.Value)
			out.WriteString(text + "\n")
		}
		return true
	})
	return out.String()
}

func writeWords(t *testing.T, path string, found map[string]map[string]int) {
	t.Helper()
	var out strings.Builder
	for _, file := range slices.Sorted(maps.Keys(found)) {
		for _, phrase := range slices.Sorted(maps.Keys(found[file])) {
			fmt.Fprintf(&out, "%d %s: %s\n", found[file][phrase], file, phrase)
		}
	}
	write(t, path, out.String())
}

func readWords(t *testing.T, path string) map[string]map[string]int {
	t.Helper()
	known := map[string]map[string]int{}
	for line := range strings.Lines(read(t, path)) {
		count, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		file, phrase, _ := strings.Cut(rest, ": ")
		n, err := strconv.Atoi(count)
		if err != nil {
			t.Fatalf("%s: %q: want a count first", path, line)
		}
		if known[file] == nil {
			known[file] = map[string]int{}
		}
		known[file][phrase] = n
	}
	return known
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
