// Package llmguard has the documentation of its version as a site that needs no network.
package llmguard

import (
	"embed"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

//go:embed docs README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md examples/README.md
var files embed.FS

// Site returns the files of the documentation site by path. Pages keep the paths they have in the
// repository, so their relative links work. build names the version and its date, as in "0.2.0, 2026-11-29".
func Site(build string) (map[string][]byte, error) {
	site := map[string][]byte{}
	err := fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		site[name], err = files.ReadFile(name)
		return err
	})
	if err != nil {
		return nil, err
	}
	site["index.html"] = site["docs/site/index.html"]
	site["_sidebar.md"] = sidebar(string(site["docs/README.md"]))
	site["docs/README.md"] = start(string(site["docs/README.md"]))
	site["docs/decisions/README.md"] = decisions(site)
	site["docs/site/pages.js"], err = pageList(site, build)
	return site, err
}

// Pages returns the routes of a site's pages: "/docs/cli" is docs/cli.md, "/docs/" is docs/README.md.
func Pages(site map[string][]byte) []string {
	var out []string
	for name := range site {
		page, isPage := strings.CutSuffix("/"+name, ".md")
		if !isPage || name == "_sidebar.md" {
			continue
		}
		if dir, isIndex := strings.CutSuffix(page, "/README"); isIndex && dir != "" {
			page = dir + "/"
		}
		out = append(out, page)
	}
	slices.Sort(out)
	return out
}

var (
	group   = regexp.MustCompile(`^## (.+)$`)
	entry   = regexp.MustCompile(`^- ((?:\[[^]]+\]\([^)]+\)(?:, )?)+)(?:: (.+))?`)
	linked  = regexp.MustCompile(`\[([^]]+)\]\(([^)]+)\)`)
	heading = regexp.MustCompile(`(?m)^# (.+)$`)
)

// start keeps docs/README.md up to its list of all pages, which the site shows in its sidebar.
func start(index string) []byte {
	text, _, _ := strings.Cut(index, "\n## ")
	return []byte(text)
}

// sidebar keeps the groups and links of docs/README.md. A link's description is shown when it is hovered.
func sidebar(index string) []byte {
	var out strings.Builder
	for line := range strings.Lines(index) {
		if m := group.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			fmt.Fprintf(&out, "- %s\n", m[1])
		}
		m := entry.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		for _, l := range linked.FindAllStringSubmatch(m[1], -1) {
			fmt.Fprintf(&out, "  - [%s](%s%s)\n", strings.ToUpper(l[1][:1])+l[1][1:], fromRoot("docs", l[2]), title(m[2]))
		}
	}
	return []byte(out.String())
}

// title returns the description of a page as the title of its link.
func title(description string) string {
	if description == "" {
		return ""
	}
	return fmt.Sprintf(" %q", description)
}

// fromRoot makes a link relative to a directory one from the site's root.
func fromRoot(dir, link string) string {
	at := "/" + path.Join(dir, link)
	if strings.HasSuffix(link, "/") {
		at += "/"
	}
	return at
}

// decisions lists the decision records: their directory has no page of its own.
func decisions(site map[string][]byte) []byte {
	out := "# Decisions\n\nWhy llmguard is built this way.\n\n"
	var names []string
	for name := range site {
		if path.Dir(name) == "docs/decisions" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		if m := heading.FindSubmatch(site[name]); m != nil {
			out += fmt.Sprintf("- [%s](%s)\n", m[1], path.Base(name))
		}
	}
	return []byte(out)
}

// pageList is for the site's script: which pages there are, and of which build. The version renews a browser's
// search index.
func pageList(site map[string][]byte, build string) ([]byte, error) {
	sum := fnv.New64a()
	pages := Pages(site)
	for _, page := range pages {
		fmt.Fprint(sum, page, len(site[file(page)]))
		_, _ = sum.Write(site[file(page)])
	}
	text, err := json.Marshal(map[string]any{"build": build, "pages": pages, "version": fmt.Sprintf("%x", sum.Sum64())})
	return slices.Concat([]byte("window.llmguardSite = "), text, []byte(";\n")), err
}

func file(page string) string {
	if strings.HasSuffix(page, "/") {
		page += "README"
	}
	return page[1:] + ".md"
}
