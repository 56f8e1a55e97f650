package pricing

import "strings"

const unlisted = "no public price list had it when this version was released; with OpenAI's price,"

// unpriced are models of OpenAI that the catalogue does not price, by the prefix of their name, and why.
var unpriced = []struct{ prefix, reason string }{
	{"chatgpt-image-latest", "OpenAI changes which model this name means; name that model instead, or"},
	{"gpt-4o-audio-preview", "OpenAI retired it on 2026-05-07; use gpt-audio, or"},
	{"gpt-4o-mini-audio-preview", "no public list has its price for audio; use gpt-audio-mini, or"},
	{"gpt-5.6-cyber", unlisted},
	{"gpt-6-cyber", unlisted},
	{"gpt-6-rosalind", unlisted},
	{"gpt-daybreak-", unlisted},
	{"gpt-rosalind-", unlisted},
	{"gpt-6.1-terra", unlisted},
	{"gpt-6.2-", unlisted},
	{"gpt-image-2.5-", unlisted},
	{"gpt-image-2.6-", unlisted},
}

// unpricedReason returns why a model has no price, "" if nothing is known of it.
func unpricedReason(model string) string {
	for _, u := range unpriced {
		if strings.HasPrefix(model, u.prefix) {
			return u.reason + " the operator can"
		}
	}
	return ""
}
