package tokenizer

// ChatOverhead returns what the chat format adds to the tokens of the texts:
// per request, per message (besides the tokens of its role and content), and
// per name (besides the tokens of the name).
//
// OpenAI: the cookbook formula, exact for 13 of 13 messages verified against the API in
// pamelafox/openai-messages-token-helper (tests/messages.py) and for the tool-less cases of
// hmarr/openai-chat-tokens. For reasoning models it is one token per request too high
// (coder/ai-tokenizer measured 5 for request and first message, where the formula has 6), which is
// the safe side. gpt-oss adds its own system prompt of about 66 tokens before the first message,
// Grok 4 one of about 165 (both measured by coder/ai-tokenizer). Models with unpublished formats
// get OpenAI's numbers.
func ChatOverhead(model string) (perRequest, perMessage, perName int) {
	name := baseName(model)
	switch {
	case name == "gpt-3.5-turbo-0301", name == "gpt-35-turbo-0301":
		return 3, 4, -1
	case hasAnyPrefix(name, "gpt-oss"):
		return 70, 4, 1
	case hasAnyPrefix(name, "grok-4"):
		return 170, 4, 1
	default:
		return 3, 3, 1
	}
}
