package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
)

// TestLinks follows every relative link to its file and its heading.
func TestLinks(t *testing.T) {
	for _, path := range files(t, ".md") {
		prose := fence.ReplaceAllString(read(t, path), "")
		for _, m := range link.FindAllStringSubmatch(prose, -1) {
			if err := follow(t, path, m[1]); err != nil {
				t.Errorf("%s: link to %s: %v", path, m[1], err)
			}
		}
	}
}

// TestEveryPageIsListed: docs/README.md, from which the site makes its sidebar, has every page for users.
func TestEveryPageIsListed(t *testing.T) {
	index := read(t, filepath.Join(root, "docs", "README.md"))
	for _, path := range files(t, ".md") {
		page, ok := strings.CutPrefix(name(t, path), "docs/")
		switch dir, _, _ := strings.Cut(page, "/"); {
		case !ok || page == "README.md" || dir == "decisions" || dir == "internals":
		case dir == "operations" && page != "operations/README.md": // that page lists them
		case !strings.Contains(index, "]("+page+")"):
			t.Errorf("docs/README.md does not list %s", page)
		}
	}
}

func follow(t *testing.T, from, to string) error {
	if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
		return nil
	}
	name, at, _ := strings.Cut(to, "#")
	path := from
	if name != "" {
		path = filepath.Join(filepath.Dir(from), name)
	}
	if _, err := os.Stat(path); err != nil {
		return err
	}
	if at == "" || !strings.HasSuffix(path, ".md") {
		return nil
	}
	var known []string
	text := fence.ReplaceAllString(read(t, path), "")
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		known = append(known, anchor(m[1]))
	}
	for _, m := range errorAnchor.FindAllStringSubmatch(text, -1) {
		known = append(known, m[1])
	}
	if !slices.Contains(known, at) {
		return fmt.Errorf("no such heading or anchor; there are %s", strings.Join(known, ", "))
	}
	return nil
}
