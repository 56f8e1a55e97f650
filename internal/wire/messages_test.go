package wire

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// claudeRequest is a request as Claude Code sends it, shortened.
const claudeRequest = `{"model":"claude-opus-5","max_tokens":128000,"stream":true,
 "system":[{"type":"text","text":"You help."},{"type":"text","text":"More.","cache_control":{"type":"ephemeral"}}],
 "messages":[
  {"role":"user","content":[{"type":"text","text":"Look"},
   {"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0KGgo="}},
   {"source":{"url":"https://x/y.pdf","type":"url"},"type":"document","title":"T"},
   {"type":"document","source":{"type":"text","media_type":"text/plain","data":"plain"}}]},
  {"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"c2ln"},
   {"type":"tool_use","id":"toolu_1","name":"Bash","input":{"command":"ls file-1a2b3c4d5e6f7g8h9i"}}]},
  {"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","is_error":false,
   "content":[{"type":"text","text":"out"},{"type":"image","source":{"type":"base64","data":"AAAA"}}]}]},
  {"role":"system","content":"a reminder","output_config":{"effort":"medium"}}],
 "tools":[{"name":"Bash","description":"runs","input_schema":{"type":"object"}},
  {"name":"Later","defer_loading":true,"input_schema":{}},{"type":"bash_20250124","name":"bash"}],
 "metadata":{"user_id":"u"},"thinking":{"type":"adaptive","display":"omitted"},
 "context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"all"}]},
 "output_config":{"effort":"medium"},"new_in_2027":{"a":1}}`

func TestScanMessages(t *testing.T) {
	r, err := Scan(Messages, []byte(claudeRequest), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if r.Model != "claude-opus-5" || r.OutputLimit != 128000 || !r.Stream || !r.Thinks || r.ReasoningEffort != "medium" ||
		r.LongCache || r.Compacts || r.ToolPrompt != 325 || len(r.BuiltinTools)+len(r.Refs) > 0 {
		t.Errorf("%+v", r)
	}
	if want := []string{"Bash", "Later", "bash"}; !slices.Equal(r.ToolNames, want) || !slices.Equal(r.Unknown, []string{"new_in_2027"}) {
		t.Errorf("tools %v, unknown %v", r.ToolNames, r.Unknown)
	}
	var texts []string
	roles, images, files := "", 0, 0
	for _, m := range r.Messages {
		roles += m.Role + " "
		images, files = images+len(m.Images), files+len(m.Files)
		for _, text := range m.Texts {
			texts = append(texts, string(r.Unquote(nil, text)))
		}
	}
	want := `You help.|More.|Look|T|plain|hm|c2ln|Bash|{"command":"ls file-1a2b3c4d5e6f7g8h9i"}|out|a reminder`
	if got := strings.Join(texts, "|"); got != want || roles != "system user assistant user system " || images != 2 || files != 1 {
		t.Errorf("texts %s\nwant  %s\nroles %s, %d images, %d files", got, want, roles, images, files)
	}
}

func TestScanMessagesCosts(t *testing.T) {
	body := func(more string) string {
		return `{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"x"}]` + more + `}`
	}
	for more, want := range map[string]func(*Request) bool{
		``: func(r *Request) bool { return r.MaxToolCalls == -1 && !r.LongCache && !r.Thinks },
		`,"cache_control":{"type":"ephemeral","ttl":"1h"}`: func(r *Request) bool { return r.LongCache },
		`,"system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral","ttl":"1h"}}]`: func(r *Request) bool {
			return r.LongCache
		},
		`,"speed":"fast","service_tier":"auto"`: func(r *Request) bool { return r.ServiceTier == "fast" },
		`,"tools":[{"type":"web_search_20250305","name":"web_search","max_uses":3}]`: func(r *Request) bool {
			return r.MaxToolCalls == 3 && slices.Equal(r.BuiltinTools, []string{"web_search_20250305"})
		},
		`,"tools":[{"type":"web_search_20250305","name":"w","max_uses":3},{"type":"code_execution_20250825","name":"c"}]`: func(
			r *Request,
		) bool {
			return r.MaxToolCalls == -1 && len(r.BuiltinTools) == 2
		},
		`,"tools":[{"type":"advisor_20260301","name":"advisor","model":"claude-opus-5","max_uses":2,"max_tokens":2048}]`: func(
			r *Request,
		) bool {
			return len(r.Advisors) == 1 && r.Advisors[0] == Advisor{"claude-opus-5", 2, 2048}
		},
		`,"fallbacks":[{"model":"b","max_tokens":7},{"model":"c","speed":"fast"}]`: func(r *Request) bool {
			return slices.Equal(r.Fallbacks, []Fallback{{"b", "", 7}, {"c", "fast", -1}})
		},
		`,"fallbacks":"default"`: func(r *Request) bool { return slices.Equal(r.Fallbacks, []Fallback{{"default", "", -1}}) },
		`,"context_management":{"edits":[{"type":"compact_20260112"}]}`: func(r *Request) bool { return r.Compacts },
		`,"mcp_servers":[]`: func(r *Request) bool { return len(r.BuiltinTools) == 0 },
		`,"mcp_servers":[{"type":"url","url":"https://x"}]`: func(r *Request) bool {
			return slices.Equal(r.BuiltinTools, []string{"mcp_servers"})
		},
		`,"mcp_servers":[{"type":"url","url":"https://x"}],"tools":[{"type":"web_search_20250305","name":"w","max_uses":1}]`: func(
			r *Request,
		) bool {
			return r.MaxToolCalls == -1
		},
		`,"container":{"skills":[]}`:      func(r *Request) bool { return slices.Equal(r.BuiltinTools, []string{"container"}) },
		`,"thinking":{"type":"disabled"}`: func(r *Request) bool { return !r.Thinks },
	} {
		if r, err := Scan(Messages, []byte(body(more)), Limits{}); err != nil || !want(r) {
			t.Errorf("%s: %v, %+v", more, err, r)
		}
	}
	for text, want := range map[string]string{
		`{"model":"m","messages":[{"role":"user","content":"x"}]}`:                                          "Missing required parameter: 'max_tokens'.",
		`{"model":"m","max_tokens":5}`:                                                                      "Missing required parameter: 'messages'.",
		`{"model":"m","max_tokens":5,"messages":[]}`:                                                        "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead.",
		`{"model":"m","max_tokens":5,"system":"s"}`:                                                         "Missing required parameter: 'messages'.",
		`{"model":"m","max_tokens":5,"system":"s","messages":[]}`:                                           "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead.",
		`{"model":"m","max_tokens":5,"messages":[{"role":"user","content":[5]}]}`:                           "Invalid type for 'messages[0].content[0]': expected an object, but got a number instead.",
		`{"model":"m","max_tokens":5,"maxTokens":9,"messages":[{"role":"user","content":"x"}]}`:             "The name 'maxTokens' differs from 'max_tokens' only in spelling, and some providers treat the two as the same. Write 'max_tokens', or remove it.",
		`{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"x"}],"tools":[{"max_uses":-1}]}`: "",
	} {
		_, err := Scan(Messages, []byte(text), Limits{})
		if err == nil || want != "" && !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v\nwant %s", text, err, want)
		}
	}
}

// TestInlineTools: tools that a conversation defines count as those in tools; if the provider runs them, the max_uses
// in tools do not bound its calls.
func TestInlineTools(t *testing.T) {
	const (
		limited = `,"tools":[{"type":"web_search_20250305","name":"w","max_uses":3}]`
		added   = `{"type":"tool_addition","tool":{"type":"tool_definition","definition":{"type":"web_fetch_20260209","name":"f","max_uses":9}}}`
		own     = `{"type":"tool_addition","tool":{"type":"tool_definition","definition":{"name":"mine","input_schema":{}}}}`
	)
	for block, provided := range map[string][]string{
		added: {"web_fetch_20260209"},
		own:   nil,
		`{"type":"tool_addition","tool":{"type":"tool_reference","name":"w"}}`:  nil,
		`{"type":"tool_removal","tool":null}`:                                   nil,
		`{"type":"compaction","content":null,"tool_changes":[` + added + `]}`:   {"web_fetch_20260209"},
		`{"type":"compaction","content":"c","tool_changes":null}`:               nil,
		`{"type":"compaction","content":"c","tool_changes":["x",5]}`:            nil,
		`{"type":"compaction","content":"c","tool_changes":true}`:               nil,
		`{"type":"tool_use","tool":"mine"},{"type":"tool_use","tool":["x"]}`:    nil,
		`{"type":"text","text":"x"},` + added + `,{"type":"text","text":"web"}`: {"web_fetch_20260209"},
	} {
		turns := `"messages":[{"role":"user","content":[` + block + `]}]`
		for body, more := range map[string][]string{
			`{"model":"m","max_tokens":5,` + turns + `}`:                nil,
			`{"model":"m","max_tokens":5,` + turns + limited + `}`:      {"web_search_20250305"},
			`{"model":"m","max_tokens":5` + limited + `,` + turns + `}`: {"web_search_20250305"},
		} {
			r, err := Scan(Messages, []byte(body), Limits{})
			if err != nil {
				t.Errorf("%s: %v", body, err)
				continue
			}
			got := slices.Sorted(slices.Values(r.BuiltinTools))
			most := int64(-1)
			if len(provided) == 0 && more != nil {
				most = 3
			}
			if want := slices.Concat(provided, more); !slices.Equal(got, want) || r.MaxToolCalls != most {
				t.Errorf("%s: the provider runs %v, at most %d calls; want %v, at most %d", body, got, r.MaxToolCalls, want, most)
			}
		}
	}
}

// TestNoToolChange: members of the same names that are no tool changes are text of the prompt.
func TestNoToolChange(t *testing.T) {
	body := []byte(`{"model":"m","max_tokens":5,"messages":[{"role":"user","content":[{"type":"new","tool":"mine","tool_changes":["x",5,"y"]}]}]}`)
	r, err := Scan(Messages, body, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, text := range r.Messages[0].Texts {
		got = append(got, string(body[text.Span.Start:text.Span.End]))
	}
	if want := []string{`"mine"`, `"x"`, `"y"`}; !slices.Equal(got, want) {
		t.Errorf("got texts %q, want %q", got, want)
	}
}

// TestKnownBetas: each name counts, whatever its date.
func TestKnownBetas(t *testing.T) {
	h := http.Header{"Anthropic-Beta": {"claude-code-20250219, effort-2025-11-24", "", "compact-2027-01-01,compactor-2026-01-12,effort-x,-2026"}}
	var unknown []string
	for _, name := range Betas(h) {
		if !KnownBeta(name) {
			unknown = append(unknown, name)
		}
	}
	if want := []string{"compactor-2026-01-12", "effort-x", "-2026"}; !slices.Equal(unknown, want) {
		t.Errorf("got unknown %q, want %q", unknown, want)
	}
}

func TestMessagesUsage(t *testing.T) {
	answer := func(usage string) string {
		return `{"id":"msg_1","type":"message","role":"assistant","model":"claude-opus-5","content":[{"type":"text","text":"hi"}],` +
			`"stop_reason":"end_turn","usage":` + usage + `}`
	}
	for usage, want := range map[string]Usage{
		`{"input_tokens":10,"output_tokens":5}`: {Input: 10, Output: 5},
		`{"input_tokens":10,"cache_creation_input_tokens":100,"cache_read_input_tokens":1000,"output_tokens":5}`: {
			Input: 1110, CacheWrite: 100, CachedInput: 1000, Output: 5,
		},
		`{"input_tokens":0,"cache_creation_input_tokens":100,"cache_creation":{"ephemeral_5m_input_tokens":40,` +
			`"ephemeral_1h_input_tokens":60},"cache_read_input_tokens":0,"output_tokens":5,"output_tokens_details":` +
			`{"thinking_tokens":3},"server_tool_use":{"web_search_requests":2,"web_fetch_requests":1},"service_tier":"standard"}`: {
			Input: 100, CacheWrite: 40, CacheWrite1h: 60, Output: 5, Reasoning: 3, ToolCalls: 2,
		},
		`{"input_tokens":2000,"cache_read_input_tokens":10,"output_tokens":5,"holographic_tokens":7}`: {
			Input: 2010, CachedInput: 10, Output: 12,
		},
	} {
		a, ok := ParseUsage(Messages, []byte(answer(usage)))
		if !ok || a.Usage != want || a.Fault != "" || a.Failed || a.ID != "msg_1" || a.Model != "claude-opus-5" {
			t.Errorf("%s: %+v, %q\nwant %+v", usage, a.Usage, a.Fault, want)
		}
		if unknown := strings.Contains(usage, "holographic"); (a.Unknown == "holographic_tokens") != unknown {
			t.Errorf("%s: unknown %q", usage, a.Unknown)
		}
	}
	for usage, tier := range map[string]string{
		`{"input_tokens":1,"output_tokens":1,"service_tier":"priority"}`:                "",
		`{"input_tokens":1,"output_tokens":1,"service_tier":"standard","speed":"fast"}`: "fast",
	} {
		if a, _ := ParseUsage(Messages, []byte(answer(usage))); a.ServiceTier != tier {
			t.Errorf("%s: tier %q, want %q", usage, a.ServiceTier, tier)
		}
	}
	a, _ := ParseUsage(Messages, []byte(answer(`{"input_tokens":1,"output_tokens":2,"iterations":[
		{"type":"message","input_tokens":1,"output_tokens":2},
		{"type":"advisor_message","model":"claude-haiku-4-5","input_tokens":50,"cache_read_input_tokens":5,"output_tokens":9}]}`)))
	want := []Step{
		{Kind: "message", Usage: Usage{Input: 1, Output: 2}},
		{Kind: "advisor_message", Model: "claude-haiku-4-5", Usage: Usage{Input: 55, CachedInput: 5, Output: 9}},
	}
	if !slices.Equal(a.Steps, want) || a.Usage != (Usage{Input: 1, Output: 2}) {
		t.Errorf("steps %+v, usage %+v", a.Steps, a.Usage)
	}
}

func TestMessagesEvents(t *testing.T) {
	events := []string{
		`{"type":"message_start","message":{"id":"msg_1","type":"message","model":"claude-opus-5","content":[],"usage":` +
			`{"input_tokens":10,"cache_creation_input_tokens":8,"cache_creation":{"ephemeral_5m_input_tokens":0,` +
			`"ephemeral_1h_input_tokens":8},"cache_read_input_tokens":4,"output_tokens":1}}}`,
		`{"type":"ping"}`,
		`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"think"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"c2ln"}}`,
		`{"type":"content_block_stop","index":0}`,
		`{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t","name":"Bash","input":{}}}`,
		`{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"a\":1}"}}`,
		`{"type":"future_event","x":1}`,
		`{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":30}}`,
		`{"type":"message_stop"}`,
	}
	var text []byte
	var all Answer
	finishes := 0
	for _, e := range events {
		c, err := ScanEvent(Messages, []byte(e), nil)
		if err != nil || c.Error {
			t.Errorf("%s: %v, %+v", e, err, c)
		}
		if c.Summary != strings.Contains(e, "thinking_delta") && len(c.Text) > 0 {
			t.Errorf("%s: summary %t", e, c.Summary)
		}
		text = append(text, c.Text...)
		if c.HasUsage {
			all = c.Answer.After(all)
		}
		if c.Finish {
			finishes++
		}
	}
	want := Usage{Input: 22, CacheWrite1h: 8, CachedInput: 4, Output: 30}
	if string(text) != `thinkBash{"a":1}` || all.Usage != want || !all.TimedWrites || all.ID != "msg_1" || finishes != 2 {
		t.Errorf("text %s, %+v, %d finishes\nwant usage %+v", text, all, finishes, want)
	}
	a, _ := ScanEvent(Messages, []byte(`{"type":"message_delta","delta":{},"usage":{"input_tokens":20000,"output_tokens":50}}`), nil)
	want = Usage{Input: 20_012, CacheWrite1h: 8, CachedInput: 4, Output: 50}
	if got := a.Answer.After(all).Usage; got != want {
		t.Errorf("later counts without those of the cache: %+v, want %+v", got, want)
	}
	c, _ := ScanEvent(Messages, []byte(`{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`), nil)
	if !c.Error || !c.Framed || c.Finish {
		t.Errorf("an error: %+v", c)
	}
}

func TestMessagesErrors(t *testing.T) {
	e := QuotaExceeded("Used up.")
	want := `{"type":"error","error":{"type":"billing_error","message":"Used up.","code":"insufficient_quota","param":null},"request_id":"r1"}`
	if got := string(e.Body(Messages, "r1")); got != want {
		t.Errorf("got %s", got)
	}
	if got := string(e.Body(Responses, "r1")); got != string(e.JSON()) {
		t.Errorf("got %s", got)
	}
	if got := SpendingStopped(false).For(Messages).Status; got != http.StatusPaymentRequired {
		t.Errorf("a stop is %d", got)
	}
	if got := SpendingStopped(false).For(ChatCompletions).Status; got != http.StatusForbidden {
		t.Errorf("a stop is %d in chat", got)
	}
	frame := string(RateLimited("Later.", time.Second).Frame(Messages, 5))
	if frame != "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"rate_limit_error\",\"message\":\"Later.\",\"code\":\"rate_limit_exceeded\",\"param\":null}}\n\n" {
		t.Errorf("got %s", frame)
	}
}

func TestMessagesLimits(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	h := http.Header{}
	SetLimits(h, Messages, X, []LimitState{
		{Name: "day", Unit: UnitMicroUSD, Amount: 10_000_000, Remaining: 1_000_000, Window: 24 * time.Hour, Reset: now.Add(time.Hour)},
		{Name: "rpm", Unit: UnitRequests, Amount: 60, Remaining: 59, Window: time.Minute, Reset: now.Add(time.Minute)},
	}, now)
	for name, want := range map[string]string{
		"Anthropic-Ratelimit-Requests-Limit": "60", "Anthropic-Ratelimit-Requests-Remaining": "59",
		"Anthropic-Ratelimit-Requests-Reset": "2026-11-29T12:01:00Z", "Anthropic-Ratelimit-Tokens-Limit": "",
		"Anthropic-Ratelimit-Unified-Status": "allowed_warning", "Anthropic-Ratelimit-Unified-Representative-Claim": "five_hour",
		"Anthropic-Ratelimit-Unified-5h-Utilization": "0.90", "Anthropic-Ratelimit-Unified-Reset": "1795957200",
		"X-Ratelimit-Resource": "day",
	} {
		if got := h.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

// TestMessageClosing: a stream that ends here is complete for its reader, whatever came before.
func TestMessageClosing(t *testing.T) {
	e := QuotaExceeded("Used up.")
	const start = `{"type":"message_start","message":{"id":"m","content":[]}}`
	const text = `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`
	const call = `{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","name":"x","input":{}}}`
	const stop = `{"type":"content_block_stop","index":0}`
	end := "content_block_start content_block_delta content_block_stop message_delta message_stop"
	for _, c := range []struct {
		seen  []string
		want  string
		calls bool
	}{
		{nil, "message_start " + end, false},
		{[]string{start}, end, false},
		{[]string{start, text}, "content_block_stop " + end, false},
		{[]string{start, text, stop}, end, false},
		{[]string{start, call}, "content_block_stop " + end, true},
	} {
		var b MessageBlocks
		for _, data := range c.seen {
			b.Note([]byte(data))
		}
		var list Events
		if err := list.Feed(e.Closing(b, "m")); err != nil {
			t.Fatal(err)
		}
		var kinds []string
		shown := ""
		for event, ok := list.Next(); ok; event, ok = list.Next() {
			name, _, _ := strings.Cut(strings.TrimPrefix(string(event), "event: "), "\n")
			kinds = append(kinds, name)
			chunk, err := ScanEvent(Messages, EventData(event), nil)
			shown += string(chunk.Text)
			if err != nil || chunk.Error {
				t.Errorf("%s: %v", event, err)
			}
		}
		if got := strings.Join(kinds, " "); got != c.want || b.Calls() != c.calls || shown != "llmguard: Used up." {
			t.Errorf("after %v: %s, %q, calls %t\nwant %s", c.seen, got, shown, b.Calls(), c.want)
		}
	}
}
