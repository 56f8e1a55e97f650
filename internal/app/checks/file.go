package checks

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/diagnose"
	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/internal/listen"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/providers"
)

// longExpired is how long ago a key must have expired to be reported.
const longExpired = 30 * 24 * time.Hour

// contents summarizes the file.
func contents(_ context.Context, e *examination, r *diagnose.Report) {
	var users, keys, limits int
	for _, o := range e.cfg.Orgs {
		users, limits = users+len(o.Users), limits+len(o.Limits)
		for _, u := range o.Users {
			keys, limits = keys+len(u.Keys), limits+len(u.Limits)
		}
	}
	count := func(n int, thing string) string { return figures.Plural(int64(n), thing) }
	r.Add(diagnose.OK, strings.Join([]string{
		count(len(e.cfg.Providers), "provider"), count(len(e.cfg.Orgs), "org"), count(users, "user"),
		count(keys, "key"), count(limits, "limit"),
	}, ", "), "")
}

// secretsOfCalls looks for values that only calls need, and that this environment lacks or has wrong.
func secretsOfCalls(_ context.Context, e *examination, r *diagnose.Report) {
	for _, path := range slices.Sorted(maps.Keys(e.cfg.Unset)) {
		r.At(path, diagnose.Warning, e.cfg.Unset[path],
			"`serve`, `worker` and `check --live` do not start without it. Commands for operators do not need it.")
	}
	for path, why := range e.cfg.Unusable {
		what, fix, _ := strings.Cut(why, "; ")
		r.At(path, diagnose.Error, what, sentence(fix))
	}
}

// poolsWithoutCalls looks for pools that get no calls because an earlier one matches all of their
// models.
func poolsWithoutCalls(_ context.Context, e *examination, r *diagnose.Report) {
	for i, p := range e.cfg.Providers {
		for j, pool := range p.Pools {
			path := fmt.Sprintf("providers[%d].pools[%d]", i, j)
			for _, before := range p.Pools[:j] {
				if takesAll(before.Models, pool.Models) {
					r.At(path, diagnose.Warning,
						fmt.Sprintf("pool %s gets no calls: pool %s, listed before it, matches all of its models", pool.ID, before.ID),
						"Pools are tried in order: put the one with the wider pattern last.")
					break
				}
			}
		}
		if before := catchAll(e.cfg, i); before != nil {
			r.At(fmt.Sprintf("providers[%d].id", i), diagnose.Warning,
				fmt.Sprintf("provider %s gets no calls for orgs without their own providers: provider %s, listed before it, "+
					"matches all of its models", p.ID, before.ID),
				"Providers are tried in order: name the models of "+before.ID+
					"'s pools, or set providers of the orgs that are to use "+p.ID+".")
		}
	}
}

// mergedQuotas looks for pools with one quota of tokens at providers with separate ones.
func mergedQuotas(_ context.Context, e *examination, r *diagnose.Report) {
	for i, p := range e.cfg.Providers {
		for j, pool := range p.Pools {
			if pool.TPM > 0 && pool.TPM < pool.RPM {
				r.At(fmt.Sprintf("providers[%d].pools[%d].tpm", i, j), diagnose.Warning,
					fmt.Sprintf("pool %s has fewer tokens per minute (tpm) than requests (rpm)", pool.ID),
					"Check whether the two are swapped.")
			}
			if pool.TPM == 0 || !providers.DialectOf(p.Kind).SplitsQuota() {
				continue
			}
			r.At(fmt.Sprintf("providers[%d].pools[%d].tpm", i, j), diagnose.Warning,
				fmt.Sprintf("pool %s has one quota of tokens, but %s counts input and output separately, and no input that is "+
					"read from a prompt cache", pool.ID, p.Kind), "Set itpm and otpm instead of tpm.")
		}
	}
}

// takesAll reports whether each pattern of list is one of patterns, or matches one.
func takesAll(patterns, list []string) bool {
	return !slices.ContainsFunc(list, func(one string) bool {
		return !slices.ContainsFunc(patterns, func(p string) bool { return providers.Match(p, one) })
	})
}

// catchAll returns an earlier provider that takes every call meant for the i-th; nil if
// there is none, or if an org of the file omits it and lists the i-th.
func catchAll(cfg *config.Config, i int) *config.Provider {
	for n := range cfg.Providers[:i] {
		before := &cfg.Providers[n]
		whole := takesAll(patternsOf(before), patternsOf(&cfg.Providers[i]))
		passed := slices.ContainsFunc(cfg.Orgs, func(o config.Org) bool {
			return !slices.Contains(o.Providers, before.ID) && slices.Contains(o.Providers, cfg.Providers[i].ID)
		})
		if whole && !passed {
			return before
		}
	}
	return nil
}

// patternsOf returns the models of all pools of a provider.
func patternsOf(p *config.Provider) (out []string) {
	for _, pool := range p.Pools {
		out = append(out, pool.Models...)
	}
	return out
}

// unmatched looks for models of pools, limits, keys and others that match no known model.
func unmatched(_ context.Context, e *examination, r *diagnose.Report) {
	ofOrgOrKey := regexp.MustCompile(`^orgs\[\d+\]\.(users\[\d+\]\.keys\[\d+\]\.)?models$`).MatchString
	settings.EachList(e.cfg, "models", func(path string, list []string) {
		for i, pattern := range list {
			what, fix, _ := strings.Cut(e.policy.Unmatched(pattern), "; ")
			expression := strings.HasPrefix(fix, "patterns")
			checked := !strings.Contains(pattern, "*") && ofOrgOrKey(path) // by models
			if what != "" && (expression || !checked && !strings.HasPrefix(path, "providers")) {
				r.At(fmt.Sprintf("%s[%d]", path, i), diagnose.Warning, what, sentence(fix))
			}
		}
	})
}

// sentence returns a clause as a sentence.
func sentence(text string) string {
	text = strings.ToUpper(text[:1]) + text[1:]
	if !strings.HasSuffix(text, "?") {
		text += "."
	}
	return text
}

// leastCall is less than nearly every call costs, in nano-USD.
const leastCall = 10_000

// uselessLimits looks for limits that no call fits, and those that a limit of the whole org always precedes.
func uselessLimits(_ context.Context, e *examination, r *diagnose.Report) {
	for i := range e.cfg.Orgs {
		o, path := &e.cfg.Orgs[i], fmt.Sprintf("orgs[%d]", i)
		judgeLimits(r, path, o.Limits, o.Limits)
		for j, u := range o.Users {
			judgeLimits(r, fmt.Sprintf("%s.users[%d]", path, j), u.Limits, o.Limits)
		}
	}
}

func judgeLimits(r *diagnose.Report, path string, list, ofOrg []config.Limit) {
	for i, l := range list {
		at := fmt.Sprintf("%s.limits[%d].amount", path, i)
		if l.Amount.Money && l.Amount.N < leastCall {
			r.At(at, diagnose.Warning, fmt.Sprintf("limit %s: nearly every call costs more, and is refused", l.Name),
				"Write the amount in dollars, such as $5.")
		}
		before := slices.IndexFunc(ofOrg, func(w config.Limit) bool {
			whole := w.Subject == "org" && w.Mode == "enforce" && len(w.Models)+len(w.Endpoints) == 0
			same := w.Metric == l.Metric && w.Window == l.Window && w.Calendar == l.Calendar && w.Bucket == l.Bucket
			return whole && same && l.Subject != "org" && w.Amount.N < l.Amount.N
		})
		if before >= 0 && l.Metric != "concurrency" {
			r.At(at, diagnose.Warning, fmt.Sprintf("limit %s never refuses a call: limit %s of the whole org is smaller", l.Name,
				ofOrg[before].Name), "Lower it below the org's limit, or raise that.")
		}
	}
}

// unlikelyPrices looks for prices of another unit than USD per million tokens.
func unlikelyPrices(_ context.Context, e *examination, r *diagnose.Report) {
	const least, most = 15_000, 10_000_000_000 // in pico-USD per token: $0.015 and $10,000 per million
	for _, entry := range e.policy.Catalogue.Entries() {
		for _, row := range entry.Prices {
			if out := row.Rates.Output; out.Pico != 0 && (out.Pico < least || out.Pico > most) {
				r.At("prices", diagnose.Warning, entry.Model+": its output price is unlikely for a million tokens",
					"Prices are USD per million tokens. Multiply a price per token by 1000000, per 1k by 1000.")
			}
		}
	}
}

// accounts asks the providers' dialects for what is doubtful, such as a base URL without a version.
func accounts(_ context.Context, e *examination, r *diagnose.Report) {
	for i := range e.cfg.Providers {
		for _, p := range e.cfg.Providers[i].Problems() {
			if p.Advice != "" {
				r.At(fmt.Sprintf("providers[%d].%s", i, p.Field), diagnose.Warning, p.Text, p.Advice)
			}
		}
	}
}

// kindsOf are the kinds of providers that fit the ends of hosts, the best first.
var kindsOf = map[string][]string{
	"api.anthropic.com": {"anthropic", "openai"}, "api.mistral.ai": {"mistral", "openai"},
	"generativelanguage.googleapis.com": {"gemini"}, ".openai.azure.com": {"azure"}, "api.openai.com": {"openai"},
}

// wrongHosts looks for base URLs of another kind of provider, and of llmguard itself.
func wrongHosts(_ context.Context, e *examination, r *diagnose.Report) {
	loopback := regexp.MustCompile(`^(localhost|127\..*|::1)$`).MatchString
	own := listen.HostName(e.cfg.Listen)
	ours := loopback(own) || slices.Contains([]string{"", "0.0.0.0", "::"}, own)
	for i, p := range e.cfg.Providers {
		base, err := url.Parse(p.BaseURL)
		if err != nil {
			continue
		}
		host, at := base.Hostname(), fmt.Sprintf("providers[%d]", i)
		if (host == own || ours && loopback(host)) && strings.HasSuffix(e.cfg.Listen, ":"+base.Port()) {
			r.At(at+".base_url", diagnose.Warning, "is the address on which llmguard listens, so calls return to it",
				"Write the provider's address, or another port in listen.")
		}
		for end, kinds := range kindsOf {
			compatible := strings.Contains(base.Path, "/openai") // such as Gemini's
			if strings.HasSuffix(host, end) && !slices.Contains(kinds, p.Kind) && !compatible {
				r.At(at+".kind", diagnose.Warning, "kind "+p.Kind+" at "+host, "Set kind: "+kinds[0]+".")
			}
		}
	}
}

func expiredKeys(_ context.Context, e *examination, r *diagnose.Report) {
	expired := func(path, id string, at time.Time) {
		if age := time.Since(at); !at.IsZero() && age > longExpired {
			r.At(path+".expires", diagnose.Warning,
				fmt.Sprintf("key %s expired %d days ago, on %s", id, age/(24*time.Hour), at.UTC().Format(time.DateOnly)),
				"Remove it, or create a new one.")
		}
	}
	for i, k := range e.cfg.Admin.Keys {
		expired(fmt.Sprintf("admin.keys[%d]", i), k.ID, k.Expires)
	}
	for i, o := range e.cfg.Orgs {
		for j, u := range o.Users {
			for n, k := range u.Keys {
				expired(fmt.Sprintf("orgs[%d].users[%d].keys[%d]", i, j, n), k.ID, k.Expires)
			}
		}
	}
}

// downgrades looks for downgrade models that cannot serve a call.
func downgrades(_ context.Context, e *examination, r *diagnose.Report) {
	for i, o := range e.cfg.Orgs {
		for _, model := range slices.Sorted(maps.Keys(o.Downgrade)) {
			cheaper, path := o.Downgrade[model], fmt.Sprintf("orgs[%d].downgrade.%s", i, model)
			target, err := e.policy.Providers.Resolve(cheaper, o.Providers)
			if err != nil {
				r.At(path, diagnose.Error, "no provider's pool serves "+cheaper+", so no call is downgraded to it",
					"Add it to the models of a pool.")
				continue
			}
			if !e.policy.Priced(target) {
				r.At(path, diagnose.Error, cheaper+" has no price, so no call is downgraded to it", "Add it under prices.")
			}
		}
	}
}

// orgCalledAll looks for an org with the name that means every org elsewhere.
func orgCalledAll(_ context.Context, e *examination, r *diagnose.Report) {
	for i, o := range e.cfg.Orgs {
		if o.ID == "all" {
			r.At(fmt.Sprintf("orgs[%d].id", i), diagnose.Warning,
				"where limits are set, the name all means every org; because this org uses the name, it means only this org",
				"Put limits for every org under defaults.limits.")
		}
	}
}

// models checks whether the models that orgs and keys list by name are served and priced. What
// several may use is reported once.
func models(_ context.Context, e *examination, r *diagnose.Report) {
	said := map[string]bool{} // by area and model
	report := func(area, model, path string, level diagnose.Level, what, fix string) {
		r.Area = area
		if !said[area+" "+model] {
			said[area+" "+model] = true
			r.At(path, level, what, fix)
		}
	}
	look := func(where, path string, models, only []string) {
		for i, model := range models {
			if strings.Contains(model, "*") {
				continue
			}
			at := fmt.Sprintf("%s.models[%d]", path, i)
			target, err := e.policy.Providers.Resolve(model, only)
			switch {
			case err != nil:
				report("models", model, at, diagnose.Warning, where+" may use "+model+", which no provider's pool serves",
					"Add it to the models of a pool, or remove it from the list.")
			case !e.policy.Priced(target):
				_, fix, _ := strings.Cut(e.policy.Unmatched(model), "; ")
				report("prices", model, at, diagnose.Error, where+" may use "+model+", which has no price: calls are refused",
					sentence(cmp.Or(fix, "add it under prices")))
			}
		}
	}
	for i, o := range e.cfg.Orgs {
		path := fmt.Sprintf("orgs[%d]", i)
		look("org "+o.ID, path, o.Models, o.Providers)
		for j, u := range o.Users {
			for n, k := range u.Keys {
				look("key "+k.ID, fmt.Sprintf("%s.users[%d].keys[%d]", path, j, n), k.Models, o.Providers)
			}
		}
	}
}

// oldPrices checks when the prices were last checked.
func oldPrices(_ context.Context, e *examination, r *diagnose.Report) {
	if age := e.policy.Catalogue.Age(time.Now()); age > diagnose.OldPrices {
		r.Add(diagnose.Warning, fmt.Sprintf("the oldest price was last checked %d days ago, on %s", age/(24*time.Hour),
			e.policy.Catalogue.AsOf().Format(time.DateOnly)), "Update llmguard, or run `llmguard prices update litellm`.")
	}
}

// unbounded finds orgs and users with calls that no enforced limit on cost, tokens or requests
// and no spend cap counts.
func unbounded(_ context.Context, e *examination, r *diagnose.Report) {
	now := time.Now()
	for i := range e.orgs.Orgs {
		o := &e.orgs.Orgs[i]
		in := e.rules.Orgs[o.ID]
		if in == nil {
			continue
		}
		if b := e.rules.Bound(in, o.CallerKeys(now), now); b.None {
			f := r.Add(diagnose.Warning, b.Warning(o.ID), guard.BoundFix(o.ID))
			f.Path, f.Org = fmt.Sprintf("orgs[%d].id", i), o.ID
		}
	}
}
