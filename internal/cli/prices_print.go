package cli

import (
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// grid is a plain table: columns two spaces apart, no rules, no color, no trailing spaces.
// Numbers are aligned at the decimal point.
type grid struct {
	indent  string
	head    []string // nil: no header
	numbers []bool   // by column
	rows    [][]string
}

func (g *grid) add(cells ...string) { g.rows = append(g.rows, cells) }

// dropColumn removes a column without information.
func (g *grid) dropColumn(i int) {
	g.head, g.numbers = slices.Delete(g.head, i, i+1), slices.Delete(g.numbers, i, i+1)
	for j := range g.rows {
		g.rows[j] = slices.Delete(g.rows[j], i, i+1)
	}
}

func (g *grid) write(w io.Writer) error {
	g.alignPoints()
	lines := g.rows
	if g.head != nil {
		lines = append([][]string{g.head}, g.rows...)
	}
	widths := make([]int, len(g.numbers))
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, line := range lines {
		text := g.indent
		for i, cell := range line {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if g.numbers[i] {
				text += pad + cell + "  "
			} else {
				text += cell + pad + "  "
			}
		}
		b.WriteString(strings.TrimRight(text, " ") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// alignPoints pads numbers to the longest fraction of their column.
func (g *grid) alignPoints() {
	for i, numeric := range g.numbers {
		if !numeric {
			continue
		}
		longest := 0
		for _, row := range g.rows {
			longest = max(longest, fraction(row[i]))
		}
		for _, row := range g.rows {
			row[i] += strings.Repeat(" ", longest-fraction(row[i]))
		}
	}
}

// fraction is the length of a decimal's fraction with its point.
func fraction(number string) int {
	if i := strings.IndexByte(number, '.'); i >= 0 {
		return len(number) - i
	}
	return 0
}
