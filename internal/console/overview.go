package console

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/queue"
)

// orgLine is an org in the overview.
type orgLine struct {
	ID, Name string
	Disabled bool
	Stopped  bool // its own spending
	Users    int
	Today    spent
	Month    spent
	Tightest *budget.Status // the org's own limit with the highest usage; nil: none
}

type overviewView struct {
	Today, Yesterday, Month spent
	Hours, Days             *stack // by org
	Orgs                    []orgLine
	Caps                    []capLine
	Pools                   []poolLine
	TopUsers                []named     // today, over all orgs; named "org/user"
	Incidents               []*incident // the most urgent
	More                    int         // other incidents
	Stopped                 bool        // all spending
	Checked                 time.Time   // when incidents were looked for; zero: the first page after a pause may lack them
	Old                     bool        // the page says when
	reading
}

// capLine is a limit of a spend cap.
type capLine struct {
	Of string
	budget.Status
}

// overview is the first page.
func (c *Console) overview(v *visit) error {
	ctx, orgs, ids := v.r.Context(), c.o.Tenants().Orgs, c.o.orgs()
	past, stops := c.history.last(ctx, ids...), c.o.Snapshot().Stops
	view := overviewView{
		reading: past.reading, Today: spent{Known: true}, Yesterday: spent{Known: true},
		Month: spent{Known: true}, Stopped: stops[tenants.AllOrgs] != nil,
	}
	for i := range orgs {
		line, err := c.orgLine(ctx, past, &orgs[i])
		if err != nil {
			return err
		}
		line.Stopped = stops[line.ID] != nil
		view.Orgs = append(view.Orgs, line)
		view.Today.add(line.Today)
		view.Month.add(line.Month)
		view.Yesterday.add(past.costs(line.ID, "")[days-2])
	}
	slices.SortStableFunc(view.Orgs, func(a, b orgLine) int {
		return cmp.Or(cmp.Compare(b.Today.Cost, a.Today.Cost), cmp.Compare(b.Month.Cost, a.Month.Cost))
	})
	hours, read, _ := c.hours.load(ctx)
	if read.IsZero() {
		view.Missing++
	} else {
		view.Hours = hours.chart(view.Orgs)
	}
	view.Days = past.byDay(view.Orgs)
	if view.Today.Known {
		view.TopUsers = topUsers(past, ids, 10)
	}
	var err error
	view.Caps, err = c.caps(ctx)
	if err != nil {
		return err
	}
	view.Pools, err = c.poolLines(ctx)
	if err != nil {
		return err
	}
	incidents, checked, err := c.incidents.load(ctx)
	if err != nil {
		c.o.Log.Error("console incidents read failed", "err", err)
	}
	view.Checked, view.Old = checked, time.Since(checked) > 2*incidentsAge
	shown := min(len(incidents), maxIncidents)
	view.Incidents, view.More = incidents[:shown], len(incidents)-shown
	return v.show("overview", "Overview", view)
}

func (c *Console) orgLine(ctx context.Context, past *span, o *settings.Org) (orgLine, error) {
	line := orgLine{
		ID: o.ID, Name: cmp.Or(o.Name, o.ID), Users: len(o.Users), Today: past.Today(o.ID, whole),
		Month: past.Month(o.ID, whole),
	}
	policy := c.o.Policy().Orgs[o.ID]
	if policy == nil {
		return line, nil
	}
	line.Disabled = policy.Disabled
	states, err := c.standing(ctx, policy.Limits, ledger.Call{Org: o.ID}, budget.Org)
	line.Tightest = tightest(states)
	return line, err
}

// tightest returns the limit with the highest usage; limits in shadow mode come last.
func tightest(states []budget.Status) (t *budget.Status) {
	for i := range states {
		s := &states[i]
		counts := s.Mode != budget.Enforce
		if t == nil || counts == (t.Mode != budget.Enforce) && used(s) > used(t) || !counts && t.Mode != budget.Enforce {
			t = s
		}
	}
	return t
}

func used(s *budget.Status) float64 { return float64(s.Used) / float64(max(s.Amount, 1)) }

// standing returns the state of the limits of some subjects. It ignores model patterns, which
// do not affect how much is used.
func (c *Console) standing(ctx context.Context, limits []budget.Limit, call ledger.Call,
	of ...budget.Subject,
) ([]budget.Status, error) {
	var asked []budget.Limit
	for _, l := range limits {
		if slices.Contains(of, l.Subject) && l.Counts(call) {
			asked = append(asked, l)
		}
	}
	if len(asked) == 0 {
		return nil, nil
	}
	return c.o.Budget.Peek(ctx, asked, call)
}

// chart draws the last hours of the orgs; nil if nothing was spent.
func (h *hourly) chart(orgs []orgLine) *stack {
	var lines []stackLine
	for _, o := range orgs {
		line := stackLine{Name: o.Name, Link: pathOf("orgs", o.ID), Costs: make([]spent, lastHours)}
		if costs := h.Costs[userID{o.ID, ""}]; costs != nil {
			for i := range line.Costs {
				line.Costs[i] = spent{ledger.Sums{Cost: costs[i]}, true}
			}
		}
		lines = append(lines, line)
	}
	axis := stackAxis{From: h.From, Step: time.Hour}
	return newStack("by-hour", "Spending of the last 24 hours, by hour and org", axis, lines)
}

// byDay draws the last days of the orgs.
func (s *span) byDay(orgs []orgLine) *stack {
	var lines []stackLine
	for _, o := range orgs {
		lines = append(lines, stackLine{o.Name, pathOf("orgs", o.ID), s.costs(o.ID, "")})
	}
	return s.chart(lines...)
}

// topUsers returns the users with the highest cost today, once all of today was read.
func topUsers(past *span, orgs []string, n int) []named {
	all := map[string]ledger.Sums{}
	for _, org := range orgs {
		for name, one := range past.today[org].users {
			all[org+"/"+name] = one
		}
	}
	list := ranked(all)
	return list[:min(n, len(list))]
}

func (c *Console) caps(ctx context.Context) ([]capLine, error) {
	var out []capLine
	for _, one := range c.o.Policy().Caps {
		states, err := c.o.Budget.PeekCap(ctx, one)
		if err != nil {
			return nil, err
		}
		for _, s := range states {
			out = append(out, capLine{one.String(), s})
		}
	}
	return out, nil
}

// poolLine is a pool with its contents.
type poolLine struct {
	queue.Pool
	queue.Depth
	AllWaiting int64
}

// poolLines returns the pools, those that their provider blocks and those with the most waiting jobs first.
func (c *Console) poolLines(ctx context.Context) ([]poolLine, error) {
	var out []poolLine
	for _, p := range c.o.Pools() {
		d, err := c.o.Queue.Depth(ctx, p.ID)
		if err != nil {
			return nil, err
		}
		line := poolLine{Pool: p, Depth: d}
		for _, n := range d.Waiting {
			line.AllWaiting += n
		}
		out = append(out, line)
	}
	slices.SortFunc(out, func(a, b poolLine) int {
		return cmp.Or(cmp.Compare(b.Blocked, a.Blocked), cmp.Compare(b.AllWaiting, a.AllWaiting), cmp.Compare(a.ID, b.ID))
	})
	return out, nil
}
