package responses

import (
	"github.com/go-json-experiment/json"

	"github.com/llmguard/llmguard/internal/neutral"
)

// usage is neutral.Usage with the names of Responses. Numbers and undefined members are copied unchanged.
type usage struct {
	Input         raw `json:"input_tokens"`
	InputDetails  raw `json:"input_tokens_details"`
	Output        raw `json:"output_tokens"`
	OutputDetails raw `json:"output_tokens_details"`
	Total         raw `json:"total_tokens"`
	CacheRead     raw `json:"-"`
	More          raw `json:",embed"`
}

// usageOf adds the members that clients rely on if they are missing.
func usageOf(given *neutral.Usage) raw {
	if given == nil {
		return raw("null")
	}
	u := usage(given.Complete())
	text, _ := json.Marshal(&u, neutral.AsSent) // raw values were read before
	return text
}
