package top

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/llmguard/llmguard/budget/ledger"
)

// Tab is a list in the view.
type Tab int

// Tabs, in the order of their keys.
const (
	Orgs Tab = iota
	Users
	Pools
	Calls
	Groups // of calls by another dimension
)

var tabNames = []string{"orgs", "users", "pools", "slowest calls"}

// tabName returns the title of a list.
func (m *Model) tabName(t Tab) string {
	if t != Groups {
		return tabNames[t]
	}
	by := cmp.Or(m.by, m.snap.by())
	if by == "" {
		return "groups"
	}
	return "by " + plain(by)
}

// plain returns the name of a dimension without what marks it as a label.
func plain(dimension string) string { return strings.TrimPrefix(dimension, ledger.LabelPrefix) }

// sorts are the columns by which each tab can be sorted, the default first.
var sorts = [][]string{
	Orgs:   {"cost", "today", "calls", "waiting", "refused", "limit", "forecast", "name"},
	Users:  {"cost", "today", "calls", "waiting", "refused", "limit", "forecast", "name"},
	Pools:  {"waiting", "quota", "name"},
	Calls:  {"time", "waited", "cost", "newest"},
	Groups: {"cost", "calls", "limit", "forecast", "name"},
}

// Query says what to sample.
type Query struct {
	User   string // whose limits to read in any case, as org/user
	By     string // dimension of the groups; empty: what is usual
	Filter string // conditions of ledger.ParseFilter
}

// Model is the live view, a bubbletea model. Create it with NewModel.
type Model struct {
	ctx    context.Context //nolint:containedctx // commands of bubbletea get none
	sample func(context.Context, Query) (*Snapshot, error)
	every  time.Duration
	paint  paint

	snap          *Snapshot
	err           error
	width, height int
	tab           Tab
	sorted        [5]int // index into sorts, by tab
	row           int
	org, user     string // what was opened; empty: nothing
	by            string // what calls are grouped by; empty: what is usual
	filter        string
	applied       string // the conditions of the filter that samples have
	typing        bool   // editing the filter
	paused, help  bool
	asking        bool // a sample has been requested

	act    func(context.Context, Order) (string, error)
	prompt *prompt // the open prompt, or nil
	told   string  // result of the last order
}

// NewModel returns a view that calls sample immediately and then periodically. Samples stop with the
// context.
func NewModel(ctx context.Context, every time.Duration, colour bool,
	sample func(context.Context, Query) (*Snapshot, error),
) *Model {
	return &Model{ctx: ctx, sample: sample, every: every, paint: paint{colour}, width: 80, height: 24, asking: true}
}

type (
	sampled struct {
		of   Query
		snap *Snapshot
		err  error
	}
	due struct{}
)

// Init requests the first sample.
func (m *Model) Init() tea.Cmd { return tea.Batch(m.ask(), m.later()) }

func (m *Model) ask() tea.Cmd {
	q := Query{By: m.by, Filter: m.applied}
	if m.user != "" {
		q.User = m.org + "/" + m.user
	}
	return func() tea.Msg {
		snap, err := m.sample(m.ctx, q)
		return sampled{q, snap, err}
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
		if msg.of.By != m.by || msg.of.Filter != m.applied {
			return m, nil // a later one is on its way
		}
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
		return m.typed(key)
	}
	m.told = ""
	switch key {
	case "q":
		return tea.Quit
	case "1", "2", "3", "4", "5":
		m.open(Tab(key[0] - '1'))
	case "tab":
		m.open((m.tab + 1) % 5)
	case "shift+tab":
		m.open((m.tab + 4) % 5)
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
		return m.back()
	case "b":
		return m.regroup()
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

func (m *Model) open(t Tab) {
	m.tab = t
	m.row = 0
	m.org = ""
	m.user = ""
	m.help = false
}

// again requests a sample now, unless one is pending.
func (m *Model) again() tea.Cmd {
	if m.asking {
		return nil
	}
	m.asking = true
	return m.ask()
}

// spenderOf returns the opened org or user.
func spenderOf(list []Spender, org, user string) *Spender {
	i := slices.IndexFunc(list, func(s Spender) bool { return s.Org == org && s.User == user })
	if i < 0 {
		return &Spender{Org: org, User: user}
	}
	return &list[i]
}
