package top

import (
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// column is a column of a list. If a list is too wide, the columns with the highest rank are
// hidden; the line below the list shows them for the selected row.
type column struct {
	name  string
	right bool // right-aligned, for numbers
	rank  int
	rare  bool // hidden while all its cells are empty
}

func left(name string, rank int) column  { return column{name: name, rank: rank} }
func right(name string, rank int) column { return column{name: name, right: true, rank: rank} }

// ifAny hides a column while all its cells are empty.
func (c column) ifAny() column {
	c.rare = true
	return c
}

// use is the name of the column with a bar.
const use = "use"

// table is a list in an area of the screen: its head, and as many rows as fit, including the
// selected one; -1 means that none is selected.
type table struct {
	columns []column
	rows    []row
	chosen  int
	nothing string // text shown if there are no rows
}

const (
	gap        = 2  // cells between columns
	shortWidth = 5  // of a bar shown as a number only
	textWidth  = 12 // names are truncated to this width before columns are hidden
)

// fit returns the width of each column for a total width; 0 means hidden.
func (t *table) fit(width int) []int {
	widths := make([]int, len(t.columns))
	for i, c := range t.columns {
		widths[i] = ansi.StringWidth(c.name)
		for _, r := range t.rows {
			widths[i] = max(widths[i], ansi.StringWidth(r.cells[i]))
		}
		if c.rare && !slices.ContainsFunc(t.rows, func(r row) bool { return r.cells[i] != "" }) {
			widths[i] = 0
		}
	}
	whole, over := slices.Clone(widths), func() int { return total(widths) - width }
	for i, c := range t.columns {
		if c.name == use && over() > 0 {
			widths[i] = min(widths[i], shortWidth)
		}
	}
	for i, c := range t.columns {
		if !c.right && c.name != use && over() > 0 {
			widths[i] -= min(max(widths[i]-textWidth, 0), over())
		}
	}
	for over() > 0 && t.drop(widths) {
		continue
	}
	for i := range widths {
		if widths[i] > 0 && over() < 0 { // what hidden columns left
			widths[i] += min(whole[i]-widths[i], -over())
		}
	}
	return widths
}

func total(widths []int) (n int) {
	for _, w := range widths {
		if w > 0 {
			n += w + gap
		}
	}
	return n - gap
}

// drop hides the column with the highest rank, unless only columns of rank 0 are left.
func (t *table) drop(widths []int) bool {
	at := -1
	for i, c := range t.columns {
		if widths[i] > 0 && c.rank > 0 && (at < 0 || c.rank >= t.columns[at].rank) {
			at = i
		}
	}
	if at >= 0 {
		widths[at] = 0
	}
	return at >= 0
}

// lines draws the list in height lines of at most width cells.
func (t *table) lines(m *Model, width, height int) []string {
	widths := t.fit(width)
	names := make([]string, len(t.columns))
	for i, c := range t.columns {
		names[i] = c.name
	}
	lines := []string{m.paint.styled(t.line(m, names, widths, 0), faint)}
	if len(t.rows) == 0 {
		return append(lines, m.paint.styled(t.nothing, faint))
	}
	shown := max(1, height-1)
	first := max(0, min(t.chosen-shown/2, len(t.rows)-shown))
	for i := first; i < min(first+shown, len(t.rows)); i++ {
		text := t.line(m, t.rows[i].cells, widths, t.rows[i].share)
		if i == t.chosen {
			text = m.paint.styled(ansi.Strip(text), reverse)
		}
		lines = append(lines, text)
	}
	return lines
}

func (t *table) line(m *Model, cells []string, widths []int, share float64) string {
	var b strings.Builder
	for i, cell := range cells {
		if widths[i] == 0 {
			continue
		}
		if t.columns[i].name == use && cell != use && ansi.StringWidth(cell) > widths[i] {
			cell = strings.TrimLeft(cell, "█░ ")
		}
		cell = ansi.Truncate(cell, widths[i], "…")
		pad := strings.Repeat(" ", max(widths[i]-ansi.StringWidth(cell), 0))
		if t.columns[i].name == use && cell != "" {
			cell = m.paint.warn(cell, share)
		}
		if t.columns[i].right {
			b.WriteString(pad + cell)
		} else {
			b.WriteString(cell + pad)
		}
		b.WriteString(strings.Repeat(" ", gap))
	}
	return strings.TrimRight(b.String(), " ")
}

// hidden returns the cells of the selected row that are hidden or truncated at this width.
func (t *table) hidden(width int) string {
	if t.chosen < 0 || t.chosen >= len(t.rows) {
		return ""
	}
	var parts []string
	for i, w := range t.fit(width) {
		cell := t.rows[t.chosen].cells[i]
		if t.columns[i].name != use && cell != "" && ansi.StringWidth(cell) > w {
			parts = append(parts, t.columns[i].name+" "+cell)
		}
	}
	return strings.Join(parts, " · ")
}

// beside puts two blocks of lines side by side, the left one with the given width.
func beside(a, b []string, width int) []string {
	out := make([]string, max(len(a), len(b)))
	for i := range out {
		if i < len(a) {
			out[i] = ansi.Truncate(a[i], width, "…")
		}
		if i < len(b) && b[i] != "" {
			out[i] += strings.Repeat(" ", max(width-ansi.StringWidth(out[i]), 0)) + "  " + b[i]
		}
	}
	return out
}

// sparks are block characters in steps of an eighth.
var sparks = []rune(" ▁▂▃▄▅▆▇█")

// spark draws numbers as vertical bars in one line; zero has no bar.
func spark(list []int64) string {
	most := slices.Max(append([]int64{0}, list...))
	if most <= 0 {
		return ""
	}
	out := make([]rune, len(list))
	for i, n := range list {
		at := 0
		if n > 0 {
			at = 1 + int(float64(n)/float64(most)*float64(len(sparks)-2)+0.5)
		}
		out[i] = sparks[min(at, len(sparks)-1)]
	}
	return string(out)
}
