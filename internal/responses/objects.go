package responses

import (
	"github.com/sashabaranov/go-openai"

	"github.com/llmguard/llmguard/internal/neutral"
)

// The types below are go-openai's where those lose nothing: its events and items omit zeros, nulls and
// empty lists, which clients read, and have no place for members that they do not know.
type (
	event struct {
		Type         openai.ResponseStreamEventType `json:"type"`
		Sequence     int64                          `json:"sequence_number"`
		Response     raw                            `json:"response,omitzero"`
		ItemID       string                         `json:"item_id,omitzero"`
		OutputIndex  *int                           `json:"output_index,omitzero"`
		ContentIndex *int                           `json:"content_index,omitzero"`
		Item         *item                          `json:"item,omitzero"`
		Part         *content                       `json:"part,omitzero"`
		Delta        raw                            `json:"delta,omitzero"`
		Name         raw                            `json:"name,omitzero"`
		Arguments    raw                            `json:"arguments,omitzero"`
		Text         raw                            `json:"text,omitzero"`
		Refusal      raw                            `json:"refusal,omitzero"`
		Logprobs     raw                            `json:"logprobs,omitzero"`
	}
	response struct {
		ID                raw                               `json:"id"`
		Object            string                            `json:"object"`
		Created           int64                             `json:"created_at"`
		Status            openai.ResponseStatus             `json:"status"`
		Background        bool                              `json:"background"`
		Error             *openai.ResponseError             `json:"error"`
		IncompleteDetails *openai.ResponseIncompleteDetails `json:"incomplete_details"`
		Echo              raw                               `json:",embed"`
		Model             raw                               `json:"model"`
		ServiceTier       raw                               `json:"service_tier"`
		Output            []item                            `json:"output"`
		Usage             raw                               `json:"usage"`
	}
	item struct {
		ID        string                `json:"id"`
		Type      string                `json:"type"`
		Status    openai.ResponseStatus `json:"status"`
		Role      string                `json:"role,omitzero"`
		Summary   raw                   `json:"summary,omitzero"`
		Content   []content             `json:"content,omitzero"`
		Encrypted raw                   `json:"encrypted_content,omitzero"`
		CallID    raw                   `json:"call_id,omitzero"`
		Name      raw                   `json:"name,omitzero"`
		Namespace raw                   `json:"namespace,omitzero"`
		Arguments raw                   `json:"arguments,omitzero"`
	}
	content struct {
		Type        string `json:"type"`
		Text        raw    `json:"text,omitzero"`
		Refusal     raw    `json:"refusal,omitzero"`
		Annotations raw    `json:"annotations,omitzero"`
		Logprobs    raw    `json:"logprobs,omitzero"`
	}
)

// none is an empty list.
var none = raw("[]")

func newItem(kind string) *item {
	it := &item{ID: neutral.NewID(prefixes[kind]), Type: kind}
	switch kind {
	case "message":
		it.Role, it.Content = openai.ChatMessageRoleAssistant, []content{}
	case "reasoning":
		it.Summary, it.Content = none, []content{}
	}
	return it
}
