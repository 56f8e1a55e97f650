package app

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/auth"
	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/storage/seal"
	tenancy "github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/webhook"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/providers"
	"github.com/llmguard/llmguard/queue"
)

// settings is a configuration in the types of the packages that apply it.
type settings struct {
	policy    *guard.Policy
	directory *auth.Directory
	pools     []queue.Pool
	workers   map[string]int // by pool
	weights   map[string]int // by "org" and "org user"; only those that are not 100
	seal      *seal.Ring
	webhooks  webhook.Options
}

// convert maps the file to the packages' own options.
func convert(c *config.Config) (*settings, error) {
	prices, err := ReadPrices(c)
	if err != nil {
		return nil, err
	}
	set, err := upstreams(c)
	if err != nil {
		return nil, err
	}
	s := &settings{
		policy: &guard.Policy{
			Orgs: map[string]*guard.Org{}, Catalogue: prices.Catalogue, UnknownPrice: prices.Unknown, Providers: set,
			Stopped: c.KillSwitch == "stop", Headers: headerRules(c), PublicURL: strings.TrimRight(c.PublicURL, "/"),
		},
		directory: &auth.Directory{ByHash: map[string]auth.Principal{}},
		workers:   map[string]int{},
		weights:   map[string]int{},
	}
	for _, p := range c.Auth.Peppers {
		s.directory.Peppers = append(s.directory.Peppers, keys.Pepper{ID: p.ID, Secret: p.Secret.Reveal()})
	}
	s.policy.Labels = labels(c)
	s.policy.Caps, err = Caps(c)
	if err != nil {
		return nil, err
	}
	s.policy.RequestLimits, err = requestLimits(c)
	if err != nil {
		return nil, err
	}
	for i := range c.Orgs {
		if err := s.addOrg(c, &c.Orgs[i]); err != nil {
			return nil, err
		}
	}
	s.addPools(c)
	s.seal, err = sealOf(c.Queue.SealKeys)
	if err != nil {
		return nil, err
	}
	s.webhooks, err = webhookOptions(c)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// headerRules returns how answers report limits and when to retry.
func headerRules(c *config.Config) wire.HeaderRules {
	return wire.HeaderRules{Standard: wire.Standard(c.Headers.Standard), RetryJitter: int(c.Headers.RetryJitter)}
}

func sealOf(list []config.SealKey) (*seal.Ring, error) {
	ring := make([]seal.Key, len(list))
	for i, k := range list {
		ring[i] = seal.Key{ID: k.ID, Secret: k.Secret.Reveal()}
	}
	return seal.NewRing(ring...)
}

func upstreams(c *config.Config) (*providers.Set, error) {
	out := make([]*providers.Provider, 0, len(c.Providers))
	for i := range c.Providers {
		p := &c.Providers[i]
		base, err := url.Parse(p.BaseURL)
		if err != nil {
			return nil, fmt.Errorf("provider %s: base_url: %w", p.ID, err)
		}
		up := &providers.Provider{
			ID: p.ID, BaseURL: base, APIKey: p.APIKey.Reveal(), Headers: http.Header{},
			Dialect: providers.DialectOf(p.Kind), APIVersion: p.APIVersion, Deployments: p.Deployments,
			Aliases: p.ModelMap, Models: p.Models, ServiceTier: p.ServiceTier, BatchMode: p.BatchMode,
			DocumentTokens: p.DocumentTokens, Strict: p.Strict, Prompts: prompts(p.Prompts),
			AllowFields: p.AllowFields, ReportedCost: providers.CostRule(p.ReportedCost), Region: p.Region,
			ChargeFailed:   p.FailedCalls == "input",
			ConnectTimeout: p.ConnectTimeout, HeaderTimeout: p.HeaderTimeout, IdleTimeout: p.IdleTimeout,
		}
		has := slices.Contains(up.Dialect.Wires(base), wire.Responses)
		up.ChatOnly = p.Responses == "translate" || p.Responses == "auto" && !has
		if p.OutputLimitField != "auto" {
			up.LimitField = p.OutputLimitField
		}
		if p.Identifiers == "org" {
			up.IdentifierKey = identifierKey(c)
		}
		for name, value := range p.Headers {
			up.Headers.Set(name, value.Reveal())
		}
		if p.Organization != "" {
			up.Headers.Set("OpenAI-Organization", p.Organization)
		}
		if p.Project != "" {
			up.Headers.Set("OpenAI-Project", p.Project)
		}
		for _, pool := range p.Pools {
			up.Pools = append(up.Pools, providers.Pool{ID: pool.ID, Models: pool.Models, Split: p.Splits(&pool)})
		}
		out = append(out, up)
	}
	return providers.NewSet(out)
}

// identifierKey returns the key of the orgs' prefixes. Without a pepper the prefixes are
// predictable, but they still separate orgs: no identifier is sent without the prefix of
// its org.
func identifierKey(c *config.Config) []byte {
	var secret string
	if len(c.Auth.Peppers) > 0 {
		secret = c.Auth.Peppers[0].Secret.Reveal()
	}
	key := sha256.Sum256([]byte("llmguard identifiers " + secret))
	return key[:]
}

func (s *settings) addPools(c *config.Config) {
	for _, p := range c.Providers {
		for _, pool := range p.Pools {
			s.pools = append(s.pools, queue.Pool{
				ID: pool.ID, RPM: pool.RPM, TPM: max(pool.TPM, pool.ITPM), Split: p.Splits(&pool), OTPM: pool.OTPM,
				Concurrency: pool.Concurrency,
				MaxJobs:     pool.MaxJobs, MaxBytes: int64(pool.MaxBytes), MaxAge: pool.MaxAge,
				ResultTTL: c.Queue.ResultTTL, FixedQuota: !pool.LearnQuota, ActualTokens: pool.TPMCounting == "actual",
				MaxPause: pool.MaxPause,
			})
			s.workers[pool.ID] = pool.WorkerConcurrency
		}
	}
}

// tenant is an org in the types of the packages that apply it.
type tenant struct {
	org     *guard.Org
	keys    map[string]auth.Principal // by hash
	weights map[string]int            // as in settings
}

func (s *settings) addOrg(c *config.Config, o *config.Org) error {
	t, err := tenantOf(c, o)
	if err != nil {
		return err
	}
	s.policy.Orgs[o.ID] = t.org
	maps.Copy(s.directory.ByHash, t.keys)
	maps.Copy(s.weights, t.weights)
	return nil
}

func tenantOf(c *config.Config, o *config.Org) (*tenant, error) {
	org := &guard.Org{
		Org: *o, UserLimits: map[string][]budget.Limit{}, PlanLimits: map[string][]budget.Limit{},
		KeyLimits: map[string][]budget.Limit{}, KeyModels: map[string][]string{}, DisabledUsers: map[string]bool{},
		KeyBorn: map[string]string{}, UserBorn: map[string]string{},
		Groups: map[string]string{}, GroupLimits: map[string][]budget.Limit{},
		Spread: budget.Spread{
			Parts: o.Spread, By: budget.Subject(c.Defaults.SpreadBy(o)), IPv6Prefix: c.Connections.IPv6Prefix,
		},
		KeepStarted: !o.RetryStartedJobs,
		Priorities:  priorities(c, o),
	}
	org.RaiseRequests = c.Defaults.RaiseRequestsOf(o)
	t := &tenant{org: org, keys: map[string]auth.Principal{}, weights: map[string]int{}}
	var err error
	org.Limits, err = limits(c, c.Defaults.OrgLimits(o))
	if err != nil {
		return nil, fmt.Errorf("org %s: %w", o.ID, err)
	}
	org.Brakes, err = brakesOf(c, o)
	if err != nil {
		return nil, fmt.Errorf("org %s: %w", o.ID, err)
	}
	if o.Weight != 100 {
		t.weights[o.ID] = o.Weight
	}
	m := members{c: c, org: o, made: map[tenancy.Membership][]budget.Limit{}}
	if err := m.groups(org); err != nil {
		return nil, fmt.Errorf("org %s: %w", o.ID, err)
	}
	for i := range o.Users {
		if err := t.addUser(&m, &o.Users[i]); err != nil {
			return nil, fmt.Errorf("org %s, user %s: %w", o.ID, o.Users[i].ID, err)
		}
	}
	return t, nil
}

func (t *tenant) addUser(m *members, u *config.User) error {
	c, o, org := m.c, m.org, t.org
	if u.Weight != 100 {
		t.weights[o.ID+" "+u.ID] = u.Weight
	}
	if err := m.user(org, u); err != nil {
		return err
	}
	if u.Disabled {
		org.DisabledUsers[u.ID] = true
	}
	for _, k := range u.Keys {
		if k.Concurrency > 0 {
			org.KeyLimits[k.ID] = []budget.Limit{keyConcurrency(c, k)}
		}
		org.KeyModels[k.ID] = m.models(u, &k)
		if k.Hash == "" {
			continue
		}
		t.keys[k.Hash] = auth.Principal{
			Org: org, User: u.ID, Key: k.ID, Models: org.KeyModels[k.ID], Scopes: k.Scopes, Networks: k.Networks,
			Expires: k.Expires, Disabled: k.Disabled || u.Disabled || o.Disabled, Labels: tenancy.KeyLabels(o, u, &k),
			Lineage: auth.LineageOf(k.Hash),
		}
	}
	return nil
}

// keyConcurrency returns the limit for a key's concurrency. Its id cannot collide, because
// limit names in the configuration cannot contain a dot.
func keyConcurrency(c *config.Config, k config.Key) budget.Limit {
	l := budget.Limit{
		ID: "key.concurrency", Subject: budget.Key, Only: k.ID, Metric: budget.Concurrency, Mode: budget.Enforce,
		Shape: budget.Shape{Kind: budget.Concurrent, Amount: k.Concurrency},
	}
	if c.KillSwitch == "shadow" {
		l.Mode = budget.Shadow
	}
	return l
}

// Caps returns the spend caps of the configuration: the providers', then the deployment's.
func Caps(c *config.Config) ([]budget.Cap, error) {
	var out []budget.Cap
	add := func(provider string, list []config.SpendCap) error {
		if len(list) == 0 {
			return nil
		}
		plain := make([]config.Limit, len(list))
		for i, one := range list {
			plain[i] = one.Limit()
		}
		converted, err := limits(c, plain)
		if err != nil {
			return fmt.Errorf("spend caps of %s: %w", budget.Cap{Provider: provider}, err)
		}
		out = append(out, budget.Cap{Provider: provider, Limits: converted})
		return nil
	}
	for i := range c.Providers {
		if err := add(c.Providers[i].ID, c.Providers[i].SpendCaps); err != nil {
			return nil, err
		}
	}
	if err := add("", c.SpendCaps); err != nil {
		return nil, err
	}
	return out, nil
}

// requestLimits converts the limits on requests.
func requestLimits(c *config.Config) ([]guard.RequestLimit, error) {
	plain := make([]config.Limit, len(c.RequestLimits))
	for i, l := range c.RequestLimits {
		plain[i] = l.Limit()
	}
	converted, err := limits(c, plain)
	if err != nil {
		return nil, fmt.Errorf("request_limits: %w", err)
	}
	out := make([]guard.RequestLimit, len(converted))
	for i, l := range converted {
		of := &c.RequestLimits[i]
		l.Endpoints = of.Endpoints
		out[i] = guard.RequestLimit{Limit: l, Class: guard.RequestClass(of.Class), Methods: of.Methods}
	}
	return out, nil
}

// limits converts limits.
func limits(c *config.Config, list []config.Limit) ([]budget.Limit, error) {
	out := make([]budget.Limit, 0, len(list))
	for _, l := range list {
		shape, err := shapeOf(l)
		if err != nil {
			return nil, fmt.Errorf("limit %s: %w", l.Name, err)
		}
		limit := budget.Limit{
			ID: l.Name, Subject: budget.Subject(l.Subject), Only: l.Only, Models: l.Models, Endpoints: l.Endpoints,
			Metric: budget.Metric(l.Metric), Mode: budget.Mode(l.Mode), Shape: shape,
		}
		if limit.Subject.Includes(budget.IP) {
			limit.IPv6Prefix = c.Connections.IPv6Prefix
		}
		if c.KillSwitch == "shadow" && limit.Mode == budget.Enforce {
			limit.Mode = budget.Shadow
		}
		if err := limit.Validate(); err != nil {
			return nil, err
		}
		out = append(out, limit)
	}
	return out, nil
}

func shapeOf(l config.Limit) (budget.Shape, error) {
	switch {
	case l.Bucket.Capacity.N > 0:
		return budget.Shape{
			Kind: budget.Bucket, Amount: l.Bucket.Capacity.N, Refill: l.Bucket.Refill.N,
			Per: l.Bucket.Refill.Per,
		}, nil
	case l.Window > 0 && l.Exact:
		return budget.Shape{Kind: budget.ExactWindow, Amount: l.Amount.N, Window: l.Window}, nil
	case l.Window > 0 && l.Fixed:
		return budget.Shape{Kind: budget.Fixed, Amount: l.Amount.N, Window: l.Window}, nil
	case l.Window > 0:
		return budget.Shape{Kind: budget.Window, Amount: l.Amount.N, Window: l.Window}, nil
	case l.Calendar != "":
		zone, err := time.LoadLocation(l.TZ)
		return budget.Shape{
			Kind: budget.Calendar, Amount: l.Amount.N, Calendar: l.Calendar, Starts: l.Starts, Location: zone,
		}, err
	default:
		return budget.Shape{Kind: budget.Concurrent, Amount: l.Amount.N}, nil
	}
}

// prompts returns the stored prompts of a provider by id.
func prompts(list []config.Prompt) map[string]providers.Prompt {
	out := map[string]providers.Prompt{}
	for _, p := range list {
		out[p.ID] = providers.Prompt{Model: p.Model, InputTokens: p.InputTokens, Orgs: p.Orgs}
	}
	return out
}
