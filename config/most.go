package config

// maxLimits is the maximum number of limits for one caller: package budget counts all of them in
// one script.
const maxLimits = 50

// checkLimitCount refuses more than maxLimits limits for one caller.
func checkLimitCount(m *mistakes, path string, o *Org, cfg *Config) {
	if n := callerLimits(cfg.Defaults.OrgLimits(o)); n > maxLimits {
		m.failAt(path+".limits", tooMany, n, "a caller of this org")
		return
	}
	checkMemberships(m, path, o, cfg)
}

const tooMany = "%d limits apply to %s; at most 50 can be counted together. Remove some, or cover several models " +
	"with one limit and a pattern"

// callerLimits returns the maximum number of limits for one caller. Of those for a single user, key
// or address, only the largest number that one of them has counts.
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
