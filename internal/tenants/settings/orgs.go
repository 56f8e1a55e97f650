// Package settings describes orgs, their users, keys and limits as the configuration file and
// administrators set them. Package config reads them.
package settings

import (
	"net/netip"
	"slices"
	"time"
)

// Org is a tenant. Nothing of it is visible to another.
type Org struct {
	// ID never changes once used: everything stored for the org is under it.
	ID string `yaml:"id,required" kind:"id"`
	// Name is for people.
	Name string `yaml:"name"`
	// Disabled refuses all keys of the org, and fails its jobs when their turn
	// comes.
	Disabled bool `yaml:"disabled"`
	// Models are patterns of the model names the org may use. Left out: all.
	Models []string `yaml:"models"`
	// Providers are the ids of providers it may use. Left out: all.
	Providers []string `yaml:"providers"`
	// DefaultOutputLimit is put into requests that name no output limit, and
	// binds them. Left out: such a call is held at the model's own maximum.
	DefaultOutputLimit int64 `yaml:"default_output_limit"`
	// Hold is how much of a call's cost is held before it is sent. max: all it
	// can cost. grow: of a stream that names no output limit and shows all of
	// its output while it comes, only a beginning. Its hold grows with the
	// output, up to DefaultOutputLimit or the model's maximum; when a limit has
	// no room for that, the stream is cut off with an error.
	Hold string `yaml:"hold" default:"max" enum:"max,grow"`
	// GrowStep is how many tokens a growing hold is ahead of the output, per
	// answer. It is extended at half of that, so half must cover what the
	// provider produces in 1.25 s: 800 is enough for 300 tokens a second.
	GrowStep int64 `yaml:"grow_step" default:"800"`
	// OverLimit is what happens to a call that does not fit now. wait: it
	// queues. refuse: 429.
	OverLimit string `yaml:"over_limit" default:"wait" enum:"wait,refuse"`
	// MaxWait is how long the org's calls may wait. Left out: as long as the
	// pool's max_age, or as the caller is willing.
	MaxWait time.Duration `yaml:"max_wait"`
	// OnStoreFailure is what happens to the org's live calls when Redis cannot
	// be asked: see store.on_failure, which it replaces for this org.
	OnStoreFailure string `yaml:"on_store_failure" enum:"deny,local,allow"`
	// OnDisconnect is what happens to a call whose caller is gone. auto: a
	// stream with visible output is cancelled and charged for what it
	// produced, any other is read to its end. cancel and finish do the same
	// for all.
	OnDisconnect string `yaml:"on_disconnect" default:"auto" enum:"auto,cancel,finish"`
	// BatchMode is who sends the lines of the org's batches: see
	// providers[].batch_mode, which it replaces for this org.
	BatchMode string `yaml:"batch_mode" enum:"queue,provider"`
	// Downgrade names a cheaper model for a model: {gpt-4o: gpt-4o-mini}. A call
	// that does not fit a limit is served with it if it fits then, before it
	// waits and while it waits, and its answer says so in
	// X-Llmguard-Downgraded. Left out: calls are served with the model they name.
	Downgrade map[string]string `yaml:"downgrade"`
	// AllowBuiltinTools lets calls use the provider's own tools (web search
	// and the like); what those cost has no bound that a hold could cover.
	AllowBuiltinTools bool `yaml:"allow_builtin_tools"`
	// RetryStartedJobs runs a job again when its worker died after the call
	// may have reached the provider and before any byte came back. The first
	// attempt is charged as estimated.
	RetryStartedJobs bool `yaml:"retry_started_jobs" default:"true"`
	// Weight is the org's part of a pool's queue against the other orgs': one of
	// 200 gets twice as much as one of 100.
	Weight int `yaml:"weight" default:"100"`
	// Alerts tell somebody of the org that its limits, and those of its users, are
	// nearly used up, besides whom Alerts of the whole file tell.
	Alerts Alerts `yaml:"alerts"`
	// Webhooks are the org's own servers that are told of what has ended.
	Webhooks []Webhook `yaml:"webhooks"`
	// RequestWebhooks lets single requests and batches of the org name whom to
	// tell of their end. Left out: they may not.
	RequestWebhooks RequestWebhooks `yaml:"request_webhooks"`
	// Limits of the org and of its users and keys.
	Limits []Limit `yaml:"limits"`
	// Users of the org, with their keys.
	Users []User `yaml:"users"`
}

// User is a person or a program in an org.
type User struct {
	// ID is unique in the org.
	ID string `yaml:"id,required" kind:"id"`
	// Name is for people.
	Name string `yaml:"name"`
	// Disabled refuses all keys of the user, and fails the user's jobs when
	// their turn comes.
	Disabled bool `yaml:"disabled"`
	// Weight is the user's part of the org's turns against its other users'.
	Weight int `yaml:"weight" default:"100"`
	// Limits are for this user alone. One named like a limit of the org with
	// subject user takes its place; others are added. Subject may be left out
	// or be user.
	Limits []Limit `yaml:"limits"`
	// Keys the user calls with.
	Keys []Key `yaml:"keys"`
}

// Key is an API key, known by its hash only.
type Key struct {
	// ID names the key in logs and the ledger; unique in the org.
	ID string `yaml:"id,required" kind:"id"`
	// Hash is "<pepper id>:<64 hex digits>" or "sha256:<64 hex digits>".
	Hash string `yaml:"hash,required"`
	// Name is for people.
	Name string `yaml:"name"`
	// Models are patterns of the model names this key may use, within the
	// org's. Left out: all the org's.
	Models []string `yaml:"models"`
	// Scopes are what the key may be used for: calls (every endpoint that costs
	// money), single ones of these by the names that limits use
	// (chat.completions, embeddings, ...), jobs, files, batches, usage. Left out:
	// everything.
	Scopes []string `yaml:"scopes"`
	// Networks are the addresses (10.0.0.7 or 10.0.0.0/8) the key may be used
	// from. Left out: from anywhere.
	Networks []netip.Prefix `yaml:"networks"`
	// Concurrency is how many calls of the key may be open at a time; a waiting
	// call is not open. Left out: any number.
	Concurrency int64 `yaml:"concurrency"`
	// Expires is a date (2027-01-31: until that day begins, UTC) or a time
	// (2027-01-31T18:00:00Z). Left out: never.
	Expires time.Time `yaml:"expires"`
	// Disabled refuses the key without forgetting it.
	Disabled bool `yaml:"disabled"`
}

// Limit bounds one metric of one subject, in exactly one shape: amount with
// window, amount with calendar, bucket, or amount alone for concurrency.
type Limit struct {
	// Name is unique in the org. Usage is kept under it: changing the amount
	// keeps the usage, changing the name starts anew.
	Name string `yaml:"name,required" kind:"id"`
	// Subject is whose usage is summed: all of the org's together, or each
	// user's, each key's, each caller address's on its own.
	Subject string `yaml:"subject" default:"org" enum:"org,user,key,ip"`
	// Only restricts the limit to one user, key or address.
	Only string `yaml:"only"`
	// Models and Endpoints are patterns; only matching calls are counted. The
	// endpoints are chat.completions, completions, embeddings, moderations,
	// responses, responses.compact, responses.input_tokens, images.generations,
	// images.edits, images.variations, audio.speech, audio.transcriptions,
	// audio.translations, and for their fees containers and vector_stores. Left
	// out: all.
	Models    []string `yaml:"models"`
	Endpoints []string `yaml:"endpoints"`
	// Metric is what is counted.
	Metric string `yaml:"metric" default:"cost" enum:"cost,tokens,requests,concurrency"`
	// Mode: enforce refuses or queues, shadow only counts and reports, off
	// does neither.
	Mode string `yaml:"mode" default:"enforce" enum:"enforce,shadow,off"`
	// Amount is money for cost ("$5"), a count for the others.
	Amount Quantity `yaml:"amount"`
	// Window makes it a sliding window: at most Amount in any such span.
	Window time.Duration `yaml:"window"`
	// Exact keeps the window to the microsecond instead of a sixtieth of it;
	// for windows up to an hour.
	Exact bool `yaml:"exact"`
	// Calendar makes it a fixed period, which starts at midnight, on Monday, on
	// the first of the month, in the zone TZ.
	Calendar string `yaml:"calendar" enum:"minute,hour,day,week,month"`
	// TZ is a zone name such as Europe/Berlin.
	TZ string `yaml:"tz"`
	// Bucket makes it a token bucket.
	Bucket Bucket `yaml:"bucket"`
}

// Bucket fills steadily up to its capacity and is drained by use.
type Bucket struct {
	// Capacity is the most that can be used at once: "$10" or a count.
	Capacity Quantity `yaml:"capacity,required"`
	// Refill is an amount per time: "$10/1h", "5000/1m". Left out: the bucket is
	// never refilled, like prepaid money.
	Refill Rate `yaml:"refill"`
}

// Defaults are what every org has that does not say otherwise.
type Defaults struct {
	// Limits are limits of every org; each org has counters of its own. A limit of an
	// org replaces the one of its name here, whole. Administrators change these for all
	// orgs with `llmguard limits set NAME --org all`, field by field, over this file.
	Limits []Limit `yaml:"limits"`
}

// Set is orgs, with what every org has.
type Set struct {
	Orgs     []Org
	Defaults Defaults
}

// Org returns the org of an id; nil: there is none.
func (s Set) Org(id string) *Org {
	if i := slices.IndexFunc(s.Orgs, func(o Org) bool { return o.ID == id }); i >= 0 {
		return &s.Orgs[i]
	}
	return nil
}

// User returns the user of an id; nil: there is none.
func (o *Org) User(id string) *User {
	if i := slices.IndexFunc(o.Users, func(u User) bool { return u.ID == id }); i >= 0 {
		return &o.Users[i]
	}
	return nil
}

// OrgLimits returns the limits of an org: the defaults, those of the org's own that
// replace them by name, and the org's others.
func (d Defaults) OrgLimits(o *Org) []Limit { return replaced(d.Limits, o.Limits) }

// UserLimits returns the limits that apply to a user of the org: the org's,
// those of the user's own that replace them by name, and the user's others.
func (d Defaults) UserLimits(o *Org, u *User) []Limit {
	return slices.DeleteFunc(replaced(d.OrgLimits(o), u.Limits), func(l Limit) bool {
		return l.Subject == "user" && l.Only != "" && l.Only != u.ID
	})
}

// replaced returns limits, with others in the place of those of the same name, or after them.
func replaced(list, others []Limit) []Limit {
	out := slices.Clone(list)
	for _, own := range others {
		i := slices.IndexFunc(out, func(l Limit) bool { return l.Name == own.Name })
		if i < 0 {
			out = append(out, own)
			continue
		}
		out[i] = own
	}
	return out
}

// CallerKeys are the ids of the keys that work at a time, by user. Users without one are left out.
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
