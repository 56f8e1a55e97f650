package config

import (
	"fmt"
	"slices"

	"github.com/llmguard/llmguard/internal/tenants/settings"
)

// checkSpread checks that all enforced limits of a call are in one part of the org.
func checkSpread(m *mistakes, path string, o *Org, cfg *Config) {
	at := path + ".spread"
	if o.Spread <= 1 {
		return
	}
	by := cfg.Defaults.SpreadBy(o)
	for _, l := range cfg.Defaults.OrgLimits(o) {
		name := fmt.Sprintf("limit %q%s", l.Name, m.onLine(limitPath(path, l.Name, o, cfg)))
		whole := l.CountsBy(by) || l.CountsBy("key") && by == "user"
		switch {
		case l.Mode == "off" || whole:
		case l.Subject == "group":
			m.failAt(at, "%s is shared by the users of a group, so all their calls must be decided in one place; set its "+
				"subject to user, or use spend_caps", name)
		case l.Mode == "enforce" && l.Subject == "org":
			m.failAt(at, "%s counts the whole org, so all calls must be decided in one place; set its subject to user, "+
				"its mode to shadow, or use spend_caps", name)
		case l.Mode == "enforce" && !l.CountsBy("user") && !l.CountsBy("key") && !l.CountsBy("ip"):
			m.failAt(at, "%s counts all users together, so all calls must be decided in one place; add %s to its subject, set "+
				"its mode to shadow, or use spend_caps", name, by)
		case l.Mode == "enforce":
			m.failAt(at, "%s counts by %s and others by address, and all limits of a call must be in one part; enforce limits "+
				"by user and key, or by address", name, l.Subject)
		case l.Bucket.Capacity.N > 0:
			m.failAt(at, "%s is a bucket that would fill in each part separately; set its mode to off", name)
		}
	}
	for _, b := range settings.OrgBrakes(cfg.Brakes, o.Brakes) {
		subject, _ := cfg.BrakeSubject(b)
		if l := (Limit{Subject: subject}); !l.CountsBy(by) && !(by == "user" && l.CountsBy("key")) {
			m.failAt(at, "brake %q counts calls of all users together, so they must be decided in one place; add %s to its by",
				b.Name, by)
		}
	}
	if by == "ip" {
		checkSingleLimits(m, path, o)
	}
	checkSpreadGroups(m, path, o)
}

// checkSpreadGroups checks that no amount is shared by users, who may be in different parts.
func checkSpreadGroups(m *mistakes, path string, o *Org) {
	for _, list := range limitLists(path, o) {
		for i, l := range list.limits {
			if list.kind == "group" && l.Subject == "group" && l.Mode != "off" {
				m.failAt(path+".spread", "limit %q%s is shared by the users of group %s, so all their calls must be decided in "+
					"one place; set its subject to user, or use spend_caps", l.Name,
					m.onLine(element(list.path+".limits", i)), list.id)
			}
		}
	}
}

// checkSingleLimits checks that an org with limits by address has none for single users and keys.
func checkSingleLimits(m *mistakes, path string, o *Org) {
	for i := range o.Users {
		u := &o.Users[i]
		own := slices.ContainsFunc(u.Limits, func(l Limit) bool { return l.Mode == "enforce" }) || u.Group+u.Plan != ""
		if own || slices.ContainsFunc(u.Keys, func(k Key) bool { return k.Concurrency > 0 }) {
			m.failAt(path+".spread", "user %q%s has limits, and other limits count by address. All limits of a "+
				"call must be in one part; enforce limits by user and key, or by address", u.ID,
				m.onLine(element(path+".users", i)))
			return
		}
	}
}

// limitPath returns where a limit of the org is in the file.
func limitPath(path, name string, o *Org, cfg *Config) string {
	same := func(l Limit) bool { return l.Name == name }
	if i := slices.IndexFunc(o.Limits, same); i >= 0 {
		return element(path+".limits", i)
	}
	return element("defaults.limits", slices.IndexFunc(cfg.Defaults.Limits, same))
}
