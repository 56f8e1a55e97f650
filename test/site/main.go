// Command site writes the documentation as the static site that `llmguard docs` serves, and
// checks its relative links.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/llmguard/llmguard"
)

func main() {
	out := flag.String("out", "../dist/site", "directory to write, removed first")
	version := flag.String("version", "", "version and date to show")
	flag.Parse()
	if err := build(*out, "..", *version); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("wrote %s; any web server can serve it, for example: python3 -m http.server -d %s\n", *out, *out)
}

// build writes the site into a directory. root is the repository, the target of links to files
// that are not pages. version names what the pages describe.
func build(out, root, version string) error {
	site, err := llmguard.Site(version)
	if err != nil {
		return err
	}
	if err := check(site, root); err != nil {
		return err
	}
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	for name, content := range site {
		file := filepath.Join(out, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

var (
	fence = regexp.MustCompile("(?ms)^```.*?^```")
	link  = regexp.MustCompile(`\]\(([^)\s]+)(?: "[^"]*")?\)`)
	asset = regexp.MustCompile(`(?:src|href)="([^"]+)"`)
)

// check finds dead links, and pictures and assets that the site would have to load from
// elsewhere.
func check(site map[string][]byte, root string) error {
	var wrong []error
	for name, content := range site {
		switch {
		case strings.HasSuffix(name, ".md"):
			for _, m := range link.FindAllSubmatch(fence.ReplaceAll(content, nil), -1) {
				if to := string(m[1]); !leads(site, root, name, to) {
					wrong = append(wrong, fmt.Errorf("%s: nothing is at %s", name, to))
				}
			}
		case name == "index.html":
			for _, m := range asset.FindAllSubmatch(content, -1) {
				if to := string(m[1]); site[to] == nil && to != "data:," {
					wrong = append(wrong, fmt.Errorf("%s: %s is not part of the site", name, to))
				}
			}
		}
	}
	return errors.Join(wrong...)
}

// leads reports whether a link leads to a file of the site or of the repository. Links to other
// hosts are not checked.
func leads(site map[string][]byte, root, from, to string) bool {
	to, _, _ = strings.Cut(to, "#")
	if to == "" || strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
		return true
	}
	name := strings.TrimPrefix(to, "/")
	if name == to {
		name = path.Join(path.Dir(from), to)
	}
	if site[name] != nil || site[path.Join(name, "README.md")] != nil {
		return true
	}
	_, err := os.Stat(filepath.Join(root, filepath.FromSlash(name)))
	return err == nil
}
