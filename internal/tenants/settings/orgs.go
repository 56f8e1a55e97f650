// Package settings describes orgs, their users, keys and limits as the configuration file and
// administrators set them. Package config reads them.
package settings

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Org is a tenant. Other tenants see nothing of it.
type Org struct {
	// ID must not change: all data of the org is stored under it.
	ID   string `yaml:"id,required" kind:"id" unique:"list"`
	Name string `yaml:"name" runtime:"display name"`
	// Disabled rejects all keys of the org. Its jobs then fail.
	Disabled bool `yaml:"disabled" runtime:"" flag:"-"`
	// Models are patterns of the models that it may use. Default: all.
	Models []string `yaml:"models" range:"1.." kind:"pattern" unset:"all" runtime:"allowed models, as comma-separated patterns"`
	// Providers are the ids of the providers that the org may use. Default: all.
	Providers []string `yaml:"providers" range:"1.." unset:"all" runtime:"allowed providers, comma-separated"`
	// DefaultOutputLimit is added to requests without an output limit. If omitted, they are held at the model's
	// maximum.
	DefaultOutputLimit int64 `yaml:"default_output_limit" unset:"none" runtime:"output tokens for requests that set no output limit"`
	// Hold is how much of a call's cost is held before it is sent. max: the maximum. agents: a first part for streams
	// of coding agents. grow: also for other streams without an output limit.
	Hold string `yaml:"hold" default:"agents" enum:"max,agents,grow" runtime:""`
	// GrowStep is how many tokens a growing hold is ahead of the output. 800 is enough for 300 tokens a second.
	GrowStep int64 `yaml:"grow_step" default:"800" range:"20..1M tokens" excludes:"hold=max"`
	// OverLimit is what happens to a call that does not fit now. wait: it queues. refuse: it
	// gets 429.
	OverLimit string `yaml:"over_limit" default:"wait" enum:"wait,refuse" runtime:""`
	// MaxWait is how long calls may wait. Default: as long as the caller and the pool's max_age allow.
	MaxWait time.Duration `yaml:"max_wait" excludes:"over_limit=refuse" runtime:"how long calls may wait, such as 10m"`
	// OnStoreFailure replaces store.on_failure.
	OnStoreFailure string `yaml:"on_store_failure" enum:"deny,local,allow" runtime:""`
	// OnDisconnect is what happens to a call whose caller disconnects. auto: streams with visible output are
	// cancelled and charged for it, other calls are read to their end. cancel: all are cancelled. finish: all are
	// read to their end.
	OnDisconnect string `yaml:"on_disconnect" default:"auto" enum:"auto,cancel,finish" runtime:""`
	// BatchMode replaces providers[].batch_mode.
	BatchMode string `yaml:"batch_mode" enum:"queue,provider"`
	// Downgrade maps models to cheaper ones: {gpt-4o: gpt-4o-mini}. A call that fits a limit only with the cheaper
	// model gets it.
	Downgrade map[string]string `yaml:"downgrade"`
	Cache     Cache             `yaml:"cache" unset:"off" runtime:""`
	Runs      Runs              `yaml:"runs" runtime:""`
	// AllowBuiltinTools permits the provider's own tools, such as web search. Holds do not bound their cost.
	AllowBuiltinTools bool `yaml:"allow_builtin_tools" runtime:"allow the provider's built-in tools"`
	// RetryStartedJobs runs a job again if its worker died after the call may have reached the provider. The first
	// attempt is charged as an estimate.
	RetryStartedJobs bool `yaml:"retry_started_jobs" default:"true" runtime:"rerun jobs whose worker died"`
	// Labels are values of labels for calls with keys of the org; users' and keys' come first.
	Labels map[string]string `yaml:"labels" flag:"label" runtime:"label of calls with the org's keys, as name=value (repeat for several; replaces all)"`
	// Weight is the org's share of a pool's queue: an org with 200 gets twice as much as one with 100.
	Weight int `yaml:"weight" default:"100" runtime:"share of the queue relative to other orgs"`
	// Spread divides the org's money into parts, so that its calls use several servers of a Redis Cluster. See
	// docs/scaling.md.
	Spread int `yaml:"spread" default:"1" range:"1..64 parts" runtime:"parts of the org's money, for several servers of a Redis Cluster"`
	// MaxPriority is the highest priority of calls of the org. High ones take turns from other calls of the org only.
	MaxPriority string `yaml:"max_priority" default:"normal" enum:"high,normal,low" runtime:"highest priority of calls: {}"`
	// ModelPriority maps patterns of models to priorities: {"gpt-4o-mini*": low}. The longest match applies, unless a
	// key, user or call has a priority. Default: normal.
	ModelPriority map[string]string `yaml:"model_priority"`
	// RaiseRequests replaces the one of defaults, field by field.
	RaiseRequests RaiseRequests `yaml:"raise_requests"`
	// Alerts notify the org of its and its users' limits, in addition to the operator.
	Alerts          Alerts          `yaml:"alerts"`
	Webhooks        []Webhook       `yaml:"webhooks"`
	RequestWebhooks RequestWebhooks `yaml:"request_webhooks"`
	Limits          []Limit         `yaml:"limits"`
	Groups          []Group         `yaml:"groups" range:"..1000 groups"`
	// Plans are added to the plans of defaults. A plan with the same id changes that one: limits by name, and Models
	// and Priority if given.
	Plans []Plan `yaml:"plans" range:"..100 plans"`
	// Plan is the plan of users without one. Default: the plan of defaults.
	Plan string `yaml:"plan" unset:"not set" runtime:"plan of users without one (default: the plan of defaults)"`
	// Brakes of the org. One with the name of a brake for all orgs replaces it.
	Brakes []Brake `yaml:"brakes"`
	Users  []User  `yaml:"users"`
}

// Cache is the response cache of an org: see docs/cache.md. Default: off.
type Cache struct {
	// MaxAge is how long answers are stored and used. 0 turns the cache off.
	MaxAge time.Duration `yaml:"max_age" min:"0" range:"1s..30d" runtime:"how long the response cache stores answers, such as 1h (0: no cache)"`
	// Cost is what an answer from the cache is charged, as a share of the original call's cost. Default: 0.
	Cost Percent `yaml:"cost" min:"0" needs:"max_age" runtime:"cost of a cached answer, in percent of the original call's, such as 25% (default 0%)"`
	// Always uses the cache for every call whose answer can be reused. Otherwise a request asks with the header
	// Llmguard-Cache.
	Always bool `yaml:"always" needs:"max_age" runtime:"use the cache for every call, not only for those that ask for it"`
	// MaxBytes is the size of all answers of the org; new answers replace the oldest. 0: no bound but
	// queue.memory_org_share.
	MaxBytes Size `yaml:"max_bytes" default:"64MB" min:"0" runtime:"maximum size of the cache"`
}

// Off reports whether no answer is stored.
func (c Cache) Off() bool { return c.MaxAge == 0 }

// Runs bound the budgets that the org's keys give away: see docs/runs.md.
type Runs struct {
	// MaxDepth is how deep runs may be nested. 0: the org has no runs.
	MaxDepth int `yaml:"max_depth" default:"4" min:"0" range:"0..4" runtime:"how deep runs may be nested, at most 4; 0: no runs"`
	// MaxOpen is how many open runs a key may have, and how many a run may contain.
	MaxOpen int `yaml:"max_open" default:"100" range:"1..100k" runtime:"open runs of a key, and inside a run"`
	// MaxAmount is the most that a run may have, additions included: "$50". Default: any amount.
	MaxAmount Quantity `yaml:"max_amount" kind:"money" unset:"any" runtime:"most that a run may have, such as $50 (default: any amount)"`
	// MaxLife is the longest time until a run expires.
	MaxLife time.Duration `yaml:"max_life" default:"7d" range:"1m..30d" runtime:"longest time until a run expires"`
}

// User is a person or program in an org.
type User struct {
	ID   string `yaml:"id,required" kind:"id" unique:"list"`
	Name string `yaml:"name" runtime:"display name"`
	// Disabled rejects all keys of the user. The user's jobs then fail.
	Disabled bool `yaml:"disabled" runtime:"" flag:"-"`
	// Labels are values of labels for calls with keys of the user.
	Labels map[string]string `yaml:"labels" flag:"label" runtime:"label of calls with the user's keys, as name=value (repeat for several; replaces all)"`
	// Weight is the user's share of the org's turns.
	Weight int `yaml:"weight" default:"100" runtime:"share of the org's turns relative to other users"`
	// Priority is the priority of the user's calls, and the highest that they may choose. Default: the plan's, else
	// normal, with a choice up to max_priority of the org.
	Priority string `yaml:"priority" enum:"high,normal,low" unset:"not set" runtime:"priority of the user's calls: {}"`
	// Group is the id of the user's group. Default: none.
	Group string `yaml:"group" unset:"none" runtime:"the user's group"`
	// Plan is the id of the user's plan. Default: the org's.
	Plan string `yaml:"plan" unset:"the org's" runtime:"the user's plan (default: the org's)"`
	// Limits are for this user only. One with the name of an org's, a group's or a plan's limit for each user
	// replaces it.
	Limits []Limit `yaml:"limits"`
	Keys   []Key   `yaml:"keys"`
}

// Key is an API key, known by its hash only.
type Key struct {
	// ID is the key's name in logs and the ledger, unique in the org.
	ID string `yaml:"id,required" kind:"id"`
	// Hash is "<pepper id>:<64 hex digits>" or "sha256:<64 hex digits>".
	Hash string `yaml:"hash,required"`
	Name string `yaml:"name" runtime:"display name"`
	// Models are patterns of the models that this key may use, within the org's. Default: the plan's, else the org's.
	Models []string `yaml:"models" range:"1.." kind:"pattern" unset:"all" runtime:"allowed models, as comma-separated patterns"`
	// Scopes are what the key may be used for: calls (every endpoint that costs money), single endpoints as in
	// limits, jobs, files, batches, usage, runs, limit_requests (more of the limits of the key and its user),
	// limit_requests.org (also of its org and group), holds. Default: everything except holds and limit_requests.org.
	Scopes []string `yaml:"scopes" kind:"scope" unset:"all" runtime:"allowed uses: calls, chat.completions, embeddings, ..., jobs, files, batches, usage, holds"`
	// Networks are the addresses (10.0.0.7 or 10.0.0.0/8) from which the key may be used. Default: all.
	Networks []netip.Prefix `yaml:"networks" unset:"all" runtime:"allowed client addresses, such as 10.0.0.0/8"`
	// Plan is a plan that applies to the key's calls in place of the user's, and counts the key.
	Plan string `yaml:"plan" unset:"the user's" runtime:"the key's plan, in place of the user's"`
	// Concurrency is how many calls of the key may be in flight, without waiting ones. Default: no limit.
	Concurrency int64 `yaml:"concurrency" unset:"any" runtime:"maximum number of concurrent calls"`
	// Priority is the priority of the key's calls, and the highest that they may choose. Default: the plan's, else
	// the user's.
	Priority string `yaml:"priority" enum:"high,normal,low" unset:"the user's" runtime:"priority of the key's calls: {} (default: the user's)"`
	// Labels are values of labels for calls with the key: {project: mobile}.
	Labels map[string]string `yaml:"labels" flag:"label" runtime:"value of a label for its calls, as name=value (repeat for several)"`
	// Expires is a date (2027-01-31: until it begins, UTC) or a time (2027-01-31T18:00:00Z). Default: never.
	Expires time.Time `yaml:"expires" unset:"never" runtime:"a date (2027-01-31: expires when it begins, UTC), a time, or a duration from now (90d)"`
	// Disabled rejects the key but keeps its entry.
	Disabled bool `yaml:"disabled" runtime:"" flag:"-"`
}

// Limit is a limit on one metric of one subject, with exactly one shape: amount with window, amount with calendar,
// bucket, or amount alone for concurrency.
type Limit struct {
	// Name is unique in the org. A new amount keeps the usage, a new name starts at zero.
	Name string `yaml:"name,required" kind:"id" unique:"list"`
	// Subject is whose usage counts: org (as a whole), or separately for each group, user, key, ip (caller address)
	// or value of a label, or each combination in a list: [user, session].
	Subject string `yaml:"subject" default:"org" kind:"subject" runtime:"what has a separate counter: the org, each group, user, key, ip or value of a\nlabel, or each combination, such as user+session"`
	// Only restricts the limit to one group, user, key, address or value of a label.
	Only string `yaml:"only" runtime:"the one user, key, address or value of a label that this limit of the org applies to (default: each)"`
	// Models and Endpoints are patterns; only matching calls count. Endpoints are named as in the first table of
	// docs/wire.md, such as chat.completions or images.*; fees count as containers and vector_stores, holds as holds.
	// Default: all.
	Models    []string `yaml:"models" range:"1.." kind:"pattern" runtime:"only for these models"`
	Endpoints []string `yaml:"endpoints" range:"1.." kind:"endpoint" runtime:"only for these endpoints"`
	Metric    string   `yaml:"metric" default:"cost" enum:"cost,tokens,requests,concurrency" runtime:""`
	// Mode is what happens at the limit. enforce: it refuses or queues calls. shadow: it only counts and reports.
	// off: neither.
	Mode string `yaml:"mode" default:"enforce" enum:"enforce,shadow,off" runtime:""`
	// Amount is money for cost ("$5"), else a count.
	Amount Quantity `yaml:"amount" runtime:"'$50' for cost, a count for the others"`
	// Window makes the limit a sliding window: at most Amount in any period of this length.
	Window time.Duration `yaml:"window" range:"1s..366d" runtime:"sliding window, such as 24h or 7d"`
	// Exact makes windows of up to an hour exact to the microsecond instead of a sixtieth of their length.
	Exact bool `yaml:"exact" needs:"window" excludes:"fixed" runtime:"make the window exact to the microsecond"`
	// Fixed counts from one multiple of Window since the Unix epoch to the next, such as 12:00 to 12:05. See
	// docs/windows.md.
	Fixed bool `yaml:"fixed" needs:"window" runtime:"make the window fixed: aligned to multiples of its length"`
	// Calendar makes the limit a fixed period that starts at midnight, on Monday or on the first of the month, in TZ.
	Calendar string `yaml:"calendar" enum:"minute,hour,day,week,month,quarter,year" runtime:""`
	// Starts moves the start of calendar periods: the day of months ("15", at most "28"), the first day of weeks
	// (sunday), or the date of quarters and years ("04-06").
	Starts string `yaml:"starts" runtime:"start of calendar periods: 15 (of months), sunday (of weeks), 04-06 (of years)"`
	// TZ is such as Europe/Berlin.
	TZ     string `yaml:"tz" needs:"calendar" kind:"zone" runtime:"time zone of the calendar, such as Europe/Berlin"`
	Bucket Bucket `yaml:"bucket" runtime:""`
}

// Bucket is a token bucket: it fills steadily up to its capacity, and calls take from it.
type Bucket struct {
	// Capacity is the largest burst: "$10" or a count.
	Capacity Quantity `yaml:"capacity,required" flag:"capacity" runtime:"capacity of a bucket: '$200' or a count"`
	// Refill is an amount per time: "$10/1h", "5000/1m". Default: no refill, like prepaid
	// money.
	Refill Rate `yaml:"refill" flag:"refill" runtime:"refill of a bucket: '$50/1h' or '5000/1m'"`
}

// Defaults are settings for every org that does not set them itself.
type Defaults struct {
	// Limits apply to each org separately. An org's limit of the same name replaces one completely; `llmguard limits
	// set NAME --org all` changes fields.
	Limits []Limit `yaml:"limits"`
	// Plans are sets of limits and rights that users and keys of every org can have.
	Plans []Plan `yaml:"plans" range:"..100 plans"`
	// Plan is the plan of users without one, in orgs without one.
	Plan          string        `yaml:"plan"`
	RaiseRequests RaiseRequests `yaml:"raise_requests"`
}

// Set is a list of orgs, with the defaults for every org.
type Set struct {
	Orgs     []Org
	Defaults Defaults
}

// Org returns the org with this id, or nil.
func (s Set) Org(id string) *Org { return Find(s.Orgs, id) }

// User returns the user with this id, or nil.
func (o *Org) User(id string) *User { return Find(o.Users, id) }

// Named is what has an id or a name that is unique in its list.
type Named interface{ named() string }

func (o Org) named() string   { return o.ID }
func (u User) named() string  { return u.ID }
func (k Key) named() string   { return k.ID }
func (g Group) named() string { return g.ID }
func (p Plan) named() string  { return p.ID }
func (l Limit) named() string { return l.Name }
func (b Brake) named() string { return b.Name }

// Find returns the element of a list with an id or a name, or nil. None is found by an empty one.
func Find[T Named](list []T, id string) *T {
	for i := range list {
		if id != "" && list[i].named() == id {
			return &list[i]
		}
	}
	return nil
}

// IDs returns the ids or names of a list.
func IDs[T Named](list []T) []string {
	out := make([]string, len(list))
	for i := range list {
		out[i] = list[i].named()
	}
	return out
}

// KeyIDs returns the ids of all keys of an org.
func (o *Org) KeyIDs() (out []string) {
	for i := range o.Users {
		out = append(out, IDs(o.Users[i].Keys)...)
	}
	return out
}

// FindOrAdd returns the element of a list with an id or a name. It adds one if there is none.
func FindOrAdd[T Named](list *[]T, id string, add func() T) *T {
	if found := Find(*list, id); found != nil {
		return found
	}
	*list = append(*list, add())
	return &(*list)[len(*list)-1]
}

// OrgLimits returns the limits of an org: the defaults, except those replaced by name, and the
// org's own.
func (d Defaults) OrgLimits(o *Org) []Limit { return replaced(d.Limits, o.Limits) }

// UserLimits returns the limits that apply to a user of the org: the org's, the group's, the plan's
// and the user's own, except those replaced by name.
func (d Defaults) UserLimits(o *Org, u *User) []Limit {
	return d.LimitsOf(o, u, d.Membership(o, u, nil))
}

// replaced returns list with limits or brakes of the same name replaced by those in others, followed
// by the rest of others.
func replaced[T Named](list, others []T) []T {
	out := slices.Clone(list)
	for _, own := range others {
		*FindOrAdd(&out, own.named(), func() T { return own }) = own
	}
	return out
}

// SpreadBy returns whose calls are in one part if the org is spread: user or ip.
func (d Defaults) SpreadBy(o *Org) string {
	byAddress := func(l Limit) bool {
		return l.Mode == "enforce" && l.CountsBy("ip") && !l.CountsBy("user") && !l.CountsBy("key")
	}
	if slices.ContainsFunc(d.OrgLimits(o), byAddress) {
		return "ip"
	}
	return "user"
}

// CountsBy reports whether the limit counts by org, user, key, ip or a label, alone or with others.
func (l Limit) CountsBy(part string) bool {
	return slices.Contains(strings.Split(l.Subject, "+"), part)
}

// CallerKeys returns the ids of the keys that are valid at a time, by user. Users without one
// are omitted.
func (o *Org) CallerKeys(at time.Time) map[string][]string {
	out := map[string][]string{}
	for i := range o.Users {
		u := &o.Users[i]
		for _, k := range u.Keys {
			if !u.Disabled && !k.Disabled && (k.Expires.IsZero() || at.Before(k.Expires)) {
				out[u.ID] = append(out[u.ID], k.ID)
			}
		}
	}
	return out
}

// KeyLabels returns the values of labels that a key has: its own, before its user's and its org's.
func KeyLabels(o *Org, u *User, k *Key) map[string]string {
	if len(o.Labels)+len(u.Labels)+len(k.Labels) == 0 {
		return nil
	}
	out := map[string]string{}
	for _, values := range []map[string]string{o.Labels, u.Labels, k.Labels} {
		maps.Copy(out, values)
	}
	return out
}
