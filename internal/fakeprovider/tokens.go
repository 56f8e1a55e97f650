package fakeprovider

import "github.com/llmguard/llmguard/tokenizer"

// countText is the number of tokens of a text for a model.
func countText(model, text string) int64 {
	return int64(tokenizer.Count(tokenizer.EncodingFor(model), []byte(text)))
}

// promptTokens is what a chat request costs as input: OpenAI's formula for
// messages, the JSON of tools and schemas for what it renders of them, and a
// small flat number for an image: at most what anybody who prices the request
// beforehand should expect.
func (q *Request) promptTokens() int64 {
	perRequest, perMessage, perName := tokenizer.ChatOverhead(q.Model)
	total := int64(perRequest)
	for _, m := range q.messages {
		total += int64(perMessage) + countText(q.Model, m.Role)
		for _, t := range m.texts {
			total += countText(q.Model, t)
		}
		if m.Name != "" {
			total += int64(perName) + countText(q.Model, m.Name)
		}
		for _, c := range m.ToolCalls {
			if c.Function != nil || c.Custom != nil {
				args, name := callText(&c)
				total += 8 + countText(q.Model, name) + countText(q.Model, *args)
			}
		}
		for _, detail := range m.images {
			total += imageTokens(detail)
		}
	}
	for _, name := range []string{"tools", "functions"} {
		if q.has(name) {
			total += 9 + countText(q.Model, string(q.fields[name]))
		}
	}
	return total + countText(q.Model, string(q.format.JSONSchema.Schema))
}

// imageTokens takes every image for 512 x 512 in gpt-4o's tiles.
func imageTokens(detail string) int64 {
	if detail == "low" {
		return 85
	}
	return 85 + 170
}
