package simulate

import (
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"strings"

	"github.com/llmguard/llmguard/internal/escape"
	"github.com/llmguard/llmguard/internal/figures"
)

//go:embed page.html style.css
var files embed.FS

var page = template.Must(template.New("page.html").Funcs(template.FuncMap{
	"usd": figures.USD,
}).ParseFS(files, "page.html"))

// ErrNothing is returned for reports without a timeline.
var ErrNothing = errors.New("simulate: nothing to plot")

// A drawing is a self-contained SVG or HTML file that shows the spend, how full limits were,
// how many calls waited over time, and for how long. It follows the viewer's light or dark
// mode.

// SVG draws one report, or two of the same calls with the baseline first. The runs must have
// recorded how full limits were.
func SVG(w io.Writer, reports []Report) error {
	text, err := svg(reports)
	if err == nil {
		_, err = io.WriteString(w, escape.Lines(text))
	}
	return err
}

// HTML writes a page with the drawing and the figures of the largest lines.
func HTML(w io.Writer, reports []Report) error {
	drawn, err := svg(reports)
	if err != nil {
		return err
	}
	style, err := files.ReadFile("style.css")
	if err != nil {
		return err
	}
	var b strings.Builder
	last := reports[len(reports)-1]
	err = page.Execute(&b, map[string]any{
		"Style": template.CSS(style), "Plot": template.HTML(drawn), "Reports": reports, // both are generated here
		"Last": last, "Title": title(reports), "Span": span(last), "Lines": last.Lines[:min(len(last.Lines), 20)],
	})
	if err == nil {
		_, err = io.WriteString(w, escape.Lines(b.String()))
	}
	return err
}

func title(reports []Report) string {
	last := reports[len(reports)-1]
	if len(reports) == 1 {
		return "What " + last.Policy + " would have done"
	}
	return last.Policy + " against " + reports[0].Policy
}

func span(r Report) string {
	return fmt.Sprintf("%d calls %s", r.Total.Calls, figures.Between(r.From, r.To))
}

// svg stacks the panels.
func svg(reports []Report) (string, error) {
	if len(reports) == 0 || len(reports[len(reports)-1].Timeline) == 0 {
		return "", ErrNothing
	}
	style, err := files.ReadFile("style.css")
	if err != nil {
		return "", err
	}
	c := &canvas{}
	c.Text(left, 26, "title", title(reports))
	c.Text(left, 46, "note", span(reports[len(reports)-1]))
	c.y = 70
	c.spend(reports)
	for _, r := range reports {
		c.fill(r, len(reports) > 1)
	}
	c.waiting(reports)
	c.waits(reports)
	var out strings.Builder
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %.0f" role="img" aria-label="%s">`+
		"\n<style>%s</style>\n", width, c.y, template.HTMLEscapeString(title(reports)), style)
	fmt.Fprintf(&out, `<rect class="paper" width="%d" height="%.0f"/>`+"\n%s</svg>\n", width, c.y, c.SVG())
	return out.String(), nil
}
