package config

import "fmt"

// maxLimits is how many limits may be for one caller: package budget counts all
// of them in one script.
const maxLimits = 50

// checkLimitCount refuses more limits for one caller than a call may stand under.
func checkLimitCount(m *mistakes, path string, o *Org, cfg *Config) {
	if n := callerLimits(cfg.Defaults.OrgLimits(o)); n > maxLimits {
		m.failAt(path+".limits", tooMany, n, "a caller of this org")
		return
	}
	for i := range o.Users {
		u := &o.Users[i]
		if len(u.Limits) == 0 {
			continue
		}
		if n := callerLimits(cfg.Defaults.UserLimits(o, u)); n > maxLimits {
			m.failAt(fmt.Sprintf("%s.users[%d].limits", path, i), tooMany, n, "this user, the org's among them")
		}
	}
}

// checkCapCount does so for a list of spend caps.
func checkCapCount(m *mistakes, path string, n int) {
	if n > maxLimits {
		m.failAt(path, tooMany, n, "one call")
	}
}

const tooMany = "%d limits are for %s; at most 50 can be counted together. Drop some, or let one limit stand for " +
	"several models with a pattern"

// callerLimits is how many limits there are at most for one caller: of those for
// a single user, key or address, the most that one of them has.
func callerLimits(list []Limit) int {
	every, single := 0, map[[2]string]int{}
	for _, l := range list {
		switch {
		case l.Mode == "off":
		case l.Only == "":
			every++
		default:
			single[[2]string{l.Subject, l.Only}]++
		}
	}
	most := map[string]int{}
	for who, n := range single {
		most[who[0]] = max(most[who[0]], n)
	}
	for _, n := range most {
		every += n
	}
	return every
}
