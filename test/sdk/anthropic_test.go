package sdk

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"github.com/llmguard/llmguard/internal/fakeprovider"
)

// fakeClaude returns Anthropic's client of a fake provider.
func fakeClaude(t *testing.T) anthropic.Client {
	t.Helper()
	s := fakeprovider.New(fakeprovider.Options{Key: "sk-ant"})
	err := s.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return anthropic.NewClient(option.WithBaseURL(s.URL()), option.WithAPIKey("sk-ant"), option.WithMaxRetries(0))
}

// TestAnthropicSDK: Anthropic's client reads the fake provider's messages and streams, which are
// the same, and continues the conversation with what it has read.
func TestAnthropicSDK(t *testing.T) {
	client := fakeClaude(t)
	weather := anthropic.ToolParam{Name: "weather", InputSchema: anthropic.ToolInputSchemaParam{
		Properties: map[string]any{"city": map[string]any{"type": "string"}},
	}}
	search := anthropic.WebSearchTool20250305Param{}
	cache := anthropic.NewCacheControlEphemeralParam()
	long := anthropic.TextBlockParam{Text: strings.Repeat("one two three four ", 300), CacheControl: cache}
	params := anthropic.MessageNewParams{
		Model: "claude-opus-5", MaxTokens: 1000, System: []anthropic.TextBlockParam{long},
		Thinking: anthropic.ThinkingConfigParamUnion{OfAdaptive: &anthropic.ThinkingConfigAdaptiveParam{Display: "summarized"}},
		Tools:    []anthropic.ToolUnionParam{{OfTool: &weather}, {OfWebSearchTool20250305: &search}},
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("hi"))},
	}
	plain, err := client.Messages.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	var streamed anthropic.Message
	events := client.Messages.NewStreaming(t.Context(), params)
	for events.Next() {
		err := streamed.Accumulate(events.Current())
		if err != nil {
			t.Fatal(err)
		}
	}
	if events.Err() != nil {
		t.Fatal(events.Err())
	}
	if plain.Usage.CacheCreationInputTokens == 0 || plain.Usage.CacheReadInputTokens != 0 ||
		streamed.Usage.CacheReadInputTokens != plain.Usage.CacheCreationInputTokens {
		t.Errorf("usage %+v, then %+v", plain.Usage, streamed.Usage)
	}
	for _, m := range []*anthropic.Message{plain, &streamed} {
		var kinds []string
		var results []anthropic.ContentBlockParamUnion
		for _, b := range m.Content {
			kinds = append(kinds, b.Type)
			if b.Type == "tool_use" {
				var input struct{ City string }
				err := json.Unmarshal(b.Input, &input)
				if err != nil || input.City == "" || b.Name != "weather" {
					t.Errorf("%v: called %s with %s", err, b.Name, b.Input)
				}
				results = append(results, anthropic.NewToolResultBlock(b.ID, "sunny", false))
			}
		}
		u := m.Usage
		if got := strings.Join(kinds, " "); got != "thinking server_tool_use web_search_tool_result tool_use" || m.StopReason != "tool_use" {
			t.Errorf("content %s, stop reason %s", got, m.StopReason)
		}
		if u.ServerToolUse.WebSearchRequests != 1 || u.OutputTokensDetails.ThinkingTokens == 0 || u.ServiceTier != "standard" ||
			u.OutputTokens != plain.Usage.OutputTokens || u.Speed != "standard" || u.InferenceGeo != "global" {
			t.Errorf("usage %s", u.RawJSON())
		}
		next := params
		next.Messages = append(next.Messages[:1:1], m.ToParam(), anthropic.NewUserMessage(results...))
		answer, err := client.Messages.New(t.Context(), next)
		if err != nil || answer.StopReason != "end_turn" {
			t.Errorf("the answer to the tool's result: %v, %+v", err, answer)
		}
	}
}

// TestAnthropicSDKBeta: the client reads the iterations of the beta API.
func TestAnthropicSDKBeta(t *testing.T) {
	client := fakeClaude(t)
	events := client.Beta.Messages.NewStreaming(t.Context(), anthropic.BetaMessageNewParams{
		Model: "claude-opus-5", MaxTokens: 1000,
		Messages: []anthropic.BetaMessageParam{anthropic.NewBetaUserMessage(anthropic.NewBetaTextBlock(
			"[fake: iterations=compaction,advisor_message:claude-opus-4-8,fallback_message:claude-sonnet-5]"))},
	})
	var m anthropic.BetaMessage
	var last anthropic.BetaIterationsUsage
	for events.Next() {
		e := events.Current()
		err := m.Accumulate(e)
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == "message_delta" {
			last = e.Usage.Iterations
		}
	}
	if events.Err() != nil || len(last) != 4 {
		t.Fatalf("%v, iterations %+v", events.Err(), last)
	}
	kinds := ""
	for _, entry := range last {
		kinds += entry.Type + " "
	}
	compaction, advisor, declined, own := last[0].AsCompaction(), last[1].AsAdvisorMessage(), last[2].AsMessage(), last[3].AsFallbackMessage()
	if kinds != "compaction advisor_message message fallback_message " || compaction.InputTokens == 0 || advisor.Model != "claude-opus-4-8" || declined.Model != "claude-opus-5" ||
		own.Model != "claude-sonnet-5" || own.OutputTokens != m.Usage.OutputTokens || m.Model != own.Model {
		t.Errorf("iterations %+v of %+v", last, m)
	}
}

// TestAnthropicSDKErrors: the client reads errors, counts of tokens and models.
func TestAnthropicSDKErrors(t *testing.T) {
	client := fakeClaude(t)
	for directives, want := range map[string]anthropic.ErrorType{
		"status=529": anthropic.ErrorTypeOverloadedError, "status=429": anthropic.ErrorTypeRateLimitError,
		"nonsense": anthropic.ErrorTypeInvalidRequestError,
	} {
		_, err := client.Messages.New(t.Context(), anthropic.MessageNewParams{
			Model: "claude-opus-5", MaxTokens: 10,
			Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("[fake: " + directives + "]"))},
		})
		fault, ok := errors.AsType[*anthropic.Error](err)
		if !ok || fault.Type() != want || fault.RequestID == "" {
			t.Errorf("%s: %v, want %s", directives, err, want)
		}
	}
	events := client.Messages.NewStreaming(t.Context(), anthropic.MessageNewParams{
		Model: "claude-opus-5", MaxTokens: 10,
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("[fake: cut=error type=overloaded_error]"))},
	})
	seen := 0
	for events.Next() {
		seen++
	}
	fault, ok := errors.AsType[*anthropic.Error](events.Err())
	if !ok || fault.Type() != anthropic.ErrorTypeOverloadedError || seen == 0 {
		t.Errorf("after %d events of a stream: %v, want its error", seen, events.Err())
	}
	counted, err := client.Messages.CountTokens(t.Context(), anthropic.MessageCountTokensParams{
		Model:    "claude-opus-5",
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("hi"))},
	})
	if err != nil || counted.InputTokens == 0 {
		t.Errorf("counted %+v, %v", counted, err)
	}
	models, err := client.Models.List(t.Context(), anthropic.ModelListParams{})
	if err != nil || len(models.Data) == 0 || models.Data[0].CreatedAt.IsZero() {
		t.Errorf("models %+v, %v", models, err)
	}
}
