package docs

import (
	"path/filepath"
	"regexp"
	"testing"
)

// included matches a code block that shows a file, given relative to the page.
var included = regexp.MustCompile("(?ms)^<!-- file: (\\S+) -->\n```\\w*\n(.*?)^```$")

// TestSnippetsAreFiles: a code block that names a file has the text of that file, which other
// tests run.
func TestSnippetsAreFiles(t *testing.T) {
	found := 0
	for _, path := range files(t, ".md") {
		for _, m := range included.FindAllStringSubmatch(read(t, path), -1) {
			found++
			if file := filepath.Join(filepath.Dir(path), m[1]); m[2] != read(t, file) {
				t.Errorf("%s: the block under %q is not the text of that file", path, m[1])
			}
		}
	}
	if found < 3 {
		t.Errorf("found %d blocks that name a file, want three at least", found)
	}
}
