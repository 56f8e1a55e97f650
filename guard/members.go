package guard

import (
	"slices"
	"strconv"
	"strings"

	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/providers/dialect"
	"github.com/llmguard/llmguard/tokenizer"
)

// accept refuses members of the request whose cost is not held: those that are not part of
// OpenAI's API, unless they are known to cost nothing at the provider or its configuration
// lists them.
func (p *Plan) accept() error {
	r, provider := p.Request, p.Target.Provider
	names := r.Unknown
	if r.Endpoint.Traits().Messages && provider.Wire(r.Endpoint) != r.Endpoint {
		return nil // a translation leaves them out
	}
	judges := provider.Strict && provider.Dialect.Forwards("Anthropic-Beta")
	for _, name := range r.Betas {
		if judges && !wire.KnownBeta(name) && !provider.Allows(name) {
			return wire.BadRequest("anthropic-beta", "unknown_parameter", "Unknown beta: '%.64s'. Its cost is unknown. Remove "+
				"it from anthropic-beta, or ask an operator to add it to allow_fields of the provider %q", name, provider.ID)
		}
	}
	if r.Creation != nil && r.Creation.Picture == "svg" { // another model writes it
		names = append(slices.Clip(names), "svg")
	}
	for _, name := range names {
		if r.Form == nil && name != "svg" && r.Member(name) == nil { // null counts as absent
			continue
		}
		effect, does := provider.Effect(name)
		switch {
		case effect == dialect.Harmless:
		case effect == dialect.Thinks, provider.Allows(name), r.Endpoint.Traits().Messages && !provider.Strict:
			p.unseen = true
		default:
			return unknownMember(r.Endpoint, name, does, provider.ID)
		}
	}
	return nil
}

// unknownMember refuses a member. does describes what it is known to do, if anything.
func unknownMember(ep wire.Endpoint, name, does, provider string) error {
	if len(name) > 64 {
		name = strings.ToValidUTF8(name[:64], "")
	}
	const advice = "Remove it, or ask an operator to add it to allow_fields of the provider %q"
	if does != "" {
		return wire.BadRequest(name, "unsupported_parameter",
			"Unsupported parameter: '%s'. It %s, so the cost of the call cannot be reserved. "+advice, name, does, provider)
	}
	return wire.BadRequest(name, "unknown_parameter",
		"Unknown parameter: '%s'%s. Its cost is unknown. "+advice, name,
		strings.TrimSuffix(settings.DidYouMean(name, ep.Members()), "?"), provider)
}

// members counts the texts of members outside OpenAI's API as input, because a provider may
// include them in the prompt.
func (c *counter) members() {
	for _, name := range c.request.Unknown {
		if v := c.request.Member(name); len(v) > 0 && strings.IndexByte(`"{[`, v[0]) >= 0 {
			c.fixed += int64(tokenizer.Count(c.enc, v))
		}
	}
}

// limitField returns the provider's name for the output limit. OpenAI's reasoning models
// refuse max_tokens, and many other servers do not know max_completion_tokens.
func (p *Plan) limitField() string {
	if only := p.sent.Endpoint.Traits().OutputField; only != "" {
		return only
	}
	return p.chatLimitField()
}

func (p *Plan) chatLimitField() string {
	switch {
	case p.Target.Provider.LimitField != "":
		return p.Target.Provider.LimitField
	case hidesOutput(p.Target.Model) && p.Price.Provider == "openai":
		return "max_completion_tokens"
	}
	return "max_tokens"
}

// renamed returns edits that rename the output limit to the name the provider knows, if the
// request uses another: an ignored limit would not bound the answer.
func (ed *editor) renamed() []wire.Edit {
	r, provider := ed.plan.sent, ed.plan.Target.Provider
	if r.Endpoint.Traits().OutputField != "" || r.OutputField == "" {
		return nil
	}
	name := ed.plan.chatLimitField()
	kept := provider.LimitField == "" && (provider.KnowsBothLimits() || name == "max_completion_tokens")
	if name == r.OutputField || kept {
		return nil
	}
	return []wire.Edit{{Name: r.OutputField}, {Name: name, JSON: strconv.AppendInt(nil, r.OutputLimit, 10)}}
}
