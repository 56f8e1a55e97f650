package guard

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/internal/calibration"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/providers"
	"github.com/llmguard/llmguard/tokenizer"
)

const (
	// unlimitedQuota replaces the TPM estimate of a request without an output limit;
	// OpenAI uses its own, unpublished estimate for such requests.
	unlimitedQuota = 4096
)

// estimator fills in the tokens and the money that a plan has to hold.
type estimator struct {
	plan        *Plan
	counts      *tokenizer.Cache
	calibration *calibration.Calibration
	price       func(providers.Target, time.Time) (*pricing.Price, error)
}

func (e *estimator) estimate() error {
	p := e.plan
	input, err := e.input()
	if err != nil {
		return err
	}
	p.Input = input
	if p.counts {
		p.Input, p.counted = 0, input
	}
	p.Output, err = e.outputBound()
	if err != nil {
		return err
	}
	if err := e.passes(); err != nil {
		return err
	}
	cost, err := p.ceiling(p.Output)
	if err != nil {
		return wire.BadRequest("model", "request_not_priced", "This request cannot be priced: %v", err)
	}
	_, tokens, _ := p.passCeiling() // priced above
	p.Max.Cost, p.Max.Tokens = cost, p.Input+p.Output+tokens
	p.Quota = e.quotaTokens()
	return e.first()
}

// usage returns what the call consumes with the given output.
func (p *Plan) usage(output int64) pricing.Usage {
	u := pricing.Usage{Input: p.Input, AudioIn: p.audioIn, ImageIn: p.imageIn, Output: output, Requests: 1}
	u.ToolCalls, u.SearchUnits = p.toolCalls(), p.units.most
	if p.speaks() {
		u.AudioOut = output
	}
	if p.draws() {
		u.ImageOut = output
	}
	p.created(&u)
	return u
}

// unnamedToolCalls is how many calls of the provider's tools are held for if the request
// does not bound them.
const unnamedToolCalls = 8

// toolCalls returns how many calls of the provider's own tools the hold covers.
func (p *Plan) toolCalls() int64 {
	r := p.Request
	switch {
	case len(r.BuiltinTools) == 0:
		return p.searches()
	case r.MaxToolCalls >= 0:
		return max(r.MaxToolCalls, p.searches())
	}
	return unnamedToolCalls
}

// searches returns how many searches the provider bills without reporting them in the
// usage: one for a chat request that asks for it, and one for every request to a model that
// always searches, unless the price includes it as a fee per request.
func (p *Plan) searches() int64 {
	model := strings.ToLower(p.Target.Model)
	always := strings.Contains(model, "-search-preview") || strings.Contains(model, "-search-api") ||
		strings.Contains(model, "sonar")
	if p.Request.WebSearch || always && !p.Price.PerRequest() {
		return 1
	}
	return 0
}

// speaks reports whether the answer may be audio.
func (p *Plan) speaks() bool {
	return !p.Request.Audio.IsZero() || p.asksFor("audio")
}

// draws reports whether the answer may be images, which some vendors generate in chat.
func (p *Plan) draws() bool { return p.asksFor("image") }

// asksFor reports whether the request asks for a kind of output, ignoring case: some
// vendors use capitals.
func (p *Plan) asksFor(kind string) bool {
	return slices.ContainsFunc(p.Request.Modalities, func(m string) bool { return strings.EqualFold(m, kind) })
}

// cacheWritten returns a usage that is no count of the provider with all of its input written to the cache, for the
// longest time that r asks for.
func cacheWritten(r *wire.Request, u pricing.Usage) pricing.Usage {
	switch {
	case r.LongCache:
		u.CacheWrite1h = u.Input
	case r.Caches:
		u.CacheWrite = u.Input
	}
	return u
}

// ceiling returns the most the call can cost with the given output.
func (p *Plan) ceiling(output int64) (pricing.Nano, error) {
	u := cacheWritten(p.Request, p.usage(output))
	cost, err := p.Price.Ceiling(u, p.terms)
	if err != nil {
		return 0, err
	}
	pictures, err := p.tool.ceiling(p, p.toolCalls())
	if err != nil {
		return 0, err
	}
	passes, _, err := p.passCeiling()
	if cost+pictures+passes > pricing.MaxNano {
		return 0, pricing.ErrOverflow
	}
	return cost + pictures + passes, err
}

// outputBound returns the most tokens the provider may bill as output.
func (e *estimator) outputBound() (int64, error) {
	r := e.plan.Request
	if r.Endpoint.Traits().Makes == wire.Numbers {
		return 0, nil
	}
	if bound := meters[r.Endpoint].output; bound != nil {
		return bound(e)
	}
	limit := r.OutputLimit
	if limit < 0 {
		limit = e.plan.defaultLimit()
	}
	if r.OutputLimit == 0 {
		return 0, nil // it asks for an echo
	}
	if limit <= 0 {
		limit = e.plan.Price.MaxOutput
	}
	if limit <= 0 {
		limit = e.plan.Price.Context
	}
	if limit <= 0 {
		return 0, wire.BadRequest(e.plan.limitName(), "output_limit_required",
			"The output of %q has no known maximum, so its cost cannot be reserved. Set %s", r.Model, e.plan.limitName())
	}
	limit += e.thoughts(limit)
	if limit > math.MaxInt32 {
		return 0, wire.BadRequest(r.OutputField, "invalid_value", "%s is too large: %d", r.OutputField, limit)
	}
	return limit*r.Choices() + e.plan.predicted(), nil
}

// predicted bounds the rejected prediction tokens, which are billed as output. A token is
// at least one byte.
func (p *Plan) predicted() int64 { return int64(p.Request.Prediction.Len()) }

// defaultLimit returns the org's default output limit for this call, 0 for none. A model
// with a smaller maximum would refuse a request that sets it.
func (p *Plan) defaultLimit() int64 {
	limit := p.Caller.Org.DefaultOutputLimit
	if own := p.Request.Endpoint.Traits().DefaultOutput; own > 0 || !p.converses() {
		return own // vendors other than OpenAI may have another default
	}
	if most := p.Price.MaxOutput; most > 0 && limit >= most {
		return 0
	}
	return limit
}

// converses reports whether the call is a dialogue whose answer is text that shows.
func (p *Plan) converses() bool {
	t := p.Request.Endpoint.Traits()
	return t.Dialogue && t.Shows
}

// quotaTokens returns what the provider counts against TPM at admission, or of the input alone if it splits them.
func (e *estimator) quotaTokens() int64 {
	shown := e.plan.Input - e.plan.unread
	if e.plan.Target.Splits() {
		return shown
	}
	unlimited := e.plan.Request.OutputLimit < 0 && e.plan.defaultLimit() == 0
	if unlimited || e.plan.sent.Endpoint.Traits().Messages { // which counts output as it is produced
		return shown + min(e.plan.Output, unlimitedQuota)
	}
	return shown + e.plan.Output
}

// input counts the request's tokens as the model's family does.
func (e *estimator) input() (int64, error) {
	p := e.plan
	r, model := p.sent, p.Target.Model
	if p.free && !p.counts {
		return 0, nil
	}
	if count := meters[r.Endpoint].input; count != nil {
		return count(e)
	}
	if err := e.boundedTools(); err != nil {
		return 0, err
	}
	c := counter{cache: e.counts, enc: tokenizer.EncodingFor(model), request: r}
	if !r.Endpoint.Traits().Dialogue {
		return e.inputs(&c)
	}
	c.fixed += p.kept.tokens + p.kept.counted(p.Price.Context) + e.pictures()
	p.documents += p.kept.documents
	perRequest, perMessage, perName := tokenizer.ChatOverhead(model)
	c.tokens += int64(perRequest)
	for i := range r.Messages {
		c.message(&r.Messages[i], perMessage, perName)
		if err := e.media(&c, &r.Messages[i]); err != nil {
			return 0, err
		}
	}
	c.add(r.Tools, c.cache.ToolsTokens)
	c.add(r.Functions, c.cache.ToolsTokens)
	c.fixed += claudeTools(r)
	c.add(r.ToolChoice, tokenizer.ToolChoiceTokens)
	c.add(r.ResponseFormat, tokenizer.ResponseFormatTokens)
	c.members()
	return e.read(e.total(&c)), nil
}

// inputs counts a request that is a list of inputs.
func (e *estimator) inputs(c *counter) (int64, error) {
	r := c.request
	for _, t := range r.Inputs {
		c.text(t)
	}
	for i := range r.Messages {
		if err := e.media(c, &r.Messages[i]); err != nil {
			return 0, err
		}
	}
	if !r.Beside.IsZero() {
		before := c.tokens
		c.text(wire.Text{Kind: wire.KindInput, Span: r.Beside})
		c.tokens += (c.tokens - before) * int64(max(r.InputItems-1, 0)) // with every input
	}
	c.members()
	n := e.read(e.total(c) + r.InputTokens)
	e.plan.text.pure = e.plan.text.pure && r.Beside.IsZero()
	return n, nil
}

// boundedTools refuses tools run by the provider whose calls and input the request does not
// bound.
func (e *estimator) boundedTools() error {
	r, org := e.plan.Request, e.plan.Caller.Org
	if err := BoundedTools(org, r.BuiltinTools); err != nil {
		return err
	}
	if r.WebSearch && !org.AllowBuiltinTools {
		return wire.BadRequest("web_search_options", "builtin_tool_refused",
			"The cost of web search is not limited by this request. An operator can set allow_builtin_tools for the org")
	}
	return nil
}

// BoundedTools refuses tools that the provider runs, unless the org allows them.
func BoundedTools(org *Org, provided []string) error {
	if org.AllowBuiltinTools || len(provided) == 0 {
		return nil
	}
	kind, hint := provided[0], ""
	if kind == "web_search" {
		hint = " (in Codex: web_search = \"disabled\")"
	}
	return wire.BadRequest("tools", "builtin_tool_refused",
		"The provider runs the tool %q and charges for %s, which this request does not limit. Remove it from tools%s, "+
			"or ask an operator to set allow_builtin_tools for the org", kind, wire.ToolFee(kind), hint)
}

// counter adds up the tokens of one request.
type counter struct {
	cache   *tokenizer.Cache
	enc     tokenizer.Encoding
	request *wire.Request
	scratch []byte
	tokens  int64             // text, subject to the model's factor
	classes tokenizer.Classes // of that text
	certain int64             // text that no provider leaves out
	fixed   int64             // images and the like
}

func (c *counter) text(t wire.Text) {
	plain, scratch := c.request.Plain(c.scratch, t)
	c.scratch = scratch
	k := c.cache.CountClasses(c.enc, plain)
	c.tokens += int64(k.Tokens)
	if t.Kind != wire.KindOther { // such as encrypted reasoning
		c.certain += int64(k.Tokens)
	}
	c.classes = c.classes.Plus(k)
}

func (c *counter) message(m *wire.Message, perMessage, perName int) {
	c.tokens += int64(perMessage) + int64(tokenizer.Count(c.enc, []byte(m.Role)))
	for _, t := range m.Texts {
		c.text(t)
		switch t.Kind {
		case wire.KindName:
			c.tokens += int64(perName)
		case wire.KindToolCall:
			c.tokens += tokenizer.ToolCallOverhead
		}
	}
}

// claudeToolPrompt is the largest prompt, in tokens, that Anthropic adds to a request with tools.
const claudeToolPrompt = 804

// claudeTools returns the tokens that Anthropic adds to a request with tools.
func claudeTools(r *wire.Request) int64 {
	if !r.Endpoint.Traits().Messages || r.Tools.IsZero() {
		return 0
	}
	return claudeToolPrompt + r.ToolPrompt
}

// add counts what a member of the request adds to the prompt.
func (c *counter) add(s wire.Span, count func(tokenizer.Encoding, []byte) int) {
	if !s.IsZero() {
		c.tokens += int64(count(c.enc, c.request.Raw(s)))
	}
}
