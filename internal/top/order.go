package top

import (
	"context"
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/llmguard/llmguard/internal/escape"
)

// Kind is the kind of an Order.
type Kind string

// The kinds: Override changes a limit temporarily, Disable refuses a user's calls, and Cancel
// cancels a user's waiting and running jobs.
const (
	Override Kind = "override"
	Disable  Kind = "disable"
	Cancel   Kind = "cancel"
)

// Order is a confirmed request of the operator.
type Order struct {
	Kind            Kind
	Org, User       string // no User: the limit is the org's own
	Limit, Add, For string // for an override
	Reason          string
}

// whom returns the target of the order.
func (o *Order) whom() string {
	if o.User == "" {
		return o.Org
	}
	return o.Org + "/" + o.User
}

// Allow lets the view make changes through act, which returns what was done.
func (m *Model) Allow(act func(context.Context, Order) (string, error)) { m.act = act }

// prompt asks for the fields of an order, one by one, and then for confirmation.
type prompt struct {
	order  Order
	fields []field
	at     int // index into fields; after the last one it asks for confirmation
}

type field struct {
	name string
	into *string
}

// acted is the result of an order.
type acted struct {
	text string
	err  error
}

// begin starts an order for the selected row.
func (m *Model) begin(kind Kind) {
	org, user := m.org, m.user
	rows := m.rows()
	var at row
	if m.row < len(rows) {
		at = rows[m.row]
	}
	if user == "" && at.org != "" {
		org, user = at.org, at.user
	}
	switch {
	case m.act == nil:
		m.told = "this view is read-only"
		return
	case org == "" || user == "" && kind != Override:
		m.told = "select a user first (press 2)"
		return
	}
	p := &prompt{order: Order{Kind: kind, Org: org, User: user}}
	if kind == Override {
		p.order.Limit, p.order.For = m.limitOf(org, user, at), "1h"
		p.fields = []field{{"limit", &p.order.Limit}, {"add, such as $5 or -$5", &p.order.Add}, {"for", &p.order.For}}
	}
	p.fields = append(p.fields, field{"reason", &p.order.Reason})
	m.prompt = p
}

// limitOf returns the limit to override: the selected one, or the fullest.
func (m *Model) limitOf(org, user string, at row) string {
	if at.limit != "" {
		return at.limit
	}
	list := m.snap.Orgs
	if user != "" {
		list = m.snap.Users
	}
	if limits := spenderOf(list, org, user).Limits; len(limits) > 0 {
		return limits[0].Name
	}
	return ""
}

// answer handles a key while a prompt is open.
func (m *Model) answer(key string) tea.Cmd {
	p := m.prompt
	switch {
	case key == "esc":
		m.prompt, m.told = nil, "nothing was changed"
		return nil
	case p.at == len(p.fields):
		m.prompt, m.told = nil, "nothing was changed"
		if key != "y" && key != "Y" {
			return nil
		}
		m.told = "working ..."
		act := m.act
		ctx := m.ctx
		order := p.order
		return func() tea.Msg {
			text, err := act(ctx, order)
			return acted{text, err}
		}
	case key == "enter":
		if strings.TrimSpace(*p.fields[p.at].into) != "" {
			p.at++
		}
		return nil
	}
	edit(p.fields[p.at].into, key)
	return nil
}

// edit applies a key to a line.
func edit(text *string, key string) {
	switch r := []rune(key); {
	case key == "backspace":
		if have := []rune(*text); len(have) > 0 {
			*text = string(have[:len(have)-1])
		}
	case key == "space":
		*text += " "
	case len(r) == 1:
		*text += key
	}
}

// text returns the prompt's line.
func (p *prompt) text() string {
	o := &p.order
	if p.at < len(p.fields) {
		f := p.fields[p.at]
		return fmt.Sprintf("%s %s   %s: %s_   enter next  esc cancel", o.Kind, escape.Text(o.whom()), f.name,
			escape.Text(*f.into))
	}
	what := map[Kind]string{
		Override: fmt.Sprintf("Override %s of %s by %s for %s?", o.Limit, o.whom(), o.Add, o.For),
		Disable:  fmt.Sprintf("Disable %s? Calls get 401 until it is enabled again.", o.whom()),
		Cancel:   fmt.Sprintf("Cancel all waiting and running jobs of %s?", o.whom()),
	}[o.Kind]
	return escape.Text(what) + " y/N"
}
