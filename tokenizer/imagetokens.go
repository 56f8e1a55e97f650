package tokenizer

import (
	"math"
	"strings"
)

// An imageRule converts the size of an image to tokens; w = h = 0 requests the maximum of the rule.
type imageRule interface {
	tokens(w, h int, detail string) int
}

// tiles is the rule of OpenAI's models up to gpt-5.1: fit into 2048 x 2048, shrink the short side
// to 768, then a base amount plus an amount per tile of 512.
type tiles struct{ base, tile int }

func (r tiles) tokens(w, h int, detail string) int {
	const most = 8 // 768 x 2048
	switch {
	case detail == "low":
		return r.base
	case w == 0 || h == 0:
		return r.base + most*r.tile
	}
	fw, fh := float64(w), float64(h)
	if long := max(fw, fh); long > 2048 {
		fw, fh = fw*2048/long, fh*2048/long
	}
	if short := min(fw, fh); short > 768 {
		fw, fh = fw*768/short, fh*768/short
	}
	return r.base + min(most, ceilDiv(fw, 512)*ceilDiv(fh, 512))*r.tile
}

func ceilDiv(x, unit float64) int { return max(1, int(math.Ceil(x/unit-1e-9))) }

// patches is a rule with an amount (per mille) per square patch, for at most most patches, and at
// most side pixels on the long side (0: no such limit).
type patches struct{ px, side, most, perMille int }

func (r patches) tokens(w, h int, _ string) int {
	n := r.most
	if w > 0 && h > 0 {
		fw, fh := float64(w), float64(h)
		if long := max(fw, fh); r.side > 0 && long > float64(r.side) {
			fw, fh = fw*float64(r.side)/long, fh*float64(r.side)/long
		}
		// As numbers of patches, because the product of two sides may overflow an int.
		n = int(min(float64(r.most), float64(ceilDiv(fw, float64(r.px)))*float64(ceilDiv(fh, float64(r.px)))))
	}
	return (n*r.perMille + 999) / 1000
}

// flat is a constant number of tokens for every image.
type flat int

func (r flat) tokens(int, int, string) int { return int(r) }

// gemini2 is the rule of Gemini 1.5 to 2.x: one unit for a small image, otherwise one per tile of
// 768, with the image scaled into 3072 x 3072.
type gemini2 struct{}

func (gemini2) tokens(w, h int, _ string) int {
	const unit, most = 258, 16
	switch {
	case w == 0 || h == 0:
		return most * unit
	case w <= 384 && h <= 384:
		return unit
	}
	return int(min(most, float64(ceilDiv(float64(w), 768))*float64(ceilDiv(float64(h), 768)))) * unit
}

// either is the more expensive of two rules, for models whose rule is not known.
type either [2]imageRule

func (r either) tokens(w, h int, detail string) int {
	return max(r[0].tokens(w, h, detail), r[1].tokens(w, h, detail))
}

// imageRuleOf returns the rule of a model family. Sources: OpenAI's vision guide, also for
// gpt-5-mini and -nano, for which users measured lower bills (1.2 and 1.5 instead of 1.62 and
// 2.46); users' bills for GPT-5.5 and later; Anthropic's vision guide, and measurements for 4.7 and
// later; Google's token guide. OpenAI's mini tile prices are the billed ones.
func imageRuleOf(model string) imageRule {
	name := baseName(model)
	switch {
	case strings.Contains(name, "claude"):
		if claudeVersion(name) >= 407 {
			return patches{px: 28, side: 2576, most: 4784, perMille: 1000}
		}
		return patches{px: 28, side: 1568, most: 1600, perMille: 1000}
	case strings.Contains(name, "gemini-1"), strings.Contains(name, "gemini-2"):
		return gemini2{}
	case strings.Contains(name, "gemini"):
		return flat(1120)
	case hasAnyPrefix(name, "gpt-5", "gpt-6"):
		return gpt5Images(name)
	case hasAnyPrefix(name, "gpt-4o-mini"):
		return tiles{2833, 5667}
	case hasAnyPrefix(name, "gpt-4.1-mini"):
		return patches{px: 32, most: 1536, perMille: 1620}
	case hasAnyPrefix(name, "gpt-4.1-nano"):
		return patches{px: 32, most: 1536, perMille: 2460}
	case hasAnyPrefix(name, "o4-mini"):
		return patches{px: 32, most: 1536, perMille: 1720}
	case hasAnyPrefix(name, "gpt-4", "chatgpt-4o"):
		return tiles{85, 170}
	case hasAnyPrefix(name, "o1", "o3"):
		return tiles{75, 150}
	case hasAnyPrefix(name, "computer-use"):
		return tiles{65, 129}
	default: // unknown: 16-pixel patches, the smallest in use
		return patches{px: 16, side: 0, most: 4784, perMille: 1000}
	}
}

func gpt5Images(name string) imageRule {
	modern := patches{px: 32, most: 10_000, perMille: 1200}
	switch {
	case hasAnyPrefix(name, "gpt-5-mini"):
		return patches{px: 32, most: 1536, perMille: 1620}
	case hasAnyPrefix(name, "gpt-5-nano"):
		return patches{px: 32, most: 1536, perMille: 2460}
	case hasAnyPrefix(name, "gpt-5-", "gpt-5.1") || name == "gpt-5":
		return tiles{70, 140}
	case hasAnyPrefix(name, "gpt-5.2", "gpt-5.3"): // not published
		return either{tiles{70, 140}, patches{px: 32, most: 1536, perMille: 1200}}
	case hasAnyPrefix(name, "gpt-5.4-mini"):
		return either{modern, patches{px: 32, most: 1536, perMille: 1620}}
	case hasAnyPrefix(name, "gpt-5.4-nano"):
		return either{modern, patches{px: 32, most: 1536, perMille: 2460}}
	case hasAnyPrefix(name, "gpt-6"):
		modern.most = 12_000
	}
	return highDetail{auto: modern, high: patches{px: 32, most: 2500, perMille: 1200}}
}

// highDetail is a rule that caps "high" and "low" lower than "auto".
type highDetail struct{ auto, high patches }

func (r highDetail) tokens(w, h int, detail string) int {
	if detail == "high" || detail == "low" {
		return r.high.tokens(w, h, detail)
	}
	return r.auto.tokens(w, h, detail)
}

// ImageTokens returns the input tokens of an image of w x h pixels for a model at an OpenAI detail
// ("low", "high", "auto", or "" for auto, treated as the more expensive one). w = h = 0 means an
// unknown size and returns the maximum cost of an image.
func ImageTokens(model string, w, h int, detail string) int {
	if w <= 0 || h <= 0 {
		w, h = 0, 0
	}
	return imageRuleOf(model).tokens(w, h, detail)
}
