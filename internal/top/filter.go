package top

import (
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/llmguard/llmguard/budget/ledger"
)

// Where starts the view with a grouping and a filter.
func (m *Model) Where(by, filter string) {
	m.by, m.filter = by, filter
	m.applied, _ = partsOf(m.filter)
	if by != "" {
		m.tab = Groups
	}
}

// partsOf splits a filter: conditions select the calls of samples, other text the lines of lists.
func partsOf(filter string) (conditions, text string) {
	var where, words []string
	for _, w := range ledger.FilterWords(filter) {
		if strings.ContainsAny(w, "=<>") {
			where = append(where, w)
		} else {
			words = append(words, w)
		}
	}
	if len(where) == 0 {
		return "", filter
	}
	return strings.Join(where, " "), strings.Join(words, " ")
}

// fits reports whether a row matches the filter.
func fits(filter, text string) bool {
	_, wanted := partsOf(filter)
	return wanted == "" || strings.Contains(strings.ToLower(text), strings.ToLower(wanted))
}

// typed edits the filter. Its conditions apply when it is complete.
func (m *Model) typed(key string) tea.Cmd {
	m.row = 0
	switch key {
	case "enter":
		m.typing = false
		return m.apply()
	case "esc":
		m.typing, m.filter = false, ""
		return m.apply()
	}
	edit(&m.filter, key)
	return nil
}

// apply samples with the conditions of the filter if they are new.
func (m *Model) apply() tea.Cmd {
	before := m.applied
	m.applied, _ = partsOf(m.filter)
	if m.applied == before {
		return nil
	}
	m.asking = false // a pending sample has the old conditions
	return m.again()
}

// regroup groups calls by the next dimension, or shows the groups.
func (m *Model) regroup() tea.Cmd {
	shown := m.tab == Groups
	m.open(Groups)
	if m.snap == nil || len(m.snap.Dimensions) == 0 || !shown {
		return nil
	}
	list := m.snap.Dimensions
	at := slices.Index(list, m.snap.By)
	if m.by != "" {
		at = slices.Index(list, m.by)
	}
	m.by = list[(at+1)%len(list)]
	m.asking = false
	return m.again()
}

// enter drills in: from an org to its users, from a user to the user's limits, from a call to
// its user, from a group to the users of its calls.
func (m *Model) enter() tea.Cmd {
	rows := m.rows()
	if m.row >= len(rows) || m.user != "" {
		return nil
	}
	at := rows[m.row]
	switch {
	case m.tab == Groups:
		words := ledger.FilterWords(m.filter)
		if word := ledger.FilterWord(m.snap.By, at.value); !slices.Contains(words, word) {
			words = append(words, word)
		}
		m.filter = strings.Join(words, " ")
		m.open(Users)
		return m.apply()
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

func (m *Model) back() tea.Cmd {
	m.row = 0
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
		return m.apply()
	}
	return nil
}
