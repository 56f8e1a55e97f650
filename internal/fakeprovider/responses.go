package fakeprovider

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/sashabaranov/go-openai"
)

// response is a Response object and what is stored of it.
type response struct {
	id     string
	model  string
	tier   string
	echo   map[string]json.RawMessage // members of the request that are repeated
	made   int64
	stored bool
	items  []map[string]any // output
	input  []json.RawMessage
	tokens int64 // of the whole conversation so far
	body   []byte
}

// inputItem holds the members of a Responses input item that are read.
type inputItem struct {
	Type      string          `json:"type"`
	ID        string          `json:"id"`
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	Name      string          `json:"name"`
	Arguments string          `json:"arguments"`
	Output    json.RawMessage `json:"output"`
}

// routeResponses returns the handler for a path below /v1/responses.
func routeResponses(x *exchange) (method string, handle handler) {
	rest := strings.Trim(strings.TrimPrefix(x.r.URL.Path, "/v1/responses"), "/")
	id, verb, _ := strings.Cut(rest, "/")
	switch {
	case rest == "":
		return http.MethodPost, func(x *exchange) error { return generate(x, x.q.responses(x.s)) }
	case rest == "compact":
		return http.MethodPost, compactResponse
	case rest == "input_tokens":
		return http.MethodPost, countInputTokens
	case verb == "cancel":
		return http.MethodPost, func(*exchange) error {
			return invalid("", "", "Only responses with background=true can be cancelled.")
		}
	case verb == "input_items":
		return http.MethodGet, withResponse(id, listInputItems)
	case x.r.Method == http.MethodDelete && verb == "":
		return http.MethodDelete, withResponse(id, dropResponse)
	}
	return http.MethodGet, withResponse(id, func(x *exchange, r *response) { x.finish(r.body) })
}

// responses returns a function that reads the request's fields.
func (q *Request) responses(s *Server) func() error {
	return func() error {
		var limit *int64
		var reasoning openai.ResponseReasoning
		var text struct {
			Format struct {
				Type string `json:"type"`
				namedSchema
			} `json:"format"`
		}
		background := false
		err := q.read(map[string]any{
			"stream": &q.Stream, "max_output_tokens": &limit, "service_tier": &q.ServiceTier, "reasoning": &reasoning,
			"text": &text, "tool_choice": &q.toolChoice, "background": &background,
		})
		if err != nil {
			return err
		}
		if background {
			return invalid("background", "unsupported_parameter", "This provider has no background mode.")
		}
		q.Effort = reasoning.Effort
		if limit != nil {
			q.MaxTokens = *limit
			if *limit < 16 {
				return invalid("max_output_tokens", "integer_below_min_value",
					"Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got %d instead.", *limit)
			}
		}
		q.format = responseFormat{text.Format.Type, text.Format.namedSchema}
		if err := q.readResponsesTools(); err != nil {
			return err
		}
		if err := q.readInputItems(s); err != nil {
			return err
		}
		return q.readMessages()
	}
}

// readResponsesTools reads the flat tools of Responses.
func (q *Request) readResponsesTools() error {
	var flat []struct {
		Type string `json:"type"`
		function
	}
	if err := q.field("tools", &flat); err != nil || len(flat) == 0 {
		return err
	}
	kept := flat[:0]
	for _, f := range flat {
		if f.Type == "function" {
			kept = append(kept, f)
			q.tools = append(q.tools, tool{Type: f.Type, Function: f.function})
		}
	}
	q.fields["tools"] = encode(kept)
	return nil
}

// readInputItems converts the input to messages.
func (q *Request) readInputItems(s *Server) error {
	var instructions, previous, text string
	err := q.read(map[string]any{"instructions": &instructions, "previous_response_id": &previous})
	if err != nil {
		return err
	}
	if previous != "" {
		r := s.response(previous)
		if r == nil {
			return invalid("previous_response_id", "previous_response_not_found", "Previous response with id '%s' not found.",
				previous)
		}
		q.hidden = r.tokens
	}
	q.spoken, err = q.conversation(s)
	if err != nil {
		return err
	}
	if q.spoken != nil {
		s.change(func() { q.hidden += q.spoken.tokens })
	}
	if instructions != "" {
		q.messages = append(q.messages, message{Role: "system", Content: encode(instructions)})
	}
	if json.Unmarshal(q.fields["input"], &text) == nil {
		q.items = []json.RawMessage{encode(map[string]any{"type": "message", "role": "user", "content": text})}
	} else if err := q.field("input", &q.items); err != nil {
		return err
	}
	for _, raw := range q.items {
		var item inputItem
		if err := json.Unmarshal(raw, &item); err != nil {
			return invalid("input", "invalid_type", "Invalid type for 'input': %v.", err)
		}
		if item.Type == "item_reference" && !s.hasItem(item.ID) {
			return invalid("input", "", "Item with id '%s' not found.", item.ID)
		}
		q.messages = append(q.messages, item.message())
	}
	if len(q.messages) == 0 {
		return invalid("input", "missing_required_parameter", "Missing required parameter: 'input'.")
	}
	return nil
}

func (i *inputItem) message() message {
	switch i.Type {
	case "function_call":
		return message{
			Role:      "assistant",
			ToolCalls: []toolCall{{Function: &calledFunc{Name: i.Name, Arguments: i.Arguments}}},
		}
	case "function_call_output":
		return message{Role: "tool", Content: i.Output}
	case "", "message":
		return message{Role: i.Role, Content: i.Content}
	}
	return message{Role: "assistant"}
}

func (s *Server) response(id string) *response {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept[id]
}

func (s *Server) hasItem(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.kept {
		for _, item := range r.items {
			if item["id"] == id {
				return true
			}
		}
	}
	return false
}

// keep stores a response as the provider would.
func (s *Server) keep(r *response) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.kept) > 10_000 {
		clear(s.kept)
	}
	s.kept[r.id] = r
}

// withResponse returns a handler that calls do with a stored response.
func withResponse(id string, do func(*exchange, *response)) handler {
	return func(x *exchange) error {
		r := x.s.response(id)
		if r == nil {
			return invalid("id", "", "Response with id '%s' not found.", id).with(http.StatusNotFound)
		}
		do(x, r)
		return nil
	}
}

func dropResponse(x *exchange, r *response) {
	x.s.change(func() { delete(x.s.kept, r.id) })
	x.finish(encode(map[string]any{"id": r.id, "object": "response", "deleted": true}))
}

func listInputItems(x *exchange, r *response) {
	x.finish(encode(map[string]any{"object": "list", "data": r.input, "first_id": nil, "last_id": nil, "has_more": false}))
}

// countInputTokens answers POST /v1/responses/input_tokens.
func countInputTokens(x *exchange) error {
	err := x.admit(x.q.responses(x.s))
	if err != nil || x.opening() {
		return err
	}
	x.finish(encode(map[string]any{"object": "response.input_tokens", "input_tokens": x.q.promptTokens()}))
	return nil
}

// compactResponse answers POST /v1/responses/compact with a tenth of the tokens.
func compactResponse(x *exchange) error {
	err := x.admit(x.q.responses(x.s))
	if err != nil || x.opening() {
		return err
	}
	u := Usage{Prompt: x.q.promptTokens()}
	u.Completion = u.Prompt/10 + 1
	x.s.log.update(x.rec, func(rec *Record) { rec.AnswerModel, rec.Tier = x.q.Model, x.q.tier() })
	x.used(u)
	x.finish(encode(map[string]any{
		"id": newID("resp_"), "object": "response.compaction", "created_at": 1, "usage": x.usage(responseUsage(u)),
		"output": []any{map[string]any{
			"id": newID("cmp_"), "type": "compaction",
			"encrypted_content": strings.Repeat("g", int(u.Completion)),
		}},
	}))
	return nil
}
