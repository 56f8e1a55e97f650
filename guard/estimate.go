package guard

import (
	"encoding/base64"
	"math"

	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/tokenizer"
	"github.com/llmguard/llmguard/wire"
)

const (
	// unlimitedQuota stands in for the TPM estimate of a request that names no
	// output limit; OpenAI makes its own estimate there and does not publish it.
	unlimitedQuota = 4096
	// perToolCall covers the frame of one assistant tool call (TypeScript
	// rendering, community-measured: at most 8).
	perToolCall = 8
	// toolsMargin covers nested schemas, where the rendering formula has been
	// seen up to 7 tokens low.
	toolsMargin = 16
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
	usage := pricing.Usage{Input: p.Input, Output: p.Output, Requests: 1}
	cost, err := p.Price.Ceiling(usage, p.terms)
	if err != nil {
		return wire.BadRequest("model", "request_not_priced", "This request cannot be priced: %v", err)
	}
	p.Max.Cost, p.Max.Tokens = cost, p.Input+p.Output
	p.Quota = p.quotaTokens()
	return nil
}

// outputBound is the most tokens the provider may bill as output.
func (p *Plan) outputBound() (int64, error) {
	r := p.Request
	if r.Endpoint == wire.Embeddings {
		return 0, nil
	}
	limit := r.OutputLimit
	if limit < 0 {
		limit = p.Caller.Org.DefaultOutputLimit
	}
	if limit <= 0 {
		limit = p.Price.MaxOutput
	}
	if limit <= 0 {
		limit = p.Price.Context
	}
	if limit <= 0 {
		return 0, wire.BadRequest("max_completion_tokens", "output_limit_required",
			"The output of %q has no known bound, so its cost cannot be held: set max_completion_tokens", r.Model)
	}
	if limit > math.MaxInt32 {
		return 0, wire.BadRequest(r.OutputField, "invalid_value", "%s is too large: %d", r.OutputField, limit)
	}
	bound := limit * r.Choices()
	bound += int64(r.Prediction.Len()) // rejected prediction tokens are billed as output; a token is at least a byte
	return bound, nil
}

// quotaTokens is what the provider counts against TPM at admission.
func (p *Plan) quotaTokens() int64 {
	if p.Request.OutputLimit < 0 && p.Caller.Org.DefaultOutputLimit == 0 {
		return p.Input + min(p.Output, unlimitedQuota)
	}
	return p.Input + p.Output
}

// input counts the request's tokens as the model's family does.
func (g *Guard) input(p *Plan) (int64, error) {
	r, model := p.Request, p.Target.Model
	if err := p.boundedTools(); err != nil {
		return 0, err
	}
	c := counter{cache: g.counts, enc: tokenizer.EncodingFor(model), request: r}
	if r.Endpoint == wire.Embeddings {
		for _, t := range r.Inputs {
			c.text(t)
		}
		return g.total(p, &c) + r.InputTokens, nil
	}
	perRequest, perMessage, perName := tokenizer.ChatOverhead(model)
	c.tokens += int64(perRequest)
	for i := range r.Messages {
		c.message(&r.Messages[i], perMessage, perName)
		n, err := p.media(&r.Messages[i])
		if err != nil {
			return 0, err
		}
		c.fixed += n
	}
	c.schema(r.Tools)
	c.schema(r.Functions)
	c.json(r.ResponseFormat)
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
	c.scratch = c.request.Unquote(c.scratch[:0], t)
	k := c.cache.CountClasses(c.enc, c.scratch)
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
			c.tokens += perToolCall
		}
	}
}

// schema counts tool definitions by the larger of the rendered form and the
// JSON itself.
func (c *counter) schema(s wire.Span) {
	if s.IsZero() {
		return
	}
	raw := c.request.Raw(s)
	rendered := tokenizer.ToolsTokens(c.enc, raw)
	c.tokens += int64(max(rendered, tokenizer.Count(c.enc, raw))) + toolsMargin
}

func (c *counter) json(s wire.Span) {
	if !s.IsZero() {
		c.tokens += int64(tokenizer.Count(c.enc, c.request.Raw(s))) + toolsMargin
	}
}

// media counts images, audio and files, none of which is ever counted as text.
func (p *Plan) media(m *wire.Message) (int64, error) {
	var n int64
	for _, img := range m.Images {
		w, h := imageSize(p.Request.Raw(img.URL))
		n += int64(tokenizer.ImageTokens(p.Target.Model, w, h, img.Detail))
	}
	for _, a := range m.Audio {
		if a.ID != "" {
			return 0, wire.NotFound("messages", "audio_not_found", "No such audio: send the recording itself as input_audio")
		}
		n += mediaTokens(a)
	}
	for _, f := range m.Files {
		if f.ID != "" {
			return 0, wire.NotFound("messages", "file_not_found",
				"No such file: a file must have been uploaded through this proxy by the same org. Send its content as file_data instead")
		}
		n += mediaTokens(f)
	}
	return n, nil
}

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
