package config

import (
	"slices"

	"github.com/llmguard/llmguard/internal/tenants/settings"
)

// Brake is a rule that stops, slows or reports calls that run wild.
type Brake = settings.Brake

// BrakeSubject returns what the brake counts by, and whose subjects are its peers: user or org. Labels that
// callers choose count each user separately unless the brake is shared, so that no user can have
// another one stopped.
func (c *Config) BrakeSubject(b Brake) (subject, peers string) {
	by := Limit{Subject: b.By}
	chosen := slices.ContainsFunc(c.Labels, func(l Label) bool { return by.CountsBy(l.Name) && l.chosen() })
	switch {
	case b.Shared || !chosen && b.By != settings.RunBudget:
		return b.By, "org"
	case b.By == settings.RunBudget || by.CountsBy("user") || by.CountsBy("key"):
		return b.By, "user"
	}
	return "user+" + b.By, "user"
}

// maxBrakes is how many brakes an org can have: each call counts for all of them.
const maxBrakes = 8

// checkBrakes checks the brakes of all orgs, or those of one.
func checkBrakes(m *mistakes, path string, list []Brake, cfg *Config) {
	for i, b := range list {
		checkBrake(m, element(path, i), b, cfg)
	}
}

// checkBrakeCount refuses too many brakes of one org.
func checkBrakeCount(m *mistakes, path string, n int) {
	if n > maxBrakes {
		m.failAt(path, "%d brakes apply to a caller of this org; at most %d are possible", n, maxBrakes)
	}
}

func checkBrake(m *mistakes, path string, b Brake, cfg *Config) {
	switch b.By {
	case settings.RunBudget, "": // the latter is reported already
	case "org":
		m.failAt(path+".by",
			"a brake is for runs, users, keys, addresses or labels; to stop an org, use a limit or llmguard stop")
	default:
		checkSubject(m, path+".by", Limit{Subject: b.By}, cfg)
	}
	checkBrakeRule(m, path+".when", b.When)
	if window := b.When.Window(); b.For != 0 && (b.For < window || b.For > settings.MaxBrakeLife) {
		m.failAt(path+".for", "must be from %s, the window of the rule, to 30d, so that the brake does not fire again "+
			"for the same calls; leave it out for until it is released", settings.DurationText(window))
	}
}

// checkBrakeRule checks that a brake has one rule, complete.
func checkBrakeRule(m *mistakes, path string, w settings.BrakeWhen) {
	var rules []string
	for _, r := range []string{"spend", "repeats", "calls"} {
		if m.given(path + "." + r) {
			rules = append(rules, r)
		}
	}
	switch {
	case len(rules) == 0:
		m.failAt(path, "has no rule; add spend: {above: 5x}, repeats: {more_than: 20} or calls: {more_than: 500}")
	case len(rules) > 1:
		m.failAt(path+"."+rules[1], "the brake already fires at %s; a brake has one rule, so write two brakes", rules[0])
	case rules[0] == "spend":
		if _, err := settings.ParseFactor(w.Spend.Above); err != nil {
			m.failAt(path+".spend.above", "%s", err)
		}
	case rules[0] == "repeats":
		checkMoreThan(m, path+".repeats", w.Repeats.MoreThan, "how often the same request may be sent")
	default:
		checkMoreThan(m, path+".calls", w.Calls.MoreThan, "how many calls may be made")
	}
}

func checkMoreThan(m *mistakes, path string, n int64, what string) {
	if n == 0 && !m.given(path+".more_than") {
		m.failAt(path, "more_than is missing: %s", what)
	}
}
