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

// limitList is a list of limits of an org, or of the defaults.
type limitList struct {
	path     string // of what it belongs to: orgs[0] or orgs[0].users[2]
	kind, id string // org, group, plan or user, and its id if it is not the org
	limits   []Limit
}

// limitLists returns the lists of limits of an org, of its users, groups and plans.
func limitLists(path string, o *Org) []limitList {
	out := []limitList{{path, "org", "", o.Limits}}
	for i := range o.Users {
		if u := &o.Users[i]; len(u.Limits) > 0 {
			out = append(out, limitList{element(path+".users", i), "user", u.ID, u.Limits})
		}
	}
	for i, g := range o.Groups {
		out = append(out, limitList{element(path+".groups", i), "group", g.ID, g.Limits})
	}
	for i, p := range o.Plans {
		out = append(out, limitList{element(path+".plans", i), "plan", p.ID, p.Limits})
	}
	return out
}

// defaultsOrg returns an org with the limits and plans of the defaults.
func defaultsOrg(cfg *Config) *Org {
	return &Org{Limits: cfg.Defaults.Limits, Plans: cfg.Defaults.Plans}
}

// ownRules are what limits under a user, a group or a plan may count: one of the subjects, the first if they name none.
var ownRules = map[string]struct {
	subjects      []string
	subject, only string // what is said of others
}{
	"user": {
		[]string{"user"},
		"a limit under a user must have subject user",
		"a limit under a user applies only to that user; remove only",
	},
	"group": {
		[]string{"group", "user"},
		"a limit under a group has subject group (shared by its users) or user (for each of them)",
		"a limit under a group applies only to its users; remove only",
	},
	"plan": {
		[]string{"user"},
		"a limit of a plan counts each user or key that has the plan; remove subject and only",
		"a limit of a plan counts each user or key that has the plan; remove subject and only",
	},
}

// own sets what a limit under a user, a group or a plan counts.
func (l limitList) own(limit *Limit, subjectGiven bool) {
	if rule, ok := ownRules[l.kind]; ok && !subjectGiven {
		limit.Subject = rule.subjects[0]
	}
	if l.kind == "user" && limit.Only == "" {
		limit.Only = l.id
	}
}

// finishLimits sets what limits that name no subject count.
func finishLimits(m *mistakes, lists []limitList) {
	for _, list := range lists {
		for i := range list.limits {
			list.own(&list.limits[i], m.given(element(list.path+".limits", i)+".subject"))
		}
	}
}

// checkOwnLimits checks the limits under users, groups and plans.
func checkOwnLimits(m *mistakes, lists []limitList) {
	for _, list := range lists {
		rule, ok := ownRules[list.kind]
		if !ok {
			continue
		}
		who := map[string]string{"user": list.id}[list.kind]
		for i, l := range list.limits {
			at := element(list.path+".limits", i)
			checkLimit(m, at, l)
			wrong := !slices.Contains(rule.subjects, l.Subject)
			if wrong {
				m.failAt(at+".subject", "%s", rule.subject)
			}
			if l.Only != who && (!wrong || rule.subject != rule.only) {
				m.failAt(at+".only", "%s", rule.only)
			}
		}
	}
}

// eachMember calls fn for the users of an org and, with k, for their keys.
func eachMember(path string, o *Org, fn func(at string, u *User, k *Key)) {
	for i := range o.Users {
		u, at := &o.Users[i], element(path+".users", i)
		fn(at, u, nil)
		for j := range u.Keys {
			fn(element(at+".keys", j), u, &u.Keys[j])
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
	eachMember(path, o, func(at string, u *User, k *Key) {
		if k == nil || k.Plan != "" {
			r.check(at, u, cfg.Defaults.Membership(o, u, k))
		}
	})
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
		r.found.failAt(at, tooMany, n, "this user, the org's included")
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
				r.found.failAt(at, "the limit %q of %s cannot replace the limit of %s, which has subject %s; rename one of them",
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

// idsOf returns the ids of a list.
func idsOf[T any](list []T, id func(*T) string) []string {
	out := make([]string, len(list))
	for i := range list {
		out[i] = id(&list[i])
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
