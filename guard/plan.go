package guard

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/providers"
	"github.com/llmguard/llmguard/wire"
)

// Plan is a request with its price: what will be held, where it goes, and the
// edits it needs on the way. It is made without I/O and is immutable.
type Plan struct {
	Caller  Caller
	Request *wire.Request
	Target  providers.Target
	Price   *pricing.Price
	Limits  []budget.Limit // those of the org that apply to this call

	Input  int64 // tokens, never below what the provider will bill for known tokenizers
	Output int64 // tokens, the most the provider may produce
	Max    budget.Amounts
	Quota  int64 // tokens charged to the provider's TPM

	text textPart

	audioIn, imageIn int64 // tokens, parts of Input

	at    time.Time
	terms pricing.Terms
	edits []wire.Edit
}

// Prepare prices a request. Errors are *wire.Error and meant for the caller.
func (g *Guard) Prepare(c Caller, r *wire.Request) (*Plan, error) {
	policy := g.Policy()
	if err := allowed(c, r.Model); err != nil {
		return nil, err
	}
	target, err := policy.Providers.Resolve(r.Model, c.Org.Providers)
	if err != nil {
		return nil, notFound(r.Model)
	}
	at := now()
	price, err := policy.price(target, at)
	if err != nil {
		return nil, unpriced(err)
	}
	p := &Plan{
		Caller: c, Request: r, Target: target, Price: price, at: at,
		terms: pricing.Terms{ServiceTier: r.ServiceTier, Region: r.InferenceGeo, At: at},
	}
	if err := g.estimate(p); err != nil {
		return nil, err
	}
	p.Limits = applying(c, r, target)
	p.edit()
	return p, nil
}

// allowed checks the org's and the key's model lists. Both answers are 404,
// as the provider would give for a model the account does not have.
func allowed(c Caller, model string) error {
	if providers.MatchAny(c.Org.Models, model) && providers.MatchAny(c.Models, model) {
		return nil
	}
	return notFound(model)
}

func notFound(model string) *wire.Error {
	return wire.NotFound("model", "model_not_found",
		"The model %.100q does not exist or this key may not use it. GET /v1/models lists what it may use", model)
}

// now is the wall clock, for prices and ledger times only; limits use Redis's.
func now() time.Time { return time.Now() }

func unpriced(err error) error {
	var unknown *pricing.UnknownModelError
	if errors.As(err, &unknown) {
		return wire.BadRequest("model", "model_not_priced", "%v", err)
	}
	return fmt.Errorf("price: %w", err)
}

// applying picks the limits of the org that concern a call.
func applying(c Caller, r *wire.Request, t providers.Target) []budget.Limit {
	var out []budget.Limit
	for _, l := range c.Org.LimitsFor(c.User) {
		if l.Mode == budget.Off || !concerns(l, c) {
			continue
		}
		// Under either name: an alias is no way around a limit.
		named := providers.MatchAny(l.Models, r.Model) || providers.MatchAny(l.Models, t.Model)
		if named && providers.MatchAny(l.Endpoints, string(r.Endpoint)) {
			out = append(out, l)
		}
	}
	return out
}

func concerns(l budget.Limit, c Caller) bool {
	switch l.Subject {
	case budget.User:
		return l.Only == "" || l.Only == c.User
	case budget.Key:
		return l.Only == "" || l.Only == c.Key
	case budget.IP:
		return c.IP != "" && (l.Only == "" || l.Only == c.IP)
	default:
		return true
	}
}

// edit lists the changes the forwarded body needs; none leaves it byte for
// byte as it came.
func (p *Plan) edit() {
	r := p.Request
	if p.Target.Model != r.Model {
		p.edits = append(p.edits, wire.Edit{Name: "model", JSON: strconv.AppendQuote(nil, p.Target.Model)})
	}
	if r.Endpoint == wire.ChatCompletions && r.Stream && !r.IncludeUsage {
		p.edits = append(p.edits, wire.Edit{Name: "stream_options.include_usage", JSON: []byte("true")})
	}
	if limit := p.defaultLimit(); p.splices(limit) {
		p.edits = append(p.edits, wire.Edit{Name: p.limitField(), JSON: strconv.AppendInt(nil, limit, 10)})
	}
}

// splices reports whether the org's default output limit has to be written
// into the request so that it binds.
func (p *Plan) splices(limit int64) bool {
	return limit > 0 && p.Request.Endpoint == wire.ChatCompletions && p.Request.OutputLimit < 0
}

// limitField is the name a provider takes: OpenAI's reasoning models refuse
// max_tokens, other vendors may not know max_completion_tokens.
func (p *Plan) limitField() string {
	if hidesOutput(p.Target.Model) && p.Price.Provider == "openai" {
		return "max_completion_tokens"
	}
	return "max_tokens"
}
