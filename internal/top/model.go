package top

import (
	"context"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
)

// Tab is a list in the view.
type Tab int

// Tabs, in the order of their keys.
const (
	Orgs Tab = iota
	Users
	Pools
	Calls
)

var tabNames = []string{"orgs", "users", "pools", "slowest calls"}

// sorts are the columns by which each tab can be sorted, the default first.
var sorts = [][]string{
	Orgs:  {"cost", "today", "calls", "waiting", "refused", "limit", "name"},
	Users: {"cost", "today", "calls", "waiting", "refused", "limit", "name"},
	Pools: {"waiting", "quota", "name"},
	Calls: {"time", "waited", "cost", "newest"},
}

// Model is the live view, a bubbletea model. Create it with NewModel.
type Model struct {
	ctx    context.Context //nolint:containedctx // commands of bubbletea get none
	sample func(context.Context, string) (*Snapshot, error)
	every  time.Duration
	paint  paint

	snap          *Snapshot
	err           error
	width, height int
	tab           Tab
	sorted        [4]int // index into sorts, by tab
	row           int
	org, user     string // what was opened; empty: nothing
	filter        string
	typing        bool // editing the filter
	paused, help  bool
	asking        bool // a sample has been requested

	act    func(context.Context, Order) (string, error)
	prompt *prompt // the open prompt, or nil
	told   string  // result of the last order
}

// NewModel returns a view that calls sample immediately and then periodically; see
// Sampler.Sample for its parameter. Samples stop with the context.
func NewModel(ctx context.Context, every time.Duration, colour bool,
	sample func(context.Context, string) (*Snapshot, error),
) *Model {
	return &Model{ctx: ctx, sample: sample, every: every, paint: paint{colour}, width: 80, height: 24, asking: true}
}

type (
	sampled struct {
		snap *Snapshot
		err  error
	}
	due struct{}
)

// Init requests the first sample.
func (m *Model) Init() tea.Cmd { return tea.Batch(m.ask(), m.later()) }

func (m *Model) ask() tea.Cmd {
	who := ""
	if m.user != "" {
		who = m.org + "/" + m.user
	}
	return func() tea.Msg {
		snap, err := m.sample(m.ctx, who)
		return sampled{snap, err}
	}
}

func (m *Model) later() tea.Cmd {
	return tea.Tick(m.every, func(time.Time) tea.Msg { return due{} })
}

// Update handles a message: a sample, a key, a new size.
func (m *Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case sampled:
		m.asking = false
		m.err = msg.err
		if msg.snap != nil {
			m.snap = msg.snap
		}
	case acted:
		m.told = msg.text
		if msg.err != nil {
			m.told = "nothing was changed: " + msg.err.Error()
		}
		return m, m.again()
	case due:
		if m.paused || m.asking {
			return m, m.later()
		}
		m.asking = true
		return m, tea.Batch(m.ask(), m.later())
	case tea.KeyPressMsg:
		return m, m.key(msg.String())
	}
	m.row = max(0, min(m.row, len(m.rows())-1))
	return m, nil
}

func (m *Model) key(key string) tea.Cmd {
	switch {
	case key == "ctrl+c": // even while editing the filter
		return tea.Quit
	case m.prompt != nil:
		return m.answer(key)
	case m.typing:
		m.typed(key)
		return nil
	}
	m.told = ""
	switch key {
	case "q":
		return tea.Quit
	case "1", "2", "3", "4":
		m.open(Tab(key[0] - '1'))
	case "tab":
		m.open((m.tab + 1) % 4)
	case "shift+tab":
		m.open((m.tab + 3) % 4)
	case "down", "j":
		m.row++
	case "up", "k":
		m.row--
	case "pgdown", "space":
		m.row += m.page()
	case "pgup":
		m.row -= m.page()
	case "home", "g":
		m.row = 0
	case "end", "G":
		m.row = len(m.rows()) - 1
	case "s":
		m.sorted[m.tab] = (m.sorted[m.tab] + 1) % len(sorts[m.tab])
	case "/":
		m.typing = true
	case "enter", "right", "l":
		return m.enter()
	case "esc", "left", "h", "backspace":
		m.back()
	case "p":
		m.paused = !m.paused
	case "r":
		return m.again()
	case "?":
		m.help = !m.help
	case "o":
		m.begin(Override)
	case "d":
		m.begin(Disable)
	case "c":
		m.begin(Cancel)
	}
	m.row = max(0, min(m.row, len(m.rows())-1))
	return nil
}

// typed edits the filter.
func (m *Model) typed(key string) {
	switch key {
	case "enter":
		m.typing = false
	case "esc":
		m.typing, m.filter = false, ""
	default:
		edit(&m.filter, key)
	}
	m.row = 0
}

func (m *Model) open(t Tab) {
	m.tab = t
	m.row = 0
	m.org = ""
	m.user = ""
	m.help = false
}

// enter drills in: from an org to its users, from a user to the user's limits, from a call to
// its user.
func (m *Model) enter() tea.Cmd {
	rows := m.rows()
	if m.row >= len(rows) || m.user != "" {
		return nil
	}
	at := rows[m.row]
	switch {
	case m.tab == Orgs && m.org == "":
		m.org, m.row = at.org, 0
		return nil
	case at.user != "":
		m.org = at.org
		m.user = at.user
		m.row = 0
		return m.again()
	}
	return nil
}

func (m *Model) back() {
	switch {
	case m.help:
		m.help = false
	case m.user != "":
		m.user = ""
		if m.tab != Orgs {
			m.org = ""
		}
	case m.org != "":
		m.org = ""
	default:
		m.filter = ""
	}
	m.row = 0
}

// again requests a sample now, unless one is pending.
func (m *Model) again() tea.Cmd {
	if m.asking {
		return nil
	}
	m.asking = true
	return m.ask()
}

// spender returns the opened org or user.
func (m *Model) spender(list []Spender, org, user string) *Spender {
	i := slices.IndexFunc(list, func(s Spender) bool { return s.Org == org && s.User == user })
	if i < 0 {
		return &Spender{Org: org, User: user}
	}
	return &list[i]
}

// fits reports whether a row matches the filter.
func (m *Model) fits(text string) bool {
	return m.filter == "" || strings.Contains(strings.ToLower(text), strings.ToLower(m.filter))
}
