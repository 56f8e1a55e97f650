package config

import (
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	_ "time/tzdata" // zone names work on machines without a time zone database

	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/tenants/settings"
)

func checkOrgs(m *mistakes, cfg *Config) {
	rules := newOrgRules(m, cfg)
	for i := range cfg.Orgs {
		rules.check(element("orgs", i), &cfg.Orgs[i])
	}
}

// orgRules checks orgs; their ids and the hashes of their keys must be unique.
type orgRules struct {
	found     *mistakes
	cfg       *Config
	providers []string
	hashes    names
}

func newOrgRules(m *mistakes, cfg *Config) *orgRules {
	r := &orgRules{found: m, cfg: cfg, hashes: names{}}
	r.providers = idsOf(cfg.Providers, func(p *Provider) string { return p.ID })
	return r
}

func element(list string, i int) string { return fmt.Sprintf("%s[%d]", list, i) }

func (r *orgRules) check(path string, o *Org) {
	m, cfg := r.found, r.cfg
	for j, id := range o.Providers {
		m.refer(element(path+".providers", j), "provider", id, r.providers)
	}
	for model, cheaper := range o.Downgrade {
		if cheaper == model || strings.ContainsAny(model+cheaper, "* \t") || cheaper == "" {
			m.failAt(join(path+".downgrade", model), "%s is not the name of another model", quote(cheaper))
		}
	}
	checkLabelValues(m, path+".labels", o.Labels, cfg)
	checkRaiseRequests(m, path+".raise_requests", o.RaiseRequests)
	checkJournal(m, path, o, cfg.Store)
	checkWebhooks(m, path, o, cfg.Webhooks)
	checkAlerts(m, path+".alerts", o.Alerts, cfg.Webhooks)
	checkModelPriority(m, path, o)
	checkMembers(m, path, o, cfg, r.hashes)
	checkLimits(m, path, o, cfg)
	checkLimitCount(m, path, o, cfg)
	checkBrakes(m, path+".brakes", o.Brakes, cfg)
	checkBrakeCount(m, path+".brakes", len(settings.OrgBrakes(cfg.Brakes, o.Brakes)))
	checkSpread(m, path, o, cfg)
}

// checkJournal checks that there is a journal for calls that are admitted without Redis.
func checkJournal(m *mistakes, path string, o *Org, s Store) {
	if (o.OnStoreFailure != "local" && o.OnStoreFailure != "allow") || s.JournalDir != "" {
		return
	}
	path += ".on_store_failure"
	if !m.given(path) {
		path = "store.on_failure"
	}
	m.failAt(path, "%s needs store.journal_dir, a directory on disk: calls are kept there until Redis can charge them",
		o.OnStoreFailure)
}

// checkMembers checks the users and keys of an org, and what they and the org name as theirs.
func checkMembers(m *mistakes, path string, o *Org, cfg *Config, hashes names) {
	keyIDs, plans, groups := names{}, cfg.Defaults.PlanIDs(o), settings.IDs(o.Groups)
	plan := func(at, id string) {
		if id != "" {
			m.refer(at+".plan", "plan", id, plans)
		}
	}
	plan(path, o.Plan)
	for i, p := range o.Plans {
		checkPriority(m, element(path+".plans", i)+".priority", p.Priority, o)
	}
	eachMember(path, o, func(at string, u *User, k *Key) {
		if k == nil {
			checkLabelValues(m, at+".labels", u.Labels, cfg)
			checkPriority(m, at+".priority", u.Priority, o)
			plan(at, u.Plan)
			if u.Group != "" {
				m.refer(at+".group", "group", u.Group, groups)
			}
			return
		}
		m.unique(keyIDs, at+".id", k.ID)
		checkLabelValues(m, at+".labels", k.Labels, cfg)
		checkPriority(m, at+".priority", k.Priority, o)
		plan(at, k.Plan)
		if k.Hash != "" && checkHash(m, at+".hash", k.Hash, cfg.Auth.Peppers) {
			m.unique(hashes, at+".hash", k.Hash)
		}
	})
}

// checkAdmins checks the administrators' keys.
func checkAdmins(m *mistakes, cfg *Config) {
	hashes := names{}
	for i, k := range cfg.Admin.Keys {
		at := element("admin.keys", i)
		if k.Hash != "" && checkHash(m, at+".hash", k.Hash, cfg.Auth.Peppers) {
			m.unique(hashes, at+".hash", k.Hash)
		}
	}
}

// checkHash checks the format of a key's hash. For a key in clear text, the error contains the hash
// to write instead.
func checkHash(m *mistakes, path, text string, peppers []Pepper) bool {
	if strings.HasPrefix(text, "lg_") {
		if _, err := keys.Check(text); err != nil {
			m.failAt(path, "this is a key, not its hash, and it is damaged: %s", err)
			return false
		}
		var p keys.Pepper
		if len(peppers) > 0 {
			p = keys.Pepper{ID: peppers[0].ID, Secret: peppers[0].Secret.Reveal()}
		}
		m.failAt(path, "this is the key itself; write its hash instead: %q", keys.Hash(p, text))
		return false
	}
	id, digits, ok := strings.Cut(text, ":")
	sum, err := hex.DecodeString(digits)
	if !ok || err != nil || len(sum) != 32 || strings.ToLower(digits) != digits {
		m.failAt(path, `expected "sha256:" or "<pepper id>:" and 64 lower-case hex digits, got %s`, mask(quote(text)))
		return false
	}
	known := []string{"sha256"}
	known = append(known, idsOf(peppers, func(p *Pepper) string { return p.ID })...)
	if !slices.Contains(known, id) {
		m.failAt(path, "there is no pepper %q in auth.peppers%s", id, settings.Hint(id, known))
		return false
	}
	return true
}

// checkDefaults checks the limits of every org.
func checkDefaults(m *mistakes, cfg *Config) {
	checkRaiseRequests(m, "defaults.raise_requests", cfg.Defaults.RaiseRequests)
	for i, l := range cfg.Defaults.Limits {
		at := element("defaults.limits", i)
		checkLimit(m, at, l)
		checkSubject(m, at+".subject", l, cfg)
		if slices.Contains([]string{"group", "user", "key"}, l.Subject) && l.Only != "" {
			m.failAt(at+".only", "is not allowed in limits for every org; put the limit under the org of that %s",
				l.Subject)
			continue
		}
		checkOnly(m, at+".only", l, &Org{})
	}
	checkOwnLimits(m, limitLists("defaults", defaultsOrg(cfg)))
	if cfg.Defaults.Plan != "" {
		m.refer("defaults.plan", "plan", cfg.Defaults.Plan, cfg.Defaults.PlanIDs(&Org{}))
	}
}

// checkLimits checks the org's limits, and those of its users, groups and plans.
func checkLimits(m *mistakes, path string, o *Org, cfg *Config) {
	ids := names{}
	replaceable := map[string]bool{}
	for i, l := range cfg.Defaults.Limits {
		if !slices.ContainsFunc(o.Limits, func(own Limit) bool { return own.Name == l.Name }) {
			ids[l.Name], replaceable[l.Name] = element("defaults.limits", i), l.Subject == "user"
		}
	}
	for i, l := range o.Limits {
		at := element(path+".limits", i)
		ids[l.Name], replaceable[l.Name] = at+".name", l.Subject == "user"
		checkLimit(m, at, l)
		checkSubject(m, at+".subject", l, cfg)
		checkOnly(m, at+".only", l, o)
	}
	lists := limitLists(path, o)
	for _, list := range lists {
		for i, l := range list.limits {
			if first, taken := ids[l.Name]; list.kind == "user" && taken && !replaceable[l.Name] {
				m.failAt(element(list.path+".limits", i)+".name",
					"%q is a limit of the org%s whose subject is not user, so a user cannot replace it", l.Name, m.onLine(first))
			}
		}
	}
	checkOwnLimits(m, lists)
}

// onLine returns where a path is in the file, "" if it is not there.
func (m *mistakes) onLine(path string) string {
	if at := m.markAt(path); at.line > 0 {
		return fmt.Sprintf(" on line %d", at.line)
	}
	return ""
}

func checkOnly(m *mistakes, path string, l Limit, o *Org) {
	switch {
	case l.Only == "":
	case l.Subject == "group":
		m.refer(path, "group", l.Only, settings.IDs(o.Groups))
	case l.Subject == "user":
		m.refer(path, "user", l.Only, settings.IDs(o.Users))
	case l.Subject == "key":
		m.refer(path, "key", l.Only, o.KeyIDs())
	case l.Subject == "org":
		m.failAt(path, "has no effect with subject org; set subject: user to limit one user")
	case l.Subject == "ip" && !isAddress(l.Only):
		m.failAt(path, "expected an address such as 10.0.0.7, got %s", quote(l.Only))
	case strings.Contains(l.Subject, "+"):
		m.failAt(path, "is not possible with several subjects")
	case l.Subject != "ip" && !settings.ValidLabelValue(l.Only):
		m.failAt(path, "%s", badLabel(l.Only))
	}
}

func checkLimit(m *mistakes, path string, l Limit) {
	if checkShape(m, path, l) {
		checkQuantities(m, path, l)
	}
}

// checkShape checks that a limit has exactly one shape, complete.
func checkShape(m *mistakes, path string, l Limit) bool {
	var shapes []string
	for _, s := range []string{"window", "calendar", "bucket"} {
		if m.given(path + "." + s) {
			shapes = append(shapes, s)
		}
	}
	amount := m.given(path + ".amount")
	before := len(m.errs)
	switch {
	case l.Metric == "concurrency" && len(shapes) > 0:
		m.failAt(path+"."+shapes[0], "concurrency counts open calls; it takes amount alone")
	case l.Metric == "concurrency" && !amount:
		m.failAt(path, "amount is missing: how many calls may be open in parallel")
	case l.Metric == "concurrency":
	case len(shapes) > 1:
		m.failAt(path+"."+shapes[1], "the limit already has a %s; a limit has one shape, so write two limits", shapes[0])
	case len(shapes) == 0 && amount:
		m.failAt(path, "amount of what time? add window: 1h (sliding), calendar: month (fixed), or use bucket")
	case len(shapes) == 0:
		m.failAt(path, `has no shape; add amount: "$5" and window: 1h, or amount and calendar, or bucket`)
	case shapes[0] == "bucket" && amount:
		m.failAt(path+".amount", "a bucket has capacity and refill instead of amount")
	case shapes[0] != "bucket" && !amount:
		m.failAt(path, "amount is missing: how much per %s", shapes[0])
	}
	switch {
	case l.Fixed && l.Window%time.Second != 0:
		m.failAt(path+".window", "a fixed window has whole seconds")
	case l.Exact && l.Window > time.Hour:
		m.failAt(path+".exact", "keeps one entry per call, so it is only for windows up to 1h; remove it here")
	}
	if l.Starts != "" {
		checkStarts(m, path+".starts", l)
	}
	return len(m.errs) == before
}

// starts are the patterns of the starts that calendar periods can have. Every month has 28 days.
var starts = map[string]*regexp.Regexp{
	"week":    regexp.MustCompile(`^(sunday|monday|tuesday|wednesday|thursday|friday|saturday)$`),
	"month":   regexp.MustCompile(`^([1-9]|1[0-9]|2[0-8])$`),
	"quarter": regexp.MustCompile(`^(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])$`),
	"year":    regexp.MustCompile(`^(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])$`),
}

func checkStarts(m *mistakes, path string, l Limit) {
	pattern := starts[l.Calendar]
	switch {
	case pattern == nil:
		m.failAt(path, "is for calendar: week, month, quarter or year")
	case pattern.MatchString(l.Starts):
	case l.Calendar == "week":
		m.failAt(path, "a week starts on a day such as sunday, not %q", l.Starts)
	case l.Calendar == "month":
		m.failAt(path, "a month starts on a day from 1 to 28, which every month has, not %q", l.Starts)
	default:
		m.failAt(path, "a %s starts on a date such as \"04-06\" (month-day, day 1 to 28), not %q", l.Calendar, l.Starts)
	}
}

// checkQuantities checks that amounts match the kind of the metric.
func checkQuantities(m *mistakes, path string, l Limit) {
	check := func(path string, q Quantity) {
		switch money := l.Metric == "cost"; {
		case q == Quantity{} || q.Money == money:
		case money:
			m.failAt(path, `metric cost is limited in money; did you mean "$%d"?`, q.N)
		case l.Metric == "tokens", l.Metric == "requests", l.Metric == "concurrency": // others are reported elsewhere
			m.failAt(path, "metric %s is limited by a count, not by money; leave out the $ or set metric: cost", l.Metric)
		}
	}
	check(path+".amount", l.Amount)
	check(path+".bucket.capacity", l.Bucket.Capacity)
	check(path+".bucket.refill", l.Bucket.Refill.Quantity)
}
