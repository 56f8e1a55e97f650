package fakeprovider

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/sashabaranov/go-openai"

	"github.com/llmguard/llmguard/tokenizer"
)

// countText returns the number of tokens of a text for a model.
func countText(model, text string) int64 {
	return int64(tokenizer.Count(tokenizer.EncodingFor(model), []byte(text)))
}

// promptTokens returns the input tokens of a chat request: OpenAI's formula for messages, tools
// as they are rendered, a schema as its JSON. It is the exact count that the tokenizer expects,
// and never above a sound upper bound.
func (q *Request) promptTokens() int64 {
	if q.Path == "/v1/completions" {
		return q.promptsTokens()
	}
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
			if c.Function != nil {
				total += tokenizer.ToolCallOverhead + countText(q.Model, c.Function.Name) + countText(q.Model, c.Function.Arguments)
			}
		}
		for _, img := range m.images {
			total += imageTokens(q.Model, img)
		}
	}
	tools, _ := tokenizer.ToolsRendered(tokenizer.EncodingFor(q.Model), q.fields["tools"])
	total += int64(tools)
	var schema bytes.Buffer
	_ = json.Compact(&schema, q.format.JSONSchema.Schema) // stays empty if absent
	return total + q.hidden + countText(q.Model, schema.String())
}

// imageTokens uses the real size of inline images, and 512 x 512 for all others.
func imageTokens(model string, img openai.ChatMessageImageURL) int64 {
	w, h := 512, 512
	if _, data, ok := strings.Cut(img.URL, ";base64,"); ok {
		data = data[:min(len(data), 64<<10)&^3]
		head, _ := base64.StdEncoding.DecodeString(data)
		if dw, dh, known := tokenizer.ImageSize(head); known {
			w, h = dw, dh
		}
	}
	return int64(tokenizer.ImageTokens(model, w, h, string(img.Detail)))
}
