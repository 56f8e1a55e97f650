package top

import (
	"fmt"
	"io"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
)

// View draws the screen.
func (m *Model) View() tea.View {
	v := tea.NewView(m.draw())
	v.AltScreen = true
	v.WindowTitle = "llmguard top"
	return v
}

const helpText = `
  1 2 3 4, tab   orgs, users, pools, slowest calls
  up, down       move          enter   open: an org's users, a user's limits
  s              sort          esc     back, or no filter
  /              filter        p       pause
  r              sample now    q       quit

  Figures of the last minute are of calls that ended in it; "today" is the UTC day.
  "use" is what is charged and held against the fullest limit. ~ before a figure of the
  head: there were more calls than are looked at.
`

func (m *Model) draw() string {
	lines := []string{m.head(), m.tabs(), ""}
	switch {
	case m.help:
		lines = append(lines, strings.Split(strings.Trim(helpText, "\n"), "\n")...)
	case m.snap == nil && m.err == nil:
		lines = append(lines, "reading ...")
	case m.snap != nil:
		lines = append(lines, m.opened()...)
		lines = append(lines, m.table()...)
	}
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	lines = append(lines[:max(0, min(len(lines), m.height-1))], m.foot())
	for i := range lines {
		lines[i] = ansi.Truncate(lines[i], m.width, "…")
	}
	return strings.Join(lines, "\n")
}

func (m *Model) head() string {
	if m.snap == nil {
		return m.styled("llmguard top", bold)
	}
	s, about := m.snap, ""
	if s.Partial {
		about = "~"
	}
	return m.styled("llmguard top", bold) + "  " + s.At.Format(time.TimeOnly) + " UTC   " + fmt.Sprintf("%s%s calls/min   %s%s/min   %s today   %s waiting   %s running",
		about, count(s.Calls), about, usd(s.Cost), usd(s.Today), count(s.Waiting), count(s.Running))
}

func (m *Model) tabs() string {
	var b strings.Builder
	for i, name := range tabNames {
		text := fmt.Sprintf(" %d %s ", i+1, name)
		if Tab(i) == m.tab {
			text = m.styled(text, reverse)
		}
		b.WriteString(text + " ")
	}
	switch {
	case m.typing:
		b.WriteString("  filter: " + Printable(m.filter) + "_")
	case m.filter != "":
		b.WriteString("  filter: " + Printable(m.filter))
	}
	return b.String()
}

// opened says what was drilled into: for an org its limits, too.
func (m *Model) opened() []string {
	if m.org == "" {
		return nil
	}
	if m.user != "" {
		s := m.spender(m.snap.Users, m.org, m.user)
		return []string{fmt.Sprintf("%s / %s: %s calls/min, %s/min, %s today", m.styled(Printable(m.org), bold), m.styled(Printable(m.user), bold),
			count(s.Calls), usd(s.Cost), usd(s.Today)), ""}
	}
	lines := []string{m.styled(Printable(m.org), bold)}
	for _, l := range m.spender(m.snap.Orgs, m.org, "").Limits {
		lines = append(lines, fmt.Sprintf("  %s  %s of %s, %s held, %s  %s", m.warn(bar(l.Share()), l.Share()), l.amount(l.Used), l.amount(l.Amount),
			l.amount(l.Held), Printable(l.Name), map[bool]string{true: "(" + l.Mode + ")"}[l.Mode != "enforce"]))
	}
	return append(lines, "")
}

func (m *Model) page() int { return max(1, m.height-6) }

// table is the list, scrolled so that the chosen row is seen.
func (m *Model) table() []string {
	rows, head := m.rows(), m.columns()
	widths := make([]int, len(head))
	for i, name := range head {
		widths[i] = ansi.StringWidth(strings.TrimPrefix(name, ">"))
		for _, r := range rows {
			widths[i] = max(widths[i], ansi.StringWidth(r.cells[i]))
		}
	}
	names := make([]string, len(head))
	for i, name := range head {
		names[i] = strings.TrimPrefix(name, ">")
	}
	lines := []string{m.styled(m.line(names, head, widths, 0), faint)}
	if len(rows) == 0 {
		return append(lines, m.styled(m.nothing(), faint))
	}
	shown := max(1, m.height-5-len(m.opened()))
	first := max(0, min(m.row-shown/2, len(rows)-shown))
	for i := first; i < min(first+shown, len(rows)); i++ {
		text := m.line(rows[i].cells, head, widths, rows[i].share)
		if i == m.row {
			text = m.styled(ansi.Strip(text), reverse)
		}
		lines = append(lines, text)
	}
	return lines
}

func (m *Model) nothing() string {
	switch {
	case m.filter != "":
		return "nothing fits the filter (esc)"
	case m.user != "":
		return "no limit counts this user alone"
	}
	return "nothing yet"
}

func (m *Model) line(cells, head []string, widths []int, share float64) string {
	var b strings.Builder
	for i, cell := range cells {
		pad := strings.Repeat(" ", widths[i]-ansi.StringWidth(cell))
		if head[i] == "use" && cell != "" {
			cell = m.warn(cell, share)
		}
		if strings.HasPrefix(head[i], ">") {
			b.WriteString(pad + cell + "  ")
		} else {
			b.WriteString(cell + pad + "  ")
		}
	}
	return strings.TrimRight(b.String(), " ")
}

func (m *Model) foot() string {
	text := "↑↓ move  enter open  esc back  s sort: " + m.sort() + "  / filter  p pause  ? help  q quit"
	switch {
	case m.err != nil:
		return m.styled("no sample: "+m.err.Error(), bold) + m.styled("  (the figures are old)", faint)
	case m.paused:
		text = "PAUSED  " + text
	}
	return m.styled(text, faint)
}

var (
	bold    = ansi.Style{}.Bold()
	faint   = ansi.Style{}.Faint()
	reverse = ansi.Style{}.Reverse(true)
	yellow  = ansi.Style{}.ForegroundColor(ansi.Yellow)
	red     = ansi.Style{}.ForegroundColor(ansi.Red)
)

// styled dresses a text. Without colour the chosen row alone is marked.
func (m *Model) styled(text string, s ansi.Style) string {
	if !m.colour && !isReverse(s) {
		return text
	}
	return s.Styled(text)
}

func isReverse(s ansi.Style) bool { return s.String() == reverse.String() }

// warn colours what is nearly used up, and what is.
func (m *Model) warn(text string, share float64) string {
	switch {
	case share >= 1:
		return m.styled(text, red)
	case share >= 0.8:
		return m.styled(text, yellow)
	}
	return text
}

// Print writes a snapshot as plain text: all tabs, the first rows of each.
func Print(w io.Writer, snap *Snapshot, rows int) error {
	m := &Model{snap: snap, width: 200, height: rows + 5}
	if _, err := fmt.Fprintln(w, m.head()); err != nil {
		return err
	}
	for t := Orgs; t <= Calls; t++ {
		m.open(t)
		m.row = -1
		if _, err := fmt.Fprintf(w, "\n%s\n%s\n", tabNames[t], strings.Join(m.table(), "\n")); err != nil {
			return err
		}
	}
	return nil
}
