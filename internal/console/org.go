package console

import (
	"cmp"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/tenants/settings"
)

// perPage is the number of lines per page of a table.
const perPage = 50

// userLine is a user on an org's page.
type userLine struct {
	ID       string
	Disabled bool
	Keys     int
	Today    spent
	Month    spent
	Tightest *budget.Status
	Refused  int64 // calls that were refused in the last 24 hours
}

type orgView struct {
	ID, Name   string
	Bound      guard.Bound
	Table      limitTable
	Chart      *stack
	Each       []eachLine
	Addresses  bool               // some limit counts addresses
	IP         string             // the requested address
	Stopped    bool               // its spending
	Brakes     []admin.FiredBrake // that fired or were released
	Refusals   []admin.Refusal    // of the last 24 hours, largest first
	Refused    bool               // Refusals could be read
	Models     []named            // of the last days, highest cost first
	Today      spent
	Month      spent
	Users      []userLine
	All        int // users that match the search
	Search     string
	Page, Next int // Next: 0 if there is none
	reading
}

// org shows one org: its limits, what it spent, and its users.
func (c *Console) org(v *visit) error {
	o := c.o.Tenants().Org(v.r.PathValue("org"))
	if o == nil {
		return errNotFound
	}
	ctx := v.r.Context()
	past := c.history.last(ctx, o.ID)
	view := orgView{
		ID: o.ID, Name: cmp.Or(o.Name, o.ID), Search: strings.TrimSpace(v.r.URL.Query().Get("q")), Page: pageOf(v.r),
		Chart: past.chart(stackLine{Name: o.ID, Costs: past.costs(o.ID, "")}),
		Today: past.Today(o.ID, whole), Month: past.Month(o.ID, whole), reading: past.reading,
	}
	known := c.o.Snapshot()
	view.Brakes, view.Stopped = admin.FiredBrakes(known, o.ID, c.o.Now()), known.Stops[o.ID] != nil
	view.Refusals, view.Refused = v.refusals(o.ID, "")
	if view.Month.Known {
		view.Models = past.month(o.ID, byModel)
		view.Models = view.Models[:min(len(view.Models), 12)]
	}
	policy := c.o.Policy().Orgs[o.ID]
	var limits []budget.Limit
	if policy != nil {
		view.Bound, limits = c.bound(o), policy.Limits
	}
	var err error
	view.Table, err = v.limitTable(limitTable{Org: o.ID}, limits, budget.Org)
	if err != nil {
		return err
	}
	lines := userLines(o, past, view.Search)
	view.All = len(lines)
	lines = lines[min(view.Page*perPage, len(lines)):]
	if len(lines) > perPage {
		lines, view.Next = lines[:perPage], view.Page+1
	}
	for i := range lines {
		if policy == nil {
			break
		}
		states, err := c.standing(ctx, policy.LimitsFor(lines[i].ID, ""), ledger.Call{Org: o.ID, User: lines[i].ID},
			budget.User)
		if err != nil {
			return err
		}
		lines[i].Tightest = tightest(states)
	}
	for _, r := range view.Refusals {
		if i := slices.IndexFunc(lines, func(l userLine) bool { return l.ID == r.User }); i >= 0 {
			lines[i].Refused += r.Refused
		}
	}
	view.Refusals = view.Refusals[:min(len(view.Refusals), perPage)]
	view.Users = lines
	if err := c.each(v, &view); err != nil {
		return err
	}
	return v.show("org", view.Name, view)
}

// refusals counts the calls of an org, or of one of its users, that were refused or delayed in the last 24 hours;
// false if that could not be read.
func (v *visit) refusals(org, user string) ([]admin.Refusal, bool) {
	all, wrong := list[admin.Refusal](v, "/refusals?"+v.lastDay(org, user).Encode(), "The refusals could not be read.")
	return all, wrong == ""
}

// refusedCalls returns the newest calls that refusals counts.
func (v *visit) refusedCalls(org, user string) []admin.RefusedCall {
	all, _ := list[admin.RefusedCall](v, "/refusals/calls?"+v.lastDay(org, user).Encode(), "")
	return all
}

func (v *visit) lastDay(org, user string) url.Values {
	q := url.Values{"org": {org}, "from": {v.o.Now().Add(-24 * time.Hour).UTC().Format(time.RFC3339)}}
	if user != "" {
		q.Set("user", user)
	}
	return q
}

// each adds the limits that count groups, users, keys and addresses separately.
func (c *Console) each(v *visit, view *orgView) error {
	policy := c.o.Policy().Orgs[view.ID]
	if policy == nil {
		return nil
	}
	of, err := c.lastSubjects(v.r.Context(), view.ID)
	if err != nil {
		return err
	}
	for _, u := range view.Users[:min(len(view.Users), maxSubjects)] {
		of[budget.User] = append(of[budget.User], u.ID)
	}
	view.IP = addressOf(v.r.URL.Query().Get("ip"))
	if view.IP != "" {
		of[budget.IP] = []string{view.IP}
	}
	view.Addresses = slices.ContainsFunc(policy.Limits, func(l budget.Limit) bool { return l.Subject == budget.IP })
	view.Each, err = c.eachLines(v.r.Context(), view.ID, slices.Concat(groupLimits(policy), policy.Limits), of)
	return err
}

// groupLimits returns the limits that the users of each group share.
func groupLimits(org *guard.Org) []budget.Limit {
	var out []budget.Limit
	for _, group := range slices.Sorted(maps.Keys(org.GroupLimits)) {
		for _, l := range org.GroupLimits[group] {
			if l.Subject == budget.UserGroup {
				out = append(out, l)
			}
		}
	}
	return out
}

// userLines returns the users whose id or name contains search, highest cost first.
func userLines(o *settings.Org, past *span, search string) []userLine {
	month := map[string]ledger.Sums{}
	for _, one := range past.month(o.ID, byUser) {
		month[one.Name] = one.Sums
	}
	complete := past.Month(o.ID, whole).Known
	var lines []userLine
	for i := range o.Users {
		u := &o.Users[i]
		if search != "" && !strings.Contains(strings.ToLower(u.ID), strings.ToLower(search)) {
			continue
		}
		lines = append(lines, userLine{
			ID: u.ID, Disabled: u.Disabled, Keys: len(u.Keys), Today: past.Today(o.ID, ofUser(u.ID)),
			Month: spent{month[u.ID], complete},
		})
	}
	slices.SortFunc(lines, func(a, b userLine) int {
		return cmp.Or(cmp.Compare(b.Today.Cost, a.Today.Cost), cmp.Compare(b.Month.Cost, a.Month.Cost),
			cmp.Compare(a.ID, b.ID))
	})
	return lines
}

type userView struct {
	Org, User string
	Group     string // empty: none
	Plan      string // empty: none
	OwnGroup  string // set for the user itself, likewise
	OwnPlan   string
	Disabled  bool
	Source    admin.Source
	Table     limitTable
	Chart     *stack
	Today     spent
	Month     spent
	Keys      []keyLine
	Entries   []ledger.Entry      // newest first
	Refusals  []admin.Refusal     // of the last 24 hours, largest first
	Refused   bool                // Refusals could be read
	Calls     []admin.RefusedCall // the newest of Refusals
	reading
	Problem string // why the API did not return the keys
}

// keyLine is a key as returned by the API.
type keyLine struct {
	ID       string     `json:"id"`
	Name     string     `json:"name"`
	Status   string     `json:"status"`
	Last4    string     `json:"last4"`
	Expires  *time.Time `json:"expires"`
	LastUsed *time.Time `json:"last_used_at"`
	OldUntil *time.Time `json:"old_key_until"`
	Source   admin.Source
	Today    spent
}

// user shows one user: limits, spending, keys, and the last calls.
func (c *Console) user(v *visit) error {
	o, id := c.o.Tenants().Org(v.r.PathValue("org")), v.r.PathValue("user")
	if o == nil || o.User(id) == nil {
		return errNotFound
	}
	past := c.history.last(v.r.Context(), o.ID)
	has := c.o.Tenants().Defaults.Membership(o, o.User(id), nil)
	view := userView{
		Org: o.ID, User: id, Group: has.Group, Plan: has.Plan, OwnGroup: o.User(id).Group, OwnPlan: o.User(id).Plan,
		Disabled: o.User(id).Disabled,
		reading:  past.reading,
		Chart:    past.chart(stackLine{Name: id, Costs: past.costs(o.ID, id)}),
		Today:    past.Today(o.ID, ofUser(id)), Month: past.Month(o.ID, ofUser(id)),
	}
	var limits []budget.Limit
	if policy := c.o.Policy().Orgs[o.ID]; policy != nil {
		limits = policy.LimitsFor(id, "")
	}
	var err error
	view.Table, err = v.limitTable(limitTable{Org: o.ID, User: id, Group: has.Group}, limits, budget.Org, budget.UserGroup,
		budget.User)
	if err != nil {
		return err
	}
	v.keysOf(past, &view)
	view.Refusals, view.Refused = v.refusals(o.ID, id)
	view.Calls = v.refusedCalls(o.ID, id)
	view.Source = v.source(o.ID, id)
	view.Entries = v.calls(asked{
		Org: o.ID, Filter: ledger.FilterWord("user", id), Sort: "newest", From: past.From, To: c.o.Now().Add(time.Minute),
	}, 20, "").Entries
	return v.show("user", id, view)
}

// source returns where a user is defined; one that could not be read counts as of the file, which nobody deletes here.
func (v *visit) source(org, user string) admin.Source {
	var u admin.User
	path := "/orgs/" + url.PathEscape(org) + "/users/" + url.PathEscape(user)
	if status, _ := v.ask(v.r.Context(), http.MethodGet, path, nil, &u); status != http.StatusOK {
		return admin.File
	}
	return u.Source
}

func (v *visit) keysOf(past *span, view *userView) {
	path := "/orgs/" + url.PathEscape(view.Org) + "/keys?user=" + url.QueryEscape(view.User)
	view.Keys, view.Problem = list[keyLine](v, path, "The keys could not be read.")
	for i := range view.Keys {
		key := [2]string{view.User, view.Keys[i].ID}
		view.Keys[i].Today = past.Today(view.Org, func(s *sums) ledger.Sums { return s.keys[key] })
	}
	slices.SortStableFunc(view.Keys, func(a, b keyLine) int { return cmp.Compare(b.Today.Cost, a.Today.Cost) })
}

// bound returns what limits let an org spend.
func (c *Console) bound(o *settings.Org) guard.Bound {
	policy, now := c.o.Policy(), c.o.Now()
	if policy.Orgs[o.ID] == nil {
		return guard.Bound{}
	}
	return policy.Bound(policy.Orgs[o.ID], o.CallerKeys(now), now)
}
