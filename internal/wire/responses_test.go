package wire

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func scanAs(t testing.TB, ep Endpoint, body string) *Request {
	t.Helper()
	r, err := Scan(ep, []byte(body), Limits{})
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return r
}

func TestScanResponses(t *testing.T) {
	r := scanAs(t, Responses, `{"model":"gpt-5","instructions":"be brief","max_output_tokens":5e1,"max_tool_calls":3,"stream":true,"background":true,
		"store":false,"service_tier":"flex","reasoning":{"effort":"low","summary":"auto"},"text":{"format":{"type":"json_schema","schema":{}}},
		"tools":[{"type":"function","name":"f","parameters":{"properties":{"file_id":"x"}}},{"type":"web_search"}],"tool_choice":"auto","fresh":1,
		"input":[
			{"role":"user","content":"one"},
			{"type":"message","id":"msg_1","role":"user","content":[{"type":"input_text","text":"two"},
				{"type":"input_image","detail":"low","image_url":"data:a"},{"type":"input_image","image_url":"data:b"},
				{"type":"input_file","file_data":"AAAA","filename":"f"},{"type":"input_file","file_url":"https://x"}]},
			{"type":"message","role":"assistant","content":[{"type":"output_text","text":"three","annotations":[{"file_id":"file-1"}]},{"type":"refusal","refusal":"no"}]},
			{"type":"function_call","id":"fc_1","call_id":"call_1","name":"f","arguments":"{}"},
			{"type":"function_call_output","call_id":"call_1","output":"four"},
			{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"five"}],"encrypted_content":"gAAA"},
			{"type":"brand_new","stuff":{"a":[1,"b"]}}
		]}`)
	if r.OutputLimit != 50 || r.OutputField != "max_output_tokens" || r.MaxToolCalls != 3 || !r.Stream || !r.Background || r.Store ||
		r.ServiceTier != "flex" || r.ReasoningEffort != "low" || !slices.Equal(r.ToolNames, []string{"f"}) ||
		!slices.Equal(r.BuiltinTools, []string{"web_search"}) || !slices.Equal(r.Unknown, []string{"fresh"}) || len(r.Refs) != 0 {
		t.Errorf("%+v", r)
	}
	if got := string(r.Raw(r.ResponseFormat)); got != `{"type":"json_schema","schema":{}}` {
		t.Errorf("format %s", got)
	}
	want := [][]string{
		{"0:be brief"},
		{"0:one"},
		{"0:two"},
		{"0:three", "1:no"},
		{"3:f", "3:{}"},
		{"0:four"},
		{"0:five", "5:gAAA"},
		{`5:{"a":[1,"b"]}`},
	}
	for i, m := range r.Messages {
		if got := texts(r, m); !slices.Equal(got, want[i]) {
			t.Errorf("message %d: %q, want %q", i, got, want[i])
		}
	}
	m := r.Messages[2]
	if len(m.Images) != 2 || m.Images[0].Detail != "low" || m.Images[1].Detail != "" || len(m.Files) != 2 || !m.Files[1].Remote {
		t.Errorf("%+v", m)
	}
	if r := scanAs(t, Responses, `{"model":"m","input":"hi"}`); !r.Store || len(r.Messages) != 1 || texts(r, r.Messages[0])[0] != "0:hi" {
		t.Errorf("%+v", r)
	}
}

// TestScanRefs finds everything that a request mentions instead of containing it, wherever it is.
func TestScanRefs(t *testing.T) {
	for body, want := range map[string][]Ref{
		`"previous_response_id":"resp_1"`:     {{Kind: ObjectResponse, ID: "resp_1", Param: "previous_response_id"}},
		`"conversation":"conv_1"`:             {{Kind: ObjectConversation, ID: "conv_1", Param: "conversation"}},
		`"conversation":{"id":"conv_\u0031"}`: {{Kind: ObjectConversation, ID: "conv_1", Param: "conversation.id"}},
		`"prompt":{"id":"pmpt_1","variables":{"a":{"type":"input_file","file_id":"file-1"}}}`: {
			{Kind: ObjectPrompt, ID: "pmpt_1", Param: "prompt.id"}, {Kind: ObjectFile, ID: "file-1", Param: "file_id"},
		},
		`"input":[{"type":"item_reference","id":"msg_1"}]`:                                               {{Kind: ObjectItem, ID: "msg_1", Param: "input[0].id"}},
		`"input":[{"id":"msg_1"}]`:                                                                       {{Kind: ObjectItem, ID: "msg_1", Param: "input[0].id"}},
		`"input":[{"id":"msg_1","type":null}]`:                                                           {{Kind: ObjectItem, ID: "msg_1", Param: "input[0].id"}},
		`"input":[{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":""}]`:                 {{Kind: ObjectItem, ID: "rs_1", Param: "input[0].id", Reasoning: true}},
		`"input":[{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":null}]`:               {{Kind: ObjectItem, ID: "rs_1", Param: "input[0].id", Reasoning: true}},
		`"input":[{"id":"ig_1","type":"image_generation_call"}]`:                                         {{Kind: ObjectItem, ID: "ig_1", Param: "input[0].id"}},
		`"input":[{"id":"zz_1","type":"of_the_future","content":"x"}]`:                                   {{Kind: ObjectItem, ID: "zz_1", Param: "input[0].id"}},
		`"input":[{"role":"user","content":[{"type":"input_image","file_id":"file-1"}]}]`:                {{Kind: ObjectFile, ID: "file-1", Param: "input[0].content[0].file_id", Picture: true}},
		`"input":[{"type":"computer_call_output","call_id":"c","output":{"file_id":"file-1"}}]`:          {{Kind: ObjectFile, ID: "file-1", Param: "input[0].content[0].file_id"}},
		`"input":[{"type":"mcp_approval_response","approval_request_id":"mcpr_1","approve":true}]`:       {{Kind: ObjectItem, ID: "mcpr_1", Param: "input[0].approval_request_id"}},
		`"input":[{"type":"x","deep":[{"container_id":"cntr_1"}]}]`:                                      {{Kind: ObjectContainer, ID: "cntr_1", Param: "container_id"}},
		`"input":"a","tools":[{"type":"file_search","vector_store_ids":["vs_1","vs_2"]}]`:                {{Kind: ObjectVectorStore, ID: "vs_1", Param: "vector_store_ids", Tool: true}, {Kind: ObjectVectorStore, ID: "vs_2", Param: "vector_store_ids", Tool: true}},
		`"input":"a","tools":[{"type":"code_interpreter","container":"cntr_1"}]`:                         {{Kind: ObjectContainer, ID: "cntr_1", Param: "container", Tool: true}},
		`"input":"a","tools":[{"type":"code_interpreter","container":{"type":"auto","file_ids":["f"]}}]`: {{Kind: ObjectFile, ID: "f", Param: "file_ids", Tool: true}},
		`"input":"a","tools":[{"type":"image_generation","input_image_mask":{"file_id":"f"}}]`:           {{Kind: ObjectFile, ID: "f", Param: "file_id", Tool: true}},
		`"input":"a","tools":[{"parameters":{"file_id":"f"},"type":"function","name":"g"}]`:              nil,
	} {
		r := scanAs(t, Responses, `{"model":"m",`+body+`}`)
		if !slices.Equal(r.Refs, want) {
			t.Errorf("%s: %+v, want %+v", body, r.Refs, want)
		}
	}
}

func TestScanResponsesRefuses(t *testing.T) {
	for _, c := range []struct{ body, param, code string }{
		{`{"model":"m"}`, "input", "missing_required_parameter"},
		{`{"input":"a"}`, "model", "missing_required_parameter"},
		{`{"model":"m","input":5}`, "input", "invalid_type"},
		{`{"model":"m","input":["a"]}`, "input[0]", "invalid_type"},
		{`{"model":"m","input":"a","max_output_tokens":-1}`, "max_output_tokens", "integer_below_min_value"},
		{`{"model":"m","input":"a","max_output_tokens":1.5}`, "max_output_tokens", "invalid_type"},
		{`{"model":"m","input":"a","Max_Output_Tokens":5}`, "max_output_tokens", "ambiguous_parameter"},
		{`{"model":"m","input":"a","maxOutputTokens":5}`, "max_output_tokens", "ambiguous_parameter"},
		{`{"model":"m","input":"a","previousResponseId":"x"}`, "previous_response_id", "ambiguous_parameter"},
		{`{"model":"m","input":"a","reasoning":{"Effort":"high"}}`, "effort", "ambiguous_parameter"},
		{`{"model":"m","input":"a","reasoning":"high"}`, "reasoning", "invalid_type"},
		{`{"model":"m","input":"a","store":"no"}`, "store", "invalid_type"},
		{`{"model":"m","input":"a","background":1}`, "background", "invalid_type"},
		{`{"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":5}]}]}`, "input[0].content[0].text", "invalid_type"},
		{`{"model":"m","input":[{"ID":"x"}]}`, "id", "ambiguous_parameter"},
		{`{"model":"m","input":"a","input":"b"}`, "", "duplicate_parameter"},
		{`{"model":"m","input":"a","tools":{}}`, "tools", "invalid_type"},
		{`{"model":"m","input":[` + strings.Repeat(`{"type":"item_reference","id":"a"},`, maxRefs) + `{"id":"a"}]}`, "input[2048].id", "array_above_max_length"},
	} {
		_, err := Scan(Responses, []byte(c.body), Limits{})
		var e *Error
		if !errors.As(err, &e) || e.Status != 400 || e.Param != c.param || e.Code != c.code {
			t.Errorf("%.100s: %v (param %q, code %q)", c.body, err, e.Param, e.Code)
		}
	}
}

func TestScanCompletions(t *testing.T) {
	for body, want := range map[string]struct{ choices, answers, tokens int64 }{
		`"prompt":"a"`: {1, 1, 0}, `"prompt":["a","b"],"n":2,"best_of":3`: {6, 4, 0}, `"prompt":[1,2,3]`: {1, 1, 3},
		`"prompt":[[1],[2,3]],"max_tokens":0`: {2, 2, 3}, `"suffix":"x"`: {1, 1, 0},
	} {
		r := scanAs(t, Completions, `{"model":"m",`+body+`}`)
		if r.Choices() != want.choices || r.Answers() != want.answers || r.InputTokens != want.tokens {
			t.Errorf("%s: %d choices, %d answers, %d tokens", body, r.Choices(), r.Answers(), r.InputTokens)
		}
	}
	for body, want := range map[string][2]string{
		`"prompt":[]`: {"prompt", "empty_array"}, `"prompt":[1,"a"]`: {"prompt[1]", "invalid_type"},
		`"max_tokens":-1`: {"max_tokens", "integer_below_min_value"}, `"best_of":1000`: {"best_of", "integer_above_max_value"},
		`"BestOf":2`: {"best_of", "ambiguous_parameter"}, `"Prompt":"x"`: {"prompt", "ambiguous_parameter"}, `"echo":1`: {"echo", "invalid_type"},
	} {
		checkRefused(t, Completions, `{"model":"m",`+body+`}`, want[0], want[1], "")
	}
}

func TestScanModerations(t *testing.T) {
	for body, model := range map[string]string{
		`{"input":"a"}`: "omni-moderation-latest", `{"model":"m","input":["a","b"]}`: "m",
		`{"model":"m","input":[{"type":"image_url","image_url":{"url":"data:a"}}]}`: "m",
	} {
		if r := scanAs(t, Moderations, body); r.Model != model {
			t.Errorf("%s: model %q", body, r.Model)
		}
	}
	checkRefused(t, Moderations, `{"model":"m"}`, "input", "missing_required_parameter", "")
	checkRefused(t, Moderations, `{"model":"m","input":5}`, "input", "invalid_type", "")
}

// FuzzScanResponses is FuzzScan for Responses.
func FuzzScanResponses(f *testing.F) {
	for _, body := range []string{
		`{"model":"m","input":"a"}`, `{"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":"a"}]}],"max_output_tokens":1e2}`,
		`{"model":"m","input":[{"id":"x","type":"item_reference"}],"previous_response_id":"r","store":false,"background":true,"stream":true}`,
		`{"model":"m","input":"a","tools":[{"type":"file_search","vector_store_ids":["v"]}],"reasoning":{"effort":"low"}}`,
		`{"model":"m","input":"a","MODEL":"x"}`, `{"model":"m","input":[{"type":"reasoning","id":"r","Encrypted_Content":"x"}]}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		_, _ = Scan(Completions, body, Limits{})
		_, _ = Scan(Moderations, body, Limits{})
		r, err := Scan(Responses, body, Limits{})
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Status != 400 || !json.Valid(e.JSON()) {
				t.Fatalf("refused with %v", err)
			}
			return
		}
		checkResponses(t, r)
	})
}

// checkResponses compares a request with what encoding/json reads in its body.
func checkResponses(t *testing.T, r *Request) {
	t.Helper()
	store := true
	lax := struct {
		Model      string
		Limit      json.Number `json:"max_output_tokens"`
		Previous   string      `json:"previous_response_id"`
		Stream     bool
		Background bool
		Store      *bool
		Tier       string `json:"service_tier"`
		Reasoning  struct{ Effort string }
		Tools      []json.RawMessage
	}{Store: &store}
	if err := json.Unmarshal(r.Body, &lax); err != nil {
		t.Fatalf("encoding/json refuses what Scan accepts: %v", err)
	}
	if lax.Store == nil {
		lax.Store = &store
	}
	if r.Model != lax.Model || r.Stream != lax.Stream || r.Background != lax.Background || r.Store != *lax.Store ||
		r.ServiceTier != lax.Tier || r.ReasoningEffort != lax.Reasoning.Effort || (lax.Limit == "") != (r.OutputLimit == -1) ||
		len(r.ToolNames)+len(r.BuiltinTools) < len(lax.Tools) {
		t.Errorf("%+v, encoding/json reads %+v", r, lax)
	}
	if lax.Previous != "" && !slices.ContainsFunc(r.Refs, func(ref Ref) bool { return ref.Kind == ObjectResponse && ref.ID == lax.Previous }) {
		t.Errorf("previous_response_id %q is not among %v", lax.Previous, r.Refs)
	}
}

func TestScanEventOfResponses(t *testing.T) {
	for _, c := range []struct {
		data string
		want Chunk
	}{
		{`{"type":"response.created","sequence_number":0,"response":{"id":"resp_1","status":"queued","usage":null}}`, Chunk{Answer: Answer{ID: "resp_1", Status: "queued"}}},
		{`{"delta":"a\n","type":"response.output_text.delta","sequence_number":7}`, Chunk{Text: []byte("a\n"), Sequence: 7}},
		{`{"type":"response.function_call_arguments.delta","delta":"{}"}`, Chunk{Text: []byte("{}")}},
		{`{"type":"response.output_item.added","item":{"type":"function_call","name":"f"}}`, Chunk{Text: []byte("f")}},
		{`{"type":"response.output_item.done","item":{"type":"function_call","name":"f"}}`, Chunk{}},
		{`{"type":"response.output_text.done","text":"abc"}`, Chunk{}},
		{`{"type":"response.audio.delta","delta":"AAAA"}`, Chunk{}},
		{`{"type":"keepalive","sequence_number":3}`, Chunk{Sequence: 3}},
		{`{"type":"error","code":"x","message":"y"}`, Chunk{Error: true, Framed: true}},
		{
			`{"type":"response.completed","sequence_number":9,"response":{"id":"resp_1","model":"m","service_tier":"flex","status":"completed",
			"output":[{"type":"reasoning","id":"rs_1"},{"type":"web_search_call","id":"ws_1"}],
			"usage":{"input_tokens":5,"input_tokens_details":{"cached_tokens":2,"cache_write_tokens":1},"output_tokens":7,"output_tokens_details":{"reasoning_tokens":3},"total_tokens":12}}}`,
			Chunk{Finish: true, Sequence: 9, Answer: Answer{
				ID: "resp_1", Model: "m", ServiceTier: "flex", Status: "completed", HasUsage: true, Items: []string{"rs_1", "ws_1"},
				Usage: Usage{Input: 5, CachedInput: 2, CacheWrite: 1, Output: 7, Reasoning: 3, ToolCalls: 1},
			}},
		},
		{`{"type":"response.failed","response":{"status":"failed","usage":null}}`, Chunk{Finish: true, Error: true, Framed: true, Answer: Answer{Status: "failed"}}},
	} {
		got, err := ScanEvent(Responses, []byte(c.data), nil)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s\n%+v\nwant %+v, %v", c.data, got, c.want, err)
		}
	}
	for _, bad := range []string{"", "[DONE]", "null", `{"type":`, `{"sequence_number":"x","type":`} {
		if got, err := ScanEvent(Responses, []byte(bad), nil); err == nil || got.HasUsage {
			t.Errorf("%q: %+v", bad, got)
		}
	}
}
