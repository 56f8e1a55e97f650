package tokenizer

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

type goldenSet struct {
	Source   string
	Encoding string
	Exact    bool // the estimate must equal the count, otherwise be within 8 %
	Cases    []goldenCase
}

type goldenCase struct {
	Tokens   int // as the API reported
	Messages []struct{ Role, Name, Content string }
	Tools    json.RawMessage
	Choice   json.RawMessage
}

// TestChatGolden checks every published count that was verified against OpenAI's API.
func TestChatGolden(t *testing.T) {
	raw, err := os.ReadFile("testdata/chat_golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var sets []goldenSet
	if err := json.Unmarshal(raw, &sets); err != nil {
		t.Fatal(err)
	}
	for _, set := range sets {
		enc, model := CL100k, "gpt-3.5-turbo"
		if set.Encoding == "o200k_base" {
			enc, model = O200k, "gpt-4o"
		}
		for _, c := range set.Cases {
			messages, system := c.messageTokens(enc, model)
			expected := messages
			rendered, ok := ToolsRendered(enc, c.Tools)
			expected += rendered + ToolChoiceTokens(enc, c.Choice)
			if system && rendered > 0 {
				expected -= 4
			}
			off := expected - c.Tokens
			if !ok || set.Exact && off != 0 || off*100 < -8*c.Tokens || off*100 > 5*c.Tokens {
				t.Errorf("%s: estimate %d, API %d: %s", set.Source, expected, c.Tokens, c.Tools)
			}
			if held := messages + ToolsTokens(enc, c.Tools); held < c.Tokens {
				t.Errorf("%s: held %d, API %d: %s", set.Source, held, c.Tokens, c.Tools)
			}
		}
	}
}

// messageTokens counts the messages of a case by the chat format. In a request with tools, OpenAI
// appends a line end to the first system message.
func (c goldenCase) messageTokens(enc Encoding, model string) (tokens int, system bool) {
	perRequest, perMessage, perName := ChatOverhead(model)
	tokens = perRequest
	for _, m := range c.Messages {
		content := m.Content
		if m.Role == "system" && !system && c.Tools != nil {
			content += "\n"
		}
		system = system || m.Role == "system"
		tokens += perMessage + count(enc, m.Role) + count(enc, content)
		if m.Name != "" {
			tokens += perName + count(enc, m.Name)
		}
	}
	return tokens, system
}

func count(enc Encoding, text string) int { return Count(enc, []byte(text)) }

func TestChatOverhead(t *testing.T) {
	for model, want := range map[string][3]int{
		"gpt-4o":             {3, 3, 1},
		"gpt-5-mini":         {3, 3, 1},
		"gpt-3.5-turbo-0301": {3, 4, -1},
		"openai/gpt-oss-20b": {70, 4, 1},
		"xai/grok-4-fast":    {170, 4, 1},
		"something-new":      {3, 3, 1},
	} {
		a, b, c := ChatOverhead(model)
		if got := [3]int{a, b, c}; got != want {
			t.Errorf("ChatOverhead(%q) = %v, want %v", model, got, want)
		}
	}
}

func TestToolsRendering(t *testing.T) {
	tools, err := parseTools([]byte(`[{"type":"function","function":{"name":"find","description":"Finds.","strict":true,
		"parameters":{"type":"object","required":["q","kind"],"additionalProperties":false,"properties":{
			"q":{"type":"string","description":"What"},
			"kind":{"enum":["a",2,null]},
			"where":{"type":["object","null"],"properties":{"lat":{"type":"number","description":"lost"}}},
			"tags":{"type":"array","items":{"type":"string"}},
			"any":{"anyOf":[{"type":"integer"},{"const":"x"}]},
			"ref":{"$ref":"#/$defs/x"}}}}},
		{"type":"custom","custom":{"name":"raw","description":"Free text."}},
		{"type":"function","name":"flat","parameters":{"type":"object","properties":{"on":{"type":"boolean"}}}}]`))
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Join([]string{
		"namespace functions {", "",
		"// Finds.", "type find = (_: {",
		"// What", "q: string,",
		`kind: "a" | 2 | null,`,
		"where?: {", "  lat?: number,", "} | null,",
		"tags?: string[],",
		`any?: number | "x",`,
		"ref?: any,",
		"}) => any;", "",
		"// Free text.", "type raw = () => any;", "",
		"type flat = (_: {", "on?: boolean,", "}) => any;", "",
		"} // namespace functions",
	}, "\n")
	if got := string(renderTools(tools)); got != want {
		t.Errorf("rendered:\n%s\nwant:\n%s", got, want)
	}
}

func TestToolsThatAreNotTools(t *testing.T) {
	for _, raw := range []string{``, `null`, ` [] `} {
		if got := ToolsTokens(O200k, []byte(raw)); got != 0 {
			t.Errorf("ToolsTokens(%q) = %d, want 0", raw, got)
		}
	}
	deep := `[{"name":"f","parameters":` + strings.Repeat(`{"type":"object","properties":{"a":`, 3000) + `{}` + strings.Repeat(`}}`, 3000) + `}]`
	for _, raw := range []string{`{"a": 1}`, `["x"]`, `[{"name": "f"`, `nonsense`, `[{"name":1,"parameters":true}]`, deep} {
		tokens := count(O200k, string(compact([]byte(raw))))
		if got := ToolsTokens(O200k, []byte(raw)); got < tokens {
			t.Errorf("ToolsTokens(%.40q) = %d, less than its JSON's %d", raw, got, tokens)
		}
	}
}

func TestToolChoiceAndResponseFormat(t *testing.T) {
	for raw, want := range map[string]int{`"auto"`: 0, ` "none"`: 1, ``: 0, `{"type":"function","function":{"name":"get"}}`: 8, `{"name":"get"}`: 8, `{"type":"x"}`: 0, `{`: 0} {
		if got := ToolChoiceTokens(O200k, []byte(raw)); got != want {
			t.Errorf("ToolChoiceTokens(%q) = %d, want %d", raw, got, want)
		}
	}
	for raw, want := range map[string]int{``: 0, `{"type":"json_object"}`: 0, `{"type": "json_schema"}`: count(O200k, `{"type":"json_schema"}`) + 16} {
		if got := ResponseFormatTokens(O200k, []byte(raw)); got != want {
			t.Errorf("ResponseFormatTokens(%q) = %d, want %d", raw, got, want)
		}
	}
}
