package top

import (
	"fmt"
	"io"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/llmguard/llmguard/internal/escape"
	"github.com/llmguard/llmguard/internal/figures"
)

// View draws the screen.
func (m *Model) View() tea.View {
	v := tea.NewView(m.draw())
	v.AltScreen = true
	v.WindowTitle = "llmguard top"
	return v
}

const helpText = `
  1 to 5, tab    orgs, users, pools, slowest calls, groups
  b              group calls by the next of: labels, run, key, model, ...
  up, down       move          enter   open: an org's users, a user's limits
  s              sort          esc     back, or clear the filter
  /              filter        p       pause
  r              sample now    q       quit

  o              temporarily override a limit of the selected line
  d              disable the selected user
  c              cancel the waiting and running jobs of the selected user

  Last-minute values cover calls that ended in that minute. "today" is in UTC.
  "use" is the charged and reserved share of the fullest limit, "runs out in"
  when the first one does, at the recent rate. "refused" counts calls of today.
  Filters are text of a line, or conditions such as run=nightly cost>0.5
  Columns that do not fit are shown on the line below the list.
  ~ before a value: there are more calls or waiting jobs than were counted.
`

func (m *Model) draw() string {
	lines := []string{m.head(), m.tabs(), ""}
	room := m.height - len(lines) - 1
	switch {
	case m.help:
		lines = append(lines, strings.Split(strings.Trim(helpText, "\n"), "\n")...)
	case m.snap == nil && m.err == nil:
		lines = append(lines, "loading ...")
	case m.snap != nil && m.split():
		lines = append(lines, m.wide(room)...)
	case m.snap != nil:
		lines = append(lines, m.main(room)...)
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

// split reports whether there is room for all lists side by side.
func (m *Model) split() bool { return m.width >= 150 && m.height >= 34 }

// main returns the list with the focus in height lines, with what was opened above it and what
// is hidden below it.
func (m *Model) main(height int) []string {
	lines, t := m.opened(), m.tableOf(m.tab)
	more := t.hidden(m.width)
	if more != "" {
		height -= 2
	}
	lines = append(lines, t.lines(m, m.width, height-len(lines))...)
	if more != "" {
		for len(lines) < height {
			lines = append(lines, "")
		}
		lines = append(lines, "", m.paint.styled(more, faint))
	}
	return lines
}

// wide puts the main list above the others: one on the left, two on the right. They get the
// space that the main list does not need.
func (m *Model) wide(height int) []string {
	upper := height * 45 / 100
	if t := m.tableOf(m.tab); t.hidden(m.width) == "" {
		upper = min(upper, max(leastUpper, len(m.opened())+1+len(t.rows)))
	}
	lines := m.main(upper)
	for len(lines) < upper {
		lines = append(lines, "")
	}
	lines = append(lines[:upper], "")
	var others []Tab
	for t := Orgs; t <= Calls; t++ {
		if t != m.tab && (m.org == "" || t == Pools || t == Calls) && (m.tab != Groups || t != Orgs) {
			others = append(others, t)
		}
	}
	width, lower := (m.width-2)/2, height-upper-1
	if len(others) == 2 {
		return append(lines, beside(m.pane(others[0], width, lower), m.pane(others[1], m.width-width-2, lower), width)...)
	}
	if len(others) == 1 {
		return append(lines, m.pane(others[0], m.width, lower)...)
	}
	small := lower * 2 / 5
	at := m.pane(others[1], m.width-width-2, small)
	for len(at) < small {
		at = append(at, "")
	}
	at = append(append(at[:small], ""), m.pane(others[2], m.width-width-2, lower-small-1)...)
	return append(lines, beside(m.pane(others[0], width, lower), at, width)...)
}

// leastUpper is the minimum height of the main list, so that the others do not move when a few
// rows come and go.
const leastUpper = 8

// pane returns a list with its title and without a selected row.
func (m *Model) pane(tab Tab, width, height int) []string {
	t := m.tableOf(tab)
	t.chosen = -1
	name := m.paint.styled(fmt.Sprintf("%d %s", tab+1, m.tabName(tab)), bold)
	return append([]string{name}, t.lines(m, width, height-1)...)
}

func (m *Model) tableOf(tab Tab) *table {
	return &table{columns: m.columnsOf(tab), rows: m.rowsOf(tab), chosen: m.row, nothing: m.nothing()}
}

func (m *Model) head() string {
	if m.snap == nil {
		return m.paint.styled("llmguard top", bold)
	}
	s, about := m.snap, ""
	if s.Partial {
		about = "~"
	}
	figures := []string{
		m.paint.styled("llmguard top", bold), figures.Clock(s.At),
		about + figures.Compact(s.Calls) + " calls/min",
		about + figures.USD(s.Cost) + "/min", figures.USD(s.Today) + " today",
		figures.Compact(s.Waiting) + " waiting", figures.Compact(s.Running) + " running",
	}
	if len(s.Stopped) > 0 {
		stops := escape.Text("SPENDING STOPPED: " + strings.Join(s.Stopped, ", "))
		figures = slices.Insert(figures, 1, m.paint.styled(stops, red))
	}
	for apart := "   "; apart != ""; apart = apart[1:] {
		if line := strings.Join(figures, apart); ansi.StringWidth(line) <= m.width {
			return line
		}
	}
	return strings.Join(figures[1:], " ")
}

func (m *Model) tabs() string {
	var b strings.Builder
	for t := Orgs; t <= Groups; t++ {
		text := fmt.Sprintf(" %d %s ", t+1, m.tabName(t))
		if t == m.tab {
			text = m.paint.styled(text, reverse)
		}
		b.WriteString(text + " ")
	}
	switch {
	case m.typing:
		b.WriteString("  filter: " + escape.Text(m.filter) + "_")
	case m.filter != "":
		b.WriteString("  filter: " + escape.Text(m.filter))
	}
	return b.String()
}

// opened describes what was drilled into, including the limits of an org.
func (m *Model) opened() []string {
	if m.org == "" {
		return nil
	}
	if m.user != "" {
		s := spenderOf(m.snap.Users, m.org, m.user)
		return []string{fmt.Sprintf("%s / %s: %s calls/min, %s/min, %s today", m.paint.styled(escape.Text(m.org), bold),
			m.paint.styled(escape.Text(m.user), bold),
			figures.Compact(s.Calls), figures.USD(s.Cost), figures.USD(s.Today)), ""}
	}
	lines := []string{m.paint.styled(escape.Text(m.org), bold)}
	for _, l := range spenderOf(m.snap.Orgs, m.org, "").Limits {
		ends := ""
		if l.UsedUp != nil {
			ends = "runs out in " + l.usedUp()
		}
		lines = append(lines, fmt.Sprintf("  %s  %s of %s, %s held, %s  %s%s", m.paint.warn(bar(l.Share()), l.Share()),
			l.amount(l.Used), l.amount(l.Amount),
			l.amount(l.Held), escape.Text(l.Name), map[bool]string{true: "(" + l.Mode + ") "}[l.Mode != "enforce"], ends))
	}
	return append(lines, "")
}

func (m *Model) page() int { return max(1, m.height-6) }

func (m *Model) nothing() string {
	switch {
	case m.filter != "":
		return "nothing matches the filter (esc clears it)"
	case m.snap.filtered():
		return "no call of the last minute meets the conditions (esc clears them)"
	case m.user != "":
		return "no limit counts this user separately"
	}
	return "no data yet"
}

func (m *Model) foot() string {
	text := "enter open  s sort: " + m.sort() + "  / filter  o override  d disable  c cancel  ? help"
	if m.tab == Groups {
		text = "enter its users  b group by another  s sort: " + m.sort() + "  / filter  ? help"
	}
	switch {
	case m.prompt != nil:
		return m.paint.styled(m.prompt.text(), bold)
	case m.told != "":
		return m.paint.styled(escape.Text(m.told), bold)
	case m.err != nil:
		return m.paint.styled("no data: "+m.err.Error(), bold) + m.paint.styled("  (values are outdated)", faint)
	case m.paused:
		text = "PAUSED  " + text
	}
	return m.paint.styled(text, faint)
}

var (
	bold    = ansi.Style{}.Bold()
	faint   = ansi.Style{}.Faint()
	reverse = ansi.Style{}.Reverse(true)
	yellow  = ansi.Style{}.ForegroundColor(ansi.Yellow)
	red     = ansi.Style{}.ForegroundColor(ansi.Red)
)

// paint styles text for a terminal.
type paint struct{ colour bool }

// styled styles a text. Without color only the selected row is marked.
func (p paint) styled(text string, s ansi.Style) string {
	if !p.colour && !isReverse(s) {
		return text
	}
	return s.Styled(text)
}

func isReverse(s ansi.Style) bool { return s.String() == reverse.String() }

// warn colors what is nearly or completely used up.
func (p paint) warn(text string, share float64) string {
	switch {
	case share >= 1:
		return p.styled(text, red)
	case share >= 0.8:
		return p.styled(text, yellow)
	}
	return text
}

// Print writes a snapshot as plain text: all tabs, the first rows of each.
func Print(w io.Writer, snap *Snapshot, rows int) error {
	m := &Model{snap: snap, width: 200, height: rows + 5}
	if _, err := fmt.Fprintln(w, m.head()); err != nil {
		return err
	}
	for t := Orgs; t <= Groups; t++ {
		if t == Groups && snap.By == "" {
			break
		}
		m.open(t)
		m.row = -1
		if _, err := fmt.Fprintf(w, "\n%s\n%s\n", m.tabName(t),
			strings.Join(m.tableOf(t).lines(m, m.width, rows+1), "\n")); err != nil {
			return err
		}
	}
	return nil
}
