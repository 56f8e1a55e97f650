package config

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/llmguard/llmguard/internal/tenants/settings"
)

// Aliases of the types for groups and plans.
type (
	// Group is a set of users with limits.
	Group = settings.Group
	// Plan is a named set of limits and rights.
	Plan = settings.Plan
)

// finishGroups sets the subject of limits of groups that name none.
func finishGroups(m *mistakes, path string, list []Group) {
	for i := range list {
		finishSubjects(m, element(path+".groups", i), list[i].Limits, "group")
	}
}

// finishPlans sets the subject of limits of plans.
func finishPlans(m *mistakes, path string, list []Plan) {
	for i := range list {
		finishSubjects(m, element(path+".plans", i), list[i].Limits, "user")
	}
}

func finishSubjects(m *mistakes, path string, list []Limit, subject string) {
	for i := range list {
		if !m.given(element(path+".limits", i) + ".subject") {
			list[i].Subject = subject
		}
	}
}

// checkGroups checks the groups of an org, and what users name as theirs.
func checkGroups(m *mistakes, path string, o *Org) {
	for i, g := range o.Groups {
		at := element(path+".groups", i)
		for j, l := range g.Limits {
			at := element(at+".limits", j)
			checkLimit(m, at, l)
			if l.Subject != "group" && l.Subject != "user" {
				m.failAt(at+".subject", "a limit under a group has subject group (shared by its users) or user (for each of them)")
			}
			if l.Only != "" {
				m.failAt(at+".only", "a limit under a group applies only to its users; remove only")
			}
		}
	}
	for i, u := range o.Users {
		if u.Group != "" {
			m.refer(fmt.Sprintf("%s.users[%d].group", path, i), "group", u.Group, groupIDs(o))
		}
	}
}

// checkPlans checks a list of plans. path contains it.
func checkPlans(m *mistakes, path string, list []Plan) {
	for i, p := range list {
		at := element(path+".plans", i)
		for j, l := range p.Limits {
			at := element(at+".limits", j)
			checkLimit(m, at, l)
			if l.Subject != "user" || l.Only != "" {
				field := map[bool]string{true: ".only", false: ".subject"}[l.Subject == "user"]
				m.failAt(at+field, "a limit of a plan counts each user or key that has the plan; remove subject and only")
			}
		}
	}
}

// planIDs returns the ids of a list of plans.
func planIDs(list []Plan) []string {
	out := make([]string, len(list))
	for i, p := range list {
		out[i] = p.ID
	}
	return out
}

// checkOrgPlans checks the org's plans, and what it, its users and keys name as theirs.
func checkOrgPlans(m *mistakes, path string, o *Org, cfg *Config) {
	checkPlans(m, path, o.Plans)
	known := cfg.Defaults.PlanIDs(o)
	refer := func(at, id string) {
		if id != "" {
			m.refer(at+".plan", "plan", id, known)
		}
	}
	refer(path, o.Plan)
	for i := range o.Users {
		u, at := &o.Users[i], fmt.Sprintf("%s.users[%d]", path, i)
		refer(at, u.Plan)
		for j := range u.Keys {
			refer(element(at+".keys", j), u.Keys[j].Plan)
		}
	}
}

// membershipRules checks what groups and plans make of the limits of users, once for each
// combination.
type membershipRules struct {
	found *mistakes
	path  string // of the org
	org   *Org
	cfg   *Config
	seen  map[settings.Membership]bool
}

// checkMemberships checks that groups and plans replace only limits of their kind, and that no caller has too
// many limits.
func checkMemberships(m *mistakes, path string, o *Org, cfg *Config) {
	r := &membershipRules{m, path, o, cfg, map[settings.Membership]bool{}}
	for i, g := range o.Groups {
		r.check(element(path+".groups", i), nil, settings.Membership{Group: g.ID})
	}
	for i, p := range o.Plans {
		r.check(element(path+".plans", i), nil, settings.Membership{Plan: p.ID})
	}
	for i := range o.Users {
		u, at := &o.Users[i], fmt.Sprintf("%s.users[%d]", path, i)
		r.check(at, u, cfg.Defaults.Membership(o, u, nil))
		for j := range u.Keys {
			if u.Keys[j].Plan != "" {
				r.check(element(at+".keys", j), u, cfg.Defaults.Membership(o, u, &u.Keys[j]))
			}
		}
	}
}

func (r *membershipRules) check(at string, u *User, of settings.Membership) {
	own := u != nil && len(u.Limits) > 0
	if of == (settings.Membership{}) && !own || r.seen[of] && !own {
		return
	}
	r.seen[of] = r.seen[of] || !own
	r.subjects(at, u, of)
	if n := callerLimits(r.cfg.Defaults.LimitsOf(r.org, u, of)); n > maxLimits {
		if own {
			at += ".limits"
		}
		r.found.failAt(at, tooMany, n, "this user, including those of the org")
	}
}

// subjects checks that no limit replaces one that counts something else.
func (r *membershipRules) subjects(at string, u *User, of settings.Membership) {
	type origin struct{ from, name, subject string }
	counts := map[string]origin{}
	for _, layer := range r.cfg.Defaults.Layers(r.org, u, of) {
		for _, l := range layer.Limits {
			subject := l.Subject
			if subject == "key" && layer.From == "plan" {
				subject = "user"
			}
			before, there := counts[l.Name]
			if there && (member(layer.From) || member(before.from)) && before.subject != subject {
				r.found.failAt(at, "the limit %q of %s cannot replace that of %s, which has subject %s; rename one of them",
					l.Name, layerText(layer.From, layer.ID), before.name, before.subject)
			}
			counts[l.Name] = origin{layer.From, layerText(layer.From, layer.ID), subject}
		}
	}
}

// member reports whether a layer is that of a group or a plan.
func member(from string) bool { return from == "group" || from == "plan" }

// layerText names a layer in an error.
func layerText(from, id string) string {
	switch from {
	case "defaults":
		return "defaults"
	case "org":
		return "the org"
	}
	return from + " " + id
}

// groupIDs returns the ids of the org's groups.
func groupIDs(o *Org) []string {
	out := make([]string, len(o.Groups))
	for i, g := range o.Groups {
		out[i] = g.ID
	}
	return slices.Clip(out)
}

func userIDs(o *Org) []string {
	out := make([]string, len(o.Users))
	for i := range o.Users {
		out[i] = o.Users[i].ID
	}
	return out
}

func keyIDs(o *Org) []string {
	var out []string
	for i := range o.Users {
		for _, k := range o.Users[i].Keys {
			out = append(out, k.ID)
		}
	}
	return out
}

// limitAt is the path of a limit.
var limitAt = regexp.MustCompile(`\.limits\[\d+\]$`)

// limitLines returns the lines of the limits in the file, by path; nil if there are none.
func (m *mistakes) limitLines() map[string]int {
	var out map[string]int
	for path, at := range m.marks {
		if limitAt.MatchString(path) {
			if out == nil {
				out = map[string]int{}
			}
			out[path] = at.line
		}
	}
	return out
}

// Place returns the place of a limit in the file, such as llmguard.yaml:12. path is like
// orgs[0].limits[1].
func (c *Config) Place(path string) string {
	name := filepath.Base(c.Name)
	if line := c.lines[path]; line > 0 {
		return fmt.Sprintf("%s:%d", name, line)
	}
	return name
}
