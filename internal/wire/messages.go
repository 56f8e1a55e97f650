package wire

import (
	"net/http"
	"slices"
	"strings"
)

// The endpoints of Anthropic's Messages API: generate a message, and count the tokens of a request.
const (
	Messages       Endpoint = "messages"
	MessagesTokens Endpoint = "messages.count_tokens"
)

var (
	_ = endpoint(Messages, Traits{
		Path: "/messages", Operation: "chat", Makes: Texts, Batched: true, Foreign: true, Reusable: true, Dialogue: true,
		Shows: true, Messages: true, OutputField: "max_tokens", fields: messagesFields, content: []string{"content"},
		complete: func(s *scanner) error {
			if s.req.OutputLimit < 0 {
				return missing("max_tokens")
			}
			return hasMessages(s)
		},
		event: scanMessageEvent, generated: scanMessage, written: scanMessageWritten,
	})
	_ = endpoint(MessagesTokens, Traits{
		Path: "/messages/count_tokens", Free: true, Dialogue: true, Messages: true, OutputField: "max_tokens",
		fields: messagesFields, content: []string{"input_tokens"}, complete: hasMessages,
	})
)

// hasMessages checks that a request has messages, and sets what its members say together.
func hasMessages(s *scanner) error {
	r := s.req
	if r.find("messages") < 0 {
		return missing("messages")
	}
	if r.Speed == "fast" {
		r.ServiceTier = r.Speed
	}
	if s.uses >= 0 && !s.remote && len(r.BuiltinTools) > 0 {
		r.MaxToolCalls = s.uses
	}
	return nil
}

// messagesFields are the members of a Messages request. Counting tokens uses a subset. What the API does not
// define passes: agents send members of betas, and new ones with every release.
var messagesFields = newFields(map[string]reader{
	"model":              readModel,
	"messages":           readTurns,
	"system":             readSystem,
	"max_tokens":         readInt("max_tokens", 0, maxInt, func(s *scanner) *int64 { return &s.req.OutputLimit }),
	"stream":             readBool("stream", func(s *scanner) *bool { return &s.req.Stream }),
	"service_tier":       readWord("service_tier", func(s *scanner) *string { return &s.req.ServiceTier }),
	"speed":              readWord("speed", func(s *scanner) *string { return &s.req.Speed }),
	"inference_geo":      readWord("inference_geo", func(s *scanner) *string { return &s.req.InferenceGeo }),
	"thinking":           readMembers("thinking", claudeThinkingFields),
	"output_config":      readMembers("output_config", outputConfigFields),
	"tools":              readClaudeTools,
	"tool_choice":        readAny(func(s *scanner) *Span { return &s.req.ToolChoice }),
	"cache_control":      readCacheControl,
	"fallbacks":          readFallbacks,
	"context_management": readMembers("context_management", contextFields),
	"mcp_servers":        readRunByProvider("mcp_servers"),
	"container":          readRunByProvider("container"),
}, readUnknown, "metadata stop_sequences temperature top_k top_p")

// messagesBetas are the names of betas of Messages without their dates. None costs anything alone: what it allows in
// a request is read there.
var messagesBetas = slices.Concat(
	strings.Fields("claude-code oauth"), // of Claude Code
	strings.Fields("context-1m output-128k output-300k token-counting model-context-window-exceeded pdfs files-api"),
	strings.Fields("prompt-caching prompt-caching-scope extended-cache-ttl cache-diagnosis"), // cache_control
	strings.Fields("interleaved-thinking dev-full-thinking redact-thinking thinking-token-count "+
		"thinking-display-updates thinking-binding-controls effort task-budgets structured-outputs"), // output
	strings.Fields("mid-conversation-system mid-conversation-system-clear-at mid-conversation-output-config "+
		"mid-conversation-tool-changes per-turn-control"), // messages[]
	strings.Fields("advanced-tool-use tool-search-tool tool-examples token-efficient-tools "+
		"fine-grained-tool-streaming computer-use code-execution web-fetch web-search advisor-tool inline-tools"), // tools
	strings.Fields("mcp-client skills"),                    // mcp_servers, container
	strings.Fields("context-management compact"),           // context_management
	strings.Fields("fast-mode"),                            // speed
	strings.Fields("server-side-fallback fallback-credit"), // fallbacks
)

// Betas returns the names of the betas that a caller's headers select, or nil.
func Betas(h http.Header) (names []string) {
	for _, list := range h["Anthropic-Beta"] {
		for name := range strings.SplitSeq(list, ",") {
			name = strings.TrimSpace(name)
			if name != "" {
				names = append(names, name)
			}
		}
	}
	return names
}

// KnownBeta reports whether Messages with a beta have no cost that their [Request] does not show. Its date does not
// count.
func KnownBeta(name string) bool {
	return slices.ContainsFunc(messagesBetas, func(known string) bool {
		date, ok := strings.CutPrefix(name, known)
		return ok && strings.Trim(date, "-0123456789") == ""
	})
}

var claudeThinkingFields = newFields(map[string]reader{
	"type": func(s *scanner) error {
		kind, err := s.word("thinking.type")
		s.req.Thinks = kind != "disabled"
		return err
	},
}, nil, "budget_tokens display")

var outputConfigFields = newFields(map[string]reader{
	"effort": readWord("output_config.effort", func(s *scanner) *string { return &s.req.ReasoningEffort }),
	"format": readRaw("output_config.format", '{', func(s *scanner) *Span { return &s.req.ResponseFormat }),
}, nil, "task_budget")

// readRunByProvider reads a member for which the provider runs tools: servers of the Model Context Protocol,
// and containers.
func readRunByProvider(name string) reader {
	return func(s *scanner) error {
		s.remote = true
		if s.peek() != '[' {
			s.req.BuiltinTools = append(s.req.BuiltinTools, name)
			return s.walk()
		}
		return s.array(func(i int) error {
			if i == 0 {
				s.req.BuiltinTools = append(s.req.BuiltinTools, name)
			}
			return s.walk()
		})
	}
}

// readFallbacks reads the models that may answer in place of the requested one.
func readFallbacks(s *scanner) error {
	switch s.peek() {
	case '"':
		name, err := s.word("fallbacks")
		s.req.Fallbacks = append(s.req.Fallbacks, Fallback{Model: name, Limit: -1})
		return err
	case '[':
		return s.objects("fallbacks", 0, func() error {
			s.req.Fallbacks = append(s.req.Fallbacks, Fallback{Limit: -1})
			return s.members("fallbacks[]", fallbackFields)
		})
	}
	return s.wrongType("fallbacks", "a string or an array of objects")
}

// Fallback is a model that may answer in place of the requested one, and its own output limit in tokens, -1
// for that of the request.
type Fallback struct {
	Model, Speed string
	Limit        int64
}

func (s *scanner) fallback() *Fallback { return &s.req.Fallbacks[len(s.req.Fallbacks)-1] }

var fallbackFields = newFields(map[string]reader{
	"model":      readWord("fallbacks[].model", func(s *scanner) *string { return &s.fallback().Model }),
	"max_tokens": readInt("fallbacks[].max_tokens", 0, maxInt, func(s *scanner) *int64 { return &s.fallback().Limit }),
	"speed":      readWord("fallbacks[].speed", func(s *scanner) *string { return &s.fallback().Speed }),
}, nil)

var contextFields = newFields(map[string]reader{
	"edits": func(s *scanner) error {
		return s.objects("context_management.edits", 0, func() error {
			return s.members("context_management.edits[]", contextEditFields)
		})
	},
}, nil)

var contextEditFields = newFields(map[string]reader{
	"type": func(s *scanner) error {
		kind, err := s.word("context_management.edits[].type")
		s.req.Compacts = s.req.Compacts || strings.HasPrefix(kind, "compact")
		return err
	},
}, nil)

// readSystem adds the system prompt, a text or blocks, as the first message.
func readSystem(s *scanner) error {
	beginMessage(s, "system")
	err := readBlocks(s, "system")
	endMessage(s)
	return err
}

func readTurns(s *scanner) error {
	r := s.req
	found := len(r.Messages)
	err := s.objects("messages", 0, func() error {
		if len(r.Messages) == maxMessages {
			return BadRequest("messages", "array_above_max_length",
				"Invalid 'messages': array too long. Expected an array with maximum length %d.", maxMessages)
		}
		beginMessage(s, "")
		first := s.item.texts
		err := s.members("messages[]", turnFields)
		s.item.texts = first
		endMessage(s)
		return err
	})
	if err == nil && len(r.Messages) == found {
		return empty("messages")
	}
	return err
}

var turnFields = newFields(map[string]reader{
	"role":          readWord("messages[].role", func(s *scanner) *string { return &s.message().Role }),
	"content":       func(s *scanner) error { return readBlocks(s, "messages[].content") },
	"output_config": (*scanner).walk,
	"cache_control": readCacheControl,
}, readOther)

// block is what was read of the current content block.
type block struct {
	kind   string
	source string // the type of its source
	data   Span   // of its source, a raw string
	remote bool   // its source is a URL
	stored bool   // its source is a file at the provider
}

// readBlocks reads content: a text, or blocks, which may contain blocks.
func readBlocks(s *scanner, param string) error {
	switch s.peek() {
	case '"':
		return s.addText(param, KindContent)
	case '[':
		return s.array(func(i int) error {
			s.index[1] = i
			return readBlock(s, param)
		})
	case '{': // such as the error of a search
		return readBlock(s, param)
	}
	return s.wrongType(param, "a string or an array of objects")
}

func readBlock(s *scanner, param string) error {
	outer := s.block
	s.block = block{}
	if s.peek() != '{' {
		return s.wrongType(param+"[]", "an object")
	}
	err := s.object(func(name []byte) error { return s.member(blockFields, name) })
	s.noteSource()
	s.block = outer
	return err
}

var blockFields, sourceFields *fields

func init() { // blocks contain blocks
	blockFields = newFields(map[string]reader{
		"type":          readWord("messages[].content[].type", func(s *scanner) *string { return &s.block.kind }),
		"text":          readText("messages[].content[].text", KindContent),
		"source":        readSource,
		"content":       func(s *scanner) error { return readBlocks(s, "messages[].content[].content") },
		"name":          readText("messages[].content[].name", KindToolCall),
		"input":         readCallInput,
		"thinking":      readText("messages[].content[].thinking", KindOther),
		"signature":     readText("messages[].content[].signature", KindOther),
		"data":          readText("messages[].content[].data", KindOther),
		"title":         readText("messages[].content[].title", KindContent),
		"context":       readText("messages[].content[].context", KindContent),
		"file_id":       readBlockFile,
		"tool":          readToolChange,
		"tool_changes":  readToolChanges,
		"cache_control": readCacheControl,
	}, readOther, "id tool_use_id is_error")
	sourceFields = newFields(map[string]reader{
		"type": readWord("messages[].content[].source.type", func(s *scanner) *string { return &s.block.source }),
		"data": readSpan("messages[].content[].source.data", func(s *scanner) *Span { return &s.block.data }),
		"url": func(s *scanner) error {
			s.block.remote = true
			_, err := s.stringAt("messages[].content[].source.url")
			return err
		},
		"file_id": readBlockFile,
		"content": func(s *scanner) error { return readBlocks(s, "messages[].content[].source.content") },
	}, readOtherContent, "media_type")
}

// readSource reads what a picture or a document is made of. The source of a search result is a text.
func readSource(s *scanner) error {
	if s.peek() == '"' {
		return s.addText("messages[].content[].source", KindContent)
	}
	return s.members("messages[].content[].source", sourceFields)
}

// readBlockFile reads the id of a file that the provider stores.
func readBlockFile(s *scanner) error {
	s.block.stored = true
	return readRef(ObjectFile, "messages[].content[].source.file_id")(s)
}

var toolChangeFields = newFields(map[string]reader{"definition": readInlineTool}, nil)

// readToolChanges reads the blocks of tool changes that a summary contains.
func readToolChanges(s *scanner) error {
	switch s.peek() {
	case '{':
		return readBlock(s, "messages[].content[].tool_changes")
	case '[':
		return s.array(func(int) error { return readToolChanges(s) })
	}
	return readOther(s, []byte("tool_changes"))
}

// readToolChange reads which tool a block adds or removes. It may define one that tools do not contain. Blocks of other
// types may have a member of the same name.
func readToolChange(s *scanner) error {
	if s.peek() != '{' {
		return readOther(s, []byte("tool"))
	}
	start := s.pos
	err := s.members("messages[].content[].tool", toolChangeFields)
	s.req.texts = append(s.req.texts, Text{KindOther, Span{start, s.pos}})
	return err
}

func readInlineTool(s *scanner) error {
	s.tool = tool{uses: -1, limit: -1}
	err := s.members("messages[].content[].tool.definition", claudeToolFields)
	_, own := toolsetOf(s.tool.kind)
	s.remote = s.remote || !own // the max_uses in tools do not bound it
	s.noteClaudeTool()
	return err
}

// readCallInput reads the input of a tool call, which is part of the prompt as it is.
func readCallInput(s *scanner) error {
	start := s.pos
	err := s.walkUnasked()
	s.req.texts = append(s.req.texts, Text{KindToolCall, Span{start, s.pos}})
	return err
}

// noteSource records the picture or document of a block, whose type may follow its source.
func (s *scanner) noteSource() {
	b := &s.block
	if b.data.IsZero() && !b.remote || b.stored || len(s.req.Messages) == 0 {
		return
	}
	m := s.message()
	switch {
	case b.kind == "image":
		m.Images = append(m.Images, Image{URL: b.data, Bare: true})
	case b.source == "text" && b.kind == "document":
		s.req.texts = append(s.req.texts, Text{KindContent, b.data})
	default:
		m.Files = append(m.Files, Media{Data: b.data, Remote: b.remote})
	}
}

var claudeToolFields = newFields(map[string]reader{
	"type":         readWord("tools[].type", func(s *scanner) *string { return &s.tool.kind }),
	"name":         readWord("tools[].name", func(s *scanner) *string { return &s.tool.name }),
	"input_schema": readSchema,
	"max_uses":     readInt("tools[].max_uses", 0, maxInt, func(s *scanner) *int64 { return &s.tool.uses }),
	"model":        readWord("tools[].model", func(s *scanner) *string { return &s.tool.model }),
	"max_tokens":   readInt("tools[].max_tokens", 0, maxInt, func(s *scanner) *int64 { return &s.tool.limit }),

	"cache_control": readCacheControl,
}, readOtherOfTool, "display_width_px display_height_px display_number max_characters")

// readClaudeTools reads the tools of a Messages request. One without a type is the caller's.
func readClaudeTools(s *scanner) error {
	start := s.pos
	s.uses = 0
	err := s.objects("tools", 0, func() error {
		s.tool = tool{uses: -1, limit: -1}
		if err := s.members("tools[]", claudeToolFields); err != nil {
			return err
		}
		s.noteClaudeTool()
		return nil
	})
	s.req.Tools = Span{start, s.pos}
	return err
}

func (s *scanner) noteClaudeTool() {
	t, r := &s.tool, s.req
	set, own := toolsetOf(t.kind)
	r.ToolPrompt += set.prompt
	if own {
		t.dropSchema(r)
		t.noteOwn(r)
		return
	}
	if strings.HasPrefix(t.kind, "advisor_") {
		r.Advisors = append(r.Advisors, Advisor{Model: t.model, Uses: t.uses, Limit: t.limit})
	}
	t.noteProviders(r)
	if t.uses < 0 || s.uses < 0 {
		s.uses = -1
		return
	}
	s.uses += t.uses
}

// Advisor is a second model that the provider asks during a call: at most Uses times for at most Limit tokens
// of output each; -1 if not given.
type Advisor struct {
	Model       string
	Uses, Limit int64
}

// toolset is a type of tools that the client runs, without its date, and the tokens of the prompt that the
// provider adds for such a tool.
type toolset struct {
	prefix string
	prompt int64
}

// claudeToolsets are the types of tools of Anthropic's API that the client runs. The provider runs all others.
// The tokens are those of Anthropic's page about prices.
var claudeToolsets = []toolset{
	{"custom", 0}, {"bash_", 325}, {"text_editor_", 700}, {"memory_", 700}, {"computer_", 4500}, {"browser_", 6600},
}

// toolsetOf returns the row of a type of tools that the client runs.
func toolsetOf(kind string) (row toolset, own bool) {
	if kind == "" {
		return toolset{}, true
	}
	for _, t := range claudeToolsets {
		if strings.HasPrefix(kind, t.prefix) {
			return t, true
		}
	}
	return toolset{}, false
}
