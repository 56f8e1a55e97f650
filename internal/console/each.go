package console

import (
	"context"
	"net/netip"
	"slices"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
)

// eachLine is a limit that counts each user, key or address separately, with the highest usage
// among the checked subjects.
type eachLine struct {
	budget.Limit
	Name       string // for the page; differs between lines
	Who        string // subject of the shown usage; empty: no usage
	Used, Held int64
	Amount     int64
}

// subjects are the ids whose usage is checked, by kind.
type subjects map[budget.Subject][]string

const (
	maxSubjects = 20 // per kind
	// lookedAt is how many entries of the ledger are read for the subjects of an org's last calls.
	lookedAt = 2000
)

// lastSubjects returns the keys and addresses of an org's last calls.
func (c *Console) lastSubjects(ctx context.Context, org string) (subjects, error) {
	out := subjects{}
	now := c.o.Now()
	add := func(kind budget.Subject, id string) {
		if id != "" && len(out[kind]) < maxSubjects && !slices.Contains(out[kind], id) {
			out[kind] = append(out[kind], id)
		}
	}
	from := now.AddDate(0, 0, -1)
	_, err := ledger.Newest{
		Books: c.o.Budget.Ledger, Org: org, Span: ledger.Span{From: from, To: now}, Most: lookedAt,
	}.Each(ctx, func(e ledger.Entry) error {
		add(budget.Key, e.Key)
		add(budget.IP, e.IP)
		return nil
	})
	return out, err
}

// eachLines returns the limits that count groups, users, keys or addresses separately.
func (c *Console) eachLines(ctx context.Context, org string, limits []budget.Limit, of subjects) ([]eachLine, error) {
	var out []eachLine
	for _, l := range limits {
		if l.Subject == budget.Org || l.Subject == budget.UserGroup && l.Only == "" {
			continue
		}
		line := eachLine{Limit: l, Name: l.ID + "-" + l.Only}
		who := of[l.Subject]
		if l.Only != "" {
			who = []string{l.Only}
		}
		if l.Mode == budget.Off {
			who = nil
		}
		for _, id := range who {
			states, err := c.o.Budget.Peek(ctx, []budget.Limit{l}, callOf(org, l.Subject, id))
			if err != nil {
				return nil, err
			}
			if s := &states[0]; s.Used > 0 && (line.Who == "" || used(s) > float64(line.Used)/float64(max(line.Amount, 1))) {
				line.Who = id
				line.Used = s.Used
				line.Held = s.Held
				line.Amount = s.Amount
			}
		}
		out = append(out, line)
	}
	return out, nil
}

// callOf returns a call of a subject, for reading its usage.
func callOf(org string, s budget.Subject, id string) ledger.Call {
	call := ledger.Call{Org: org}
	switch s {
	case budget.User:
		call.User = id
	case budget.Key:
		call.Key = id
	case budget.IP:
		call.IP = id
	}
	return call
}

// addressOf normalizes an IP address; an invalid one becomes "".
func addressOf(text string) string {
	ip, err := netip.ParseAddr(text)
	if err != nil {
		return ""
	}
	return ip.Unmap().String()
}
