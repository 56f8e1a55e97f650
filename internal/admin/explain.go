package admin

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/providers"
)

// Explanation is which limits count a call, and why others do not.
type Explanation struct {
	Org      string            `json:"org"`
	User     string            `json:"user"`
	Key      string            `json:"key"`
	Group    string            `json:"group"`     // empty: none
	Plan     string            `json:"plan"`      // empty: none
	PlanFrom string            `json:"plan_from"` // what names the plan: key, user, org or defaults
	Model    string            `json:"model"`     // empty: any
	Endpoint string            `json:"endpoint"`
	Labels   map[string]string `json:"labels"`
	// Forbidden is why the caller may not use the model at all; empty: it may.
	Forbidden string `json:"forbidden"`
	// Limits count the call, the one with the least remaining share first.
	Limits []ExplainedLimit `json:"limits"`
	// Others do not count it; Why says why.
	Others []ExplainedLimit `json:"others"`
}

// ExplainedLimit is a limit, and where it is from.
type ExplainedLimit struct {
	Limit
	// Layer is defaults, org, group, plan, user or key; Of the group, plan, user or key.
	Layer string `json:"layer" col:"from;=from"`
	Of    string `json:"of"`
	// Places are where it is set, such as llmguard.yaml:12 and runtime, which takes precedence.
	Places []string `json:"places" col:"set in"`
	// First is set for the enforced limit that binds first.
	First bool `json:"binds_first" col:";first"`
	// Why is why the limit does not count the call.
	Why string `json:"why" col:"because"`
}

// explainer collects the limits of one call.
type explainer struct {
	h      *limitHandler
	c      *call
	org    *settings.Org
	user   *settings.User
	key    *settings.Key
	of     settings.Membership
	who    ledger.Call
	models []string
	out    Explanation
}

func (h *limitHandler) explainLimits(c *call) (any, error) {
	e, err := h.explainer(c)
	if err != nil {
		return nil, err
	}
	in := h.opts.Policy().Orgs[e.org.ID]
	if in == nil {
		return nil, wire.NotFound("org", "org_not_found", "There is no org %.80q", e.org.ID)
	}
	all := in.LimitsFor(e.who.User, e.who.Key)
	counting := guard.Applying(all, e.who, e.models...)
	views, err := h.viewLimits(c, e.org.ID, all, e.who)
	if err != nil {
		return nil, err
	}
	origins := e.origins()
	for i, v := range views {
		one := origins[v.Name]
		one.Limit = v
		if one.Layer == "" { // of the key itself, such as its concurrency
			one.Layer, one.Of, one.Places = "key", e.who.Key, []string{}
		}
		if slices.ContainsFunc(counting, func(l budget.Limit) bool { return l.ID == v.Name }) {
			e.out.Limits = append(e.out.Limits, one)
			continue
		}
		one.Why = e.why(&all[i])
		e.out.Others = append(e.out.Others, one)
	}
	e.order()
	return e.out, nil
}

// explainer reads the call from the query.
func (h *limitHandler) explainer(c *call) (*explainer, error) {
	q := c.r.URL.Query()
	e := &explainer{h: h, c: c}
	err := e.caller(q.Get("user"), q.Get("key"))
	if err != nil {
		return nil, err
	}
	e.who = ledger.Call{Org: e.org.ID, User: e.user.ID, Endpoint: cmp.Or(q.Get("endpoint"), "chat.completions")}
	if e.key != nil {
		e.who.Key = e.key.ID
	}
	e.who.IP, err = address(q.Get("ip"))
	if err != nil {
		return nil, err
	}
	e.who.Labels, err = labelsOf(q["label"])
	if err != nil {
		return nil, err
	}
	e.models = []string{q.Get("model")}
	if t, err := h.opts.Policy().Providers.Resolve(q.Get("model"), e.org.Providers); err == nil {
		e.models = append(e.models, t.Model)
	}
	d := h.opts.Effective().Defaults
	e.of = d.Membership(e.org, e.user, e.key)
	e.out = Explanation{
		Org: e.org.ID, User: e.user.ID, Key: e.who.Key, Group: e.of.Group, Plan: e.of.Plan,
		PlanFrom: d.PlanFrom(e.org, e.user, e.key), Model: e.models[0], Endpoint: e.who.Endpoint,
		Labels: maps.Collect(e.who.Labels.All()), Forbidden: e.forbids(d),
		Limits: []ExplainedLimit{}, Others: []ExplainedLimit{},
	}
	return e, nil
}

func (e *explainer) caller(user, key string) (err error) {
	if user == "" && key == "" {
		return wire.BadRequest("user", "missing_field", "Name the user or the key of the call")
	}
	e.org, err = e.h.dir.orgOf(e.c.r.PathValue("org"), user, key)
	if err != nil {
		return err
	}
	e.org, e.user, e.key, err = e.h.dir.caller(e.org.ID, user, key)
	return err
}

// forbids returns why the caller may not use the model at all; "" if it may.
func (e *explainer) forbids(d settings.Defaults) string {
	of, patterns := "key "+e.who.Key, []string(nil)
	if e.key != nil {
		patterns = e.key.Models
	}
	if p := d.OrgPlan(e.org, e.of.Plan); len(patterns) == 0 && p != nil {
		of, patterns = "plan "+p.ID, p.Models
	}
	for _, one := range []struct {
		of     string
		models []string
	}{{"org " + e.org.ID, e.org.Models}, {of, patterns}} {
		if e.models[0] != "" && !providers.MatchAny(one.models, e.models[0]) {
			return fmt.Sprintf("the models of %s are %s", one.of, strings.Join(one.models, ", "))
		}
	}
	return ""
}

// origins returns where the limits in effect are from, by name. It adds those that others replace to
// Others.
func (e *explainer) origins() map[string]ExplainedLimit {
	out := map[string]ExplainedLimit{}
	for _, layer := range e.h.opts.Effective().Defaults.Layers(e.org, e.user, e.of) {
		for i := range layer.Limits {
			l := &layer.Limits[i]
			one := ExplainedLimit{
				Limit: plainLimit(l), Layer: layer.From, Of: layer.ID, Places: e.places(layer, l.Name),
			}
			if before, replaced := out[l.Name]; replaced {
				before.Why = "replaced by the limit of the same name of " + strings.TrimSpace(layer.From+" "+layer.ID)
				e.out.Others = append(e.out.Others, before)
			}
			out[l.Name] = one
		}
	}
	return out
}

// plainLimit shows a limit that is not in effect.
func plainLimit(l *settings.Limit) Limit {
	v := Limit{
		Name: l.Name, Subject: l.Subject, Only: l.Only, Metric: l.Metric, Unit: units[budget.Metric(l.Metric)],
		Mode: l.Mode, Models: list(l.Models), Endpoints: list(l.Endpoints), Overrides: []Override{}, Sources: []string{},
		Amount: max(l.Amount.N, l.Bucket.Capacity.N),
	}
	v.Base = v.Amount
	switch {
	case l.Window > 0:
		v.Shape = "window " + figures.Lasting(l.Window)
	case l.Calendar != "":
		v.Shape = "calendar " + l.Calendar
	case l.Bucket.Capacity.N > 0:
		v.Shape = "bucket"
	default:
		v.Shape = "open calls"
	}
	return v
}

// places returns where a limit of a layer is set.
func (e *explainer) places(layer settings.Layer, name string) []string {
	out := []string{} // never null on the wire
	file := e.h.opts.File()
	add := func(path string, list []settings.Limit) {
		if i := slices.IndexFunc(list, func(l settings.Limit) bool { return l.Name == name }); i >= 0 && file.Place != nil {
			out = append(out, file.Place(fmt.Sprintf("%s.limits[%d]", path, i)))
		}
	}
	at := slices.IndexFunc(file.Orgs, func(o settings.Org) bool { return o.ID == e.org.ID })
	var org settings.Org
	if at >= 0 {
		org = file.Orgs[at]
	}
	path := fmt.Sprintf("orgs[%d]", at)
	owner := settings.Owner(layer.From, layer.ID)
	switch layer.From {
	case "defaults":
		owner = ""
		add("defaults", file.Defaults.Limits)
	case "org":
		owner = ""
		add(path, org.Limits)
	case "group":
		if i := slices.IndexFunc(org.Groups, func(g settings.Group) bool { return g.ID == layer.ID }); i >= 0 {
			add(fmt.Sprintf("%s.groups[%d]", path, i), org.Groups[i].Limits)
		}
	case "plan":
		named := func(p settings.Plan) bool { return p.ID == layer.ID }
		if i := slices.IndexFunc(file.Defaults.Plans, named); i >= 0 {
			add(fmt.Sprintf("defaults.plans[%d]", i), file.Defaults.Plans[i].Limits)
		}
		if i := slices.IndexFunc(org.Plans, named); i >= 0 {
			add(fmt.Sprintf("%s.plans[%d]", path, i), org.Plans[i].Limits)
		}
	case "user":
		owner = layer.ID
		if i := slices.IndexFunc(org.Users, func(u settings.User) bool { return u.ID == layer.ID }); i >= 0 {
			add(fmt.Sprintf("%s.users[%d]", path, i), org.Users[i].Limits)
		}
	}
	id := tenants.LimitID(owner, name)
	ofAll := layer.From == "defaults" || layer.From == "plan"
	if ofAll && e.h.dir.records(tenants.AllOrgs).Limits[id] != nil {
		out = append(out, "runtime (org all)")
	}
	if layer.From != "defaults" && e.h.dir.records(e.org.ID).Limits[id] != nil {
		out = append(out, "runtime")
	}
	return out
}

// why returns why a limit in effect does not count the call.
func (e *explainer) why(l *budget.Limit) string {
	named := slices.ContainsFunc(e.models, func(m string) bool { return providers.MatchAny(l.Models, m) })
	switch {
	case l.Mode == budget.Off:
		return "mode is off"
	case !providers.MatchAny(l.Endpoints, e.who.Endpoint):
		return "only for the endpoints " + strings.Join(l.Endpoints, ", ")
	case !named && e.models[0] == "":
		return "only for the models " + strings.Join(l.Models, ", ") + "; name the model of the call"
	case !named:
		return "only for the models " + strings.Join(l.Models, ", ")
	case l.Subject.Includes(budget.IP) && e.who.IP == "":
		return "counts each address; name the address of the call"
	}
	return "only for the " + string(l.Subject) + " " + l.Only
}

// order puts the limit that binds first to the front: the enforced one with the least remaining share
// and, of equal ones, the one that resets last, as in the headers X-RateLimit-*.
func (e *explainer) order() {
	list := e.out.Limits
	share := func(l *ExplainedLimit) float64 {
		if l.Remaining == nil {
			return 2 // unknown
		}
		return float64(max(*l.Remaining, 0)) / float64(max(l.Amount, 1))
	}
	reset := func(l *ExplainedLimit) float64 {
		if l.Reset == nil {
			return budget.Endless.Seconds()
		}
		return *l.Reset
	}
	slices.SortStableFunc(list, func(a, b ExplainedLimit) int {
		rank := func(l *ExplainedLimit) int { return map[bool]int{true: 0, false: 1}[l.Mode == string(budget.Enforce)] }
		return cmp.Or(rank(&a)-rank(&b), cmp.Compare(share(&a), share(&b)), cmp.Compare(reset(&b), reset(&a)))
	})
	if len(list) > 0 && list[0].Mode == string(budget.Enforce) && list[0].Remaining != nil {
		list[0].First = true
	}
}

func explainQuery() []parameter {
	return []parameter{
		{name: "user", text: "The user of the call"},
		{name: "key", text: "The key of the call"},
		{
			name: "model", text: "The model of the call; without it, limits for certain models do not count it",
			help: "model of the call",
		},
		{
			name: "endpoint", text: "The endpoint of the call, by the names that limits use; default: chat.completions",
			help: "endpoint of the call (default chat.completions)",
		},
		{name: "ip", text: "The address of the call", help: "client address of the call"},
		{
			name: "label", text: "A label of the call, as name=value; may be repeated", kind: Pairs,
			help: "label of the call, as name=value (repeat for several)",
		},
	}
}
