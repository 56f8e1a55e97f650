package docs

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// lineCount is how many lines of Go a package has.
type lineCount struct{ product, tests int }

// TestCeilings compares the lines of every package with .ci/ceilings. A change that needs more raises the ceiling in the same
// commit, whose message says why; one that removes a tenth of a package lowers it.
func TestCeilings(t *testing.T) {
	text, err := os.ReadFile("../../.ci/ceilings")
	if err != nil {
		t.Fatal(err)
	}
	ceilings := map[string]lineCount{}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		var dir string
		var most lineCount
		if _, err := fmt.Sscan(line, &dir, &most.product, &most.tests); err != nil {
			t.Fatalf(".ci/ceilings: %q: expected a directory and two numbers", line)
		}
		ceilings[dir] = most
	}
	counted := countLines(t)
	for _, dir := range slices.Sorted(maps.Keys(counted)) {
		now, most := counted[dir], ceilings[dir]
		switch {
		case now.product > most.product || now.tests > most.tests:
			t.Errorf("%s has %d lines and %d of tests, above its ceiling of %d and %d: remove some, or raise it in .ci/ceilings and say "+
				"why in the commit", dir, now.product, now.tests, most.product, most.tests)
		case farBelow(now.product, most.product) || farBelow(now.tests, most.tests):
			t.Errorf("%s has %d lines and %d of tests, far below its ceiling of %d and %d: lower it in .ci/ceilings", dir, now.product,
				now.tests, most.product, most.tests)
		}
		delete(ceilings, dir)
	}
	for dir := range ceilings {
		t.Errorf("%s is in .ci/ceilings and has no Go files: remove its line", dir)
	}
}

// countLines counts the lines of Go files by directory.
func countLines(t *testing.T) map[string]lineCount {
	t.Helper()
	out := map[string]lineCount{}
	root := os.DirFS(filepath.FromSlash("../.."))
	err := fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && (name == "node_modules" || name == "testdata" || name != "." && name[0] == '.'):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go"):
			return nil
		}
		text, err := fs.ReadFile(root, path)
		if err != nil {
			return err
		}
		dir := filepath.ToSlash(filepath.Dir(path))
		one, lines := out[dir], bytes.Count(text, []byte("\n"))
		if strings.HasSuffix(path, "_test.go") {
			one.tests += lines
		} else {
			one.product += lines
		}
		out[dir] = one
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// farBelow reports whether a ceiling says little about a number of lines.
func farBelow(now, most int) bool { return most > 100 && now < most*9/10 }
