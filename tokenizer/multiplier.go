package tokenizer

import "strings"

// Multiplier returns how many tokens a model makes of text with 1,000 tokens under
// EncodingFor(model): the mean, and a value to hold that few texts exceed. For OpenAI's models both
// are 1000: their tokenizer is public and counted exactly. The others are starting points until
// factors are learned from usage. They were measured on prose in ten languages, code, JSON, logs
// and hex with the public vocabularies, or come from published counts of the providers' own
// endpoints. For Gemini they apply to the digit-adjusted count: use Estimate.
func Multiplier(model string) (mean, hold int) {
	name := baseName(model)
	switch {
	case isOpenAI(name):
		return 1000, 1000
	case strings.Contains(name, "claude"):
		if claudeVersion(name) >= 407 {
			return 1550, 1900
		}
		return 1160, 1500
	case isGemini(name):
		return 1050, 1250
	case strings.Contains(name, "llama-3"), strings.Contains(name, "llama3"):
		return 1020, 1200
	default:
		return 1150, 1600
	}
}

// Estimate returns the tokens a model makes of a text counted as k under EncodingFor(model): the
// expected number, and the number to hold.
func Estimate(model string, k Classes) (expected, hold int) {
	tokens := Basis(model, k)
	mean, high := Multiplier(model)
	return scale(tokens, mean), scale(tokens, high)
}

// Basis returns the count that the factors of a model apply to: k.Tokens, or for Gemini, where
// every digit is a token, the digit-adjusted count.
func Basis(model string, k Classes) int {
	if isGemini(baseName(model)) {
		return k.Tokens + k.Digits - k.DigitGroups
	}
	return k.Tokens
}

// scale returns tokens * perMille / 1000, rounded up.
func scale(tokens, perMille int) int { return (tokens*perMille + 999) / 1000 }

// isOpenAI reports whether a model's tokenizer is one of the public encodings.
func isOpenAI(name string) bool {
	if EncodingFor(name) != O200k {
		return true
	}
	return hasAnyPrefix(name, "gpt-", "chatgpt-", "o1", "o3", "o4", "codex-", "computer-use", "omni-moderation")
}

func isGemini(name string) bool {
	return strings.Contains(name, "gemini") || strings.Contains(name, "gemma")
}

// claudeVersion returns major*100 + minor of a Claude model name in any of its spellings
// ("claude-3-5-sonnet-20241022", "anthropic.claude-opus-4-8-v1:0"), or a version higher than all
// others if there is none ("claude-sonnet-latest").
func claudeVersion(name string) int {
	_, rest, _ := strings.Cut(name, "claude")
	var numbers []int
	for _, field := range strings.FieldsFunc(rest, func(r rune) bool { return r < '0' || '9' < r && r < 'a' || r > 'z' }) {
		n, ok := smallNumber(strings.TrimPrefix(field, "v"))
		if ok && len(numbers) < 2 {
			numbers = append(numbers, n)
		} else if len(numbers) > 0 {
			break
		}
	}
	switch len(numbers) {
	case 0:
		return 1 << 20
	case 1:
		return numbers[0] * 100
	default:
		return numbers[0]*100 + numbers[1]
	}
}

// smallNumber parses one or two digits; longer numbers are dates.
func smallNumber(s string) (n int, ok bool) {
	if len(s) == 0 || len(s) > 2 {
		return 0, false
	}
	for _, c := range s {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, true
}
