package guard

import (
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/providers"
	"github.com/llmguard/llmguard/providers/dialect"
)

// TestMembersWithoutAPriceAreRefused checks that members outside OpenAI's API are sent only
// if they cost nothing or the provider's configuration lists them.
func TestMembersWithoutAPriceAreRefused(t *testing.T) {
	r := newRig(t)
	const openAI, azure, mistral = "openai", "azure", "mistral"
	all := providers.Kinds(func(d dialect.Dialect) bool { // others get translations, which have no such members
		return slices.Contains(d.Wires(&url.URL{}), wire.ChatCompletions)
	})
	for _, x := range []struct {
		member string
		takes  []string
		code   string
	}{
		{`"models":["dear"]`, nil, "unsupported_parameter"},
		{`"plugins":[{"id":"web"}]`, nil, "unsupported_parameter"},
		{`"fallbacks":["dear"]`, nil, "unsupported_parameter"},
		{`"route":"fallback"`, nil, "unsupported_parameter"},
		{`"provider":{"order":["Dear"]}`, nil, "unsupported_parameter"},
		{`"search_parameters":{"mode":"on"}`, nil, "unsupported_parameter"},
		{`"enable_search":true`, nil, "unsupported_parameter"},
		{`"extra_body":{"models":["dear"]}`, nil, "unsupported_parameter"},
		{`"max_output_tokens":5`, nil, "unsupported_parameter"},
		{`"n_predict":500`, nil, "unsupported_parameter"},
		{`"deferred":true`, nil, "unsupported_parameter"},
		{`"data_sources":[]`, nil, "unsupported_parameter"},
		{`"never_heard_of":0`, nil, "unknown_parameter"},
		{`"Temperature":1`, nil, "unknown_parameter"},
		{`"models":null`, all, ""},
		{`"top_k":40`, []string{openAI}, "unknown_parameter"},
		{`"repetition_penalty":1.1`, []string{openAI}, "unknown_parameter"},
		{`"guided_json":{"type":"object"}`, []string{openAI}, "unknown_parameter"},
		{`"usage":{"include":true}`, []string{openAI}, "unknown_parameter"},
		{`"thinking":{"type":"enabled"}`, []string{openAI}, "unknown_parameter"},
		{`"chat_template_kwargs":{"enable_thinking":false}`, []string{openAI}, "unknown_parameter"},
		{`"safe_prompt":true`, []string{mistral}, "unknown_parameter"},
		{`"random_seed":1`, []string{mistral}, "unknown_parameter"},
		{`"user_security_context":{}`, []string{azure}, "unknown_parameter"},
		{`"stream_options":{"include_usage":true},"stream":true,"parallel_tool_calls":false,"verbosity":"low"`, all, ""},
	} {
		for _, kind := range all {
			at := r.guard.Policy().Providers.All()[0]
			at.Dialect, at.AllowFields = providers.DialectOf(kind), nil
			body := prompt("gpt-4o", "hi", `"max_tokens":10,`+x.member)
			p, err := r.prepare(body)
			if slices.Contains(x.takes, kind) {
				if name, _, _ := strings.Cut(x.member, ":"); err != nil || kind != mistral && !strings.Contains(string(p.Body().Bytes()), name) {
					t.Errorf("%s at %s: %v", x.member, kind, err)
				}
				continue
			}
			name := strings.Trim(x.member[:strings.Index(x.member, ":")], `"`)
			var e *wire.Error
			if !errors.As(err, &e) || e.Status != 400 || e.Code != x.code || e.Param != name ||
				!strings.Contains(e.Message, `allow_fields of the provider "openai"`) {
				t.Errorf("%s at %s: got %v, want 400 %s", x.member, kind, err, x.code)
			}
			for _, list := range [][]string{{name}, {"*"}} {
				at.AllowFields = list
				if p, err := r.prepare(body); err != nil || !strings.Contains(string(p.Body().Bytes()), x.member) || !p.hidesOutput() {
					t.Errorf("%s at %s, which allows %q: %v", x.member, kind, list, err)
				}
			}
		}
	}
}

// TestMembersOfEveryEndpoint checks that no endpoint forwards unknown members.
func TestMembersOfEveryEndpoint(t *testing.T) {
	r := newRig(t)
	for ep, body := range map[wire.Endpoint]string{
		wire.ChatCompletions:  `{"model":"gpt-4o","max_tokens":5,"messages":[{"role":"user","content":"x"}]`,
		wire.Responses:        `{"model":"gpt-4o","max_output_tokens":16,"input":"x"`,
		wire.ResponsesCompact: `{"model":"gpt-4o","input":"x"`,
		wire.ResponsesTokens:  `{"model":"gpt-4o","input":"x"`,
		wire.Completions:      `{"model":"gpt-3.5-turbo-instruct","prompt":"x","max_tokens":5`,
		wire.Embeddings:       `{"model":"text-embedding-3-small","input":"x"`,
		wire.Moderations:      `{"model":"omni-moderation-latest","input":"x"`,
		wire.ImageGenerations: `{"model":"gpt-image-1","prompt":"x","size":"1024x1024","quality":"low"`,
		wire.Speech:           `{"model":"tts-1","input":"x","voice":"alloy"`,
	} {
		for extra, ok := range map[string]bool{"}": true, `,"models":["dear"]}`: false} {
			req, err := wire.Scan(ep, []byte(body+extra), wire.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err = r.guard.Plans.Prepare(r.caller(), req); (err == nil) != ok {
				t.Errorf("%s: %s%s: %v", ep, body, extra, err)
			}
		}
	}
	const part = "--b\r\nContent-Disposition: form-data; name=%q\r\n\r\n%s\r\n"
	form := func(name string) error {
		text := strings.NewReplacer("%q", `"model"`, "%s", "whisper-1").Replace(part) +
			strings.NewReplacer("%q", `"file"; filename="a.wav"`, "%s", "sound").Replace(part) +
			strings.NewReplacer("%q", `"`+name+`"`, "%s", "1").Replace(part) + "--b--\r\n"
		req, err := wire.ScanForm(wire.Transcriptions, "", "multipart/form-data; boundary=b", strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.guard.Plans.Prepare(r.caller(), req)
		return err
	}
	if form("language") != nil || form("models") == nil {
		t.Errorf("a form with language: %v, with models: %v", form("language"), form("models"))
	}
}

// TestLimitOfACount: the limit in a request to count tokens keeps its name, which only chats have several of.
func TestLimitOfACount(t *testing.T) {
	r := newRig(t)
	r.vendor(t, &vendor{}, func(p *providers.Provider) { p.LimitField = "max_tokens" })
	req, err := wire.Scan(wire.ResponsesTokens, []byte(`{"model":"m","input":"x","max_output_tokens":16}`), wire.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := r.guard.Plans.Prepare(r.caller(), req)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range p.edits {
		if strings.HasPrefix(e.Name, "max_") {
			t.Errorf("the request is changed: %s: %s", e.Name, e.JSON)
		}
	}
}

// TestToolBesideAFunction checks that a tool that costs money cannot hide in the object of
// one that does not.
func TestToolBesideAFunction(t *testing.T) {
	r := newRig(t)
	for _, tool := range []string{
		`{"type":"function","function":{"name":"f"},"google_search":{}}`,
		`{"type":"function","function":{"name":"f"},"google_search":true}`,
		`{"type":"function","function":{"name":"f"},"tools":[{"google_search":{}}]}`,
		`{"google_search":{},"type":"function"}`,
		`{"type":"custom","web_search":{}}`,
	} {
		_, err := r.prepare(prompt("gpt-4o", "hi", `"tools":[`+tool+`]`))
		var e *wire.Error
		if !errors.As(err, &e) || e.Code != "builtin_tool_refused" {
			t.Errorf("%s: got %v, want builtin_tool_refused", tool, err)
		}
	}
	r.plan(prompt("gpt-4o", "hi", `"tools":[{"type":"function","function":{"name":"f"},"strict":true,"cache_control":{"type":"ephemeral"}}]`))
}

// TestWhereToolsRun checks that exactly the tools that the provider runs are refused, by name, wherever
// a request has tools.
func TestWhereToolsRun(t *testing.T) {
	r := newRig(t)
	for tool, refused := range map[string]string{
		`{"type":"function","name":"f","parameters":{},"strict":true,"defer_loading":true,"allowed_callers":["direct"],"cache_control":{"type":"ephemeral"}}`: "",
		`{"type":"custom","name":"apply_patch","description":"d","format":{"type":"grammar","syntax":"lark","definition":"start: x"}}`:                        "",
		`{"type":"namespace","name":"agents","description":"d","tools":[{"type":"function","name":"f","parameters":{}},{"type":"custom","name":"g"}]}`:        "",
		`{"tools":[{"type":"function","name":"f","parameters":{}}],"name":"agents","type":"namespace"}`:                                                       "",
		`{"type":"tool_search","execution":"client","description":"d","parameters":{"type":"object"}}`:                                                        "",
		`{"type":"shell","environment":{"type":"local","skills":[{"name":"s","description":"d","path":"/s"}]}}`:                                               "",
		`{"environment":{"type":"local"},"type":"shell","allowed_callers":["direct"]}`:                                                                        "",
		`{"type":"local_shell"}`: "",
		`{"type":"computer"}`:    "",
		`{"type":"computer_use_preview","display_height":9,"display_width":9,"environment":"browser"}`: "",
		`{"type":"apply_patch"}`: "",

		`{"type":"web_search","external_web_access":false}`:                                     "web_search",
		`{"type":"web_search_preview_2025_03_11"}`:                                              "web_search_preview_2025_03_11",
		`{"type":"mcp","server_label":"s","server_url":"https://x.test"}`:                       "mcp",
		`{"type":"programmatic_tool_calling"}`:                                                  "programmatic_tool_calling",
		`{"type":"tool_search"}`:                                                                "tool_search",
		`{"type":"tool_search","execution":"server"}`:                                           "tool_search",
		`{"type":"shell"}`:                                                                      "shell",
		`{"type":"shell","environment":null}`:                                                   "shell",
		`{"type":"shell","environment":"local"}`:                                                "shell",
		`{"type":"shell","environment":{"type":"container_auto"}}`:                              "shell",
		`{"type":"web_search","execution":"client","environment":{"type":"local"}}`:             "web_search",
		`{"type":"namespace","name":"n","tools":[{"type":"web_search"}]}`:                       "web_search",
		`{"type":"namespace","name":"n","tools":[{"type":"function","name":"f","google":{}}]}`:  "google",
		`{"type":"namespace","name":"n","tools":[{"type":"namespace","name":"m","tools":[]}]}`:  "tools",
		`{"type":"function","name":"f","parameters":{},"google_search":{}}`:                     "google_search",
		`{"type":"function","name":"f","parameters":{},"tools":[{"type":"custom","name":"g"}]}`: "tools",
		`{"type":"Function","name":"f"}`:                                                        "Function",
		`{"google_search":{}}`:                                                                  "google_search",
	} {
		for place, body := range map[string]string{
			"tools":              `{"model":"gpt-4o","input":"hi","tools":[` + tool + `]}`,
			"an item":            `{"model":"gpt-4o","input":[{"type":"additional_tools","role":"developer","tools":[` + tool + `]}]}`,
			"an item's type":     `{"model":"gpt-4o","input":[{"tools":[` + tool + `],"type":"tool_search_output"}]}`,
			"a listing of tools": `{"model":"gpt-4o","input":[{"type":"mcp_list_tools","server_label":"s","tools":[` + tool + `]}]}`,
		} {
			req, err := wire.Scan(wire.Responses, []byte(body), wire.Limits{})
			if err == nil {
				_, err = r.guard.Plans.Prepare(r.caller(), req)
			}
			want, got := refused, ""
			if place == "a listing of tools" {
				want = ""
			}
			if e, ok := errors.AsType[*wire.Error](err); ok && e.Code == "builtin_tool_refused" {
				got = strings.Split(e.Message, `"`)[1]
			}
			if got != want || want == "" && err != nil {
				t.Errorf("%s in %s: refused %q (%v), want %q", tool, place, got, err, want)
			}
		}
	}
}

// TestAnimationsAreHeldByFrame checks that each frame of an animation counts as an image.
func TestAnimationsAreHeldByFrame(t *testing.T) {
	r := newRig(t)
	output := func(extra string) int64 {
		req, err := wire.Scan(wire.ImageGenerations,
			[]byte(`{"model":"gpt-image-1","prompt":"x","size":"1024x1024","quality":"low"`+extra+`}`), wire.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		p, err := r.guard.Plans.Prepare(r.caller(), req)
		if err != nil {
			t.Fatal(err)
		}
		return p.Output
	}
	one := output("")
	if got := output(`,"output_format":"gif"`); got != 9*one {
		t.Errorf("an animation is held at %d tokens, want %d", got, 9*one)
	}
	if got := output(`,"output_format":"gif","frame_count":4`); got != 4*one {
		t.Errorf("an animation of 4 frames is held at %d tokens, want %d", got, 4*one)
	}
}

// TestOfferedSearch checks that a web search which agents offer in every call is left out, and nothing else.
func TestOfferedSearch(t *testing.T) {
	r := newRig(t)
	const own, search = `{"type":"function","name":"f","parameters":{}}`, `{"type":"web_search","external_web_access":false}`
	for _, c := range []struct{ members, sent string }{
		{`"tools":[` + own + `,` + search + `]`, `"tools":[` + own + `]`},
		{`"tools":[ ` + search + ` , ` + own + `,` + search + ` ],"tool_choice":"auto"`, `"tools":[` + own + `],"tool_choice":"auto"`},
		{`"tools":[` + own + `, ` + search + `, ` + own + `]`, `"tools":[` + own + `,` + own + `]`},
		{`"tools":[` + search + `]`, ""},
		{`"tools":[` + own + `,` + search + `],"tool_choice":"required"`, ""},
		{`"tools":[` + own + `,` + search + `],"tool_choice":{"type":"web_search"}`, ""},
		{`"tools":[` + own + `,{"type":"web_search"}]`, ""},
		{`"tools":[` + own + `,` + search + `,{"type":"mcp","server_label":"s","server_url":"https://x.test"}]`, ""},
		{`"tools":[` + own + `,{"type":"code_interpreter","external_web_access":false}]`, ""},
	} {
		req, err := wire.Scan(wire.Responses, []byte(`{"model":"gpt-4o","input":"hi",`+c.members+`}`), wire.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		p, err := r.guard.Plans.Prepare(r.caller(), req)
		if refused, ok := errors.AsType[*wire.Error](err); (c.sent == "") != (ok && refused.Code == "builtin_tool_refused") {
			t.Errorf("%s: got %v", c.members, err)
			continue
		}
		if c.sent == "" {
			continue
		}
		if got, want := string(p.sent.Rewrite(p.edits...).Bytes()), `{"model":"gpt-4o","input":"hi",`+c.sent+`}`; got != want {
			t.Errorf("%s: sent %s, want %s", c.members, got, want)
		}
		caller := r.caller()
		caller.Org.AllowBuiltinTools = true
		if p, err = r.guard.Plans.Prepare(caller, req); err != nil || len(p.edits) > 0 || len(p.Request.BuiltinTools) == 0 {
			t.Errorf("%s where it is allowed: %v, edits %v", c.members, err, p.edits)
		}
		caller.Org.AllowBuiltinTools = false
	}
}
