package wire

import "strings"

// ChatCompletions is the endpoint of chat.
const ChatCompletions Endpoint = "chat.completions"

var _ = endpoint(ChatCompletions, Traits{
	Path: "/chat/completions", Operation: "chat", Makes: Texts, Batched: true, Reusable: true, Dialogue: true, Shows: true,
	Chunks: true, fields: chatFields, content: []string{"choices"}, generated: scanChoices,
	complete: func(s *scanner) error {
		if s.req.Messages == nil {
			return missing("messages")
		}
		return nil
	},
})

// chatFields are the members of a chat completion request: those that affect the price with their
// readers, the others of OpenAI's API with nil.
var chatFields = newFields(map[string]reader{
	"model":    readModel,
	"messages": readMessages,
	"max_completion_tokens": readInt("max_completion_tokens", 1, maxInt, func(s *scanner) *int64 {
		return &s.maxCompletion
	}),
	"max_tokens":       readInt("max_tokens", 1, maxInt, func(s *scanner) *int64 { return &s.maxTokens }),
	"n":                readInt("n", 1, 128, func(s *scanner) *int64 { return &s.req.N }),
	"best_of":          readInt("best_of", 1, 128, func(s *scanner) *int64 { return &s.req.BestOf }),
	"max_tool_calls":   readInt("max_tool_calls", 0, maxInt, func(s *scanner) *int64 { return &s.req.MaxToolCalls }),
	"stream":           readBool("stream", func(s *scanner) *bool { return &s.req.Stream }),
	"stream_options":   readMembers("stream_options", streamFields),
	"service_tier":     readWord("service_tier", func(s *scanner) *string { return &s.req.ServiceTier }),
	"reasoning_effort": readWord("reasoning_effort", func(s *scanner) *string { return &s.req.ReasoningEffort }),
	"inference_geo":    readWord("inference_geo", func(s *scanner) *string { return &s.req.InferenceGeo }),
	"tools":            readTools,
	"functions":        readFunctions,
	"response_format":  readRaw("response_format", '{', func(s *scanner) *Span { return &s.req.ResponseFormat }),
	"prediction":       readObject("prediction", func(s *scanner) *Span { return &s.req.Prediction }),
	"audio":            readObject("audio", func(s *scanner) *Span { return &s.req.Audio }),
	"prompt_cache_options": readObject("prompt_cache_options", func(s *scanner) *Span {
		return &s.req.PromptCacheOptions
	}),
	"tool_choice":        readAny(func(s *scanner) *Span { return &s.req.ToolChoice }),
	"moderation":         readAny(func(s *scanner) *Span { return &s.req.Moderation }),
	"modalities":         readModalities,
	"web_search_options": readWebSearch,
	"logprobs":           readBool("logprobs", func(s *scanner) *bool { return &s.req.Logprobs }),
	"store":              readBool("store", func(s *scanner) *bool { return &s.req.Store }),
	"cache_control":      readCacheControl,
}, readUnknown,
	"frequency_penalty function_call logit_bias metadata parallel_tool_calls presence_penalty prompt_cache_key "+
		"prompt_cache_retention safety_identifier seed stop temperature top_logprobs top_p user verbosity")

// readUnknown records a top-level member that OpenAI does not define.
func readUnknown(s *scanner, name []byte) error {
	s.req.Unknown = append(s.req.Unknown, string(name))
	return s.walkMember(name)
}

func readInt(param string, lo, hi int64, field func(*scanner) *int64) reader {
	return func(s *scanner) (err error) {
		*field(s), err = s.integer(param, lo, hi)
		return err
	}
}

func readBool(param string, field func(*scanner) *bool) reader {
	return func(s *scanner) (err error) {
		*field(s), err = s.boolean(param)
		return err
	}
}

func readWord(param string, field func(*scanner) *string) reader {
	return func(s *scanner) (err error) {
		*field(s), err = s.word(param)
		return err
	}
}

// readSpan reads a string, as it is in the body.
func readSpan(param string, field func(*scanner) *Span) reader {
	return func(s *scanner) (err error) {
		*field(s), err = s.stringAt(param)
		return err
	}
}

// readRaw reads a value that is text to the model, such as a schema.
func readRaw(param string, first byte, field func(*scanner) *Span) reader {
	return func(s *scanner) (err error) {
		*field(s), err = s.raw(param, first)
		return err
	}
}

// readAny reads any value and records what it mentions.
func readAny(field func(*scanner) *Span) reader {
	return func(s *scanner) error {
		start := s.pos
		err := s.walk()
		*field(s) = Span{start, s.pos}
		return err
	}
}

// readMembers reads an object with only some relevant members.
func readMembers(param string, known *fields) reader {
	return func(s *scanner) error { return s.members(param, known) }
}

// readObject is readAny for an object.
func readObject(param string, field func(*scanner) *Span) reader {
	read := readAny(field)
	return func(s *scanner) error {
		if s.peek() != '{' {
			return s.wrongType(param, "an object")
		}
		return read(s)
	}
}

func readModel(s *scanner) (err error) {
	s.req.Model, err = s.word("model")
	return err
}

func readModalities(s *scanner) (err error) {
	s.req.Modalities, err = s.words("modalities")
	return err
}

func readWebSearch(s *scanner) error {
	s.req.WebSearch = true
	if s.peek() != '{' {
		return s.wrongType("web_search_options", "an object")
	}
	return s.walk()
}

var streamFields = newFields(map[string]reader{
	"include_usage": readBool("stream_options.include_usage", func(s *scanner) *bool { return &s.req.IncludeUsage }),
}, nil, "include_obfuscation")

var cacheFields = newFields(map[string]reader{"ttl": readTTL}, nil)

// readCacheControl reads a cache mark, which only some providers support. A mark in another form
// may mean anything, so it counts as a long one.
func readCacheControl(s *scanner) error {
	s.req.Caches = s.req.Caches || s.peek() != 'n'
	if s.peek() != '{' {
		s.req.LongCache = s.req.LongCache || s.peek() != 'n'
		return s.skip()
	}
	return s.members("cache_control", cacheFields)
}

func readTTL(s *scanner) error {
	ttl, err := s.word("cache_control.ttl")
	if ttl != "5m" {
		s.req.LongCache = true
	}
	return err
}

var toolFields = newFields(map[string]reader{
	"type":          readWord("tools[].type", func(s *scanner) *string { return &s.tool.kind }),
	"function":      readToolFunction,
	"custom":        readToolFunction,
	"cache_control": readCacheControl,
}, readOtherOfTool)

// describing are the members of a caller's own tool, in all formats.
var describing = map[string]bool{
	"allowed_callers": true, "cache_control": true, "defer_loading": true, "description": true,
	"eager_input_streaming": true, "format": true,
	"input_examples": true, "input_schema": true, "name": true, "output_schema": true, "parameters": true, "strict": true,
}

// readOtherOfTool reads a member of a tool that has no other reader. Some vendors accept several
// tools in one object, whatever its type.
func readOtherOfTool(s *scanner, name []byte) error {
	if s.tool.first == "" {
		s.tool.first = clip(name)
	}
	on := strings.IndexByte("{[t", s.peek()) >= 0
	if s.tool.beside == "" && on && !describing[string(name)] {
		s.tool.beside = clip(name)
	}
	return s.walkMember(name)
}

var toolFunctionFields = newFields(map[string]reader{
	"name":       readWord("tools[].function.name", func(s *scanner) *string { return &s.tool.name }),
	"parameters": readSchema,
}, nil)

func readTools(s *scanner) error {
	start := s.pos
	err := s.objects("tools", 0, func() error {
		s.tool = tool{}
		if err := s.members("tools[]", toolFields); err != nil {
			return err
		}
		if s.tool.note(s.req) {
			s.tool.dropSchema(s.req)
		}
		return nil
	})
	s.req.Tools = Span{start, s.pos}
	return err
}

func readToolFunction(s *scanner) error {
	s.tool.ours = true
	return s.members("tools[].function", toolFunctionFields)
}

// note records the current tool. It reports whether the caller runs it.
func (t *tool) note(r *Request) bool {
	if t.kind == "function" || t.kind == "custom" || t.kind == "" && t.ours {
		t.noteOwn(r)
		return true
	}
	t.noteProviders(r)
	return false
}

func readFunctions(s *scanner) error {
	if s.peek() != '[' {
		return s.wrongType("functions", "an array")
	}
	start := s.pos
	err := s.walkUnasked()
	s.req.Functions = Span{start, s.pos}
	return err
}
