package guard

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/providers"
)

// The image tool of a response is a model with a price of its own, and its tokens are reported apart.

const (
	// imageToolModel draws if the tool names no model.
	imageToolModel = "gpt-image-1"
	// drawnTokens bounds the output of a picture if the price of the model does not.
	drawnTokens = 24 << 10
)

// imageTool prices the pictures of a response; the zero value is a request without them.
type imageTool struct {
	price *pricing.Price
	terms pricing.Terms
	most  pricing.Usage // of one picture, without its prompt
}

func (policy *Policy) imageTool(p *Plan) (tool imageTool, err error) {
	if !slices.Contains(p.Request.BuiltinTools, "image_generation") {
		return tool, nil
	}
	var tools []struct {
		Type, Model, Size, Quality string
		Partial                    int64 `json:"partial_images"`
	}
	if json.Unmarshal(p.Request.Raw(p.Request.Tools), &tools) != nil {
		return tool, wire.BadRequest("tools", "request_not_priced",
			"The image tool in tools cannot be read, so it cannot be priced")
	}
	for _, t := range tools {
		if t.Type != "image_generation" {
			continue
		}
		target := providers.Target{Provider: p.Target.Provider, Model: cmp.Or(t.Model, imageToolModel)}
		price, err := policy.price(target, p.at)
		if err != nil {
			return tool, policy.unpriced(err)
		}
		one := imageTool{price: price, terms: p.terms}
		one.terms.ImageSize, one.terms.ImageQuality = cmp.Or(t.Size, "auto"), cmp.Or(t.Quality, "auto")
		one.most = pricing.Usage{Requests: 1, Output: cmp.Or(price.MaxOutput, drawnTokens)}
		if i, ok := price.Image(one.terms); ok && i.Each.Given {
			one.most.Images, one.most.Output = 1, 0
		} else if ok {
			one.most.Output = i.Tokens
		}
		one.most.Output += partialTokens * t.Partial
		one.most.ImageOut = one.most.Output
		if tool.price == nil || one.dearerThan(tool) {
			tool = one
		}
	}
	return tool, nil
}

func (t imageTool) dearerThan(other imageTool) bool {
	one, _ := t.price.Ceiling(t.most, t.terms)
	two, _ := other.price.Ceiling(other.most, other.terms)
	return one > two
}

// ceiling returns the most that the tool can cost: one picture for each call, drawn from all the input.
func (t imageTool) ceiling(p *Plan, calls int64) (pricing.Nano, error) {
	if t.price == nil {
		return 0, nil
	}
	most := t.most
	most.Input = p.Input + pictureTokens("", &wire.Creation{Files: make([]wire.File, 1)})
	most.ImageIn = most.Input
	one, err := t.price.Ceiling(most, t.terms)
	return one * pricing.Nano(calls), err
}

// checkDrawn removes what the image tool cannot have used: more than the largest picture for each item of
// the answer, or for each call that is held.
func (b *bill) checkDrawn(a *wire.Answer) []UsageFault {
	most, err := b.plan.tool.ceiling(b.plan, max(b.plan.toolCalls(), int64(len(a.Items))))
	if err == nil && b.drawn(a.Drawn) <= most {
		return nil
	}
	a.Drawn = wire.Usage{}
	b.drawnMost = most
	return []UsageFault{HighOutput}
}

// drawn returns the cost of what the image tool used.
func (b *bill) drawn(u wire.Usage) pricing.Nano {
	t := b.plan.tool
	if t.price == nil || u == (wire.Usage{}) {
		return b.drawnMost
	}
	t.terms.Region = b.plan.terms.Region
	cost, err := t.price.Charge(pricing.Usage(u), t.terms)
	if err != nil {
		return 0
	}
	return cost
}
