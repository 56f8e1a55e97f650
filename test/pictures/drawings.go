package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/chromedp/chromedp"
)

// mermaidPackage draws the flowcharts and sequences. It is fetched from npm because only this command needs it.
const mermaidPackage = "mermaid@11.17.2"

// drawings makes an SVG from every Mermaid file in out. SVGs show on GitHub, in the site and in editors alike,
// and the site does without Mermaid's megabytes.
func drawings(ctx context.Context, out, tmp string) error {
	sources, err := filepath.Glob(filepath.Join(out, "*.mmd"))
	if err != nil {
		return err
	}
	page, end, err := mermaidPage(ctx, tmp)
	if err != nil {
		return err
	}
	defer end()
	for _, source := range sources {
		if err := drawing(page, source); err != nil {
			return fmt.Errorf("%s: %w", source, err)
		}
	}
	return nil
}

// mermaidPage opens a blank page that has loaded Mermaid.
func mermaidPage(ctx context.Context, tmp string) (context.Context, func(), error) {
	unpack := exec.CommandContext(ctx, "sh", "-c", "npm pack --silent "+mermaidPackage+" && tar -xzf mermaid-*.tgz")
	unpack.Dir = tmp
	if text, err := unpack.CombinedOutput(); err != nil {
		return nil, nil, fmt.Errorf("fetching %s: %w\n%s", mermaidPackage, err, text)
	}
	html := filepath.Join(tmp, "page.html")
	text := `<!doctype html><body><script src="package/dist/mermaid.min.js"></script></body>`
	if err := os.WriteFile(html, []byte(text), 0o600); err != nil {
		return nil, nil, err
	}
	page, end, err := browser(ctx)
	if err != nil {
		return nil, nil, err
	}
	if _, err := chromedp.Run(page, chromedp.Navigate("file://"+html)); err != nil {
		end()
		return nil, nil, err
	}
	return page, end, nil
}

func drawing(page context.Context, source string) error {
	text, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	quoted, err := json.Marshal(string(text))
	if err != nil {
		return err
	}
	name := strings.TrimSuffix(filepath.Base(source), ".mmd")
	// Without HTML labels, programs that are no browser can show the file too. The background keeps it readable on
	// a dark page. Drawings are narrow, because a page shrinks them to its width, text
	// included, and have a width, so that it does not enlarge them.
	script := fmt.Sprintf(`(async () => {
		mermaid.initialize({startOnLoad: false, theme: "neutral", htmlLabels: false, deterministicIds: true,
			fontFamily: "system-ui, sans-serif", flowchart: {htmlLabels: false, nodeSpacing: 30, rankSpacing: 36, padding: 10},
			sequence: {width: 120, actorMargin: 24, diagramMarginX: 8, boxMargin: 8, messageMargin: 28},
			themeCSS: ".edgeLabel rect { fill: #fff; opacity: 1; } .note { fill: #fffbe6; } .noteText > tspan { fill: #333; }"});
		const {svg} = await mermaid.render(%q, %s);
		const width = Math.ceil(svg.match(/viewBox="\S+ \S+ (\S+)/)[1]);
		return svg.replace('width="100%%"', 'width="' + width + '"').replace(/style="/, 'style="background:#fff;');
	})()`, name, quoted)
	svg, err := chromedp.Run(page, chromedp.Evaluate[string](script, chromedp.EvalAwaitPromise))
	if err != nil {
		return err
	}
	return os.WriteFile(strings.TrimSuffix(source, ".mmd")+".svg", []byte(svg+"\n"), 0o644)
}
