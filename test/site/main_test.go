package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSiteIsWhole: every link on every page leads to a page or a file, and the assets are part
// of the site.
func TestSiteIsWhole(t *testing.T) {
	out := filepath.Join(t.TempDir(), "site")
	if err := build(out, "../..", "0.2.0, 2026-11-29"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"index.html": "docsify.min.js", "_sidebar.md": `(/docs/config/README.md "`,
		"docs/decisions/README.md": "(027-lean-dependencies.md)", "docs/site/pages.js": `"build":"0.2.0, 2026-11-29","pages":["/CHANGELOG"`,
		"docs/config/limits.md": "", "docs/README.md": "OpenAI-compatible proxy", "CHANGELOG.md": "",
		"docs/site/docsify.LICENSE": "MIT License",
	} {
		content, err := os.ReadFile(filepath.Join(out, name))
		if err != nil || !strings.Contains(string(content), want) {
			t.Errorf("%s: %v, or no %q in it", name, err, want)
		}
	}
	index, err := os.ReadFile(filepath.Join(out, "docs/README.md"))
	if err != nil || strings.Contains(string(index), "\n## ") {
		t.Errorf("%v, or the first page repeats the sidebar:\n%s", err, index)
	}
}

// TestSiteRefusesDeadLinks: a link to a page that does not exist fails the build.
func TestSiteRefusesDeadLinks(t *testing.T) {
	for text, ok := range map[string]bool{
		"[a](config.md#top) [b](../Makefile) [c](https://example.com/x)": true,
		"```\n[a](missing.md)\n```":                                      true,
		"[a](missing.md)":                                                false,
		"![a](pictures/missing.png)":                                     false,
	} {
		err := check(map[string][]byte{"docs/page.md": []byte(text), "docs/config.md": []byte("# Top")}, "../..")
		if (err == nil) != ok {
			t.Errorf("%q: %v, want passing %v", text, err, ok)
		}
	}
}
