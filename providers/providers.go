// Package providers knows the upstream accounts: which models each serves, the
// quota pool a model draws on, and how a request is sent with the account's
// own credential.
//
// It never retries: a second send could be billed twice. It never follows a
// redirect and never takes a host, path or credential from a caller.
package providers

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Pool is a provider's quota group: the models that share RPM and TPM.
type Pool struct {
	ID     string
	Models []string // names as the provider knows them, or patterns with *; empty means all
}

// Kind is the dialect of OpenAI's wire that a provider speaks.
type Kind string

// The dialects. All others are OpenAI's own.
const (
	// OpenAI is the wire itself, as "" is.
	OpenAI Kind = "openai"
	// Azure takes the credential as api-key, the deployment in the path and the
	// version of its API in the query.
	Azure Kind = "azure"
	// Mistral refuses stream_options and max_completion_tokens; it sends usage
	// unasked.
	Mistral Kind = "mistral"
	// Gemini counts its thoughts in total_tokens alone.
	Gemini Kind = "gemini"
)

// Provider is one upstream account. It is immutable after NewSet.
type Provider struct {
	ID      string
	BaseURL *url.URL // up to and including the version segment, such as https://api.openai.com/v1
	APIKey  string   // sent as a bearer token; empty sends none
	Headers http.Header
	Pools   []Pool
	// Aliases maps a model name callers use to the name this provider knows.
	Aliases map[string]string

	Kind Kind // "" is OpenAI's own wire
	// APIVersion is sent as api-version by Azure providers; "" means its v1 API,
	// whose paths name no deployment.
	APIVersion string
	// Deployments maps a model to its deployment at Azure, where that has another
	// name.
	Deployments map[string]string
	// Models names what /v1/models lists besides catalogue entries.
	Models []string

	// BatchMode says who sends the lines of batches: "provider" is its own Batch
	// API, anything else a queue. Only OpenAI's own wire has one.
	BatchMode string
	// ChatOnly says that the provider has no /responses: they are translated.
	ChatOnly bool

	// DocumentTokens is the most input tokens that the provider reads of one document
	// in a request; 0 when only the model's context bounds it.
	DocumentTokens int64
	// AllowFields are names or patterns of members beyond OpenAI's API that are sent
	// on, besides those that cost nothing.
	AllowFields []string
	// Prompts are the stored prompts of the account that callers may name, by id.
	Prompts map[string]Prompt
	// LimitField is the name the provider knows for the output limit of a chat
	// completion; "" is told by KnowsBothLimits.
	LimitField string
	// IgnoreCost leaves out what the provider's answers say they cost.
	IgnoreCost bool
	// IdentifierKey keys the prefix behind which identifiers of end users are sent; nil
	// sends them as they came.
	IdentifierKey []byte

	// ServiceTier is what the account serves calls at that name no tier, or
	// "auto"; empty is its default tier.
	ServiceTier string

	ConnectTimeout time.Duration // default 10 s
	HeaderTimeout  time.Duration // until the first response header; default 15 min
	IdleTimeout    time.Duration // between body bytes; default 5 min

	transport *http.Transport
	hidden    Redactor // what errors must not show
}

// Prompt is a stored prompt of an account.
type Prompt struct {
	Model       string   // that runs it
	InputTokens int64    // that it adds to a request
	Orgs        []string // that may use it; empty: all
}

// As returns the provider with another credential, over the same connections. What
// belongs to the account of its own credential, its organization and project, is
// left out. No other org uses the account, so identifiers need no prefix.
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

// chatOnly are the hosts whose API has no /responses.
var chatOnly = []string{"api.deepseek.com", "api.together.xyz", "api.mistral.ai", "generativelanguage.googleapis.com"}

// SpeaksChatOnly reports whether a provider is known to have no /responses.
func SpeaksChatOnly(kind Kind, base *url.URL) bool {
	return kind == Mistral || kind == Gemini || slices.Contains(chatOnly, base.Hostname())
}

// Target is where a model goes.
type Target struct {
	Provider *Provider
	Pool     string
	Model    string // the name the provider knows
}

// UnknownModelError says that no pool serves a model.
type UnknownModelError struct{ Model string }

func (e *UnknownModelError) Error() string {
	return fmt.Sprintf("no provider pool serves the model %q", e.Model)
}

// Set is the configured providers. It is immutable and safe for concurrent use.
type Set struct{ list []*Provider }

// NewSet checks the providers and gives each its connection pool.
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
		p.hidden = newRedactor(p)
	}
	return &Set{list: list}, nil
}

// Resolve finds where a model goes: the first pool, in configured order, with
// a pattern that matches the provider's name for it. Only the named providers
// are looked at when any are named.
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

// PoolOf finds the pool of a model by the provider's own name for it, "" when
// none serves it.
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

// Get returns a provider by its id, nil when there is none.
func (s *Set) Get(id string) *Provider {
	for _, p := range s.list {
		if p.ID == id {
			return p
		}
	}
	return nil
}

// Adopt takes over the connections of an older set's providers that are reached
// the same way; call it before the set is used. What it returns drops the idle
// connections that were not taken over; calls under way keep theirs.
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

// Close drops idle connections.
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

// Names lists the model names the configuration spells out: listed models,
// aliases, and pool entries without a *.
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

// Match reports whether a model name fits a pattern, in which * stands for any
// run of characters, slashes included.
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

// MatchAny reports whether a name fits one of the patterns; no patterns fit
// every name.
func MatchAny(patterns []string, name string) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool { return Match(p, name) })
}

// ErrStale is returned by Send when the quota grant grew too old before the
// request could be written; nothing was sent.
var ErrStale = errors.New("the quota grant expired before the request was written")
