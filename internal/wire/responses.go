package wire

// The endpoints of the Responses API: create a response, compact a conversation, count its tokens.
const (
	Responses        Endpoint = "responses"
	ResponsesCompact Endpoint = "responses.compact"
	ResponsesTokens  Endpoint = "responses.input_tokens"
)

var (
	_ = endpoint(Responses, Traits{
		Path: "/responses", Operation: "chat", Makes: Texts, Batched: true, Reusable: true, Dialogue: true, Shows: true,
		Numbered: true, Responses: true, OutputField: "max_output_tokens", fields: responsesFields,
		content: []string{"output"}, complete: hasItems,
		defaults: func(r *Request) bool { r.Implied = r.prompted(); return r.Implied },
		stored:   true, event: scanResponseEvent, generated: scanResponse, written: scanWritten,
	})
	_ = endpoint(ResponsesCompact, Traits{
		Path: "/responses/compact", Makes: Texts, Dialogue: true, Responses: true, OutputField: "max_output_tokens",
		fields: responsesFields, content: []string{"output"}, complete: hasItems,
	})
	_ = endpoint(ResponsesTokens, Traits{
		Path: "/responses/input_tokens", Free: true, Dialogue: true, Responses: true, OutputField: "max_output_tokens",
		fields: responsesFields, content: []string{"input_tokens"}, complete: hasItems,
	})
)

// hasItems checks that a request has input, or names something stored.
func hasItems(s *scanner) error {
	if s.req.find("input") < 0 && len(s.req.Refs) == 0 {
		return missing("input")
	}
	return nil
}

// responsesFields are the members of a Responses request. Compacting and counting use a subset.
var responsesFields = newFields(map[string]reader{
	"model":             readModel,
	"input":             readItems,
	"instructions":      readInstructions,
	"max_output_tokens": readInt("max_output_tokens", 1, maxInt, func(s *scanner) *int64 { return &s.req.OutputLimit }),
	"max_tool_calls":    readInt("max_tool_calls", 0, maxInt, func(s *scanner) *int64 { return &s.req.MaxToolCalls }),
	"stream":            readBool("stream", func(s *scanner) *bool { return &s.req.Stream }),
	"background":        readBool("background", func(s *scanner) *bool { return &s.req.Background }),
	"store":             readBool("store", func(s *scanner) *bool { return &s.req.Store }),
	"service_tier":      readWord("service_tier", func(s *scanner) *string { return &s.req.ServiceTier }),
	"inference_geo":     readWord("inference_geo", func(s *scanner) *string { return &s.req.InferenceGeo }),
	"reasoning":         readMembers("reasoning", reasoningFields),
	"text":              readMembers("text", textFormatFields),
	"tools":             readResponsesTools,
	"tool_choice":       readAny(func(s *scanner) *Span { return &s.req.ToolChoice }),
	"prompt_cache_options": readObject("prompt_cache_options", func(s *scanner) *Span {
		return &s.req.PromptCacheOptions
	}),
	"moderation":           readAny(func(s *scanner) *Span { return &s.req.Moderation }),
	"previous_response_id": readRef(ObjectResponse, "previous_response_id"),
	"conversation":         readConversation,
	"prompt":               readStoredPrompt,
	"context_management":   readRaw("context_management", '[', func(*scanner) *Span { return new(Span) }),
	"truncation":           readWord("truncation", func(*scanner) *string { return new(string) }),
}, readUnknown,
	"access_programs client_metadata include metadata parallel_tool_calls personality prompt_cache_key "+
		"prompt_cache_retention safety_identifier stream_options temperature top_logprobs top_p user")

// readInstructions adds the instructions as the first system message.
func readInstructions(s *scanner) error {
	beginMessage(s, "system")
	err := s.addText("instructions", KindContent)
	endMessage(s)
	return err
}

// beginMessage and endMessage enclose the texts of one message.
func beginMessage(s *scanner, role string) {
	s.item.texts = len(s.req.texts)
	s.req.Messages = append(s.req.Messages, Message{Role: role})
}

func endMessage(s *scanner) {
	r := s.req
	s.message().Texts = r.texts[s.item.texts:len(r.texts):len(r.texts)]
}

var reasoningFields = newFields(map[string]reader{
	"effort": readWord("reasoning.effort", func(s *scanner) *string { return &s.req.ReasoningEffort }),
}, nil, "summary generate_summary")

var textFormatFields = newFields(map[string]reader{
	"format": readRaw("text.format", '{', func(s *scanner) *Span { return &s.req.ResponseFormat }),
}, nil, "verbosity")

var conversationFields = newFields(map[string]reader{"id": readRef(ObjectConversation, "conversation.id")}, nil)

// readConversation accepts an id or an object with one.
func readConversation(s *scanner) error {
	switch s.peek() {
	case '"':
		return readRef(ObjectConversation, "conversation")(s)
	case '{':
		return s.members("conversation", conversationFields)
	}
	return s.wrongType("conversation", "a string or an object")
}

var promptFields = newFields(map[string]reader{
	"id":        readRef(ObjectPrompt, "prompt.id"),
	"variables": readVariables,
}, nil, "version")

func readStoredPrompt(s *scanner) error {
	start := s.pos
	beginMessage(s, "user")
	err := s.members("prompt", promptFields)
	s.req.texts = append(s.req.texts, Text{KindOther, Span{start, s.pos}})
	endMessage(s)
	return err
}

// readVariables reads the variables of a stored prompt: texts, and parts of content, each of which
// may be a document.
func readVariables(s *scanner) error {
	if s.peek() != '{' {
		return s.wrongType("prompt.variables", "an object")
	}
	return s.object(func([]byte) error {
		if s.peek() != '"' {
			m := s.message()
			m.Files = append(m.Files, Media{Remote: true})
		}
		return s.walk()
	})
}
