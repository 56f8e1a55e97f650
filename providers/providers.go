// Package providers manages the upstream accounts: which models each serves, which quota pool a
// model uses, and how a request is sent with the account's credential.
//
// It never retries, because a second send could be billed twice. It never follows a redirect and
// never takes a host, path or credential from a caller.
package providers

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/providers/dialect"
)

// Pool is a provider's quota group: the models that share RPM and TPM.
type Pool struct {
	ID     string
	Models []string // provider's names, or patterns with *; empty means all
	// Split means that the provider counts input and output apart.
	Split bool
}

// Provider is one upstream account. It is immutable after NewSet.
type Provider struct {
	ID      string
	BaseURL *url.URL // up to and including the version segment, such as https://api.openai.com/v1
	APIKey  string   // sent as a bearer token; empty sends none
	Headers http.Header
	Pools   []Pool
	// Aliases maps a model name that callers use to the provider's name.
	Aliases map[string]string

	// Dialect is how it deviates from OpenAI's API; NewSet sets OpenAI's own if it is nil.
	Dialect dialect.Dialect
	// APIVersion and Deployments are settings of some dialects: the version that requests name, and
	// the deployment of a model if that has another name.
	APIVersion  string
	Deployments map[string]string
	// Models are listed on /v1/models in addition to catalogue entries.
	Models []string

	// BatchMode selects who sends the lines of batches: "provider" is its own Batch API, if its
	// dialect has one, anything else a queue.
	BatchMode string
	// ChatOnly means that the provider has no /responses, so they are translated.
	ChatOnly bool

	// DocumentTokens is the maximum number of input tokens that the provider reads of one document
	// in a request; 0 if it is bounded only by the model's context.
	DocumentTokens int64
	// AllowFields are names or patterns of members beyond OpenAI's API that are forwarded, in
	// addition to free ones.
	AllowFields []string
	// Strict refuses members of Messages whose cost is not known; else they are forwarded.
	Strict bool
	// Prompts are the stored prompts of the account that callers may use, by id.
	Prompts map[string]Prompt
	// LimitField is the provider's name for the output limit of a chat completion; NewSet sets the
	// only one that the dialect knows. "" is resolved by KnowsBothLimits.
	LimitField string
	// ReportedCost is what happens to the cost that the provider's answers report.
	ReportedCost CostRule
	// Region is where the provider processes calls that name no other place; NewSet derives it from
	// the host if it is empty.
	Region string
	// ChargeFailed charges the input of calls that the provider began and answered with an error.
	ChargeFailed bool
	// IdentifierKey keys the prefix with which end-user identifiers are sent; nil sends them
	// unchanged.
	IdentifierKey []byte

	// ServiceTier is the tier at which the account serves calls that name none, or "auto"; empty is
	// its default tier.
	ServiceTier string

	ConnectTimeout time.Duration // default 10 s
	HeaderTimeout  time.Duration // until the first response header; default 15 min
	IdleTimeout    time.Duration // between body bytes; default 5 min

	transport *http.Transport
	hidden    Redactor // what errors must not reveal
}

// CostRule says what happens to a cost that an answer reports.
type CostRule string

// The rules; any other is automatic: a cost is charged if its name or the host says that it is in USD.
const (
	ChargeCost CostRule = "charge"
	IgnoreCost CostRule = "ignore"
)

// usdHosts are the hosts whose answers report costs in USD without saying so.
var usdHosts = []string{"openrouter.ai", "api.perplexity.ai", "api.deepinfra.com", "router.requesty.ai"}

// ReportsUSD reports whether costs without a currency in the provider's answers are in USD.
func (p *Provider) ReportsUSD() bool {
	return p.ReportedCost == ChargeCost || p.BaseURL != nil && slices.Contains(usdHosts, p.BaseURL.Hostname())
}

// Gone returns a provider that is no longer configured, for calls to it that are still to be settled.
func Gone(id string) *Provider { return &Provider{ID: id, Dialect: dialects[0]} }

// Prompt is a stored prompt of an account.
type Prompt struct {
	Model       string   // model that runs it
	InputTokens int64    // tokens that it adds to a request
	Orgs        []string // orgs that may use it; empty: all
}

// As returns the provider with another credential, sharing the same connections. The organization
// and project, which belong to the original account, are removed. No other org uses the account, so
// identifiers need no prefix.
func (p *Provider) As(key string) *Provider {
	own := *p
	own.APIKey, own.IdentifierKey = key, nil
	own.hidden = p.hidden.with(key)
	if p.Headers.Get("OpenAI-Organization") != "" || p.Headers.Get("OpenAI-Project") != "" {
		own.Headers = p.Headers.Clone()
		own.Headers.Del("OpenAI-Organization")
		own.Headers.Del("OpenAI-Project")
	}
	return &own
}

// Target is the destination of a model.
type Target struct {
	Provider *Provider
	Pool     string
	Model    string // the provider's name
}

// Splits reports whether the target's pool has quotas of input and of output.
func (t Target) Splits() bool {
	id, _ := SplitPool(t.Pool)
	return slices.ContainsFunc(t.Provider.Pools, func(p Pool) bool { return p.ID == id && p.Split })
}

// UnknownModelError means that no pool serves a model.
type UnknownModelError struct{ Model string }

func (e *UnknownModelError) Error() string {
	return fmt.Sprintf("no provider pool serves the model %q", e.Model)
}

// Set is the set of configured providers. It is immutable and safe for concurrent use.
type Set struct{ list []*Provider }

// NewSet validates the providers and gives each its connection pool.
func NewSet(list []*Provider) (*Set, error) {
	pools := map[string]bool{}
	for _, p := range list {
		if p.BaseURL == nil || p.BaseURL.Host == "" {
			return nil, fmt.Errorf("provider %s: base_url needs a scheme and a host", p.ID)
		}
		for _, pool := range p.Pools {
			if pools[pool.ID] {
				return nil, fmt.Errorf("provider %s: pool %q is defined twice", p.ID, pool.ID)
			}
			pools[pool.ID] = true
		}
		if p.transport == nil {
			p.transport = newTransport(p)
		}
		if p.Dialect == nil {
			p.Dialect = dialects[0]
		}
		if known := p.Dialect.LimitFields(p.BaseURL); len(known) == 1 {
			p.LimitField = cmp.Or(p.LimitField, known[0])
		}
		p.hidden = newRedactor(p)
		p.Region = cmp.Or(p.Region, p.Dialect.Region(p.BaseURL))
	}
	return &Set{list: list}, nil
}

// Wire returns the endpoint of the provider for calls of ep: ep itself, the one to which its conversations are
// translated, or "" if the provider has neither.
func (p *Provider) Wire(ep wire.Endpoint) wire.Endpoint {
	known := p.Dialect.Wires(p.BaseURL)
	if own := ep.Wire(); slices.Contains(known, own) && (own != wire.Responses || !p.ChatOnly) {
		return ep
	}
	if ep.Wire() != ep {
		return ""
	}
	return known[0]
}

// Resolve returns the target of a model: the first pool, in configured order, with a pattern that
// matches the provider's name for it. If providers are named, only those are considered.
func (s *Set) Resolve(model string, only []string) (Target, error) {
	for _, p := range s.list {
		if len(only) > 0 && !slices.Contains(only, p.ID) {
			continue
		}
		name := p.upstreamName(model)
		if pool := p.PoolOf(name); pool != "" {
			return Target{Provider: p, Pool: pool, Model: name}, nil
		}
	}
	return Target{}, &UnknownModelError{Model: model}
}

// PoolOf returns the pool of a model by the provider's name for it, "" if none serves it.
func (p *Provider) PoolOf(name string) string {
	for _, pool := range p.Pools {
		if MatchAny(pool.Models, name) {
			return pool.ID
		}
	}
	return ""
}

// All returns the providers in configured order.
func (s *Set) All() []*Provider { return s.list }

// Get returns a provider by its id, nil if there is none.
func (s *Set) Get(id string) *Provider {
	for _, p := range s.list {
		if p.ID == id {
			return p
		}
	}
	return nil
}

// Adopt takes over the connections of an older set's providers that are reached the same way; call
// it before the set is used. The returned function closes the idle connections that were not taken
// over; calls in flight keep theirs.
func (s *Set) Adopt(old *Set) (drop func()) {
	kept := map[*Provider]bool{}
	for _, p := range s.list {
		before := old.Get(p.ID)
		if before != nil && before.BaseURL.Scheme == p.BaseURL.Scheme && before.BaseURL.Host == p.BaseURL.Host &&
			before.ConnectTimeout == p.ConnectTimeout && before.HeaderTimeout == p.HeaderTimeout {
			p.transport = before.transport
			kept[before] = true
		}
	}
	return func() {
		for _, p := range old.list {
			if !kept[p] {
				p.transport.CloseIdleConnections()
			}
		}
	}
}

// Close closes idle connections.
func (s *Set) Close() {
	for _, p := range s.list {
		p.transport.CloseIdleConnections()
	}
}

func (p *Provider) upstreamName(model string) string {
	if name, ok := p.Aliases[model]; ok {
		return name
	}
	return model
}

// Names lists the model names that are spelled out in the configuration: listed models, aliases,
// and pool entries without *.
func (p *Provider) Names() []string {
	names := slices.Clone(p.Models)
	for alias := range p.Aliases {
		names = append(names, alias)
	}
	for _, pool := range p.Pools {
		for _, name := range pool.Models {
			if !strings.Contains(name, "*") {
				names = append(names, name)
			}
		}
	}
	return names
}

// Match reports whether a model name matches a pattern, in which * matches any characters,
// including slashes.
func Match(pattern, name string) bool {
	head, rest, found := strings.Cut(pattern, "*")
	if !found {
		return pattern == name
	}
	if !strings.HasPrefix(name, head) {
		return false
	}
	name = name[len(head):]
	for {
		part, tail, more := strings.Cut(rest, "*")
		if !more {
			return strings.HasSuffix(name, part)
		}
		i := strings.Index(name, part)
		if i < 0 {
			return false
		}
		name, rest = name[i+len(part):], tail
	}
}

// MatchAny reports whether a name matches one of the patterns; an empty list matches every name.
func MatchAny(patterns []string, name string) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool { return Match(p, name) })
}

// ownMark separates a pool from the org that uses it with its own account. No id of a configured
// pool contains it.
const ownMark = "@"

// OwnPool returns the pool of an org that uses its own credential, because quotas and what is
// learned about them are per account.
func OwnPool(pool, org string) string { return pool + ownMark + org }

// SplitPool returns the configured pool that a pool derives from, and the org it belongs to; "" for
// a configured pool.
func SplitPool(id string) (pool, org string) {
	pool, org, _ = strings.Cut(id, ownMark)
	return pool, org
}
