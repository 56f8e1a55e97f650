package admin

import (
	"cmp"
	"slices"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/providers"
)

// Neighbor is another user of a shared limit.
type Neighbor struct {
	Org  string `json:"org,omitempty"` // for a spend cap
	User string `json:"user,omitempty"`
	Key  string `json:"key,omitempty"`
	Used int64  `json:"used"` // charged and still counted by the limit; windows above an hour count whole hours
	Held int64  `json:"held"` // by unfinished calls
	Self bool   `json:"self"` // the one that the request is about
}

const (
	maxNeighbors   = 5
	neighborHolds  = 10_000 // open holds to read per org
	neighborOrgs   = 200    // orgs whose sums are read for a spend cap
	neighborExact  = time.Hour
	neighborRecent = 20_000 // ledger entries
)

// charge is what one or more calls were charged, and to whom.
type charge struct {
	ledger.Call
	budget.Amounts
	calls int64
	open  bool // held, not yet charged
}

// addNeighbors finds the largest holders of each limit.
func (h *whyHandler) addNeighbors(c *call, w *Why) error {
	count := neighborCount{h: h, c: c, w: w, holds: map[string][]charge{}}
	for i := range w.Limits {
		l := &w.Limits[i]
		orgs := []string{w.Org}
		if l.Cap != "" {
			all := h.dir.orgsOf("")
			orgs = all[:min(len(all), neighborOrgs)]
		}
		sums := map[Neighbor]holding{}
		for _, org := range orgs {
			if err := count.add(l, org, sums); err != nil {
				return err
			}
		}
		l.Neighbors = largest(sums, w)
	}
	return nil
}

// holding is what a Neighbor has used and holds.
type holding struct{ used, held int64 }

// largest returns the largest holders.
func largest(sums map[Neighbor]holding, w *Why) []Neighbor {
	out := []Neighbor{}
	for n, sum := range sums {
		n.Used, n.Held = sum.used, sum.held
		n.Self = n.Org == w.Org || n.User == w.User && n.User != "" || n.Key == w.who.Key && n.Key != ""
		if n.Used > 0 || n.Held > 0 {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, func(a, b Neighbor) int {
		return cmp.Or(
			cmp.Compare(b.Used+b.Held, a.Used+a.Held), cmp.Compare(a.Org, b.Org), cmp.Compare(a.User, b.User),
			cmp.Compare(a.Key, b.Key),
		)
	})
	return out[:min(len(out), maxNeighbors)]
}

// neighborCount counts how much each holds of the limits of an explanation.
type neighborCount struct {
	h     *whyHandler
	c     *call
	w     *Why
	holds map[string][]charge // open holds by org, once read
}

// add adds what an org holds of a limit.
func (n *neighborCount) add(l *WhyLimit, org string, sums map[Neighbor]holding) error {
	groups := map[string]string{}
	if in := n.h.opts.Policy().Orgs[org]; in != nil {
		groups = in.Groups
	}
	add := func(one charge) {
		if !l.counts(one, n.w) || l.limit.Subject == budget.UserGroup && groups[one.User] != l.limit.Only {
			return
		}
		who := Neighbor{Key: one.Key}
		switch {
		case l.Cap != "":
			who = Neighbor{Org: org}
		case l.limit.Subject == budget.Org, l.limit.Subject == budget.UserGroup:
			who = Neighbor{User: one.User}
		}
		amount := one.calls
		if m := l.limit.Metric; m == budget.Cost || m == budget.Tokens {
			amount = wantedOf(m, one.Amounts)
		}
		sum := sums[who]
		if one.open {
			sum.held += amount
		} else {
			sum.used += amount
		}
		sums[who] = sum
	}
	if _, read := n.holds[org]; !read {
		open, _, err := n.h.opts.Budget.OpenHolds(n.c.r.Context(), org, neighborHolds)
		if err != nil {
			return err
		}
		n.holds[org] = []charge{}
		for _, h := range open {
			n.holds[org] = append(n.holds[org], charge{h.Call, h.Held, 1, true})
		}
	}
	for _, one := range n.holds[org] {
		add(one)
	}
	if l.limit.Metric == budget.Concurrency || l.limit.Subject == budget.IP {
		return nil
	}
	return n.h.charges(n.c, org, l.limit.Shape.Began(n.c.start), add)
}

// byCaller is what a limit can tell charges apart by.
var byCaller = ledger.By("user", "key", "model", "provider", "endpoint")

// charges calls add for an org's charges since a time: by ledger entry for the last hour, and
// by hourly sums before that.
func (h *whyHandler) charges(c *call, org string, since time.Time, add func(charge)) error {
	now := c.start.Add(time.Minute)
	if now.Sub(since) <= neighborExact+time.Minute {
		_, err := ledger.Newest{
			Books: h.opts.Budget.Ledger, Org: org, Span: ledger.Span{From: since, To: now}, Most: neighborRecent,
		}.Each(c.r.Context(), func(e ledger.Entry) error {
			add(charge{e.Call, budget.Amounts{Cost: e.Cost, Tokens: e.Usage.Input + e.Usage.Output}, 1, false})
			return nil
		})
		return err
	}
	q := ledger.Query{Orgs: []string{org}, From: since, To: now, By: byCaller}
	if now.Sub(since) > budget.Hours {
		q.From, q.To = ledger.WholeDays(since.UTC(), now.UTC())
	}
	report, err := ledger.Read(c.r.Context(), h.opts.Budget.Ledger, q)
	if err != nil {
		return err
	}
	for _, row := range report.Rows {
		v := row.Values
		who := ledger.Call{Org: org, User: v[0], Key: v[1], Model: v[2], Provider: v[3], Endpoint: v[4]}
		add(charge{who, budget.Amounts{Cost: row.Cost, Tokens: row.Input + row.Output}, row.Calls, false})
	}
	return nil
}

// counts reports whether a limit counts a charge.
func (l *WhyLimit) counts(one charge, w *Why) bool {
	if !l.limit.Same(one.Call, w.who) {
		return false
	}
	if l.limit.Subject == budget.RunBudget && !slices.Contains(one.Run.IDs(), l.limit.Only) {
		return false
	}
	if l.Cap != "" && l.provider != "" && one.Provider != l.provider {
		return false
	}
	return providers.MatchAny(l.limit.Models, one.Model) && providers.MatchAny(l.limit.Endpoints, one.Endpoint)
}
