package diagnose

import (
	"cmp"
	"slices"
	"strings"
)

// keyPatterns are the patterns of docs/internals/redis-keys.md, each with true if such keys may
// have no lifetime.
func keyPatterns() map[string]bool {
	out := map[string]bool{}
	for _, p := range strings.Fields(`
lg:{<org>}:shadow_since lg:{<pool>}:claims lg:{<pool>}:claimed lg:{<pool>}:parked lg:{<pool>}:fair
lg:{<pool>}:size lg:{<pool>}:present lg:{<pool>}:due lg:{<pool>}:cancels lg:{<pool>}:wait:<class>
lg:{<pool>}:orgs:<class> lg:{<pool>}:users:<class> lg:{<pool>}:shut lg:{<pool>}:job:<job> lg:pools
lg:queue:sweep:since lg:{<org>}:owned:<id> lg:{<org>}:owned-list:<list> lg:{<org>}:owned-tokens:<id>
lg:{files}:due lg:files:store lg:{batches}:open lg:{identity:}:records lg:{identity:}:version
lg:{identity:}:last lg:{identity:}:changes lg:{identity:}:audit lg:{identity:}:used asynq:<name>
lg:{<org>}:parts lg:{identity:}:processes
`) {
		out[p] = true
	}
	for _, p := range strings.Fields(`
lg:{<org>}:holds lg:{<org>}:leases lg:{<org>}:done:<period>
lg:{<org>}:open-holds:entries lg:{<org>}:open-holds:ends lg:{<org>}:open-holds:sums
lg:{<org>}:l:<limit>:<subject>-<metric>-<shape>:<id> lg:{<org>}:ledger lg:{<org>}:reconcile
lg:{<org>}:sums:<day> lg:{<org>}:sums-by-hour:<day> lg:{<org>}:refusals:<day> lg:{<org>}:refusals-by-hour:<day>
lg:{<org>}:refusals-of:<process> lg:{<org>}:refused lg:{<org>}:refused-at lg:{<org>}:audit
lg:{<org>}:adjusted:<period> lg:{<org>}:export
lg:{<org>}:export-focus lg:{<org>}:epoch lg:epoch lg:orgs lg:ledger-orgs lg:seen lg:{<org>}:alert:<alert>
lg:{<org>}:cost:<job> lg:{<pool>}:quota lg:{<pool>}:slots lg:{<pool>}:probes lg:{<pool>}:dead lg:{<pool>}:ended
lg:{<pool>}:proc:<process> lg:{<pool>}:weights:<name> lg:{<pool>}:turns
lg:{<job>}:in lg:{<job>}:out:<attempt> lg:{<org>}:jobs lg:{<org>}:jobs:<user> lg:queue:sweep
lg:{capacity}:entries lg:{capacity}:ends lg:{capacity}:sums lg:{<org>}:once:<hash> lg:{<org>}:place:<hash>
lg:{<org>}:owned-open:<id> lg:{<org>}:owned-claim:<what> lg:{<org>}:response:<id> lg:{<org>}:file:<file>
lg:{<org>}:files:<user> lg:{<org>}:filesizes lg:{<org>}:kept:entries lg:{<org>}:kept:ends lg:{<batch>}:batch
lg:{<batch>}:lines lg:{<batch>}:chunks lg:{<org>}:batches:<user> lg:{<org>}:openbatches
lg:{<org>}:openbatches:<user> lg:{<org>}:endedbatches lg:{console:}:session:<hash> lg:{console:}:sessions
lg:{<org>}:webhooks:hour:<target>:<time>
lg:{calib}:<table> lg:{calib}:<table>:recent lg:{calib}:batch:<process> lg:{<org>}:webhooks:dead
lg:{<org>}:webhooks:letters lg:{<org>}:webhooks:off lg:wait lg:{<org>}:sums-by-label:<day>
lg:{<org>}:label-values:<label>:<day> lg:{ip:<address>}:l:<limit>:ip-requests-<shape>:<address>
lg:{auth:}:l:wrong-keys:ip-requests-b:<address> lg:{auth:}:l:wrong-keys-total:org-requests-b:
lg:{<org>}:run:<run> lg:{<org>}:runs lg:{<org>}:runs-of:<parent> lg:{run-key:<hash>}:run
lg:{<org>}:cache:<hash> lg:{<org>}:cache:entries lg:{<org>}:cache:ends lg:{<org>}:cache:sums
lg:{<org>}:cache:order lg:cache:sweep
lg:{<org>}:adjusted-in:<id> lg:{identity:}:reloaded:<request>
`) {
		out[p] = false
	}
	return out
}

// keyKind is a pattern, taken apart.
type keyKind struct {
	pattern string
	lasts   bool     // its keys may have no lifetime
	parts   []string // what is between the variables
}

// newKeyKinds returns the kinds, those with the most literal characters first: the first that
// matches a key is the right one.
func newKeyKinds() []keyKind {
	var kinds []keyKind
	for pattern, lasts := range keyPatterns() {
		k := keyKind{pattern: pattern, lasts: lasts}
		rest := pattern
		for {
			literal, after, found := strings.Cut(rest, "<")
			k.parts = append(k.parts, literal)
			if !found {
				break
			}
			_, rest, _ = strings.Cut(after, ">")
		}
		kinds = append(kinds, k)
	}
	slices.SortFunc(kinds, func(a, b keyKind) int {
		return cmp.Or(len(strings.Join(b.parts, ""))-len(strings.Join(a.parts, "")), strings.Compare(a.pattern, b.pattern))
	})
	return kinds
}

func (k *keyKind) match(key string) bool {
	rest, ok := strings.CutPrefix(key, k.parts[0])
	if !ok {
		return false
	}
	for _, part := range k.parts[1:] {
		_, rest, ok = strings.Cut(rest, part)
		if !ok {
			return false
		}
	}
	return rest == "" || k.parts[len(k.parts)-1] == "" && len(k.parts) > 1
}

// org returns the org to which a key belongs, "" if that is not in its name.
func (k *keyKind) org(key string) string {
	_, tag, _ := strings.Cut(key, "{")
	tag, _, _ = strings.Cut(tag, "}")
	switch k.parts[0] + k.variable() {
	case "lg:{<org":
		org, _, _ := strings.Cut(tag, "#") // of a part of an org that is spread
		return org
	case "lg:{<pool":
		_, org, _ := strings.Cut(tag, "@")
		return org
	}
	return ""
}

// variable returns the first variable of the pattern, such as <org.
func (k *keyKind) variable() string {
	name, _, _ := strings.Cut(k.pattern[len(k.parts[0]):], ">")
	return name
}
