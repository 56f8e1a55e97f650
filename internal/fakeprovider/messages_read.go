package fakeprovider

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// claudeRequest is a request to the Messages API.
type claudeRequest struct {
	MaxTokens   *int64 `json:"max_tokens"`
	Stream      bool
	Temperature *float64
	TopP        *float64 `json:"top_p"`
	TopK        *int64   `json:"top_k"`
	Output      struct {
		Effort string
		Format struct {
			Type   string
			Schema json.RawMessage
		}
	} `json:"output_config"`
	Thinking struct {
		Type, Display string
		Budget        int64 `json:"budget_tokens"`
	}
	Tools  []json.RawMessage
	Choice struct {
		Type, Name string
		Alone      bool `json:"disable_parallel_tool_use"`
	} `json:"tool_choice"`
	System   json.RawMessage
	Messages []map[string]json.RawMessage
	Cache    *cacheControl `json:"cache_control"`
	Tier     string        `json:"service_tier"`
	Speed    string
	Geo      string `json:"inference_geo"`

	prompt   []segment // all input, in the order that the prompt cache compares
	input    Usage     // by class, before it is remembered
	thinks   bool
	display  string // default of thinking.display
	searches int64  // most web searches; 0 if none may be made
}

// The members of requests, without those that need a beta.
const (
	countMembers   = "model messages system tools tool_choice thinking output_config cache_control speed"
	messageMembers = countMembers + " max_tokens stream stop_sequences temperature top_k top_p metadata service_tier" +
		" inference_geo container diagnostics"
)

// betaMembers are the members that need a beta, and how the name of the beta begins.
var betaMembers = [][2]string{
	{"context_management", "context-management-"},
	{"context_management", "compact-"},
	{"compaction", "compact-"},
	{"mcp_servers", "mcp-client-"},
	{"fallbacks", "server-side-fallback-"},
	{"fallback_credit_token", "fallback-credit-"},
	{"output_format", "structured-outputs-"},
}

// onlyMembers returns the 400 for a member that is not in a list of names separated by spaces.
func onlyMembers(at string, doc map[string]json.RawMessage, names string) error {
	for _, name := range slices.Sorted(maps.Keys(doc)) {
		if !slices.Contains(strings.Fields(names), name) {
			return invalid("", "", "%s%s: Extra inputs are not permitted", at, name)
		}
	}
	return nil
}

// readClaude returns a function that reads a request with these members, and others if the betas
// in its header allow them.
func (q *Request) readClaude(s *Server, members string) func() error {
	return func() error {
		allowed, betas := members, strings.Join(q.Header.Values("Anthropic-Beta"), ",")
		for _, m := range betaMembers {
			if strings.Contains(betas, m[1]) {
				allowed += " " + m[0]
			}
		}
		err := onlyMembers("", q.fields, allowed)
		if err != nil {
			return err
		}
		c := &claudeRequest{Speed: "standard", Geo: "global"}
		err = json.Unmarshal(q.Body, c)
		if err != nil {
			return invalid("", "", "%v", err)
		}
		if c.MaxTokens == nil && members == messageMembers {
			return invalid("", "", "max_tokens: Field required")
		}
		q.claude, q.Stream, q.Effort = c, c.Stream, c.Output.Effort
		q.format = responseFormat{c.Output.Format.Type, namedSchema{Schema: c.Output.Format.Schema}}
		if c.MaxTokens != nil {
			q.MaxTokens = *c.MaxTokens
		}
		for _, read := range []func() error{q.claudeRules, q.claudeTools, q.claudePrompt, q.breakpoints} {
			err := read()
			if err != nil {
				return err
			}
		}
		c.input = s.cache.use(q.Model+c.Speed, c.prompt, s.now(), false)
		q.Requested = c.input.Prompt - c.input.Cached
		return nil
	}
}

// claudeRules checks the members that are not content.
func (q *Request) claudeRules() error {
	c := q.claude
	adaptive, enabled := claudeAtLeast(q.Model, "4.7"), c.Thinking.Type == "enabled"
	sampled := c.Temperature != nil && *c.Temperature != 1 || c.TopP != nil && *c.TopP != 1 || c.TopK != nil
	forced := c.Choice.Type == "any" || c.Choice.Type == "tool"
	c.thinks, c.display = enabled || c.Thinking.Type == "adaptive", "summarized"
	if adaptive {
		c.display = "omitted"
	}
	unlisted := func(value, allowed string) bool {
		return value != "" && !slices.Contains(strings.Fields(allowed), value)
	}
	for _, rule := range []struct {
		broken bool
		text   string
	}{
		{c.MaxTokens != nil && *c.MaxTokens < 0, "max_tokens: Input should be greater than or equal to 0"},
		{c.Temperature != nil && (*c.Temperature < 0 || *c.Temperature > 1), "temperature: range: 0..1"},
		{sampled && adaptive, "`temperature`, `top_p` and `top_k` are deprecated for this model."},
		{
			c.Temperature != nil && c.TopP != nil && claudeAtLeast(q.Model, "4.1"),
			"`temperature` and `top_p` cannot both be specified for this model. Please use only one.",
		},
		{unlisted(c.Output.Effort, "low medium high xhigh max"), "output_config.effort: Input should be 'low' to 'max'"},
		{unlisted(c.Output.Format.Type, "json_schema"), "output_config.format.type: Input should be 'json_schema'"},
		{unlisted(c.Tier, "auto standard_only"), "service_tier: Input should be 'auto' or 'standard_only'"},
		{unlisted(c.Speed, "standard fast"), "speed: Input should be 'standard' or 'fast'"},
		{unlisted(c.Geo, "global us"), "inference_geo: Input should be 'global' or 'us'"},
		{unlisted(c.Thinking.Type, "adaptive enabled disabled"), "thinking: Input tag does not match the expected tags"},
		{unlisted(c.Thinking.Display, "summarized omitted"), "thinking.display: Input should be 'summarized' or 'omitted'"},
		{enabled && adaptive, "\"thinking.type.enabled\" is not supported for this model. Use \"thinking.type.adaptive\"."},
		{enabled && c.Thinking.Budget < 1024, "thinking.enabled.budget_tokens: Input should be at least 1024"},
		{
			enabled && c.MaxTokens != nil && c.Thinking.Budget >= *c.MaxTokens,
			"`max_tokens` must be greater than `thinking.budget_tokens`.",
		},
		{unlisted(c.Choice.Type, "auto any tool none"), "tool_choice: Input tag does not match the expected tags"},
		{c.Choice.Type != "" && len(c.Tools) == 0, "tool_choice may only be specified while providing tools."},
		{forced && c.thinks, "Thinking may not be enabled when tool_choice forces tool use."},
		{len(c.Messages) == 0, "messages: at least one message is required"},
	} {
		if rule.broken {
			return invalid("", "", "%s", rule.text)
		}
	}
	return nil
}

var claudeName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,128}$`)

// The tokens of the hidden prompt that a list of tools adds: usually, and if one must be called.
const (
	toolPrompt   = 286
	forcedPrompt = 406
)

// claudeTools reads the tools, and converts tool_choice to what chat completions have.
func (q *Request) claudeTools() error {
	c := q.claude
	if len(c.Tools) == 0 {
		return nil
	}
	hidden := segment{text: c.Choice.Type, tokens: toolPrompt}
	switch c.Choice.Type {
	case "any":
		hidden.tokens, q.toolChoice = forcedPrompt, json.RawMessage(`"required"`)
	case "tool":
		hidden.tokens, q.toolChoice = forcedPrompt, encode(map[string]string{"name": c.Choice.Name})
	case "none":
		q.toolChoice = json.RawMessage(`"none"`)
	}
	c.prompt = append(c.prompt, hidden)
	names := map[string]bool{}
	for i, raw := range c.Tools {
		at := fmt.Sprintf("tools.%d", i)
		name, err := q.claudeTool(at, raw)
		if err != nil {
			return err
		}
		if names[name] {
			return invalid("", "", "tools: Tool names must be unique.")
		}
		names[name] = true
	}
	if c.Choice.Type == "tool" && !names[c.Choice.Name] {
		return invalid("", "", "Tool '%s' not found in provided tools", c.Choice.Name)
	}
	return nil
}

// claudeTool reads one tool. Tools with a type other than "custom" are Anthropic's own, of which
// only web searches are made.
func (q *Request) claudeTool(at string, raw json.RawMessage) (name string, err error) {
	var t struct {
		Type, Name string
		Schema     json.RawMessage `json:"input_schema"`
		MaxUses    int64           `json:"max_uses"`
		Deferred   bool            `json:"defer_loading"`
	}
	var form struct{ Type string }
	err = json.Unmarshal(raw, &t)
	custom := t.Type == "" || t.Type == "custom"
	switch {
	case err != nil, t.Type != "mcp_toolset" && !claudeName.MatchString(t.Name):
		return "", invalid("", "", "%s.custom.name: String should match pattern '%s'", at, claudeName)
	case custom && t.Schema == nil:
		return "", invalid("", "", "%s.custom.input_schema: Field required", at)
	case custom && (json.Unmarshal(t.Schema, &form) != nil || form.Type != "object"):
		return "", invalid("", "", "%s.custom.input_schema.type: Input should be 'object'", at)
	case t.Deferred:
		return t.Name, nil
	case custom:
		q.tools = append(q.tools, tool{Type: "function", Function: function{Name: t.Name, Parameters: t.Schema}})
	case strings.HasPrefix(t.Type, "web_search_") && q.claude.Choice.Type != "none":
		q.claude.searches = 10
		if t.MaxUses > 0 {
			q.claude.searches = t.MaxUses
		}
	}
	_, err = q.addSegment(at, "tool", raw)
	return t.Name, err
}

// block holds the members of a content block that are read.
type block struct {
	Type, Text, ID, Name, Thinking, Signature string

	Input     json.RawMessage
	ToolUseID string `json:"tool_use_id"`
	Source    struct{ Type string }
	Cache     *cacheControl `json:"cache_control"`
}

// blockKinds are the types of content blocks: the role that may have them, and their members.
var blockKinds = map[string]struct{ role, members string }{
	"text":                   {"", "text citations"},
	"image":                  {"user", "source transformations"},
	"document":               {"user", "source title context citations"},
	"search_result":          {"user", "source title content citations"},
	"container_upload":       {"user", "file_id"},
	"tool_result":            {"user", "tool_use_id content is_error toolset_name"},
	"tool_use":               {"assistant", "id name input caller toolset_name"},
	"thinking":               {"assistant", "thinking signature"},
	"redacted_thinking":      {"assistant", "data"},
	"server_tool_use":        {"assistant", "id name input caller"},
	"web_search_tool_result": {"assistant", "tool_use_id content caller"},
	"fallback":               {"assistant", "from to trigger"},
	"compaction":             {"assistant", "content encrypted_content signature tool_changes"},
}

// check checks a content block of a role.
func (b *block) check(at, role string, members map[string]json.RawMessage) error {
	kind, known := blockKinds[b.Type]
	var input map[string]any
	switch {
	case !known:
		return invalid("", "", "%s: Input tag '%s' found using 'type' does not match any of the expected tags", at, b.Type)
	case kind.role != "" && kind.role != role:
		return invalid("", "", "%s: `%s` blocks can only be in `%s` messages", at, b.Type, kind.role)
	case b.Type == "text" && b.Text == "":
		return invalid("", "", "%s: text content blocks must be non-empty", at)
	case b.Type == "tool_use" && (!claudeName.MatchString(b.ID) || !claudeName.MatchString(b.Name)):
		return invalid("", "", "%s.tool_use.id: String should match pattern '%s'", at, claudeName)
	case b.Type == "tool_use" && (json.Unmarshal(b.Input, &input) != nil || input == nil):
		return invalid("", "", "%s.tool_use.input: Input should be a valid dictionary", at)
	case b.Type == "thinking" && b.Signature != signature(b.Thinking):
		return invalid("", "", "%s: Invalid `signature` in `thinking` block", at)
	}
	return onlyMembers(at+"."+b.Type+".", members, "type "+kind.members)
}

// signature returns the signature of a thinking block, so that a changed block is refused.
func signature(thinking string) string {
	sum := sha256.Sum256([]byte("signed " + thinking))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// addSegment adds a tool, or a content block of a role, to the prompt.
func (q *Request) addSegment(at, role string, raw json.RawMessage) (b block, err error) {
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil || json.Unmarshal(raw, &b) != nil {
		return b, invalid("", "", "%s: Input should be a valid dictionary", at)
	}
	delete(members, "cache_control") // a breakpoint may move without changing the prefix
	s := segment{text: role + string(encode(members))}
	s.life, err = b.Cache.life(at + ".cache_control")
	if err == nil && role != "tool" {
		err = b.check(at, role, members)
	}
	switch {
	case b.Type == "image":
		s.tokens = 1600
	case b.Type == "document" && b.Source.Type != "text":
		s.tokens = 3000 // a page
	case b.Type == "text":
		s.tokens = 4 + countText(q.Model, b.Text)
	default:
		s.tokens = countText(q.Model, s.text)
	}
	q.claude.prompt = append(q.claude.prompt, s)
	return b, err
}

// addContent adds a text or a list of blocks.
func (q *Request) addContent(at, role string, raw json.RawMessage) (list []block, err error) {
	var text string
	var raws []json.RawMessage
	if json.Unmarshal(raw, &text) == nil {
		raws = []json.RawMessage{encode(map[string]string{"type": "text", "text": text})}
	} else if json.Unmarshal(raw, &raws) != nil || len(raws) == 0 {
		return nil, invalid("", "", "%s: all messages must have non-empty content", at)
	}
	for i, raw := range raws {
		b, err := q.addSegment(fmt.Sprintf("%s.%d", at, i), role, raw)
		if err != nil {
			return nil, err
		}
		list = append(list, b)
	}
	return list, nil
}

// claudePrompt reads the system prompt and the messages. Each call of a tool must have its result
// before the next message of the assistant.
func (q *Request) claudePrompt() error {
	if q.has("system") {
		_, err := q.addContent("system", "system", q.claude.System)
		if err != nil {
			return err
		}
	}
	q.messages = []message{{Role: "user"}}
	last, open := "", map[string]bool{} // calls without a result
	for i, m := range q.claude.Messages {
		at, role, members := fmt.Sprintf("messages.%d", i), strings.Trim(string(m["role"]), `"`), "role content"
		if role == "system" {
			members += " output_config clear_at"
		}
		err := onlyMembers(at+".", m, members)
		switch {
		case err != nil:
			return err
		case !slices.Contains([]string{"user", "assistant", "system"}, role):
			return invalid("", "", "%s: Unexpected role \"%s\". Allowed roles are \"user\" or \"assistant\"", at, role)
		case i == 0 && role != "user":
			return invalid("", "", "messages: first message must use the \"user\" role")
		case role == "assistant" && len(open) > 0:
			return unanswered(at, open)
		}
		blocks, err := q.addContent(at+".content", role, m["content"])
		if err == nil {
			err = q.pair(at, role, blocks, open)
		}
		if err != nil {
			return err
		}
		if role != "system" {
			last = role
		}
	}
	switch {
	case len(open) > 0:
		return unanswered("messages", open)
	case last == "assistant" && claudeAtLeast(q.Model, "4.6"):
		return invalid("", "", "This model does not support assistant message prefill. "+
			"The conversation must end with a user message.")
	}
	return nil
}

func unanswered(at string, open map[string]bool) error {
	return invalid("", "", "%s: `tool_use` ids were found without `tool_result` blocks immediately after: %s. Each `tool_use` "+
		"block must have a corresponding `tool_result` block in the next message.", at,
		strings.Join(slices.Sorted(maps.Keys(open)), ", "))
}

// pair matches calls of tools with their results. The last message with results is answered with
// text.
func (q *Request) pair(at, role string, blocks []block, open map[string]bool) error {
	for _, b := range blocks {
		switch {
		case b.Type == "tool_use" && open[b.ID]:
			return invalid("", "", "%s: `tool_use` ids must be unique", at)
		case b.Type == "tool_use":
			open[b.ID] = true
		case b.Type == "tool_result" && !open[b.ToolUseID]:
			return invalid("", "", "%s: unexpected `tool_use_id` found in `tool_result` blocks: %s. Each `tool_result` block must "+
				"have a corresponding `tool_use` block in the previous message.", at, b.ToolUseID)
		case b.Type == "tool_result":
			delete(open, b.ToolUseID)
			q.messages = []message{{Role: "tool"}}
		case role == "assistant":
			q.messages = []message{{Role: role}}
		case role == "user":
			q.UserText += b.Text + "\n"
		}
	}
	return nil
}
