package guard

import (
	"cmp"
	"encoding/base64"
	"math"
	"slices"

	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/tokenizer"
	"github.com/llmguard/llmguard/wire"
)

const (
	// unlimitedQuota stands in for the TPM estimate of a request that names no
	// output limit; OpenAI makes its own estimate there and does not publish it.
	unlimitedQuota = 4096
)

// estimate fills in the tokens and the money a plan has to hold.
func (g *Guard) estimate(p *Plan) error {
	input, err := g.input(p)
	if err != nil {
		return err
	}
	p.Input = input
	if p.Output, err = p.outputBound(); err != nil {
		return err
	}
	cost, err := p.ceiling(p.Output)
	if err != nil {
		return wire.BadRequest("model", "request_not_priced", "This request cannot be priced: %v", err)
	}
	p.Max.Cost, p.Max.Tokens = cost, p.Input+p.Output
	p.Quota = p.quotaTokens()
	return g.first(p)
}

// usage is what the call consumes with so much output.
func (p *Plan) usage(output int64) pricing.Usage {
	u := pricing.Usage{Input: p.Input, AudioIn: p.audioIn, ImageIn: p.imageIn, Output: output, Requests: 1}
	if len(p.Request.BuiltinTools) > 0 {
		u.ToolCalls = max(p.Request.MaxToolCalls, 0)
	}
	if p.speaks() {
		u.AudioOut = output
	}
	if p.draws() {
		u.ImageOut = output
	}
	p.created(&u)
	return u
}

// speaks reports whether the answer may be audio.
func (p *Plan) speaks() bool {
	return !p.Request.Audio.IsZero() || slices.Contains(p.Request.Modalities, "audio")
}

// draws reports whether the answer may be pictures, which some vendors make in chat.
func (p *Plan) draws() bool { return slices.Contains(p.Request.Modalities, "image") }

// ceiling is the most the call can cost with so much output.
func (p *Plan) ceiling(output int64) (pricing.Nano, error) {
	u := p.usage(output)
	if p.Request.LongCache {
		u.CacheWrite1h = u.Input
	}
	return p.Price.Ceiling(u, p.terms)
}

// outputBound is the most tokens the provider may bill as output.
func (p *Plan) outputBound() (int64, error) {
	r := p.Request
	if r.Endpoint == wire.Embeddings || r.Endpoint.Free() {
		return 0, nil
	}
	if r.Creation != nil {
		return p.creationOutput()
	}
	limit := r.OutputLimit
	if limit < 0 {
		limit = p.defaultLimit()
	}
	if limit == 0 && r.Endpoint == wire.Completions && r.OutputLimit == 0 {
		return 0, nil // it asks for an echo
	}
	if limit <= 0 {
		limit = p.Price.MaxOutput
	}
	if limit <= 0 {
		limit = p.Price.Context
	}
	if limit <= 0 {
		return 0, wire.BadRequest(p.limitName(), "output_limit_required",
			"The output of %q has no known bound, so its cost cannot be held: set %s", r.Model, p.limitName())
	}
	if limit > math.MaxInt32 {
		return 0, wire.BadRequest(r.OutputField, "invalid_value", "%s is too large: %d", r.OutputField, limit)
	}
	return limit*r.Choices() + p.predicted(), nil
}

// predicted bounds the rejected prediction tokens, which are billed as output;
// a token is at least a byte.
func (p *Plan) predicted() int64 { return int64(p.Request.Prediction.Len()) }

// defaultLimit is the org's default output limit for this call, 0 for none. A
// model that cannot reach it refuses a request that names it.
func (p *Plan) defaultLimit() int64 {
	limit := p.Caller.Org.DefaultOutputLimit
	switch p.Request.Endpoint {
	case wire.Completions: // other vendors than OpenAI may have another default
		return wire.DefaultCompletionLimit
	case wire.ChatCompletions, wire.Responses:
	default:
		return 0
	}
	if most := p.Price.MaxOutput; most > 0 && limit >= most {
		return 0
	}
	return limit
}

// quotaTokens is what the provider counts against TPM at admission.
func (p *Plan) quotaTokens() int64 {
	if p.Request.OutputLimit < 0 && p.defaultLimit() == 0 {
		return p.Input + min(p.Output, unlimitedQuota)
	}
	return p.Input + p.Output
}

// input counts the request's tokens as the model's family does.
func (g *Guard) input(p *Plan) (int64, error) {
	r, model := p.sent, p.Target.Model
	switch {
	case r.Endpoint.Free():
		return 0, nil
	case r.Creation != nil:
		return g.creationInput(p), nil
	}
	if err := p.boundedTools(); err != nil {
		return 0, err
	}
	c := counter{cache: g.counts, enc: tokenizer.EncodingFor(model), request: r}
	if r.Endpoint == wire.Embeddings || r.Endpoint == wire.Completions {
		for _, t := range r.Inputs {
			c.text(t)
		}
		if !r.Suffix.IsZero() {
			before := c.tokens
			c.text(wire.Text{Kind: wire.KindInput, Span: r.Suffix})
			c.fixed += (c.tokens - before) * int64(max(r.InputItems-1, 0)) // with every prompt
		}
		c.members()
		return g.total(p, &c) + r.InputTokens, nil
	}
	c.fixed += p.kept.tokens
	perRequest, perMessage, perName := tokenizer.ChatOverhead(model)
	c.tokens += int64(perRequest)
	for i := range r.Messages {
		c.message(&r.Messages[i], perMessage, perName)
		if err := p.media(&c, &r.Messages[i]); err != nil {
			return 0, err
		}
	}
	c.schema(r.Tools)
	c.schema(r.Functions)
	c.choice(r.ToolChoice)
	c.format(r.ResponseFormat)
	c.members()
	return g.total(p, &c), nil
}

// boundedTools refuses tools the provider runs, whose calls and input the
// request does not bound.
func (p *Plan) boundedTools() error {
	r := p.Request
	if p.Caller.Org.AllowBuiltinTools {
		return nil
	}
	if len(r.BuiltinTools) > 0 {
		return wire.BadRequest("tools", "builtin_tool_refused",
			"The built-in tool %q costs money this request does not bound. An operator can set allow_builtin_tools for the org", r.BuiltinTools[0])
	}
	if r.WebSearch {
		return wire.BadRequest("web_search_options", "builtin_tool_refused",
			"Web search costs money this request does not bound. An operator can set allow_builtin_tools for the org")
	}
	return nil
}

// counter adds up the tokens of one request.
type counter struct {
	cache   *tokenizer.Cache
	enc     tokenizer.Encoding
	request *wire.Request
	scratch []byte
	tokens  int64             // text, subject to the model's factor
	classes tokenizer.Classes // of the texts among them
	fixed   int64             // images and the like
}

func (c *counter) text(t wire.Text) {
	plain, scratch := c.request.Plain(c.scratch, t)
	c.scratch = scratch
	k := c.cache.CountClasses(c.enc, plain)
	c.tokens += int64(k.Tokens)
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

// schema counts tool definitions.
func (c *counter) schema(s wire.Span) {
	if !s.IsZero() {
		c.tokens += int64(c.cache.ToolsTokens(c.enc, c.request.Raw(s)))
	}
}

// choice and format count what tool_choice and response_format put into the
// prompt.
func (c *counter) choice(s wire.Span) {
	if !s.IsZero() {
		c.tokens += int64(tokenizer.ToolChoiceTokens(c.enc, c.request.Raw(s)))
	}
}

func (c *counter) format(s wire.Span) {
	if !s.IsZero() {
		c.tokens += int64(tokenizer.ResponseFormatTokens(c.enc, c.request.Raw(s)))
	}
}

// media counts images, audio and files, none of which is ever counted as text.
func (p *Plan) media(c *counter, m *wire.Message) error {
	for _, img := range m.Images {
		w, h := imageSize(p.sent.Raw(img.URL))
		n := int64(tokenizer.ImageTokens(p.Target.Model, w, h, img.Detail))
		p.imageIn += n
		c.fixed += n
	}
	for _, a := range m.Audio {
		if a.ID != "" {
			return wire.NotFound("messages", "audio_not_found", "No such audio: send the recording itself as input_audio")
		}
		n := mediaTokens(a)
		p.audioIn += n
		c.fixed += n
	}
	for _, f := range m.Files {
		if f.ID != "" {
			return wire.NotFound("messages", "file_not_found",
				"No such file: a file must have been uploaded through this proxy by the same org. Send its content as file_data instead")
		}
		c.fixed += p.fileTokens(f)
	}
	return nil
}

// fileTokens bounds a document. One that the provider fetches itself may fill
// the model's context.
func (p *Plan) fileTokens(f wire.Media) int64 {
	if f.Remote {
		return cmp.Or(p.Price.Context, unknownContext)
	}
	return mediaTokens(f)
}

// unknownContext stands in for the context of a model nobody wrote down.
const unknownContext = 128_000

// mediaTokens is a bound for audio and documents: one token per two base64
// characters is above every documented rate (audio at 10 tokens a second,
// text extracted from a document, one image a page).
func mediaTokens(m wire.Media) int64 { return int64(m.Data.Len())/2 + 1 }

// imageSize reads the size of a data URL from its first bytes; 0, 0 for a
// remote URL or an unknown format, which are held at the family's maximum.
func imageSize(quoted []byte) (w, h int) {
	const headerBytes = 64 << 10
	i := indexAfterComma(quoted)
	if i < 0 {
		return 0, 0
	}
	data := quoted[i : len(quoted)-1]
	data = data[:min(len(data), headerBytes)&^3]
	head := make([]byte, base64.StdEncoding.DecodedLen(len(data)))
	n, _ := base64.StdEncoding.Decode(head, data)
	w, h, ok := tokenizer.ImageSize(head[:n])
	if !ok {
		return 0, 0
	}
	return w, h
}

// indexAfterComma finds where the payload of a quoted base64 data URL begins.
func indexAfterComma(quoted []byte) int {
	const scheme, marker = `"data:`, ";base64,"
	if len(quoted) < len(scheme)+1 || string(quoted[:len(scheme)]) != scheme {
		return -1
	}
	head := quoted[:min(len(quoted), 256)]
	for i := len(scheme); i+len(marker) <= len(head); i++ {
		if string(head[i:i+len(marker)]) == marker {
			return i + len(marker)
		}
	}
	return -1
}
