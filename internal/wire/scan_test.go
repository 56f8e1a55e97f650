package wire

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

func scanChat(t testing.TB, body string) *Request {
	t.Helper()
	r, err := Scan(ChatCompletions, []byte(body), Limits{})
	if err != nil {
		t.Fatalf("Scan(%s): %v", clip([]byte(body)), err)
	}
	return r
}

// texts returns the decoded texts of a message, each prefixed by its kind.
func texts(r *Request, m Message) (list []string) {
	for _, text := range m.Texts {
		list = append(list, fmt.Sprintf("%d:%s", text.Kind, r.Unquote(nil, text)))
	}
	return list
}

func TestScanChat(t *testing.T) {
	r := scanChat(t, ` {
		"model": "gpt-5", "stream": true, "stream_options": {"include_usage": true},
		"max_completion_tokens": 1e2, "n": 2, "best_of": 3, "service_tier": "flex",
		"reasoning_effort": "high", "seed": 9223372036854775807, "modalities": ["text", "audio"],
		"audio": {"voice": "x", "format": "wav"}, "web_search_options": {}, "logprobs": true, "store": true,
		"prediction": {"type": "content", "content": "x"}, "response_format": {"type": "json_object"},
		"tools": [
			{"type": "function", "function": {"name": "f\u0031", "parameters": {"type": "object"}}},
			{"custom": {"name": "c"}}, {"type": "web_search"}, {"google_search": {}}, {}
		],
		"messages": [
			{"role": "system", "content": "be \"good\"\n", "name": "boss"},
			{"role": "user", "content": [
				{"type": "text", "text": "h\u00e9llo \ud83d\ude00"},
				{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}},
				{"type": "image_url", "image_url": "https://example.com/x.png"},
				{"type": "input_audio", "input_audio": {"data": "QUJD", "format": "wav"}},
				{"type": "file", "file": {"file_id": "file-1", "filename": "a.pdf"}},
				{"type": "file", "file": {"file_data": "AAAA"}},
				{"type": "thinking", "thinking": "hm", "n": 5}
			]},
			{"role": "assistant", "content": null, "refusal": "no", "audio": {"id": "audio_1"}, "tool_calls": [
				{"id": "1", "type": "function", "function": {"name": "f1", "arguments": "{\"a\":1}"}}]},
			{"role": "tool", "tool_call_id": "1", "content": "done", "extra": {"a": [1]}}
		],
		"plugins": [1], "x": null
	} `)
	check := func(what string, got, want any) {
		t.Helper()
		if g, w := fmt.Sprintf("%q", got), fmt.Sprintf("%q", want); g != w {
			t.Errorf("%s = %s, want %s", what, g, w)
		}
	}
	check("Model", r.Model, "gpt-5")
	check("Stream, IncludeUsage", []bool{r.Stream, r.IncludeUsage, r.WebSearch, r.Logprobs, r.Store}, []bool{true, true, true, true, true})
	check("OutputLimit", r.OutputLimit, int64(100))
	check("OutputField", r.OutputField, "max_completion_tokens")
	check("N, BestOf, Choices", []int64{r.N, r.BestOf, r.Choices()}, []int64{2, 3, 3})
	check("ServiceTier, ReasoningEffort", []string{r.ServiceTier, r.ReasoningEffort}, []string{"flex", "high"})
	check("Modalities", r.Modalities, []string{"text", "audio"})
	check("Prediction", r.Raw(r.Prediction), `{"type": "content", "content": "x"}`)
	check("ResponseFormat", r.Raw(r.ResponseFormat), `{"type": "json_object"}`)
	check("Audio", r.Raw(r.Audio), `{"voice": "x", "format": "wav"}`)
	check("Tools", strings.HasPrefix(string(r.Raw(r.Tools)), "[\n"), true)
	check("ToolNames", r.ToolNames, []string{"f1", "c"})
	check("BuiltinTools", r.BuiltinTools, []string{"web_search", "google_search", "unknown"})
	check("Unknown", r.Unknown, []string{"plugins", "x"})
	check("Messages", len(r.Messages), 4)
	check("texts 0", texts(r, r.Messages[0]), []string{"0:be \"good\"\n", "2:boss"})
	check("texts 1", texts(r, r.Messages[1]), []string{"0:h\u00e9llo \U0001F600", "5:hm"})
	check("texts 2", texts(r, r.Messages[2]), []string{"1:no", "3:f1", `3:{"a":1}`})
	check("texts 3", texts(r, r.Messages[3]), []string{"0:done", `5:{"a": [1]}`})
	m := r.Messages[1]
	check("roles", []string{r.Messages[0].Role, m.Role, r.Messages[2].Role, r.Messages[3].Role}, []string{"system", "user", "assistant", "tool"})
	check("image 0", r.Raw(m.Images[0].URL), `"data:image/png;base64,AAAA"`)
	check("detail", m.Images[0].Detail, "low")
	check("image 1", r.Raw(m.Images[1].URL), `"https://example.com/x.png"`)
	check("audio", r.Raw(m.Audio[0].Data), `"QUJD"`)
	check("format", m.Audio[0].Format, "wav")
	check("file", m.Files[0].ID+m.Files[0].Name, "file-1a.pdf")
	check("file data", r.Raw(m.Files[1].Data), `"AAAA"`)
	check("earlier audio", r.Messages[2].Audio[0].ID, "audio_1")
}

func TestScanDefaults(t *testing.T) {
	r := scanChat(t, `{"model":"m","messages":[{}],"n":null,"max_tokens":null,"max_completion_tokens":null,"stream":null,"stream_options":null,"tools":null}`)
	if r.N != 1 || r.OutputLimit != -1 || r.OutputField != "" || r.Stream || r.MaxToolCalls != -1 || r.Choices() != 1 || !r.Tools.IsZero() {
		t.Errorf("defaults: %+v", r)
	}
	if r = scanChat(t, `{"model":"m","messages":[{}],"max_tokens":7}`); r.OutputLimit != 7 || r.OutputField != "max_tokens" {
		t.Errorf("max_tokens: %+v", r)
	}
}

func TestScanEmbeddings(t *testing.T) {
	for _, c := range []struct {
		input  string
		texts  string
		items  int
		tokens int64
	}{
		{`"a\nb"`, `["a\nb"]`, 1, 0},
		{`["a","b"]`, `["a" "b"]`, 2, 0},
		{`[1,2,3]`, `[]`, 1, 3},
		{`[ [1,2] , [3] ]`, `[]`, 2, 3},
	} {
		r, err := Scan(Embeddings, []byte(`{"model":"e","dimensions":256,"encoding_format":"base64","input":`+c.input+`}`), Limits{})
		if err != nil {
			t.Errorf("%s: %v", c.input, err)
			continue
		}
		var got []string
		for _, text := range r.Inputs {
			got = append(got, string(r.Unquote(nil, text)))
		}
		if fmt.Sprintf("%q", got) != c.texts || r.InputItems != c.items || r.InputTokens != c.tokens {
			t.Errorf("%s: texts %q, items %d, tokens %d", c.input, got, r.InputItems, r.InputTokens)
		}
		if r.Dimensions != 256 || r.EncodingFormat != "base64" {
			t.Errorf("%s: dimensions %d, format %q", c.input, r.Dimensions, r.EncodingFormat)
		}
	}
}

const ok = `"model":"m","messages":[{"role":"user","content":"x"}]`

func TestScanRefuses(t *testing.T) {
	deep := func(n int) string {
		return `{` + ok + `,"metadata":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}`
	}
	for _, c := range []struct{ body, param, code, message string }{
		// Not a document.
		{``, "", "", "empty"},
		{" \n", "", "", "empty"},
		{"\xEF\xBB\xBF{" + ok + "}", "", "", "byte order mark"},
		{`[]`, "", "", "must be an object, but is an array"},
		{`null`, "", "", "must be an object, but is null"},
		{`5`, "", "", "must be an object, but is a number"},
		{`{` + ok, "", "", "ends too early"},
		{`{` + ok + `} x`, "", "", "data after the document"},
		{`{` + ok + `}{}`, "", "", "data after the document"},
		{`{` + ok + `,}`, "", "", "unexpected character"},
		{`{` + ok + ",\"a\":\"\x00\"}", "", "", "control character"},
		{`{` + ok + ",\x00\"a\":1}", "", "", "unexpected character"},
		{`{` + ok + "}\x00", "", "", "data after"},
		{`{` + ok + ",\"a\":\"\xff\"}", "", "", "UTF-8 (at byte 61)"},
		{`{` + ok + `,"a":"\ud800"}`, "", "", "unpaired surrogate"},
		{`{` + ok + `,"a":"\udc00\ud800"}`, "", "", "unpaired surrogate"},
		{`{` + ok + `,"a":"\x"}`, "", "", "invalid escape"},
		{`{` + ok + `,"a":NaN}`, "", "", "unexpected character"},
		{`{` + ok + `,"a":-Infinity}`, "", "", "invalid number"},
		{`{` + ok + `,"a":01}`, "", "", "invalid number"},
		{`{` + ok + `,"a":1.}`, "", "", "invalid number"},
		{`{` + ok + `,"a":.5}`, "", "", "unexpected character"},
		{`{` + ok + `,"a":+1}`, "", "", "unexpected character"},
		{`{` + ok + `,"a":'x'}`, "", "", "unexpected character"},
		{`{` + ok + `,"a":1 /* x */}`, "", "", "unexpected character"},
		{`{` + ok + `,a:1}`, "", "", "unexpected character"},
		{`{` + ok + `,"a":tru}`, "", "", "unexpected character"},
		{deep(10_000), "", "", "nested too deeply: more than 1000"},
		{deep(1_000), "", "", "nested too deeply"},
		// Duplicates.
		{`{` + ok + `,"model":"n"}`, "", "duplicate_parameter", `"model" appears twice`},
		{`{` + ok + `,"mod\u0065l":"n"}`, "", "duplicate_parameter", `appears twice`},
		{`{` + ok + `,"a":{"b":[{"c":1,"\u0063":2}]}}`, "", "duplicate_parameter", "appears twice"},
		{`{` + ok + `,"stream_options":{"include_usage":true,"include_usage":false}}`, "", "duplicate_parameter", "appears twice"},
		// Other spellings.
		{`{` + ok + `,"Model":"n"}`, "model", "ambiguous_parameter", "'Model' differs from 'model'"},
		{`{` + ok + `,"MAX_TOKENS":5}`, "max_tokens", "ambiguous_parameter", "only in spelling"},
		{`{` + ok + `,"maxTokens":5}`, "max_tokens", "ambiguous_parameter", ""},
		{`{` + ok + `,"\u004dodel":"n"}`, "model", "ambiguous_parameter", ""},
		{`{` + ok + `,"to` + "\u212A" + `en":1,"tool` + "\u017F" + `":[]}`, "tools", "ambiguous_parameter", ""},
		{`{` + ok + `,"max_to` + "\u212A" + `ens":5}`, "max_tokens", "ambiguous_parameter", ""},
		{`{` + ok + `,"MAX-TO` + "\u212A" + `EN\u017F":5}`, "max_tokens", "ambiguous_parameter", ""},
		{`{` + ok + `,"servıce_tİer":"flex"}`, "service_tier", "ambiguous_parameter", ""},
		{`{` + ok + `,"N":5}`, "n", "ambiguous_parameter", ""},
		{`{"model":"m","messages":[{"role":"user","content":"x","Content":"y"}]}`, "content", "ambiguous_parameter", ""},
		{`{"model":"m","messages":[{"content":[{"type":"text","text":"x","TEXT":"y"}]}]}`, "text", "ambiguous_parameter", ""},
		{`{` + ok + `,"tools":[{"type":"function","Type":"web_search"}]}`, "type", "ambiguous_parameter", ""},
		{`{` + ok + `,"stream_options":{"Include_Usage":false}}`, "include_usage", "ambiguous_parameter", ""},
		// Missing.
		{`{"messages":[{}]}`, "model", "missing_required_parameter", "'model'"},
		{`{"model":null,"messages":[{}]}`, "model", "missing_required_parameter", ""},
		{`{"model":"","messages":[{}]}`, "model", "missing_required_parameter", ""},
		{`{"model":"m"}`, "messages", "missing_required_parameter", ""},
		{`{"model":"m","messages":[]}`, "messages", "empty_array", "empty array"},
		// Integers.
		{`{` + ok + `,"max_tokens":0}`, "max_tokens", "integer_below_min_value", ">= 1, but got 0 instead"},
		{`{` + ok + `,"max_tokens":-5}`, "max_tokens", "integer_below_min_value", "got -5"},
		{`{` + ok + `,"max_tokens":-1e999999999999999999}`, "max_tokens", "integer_below_min_value", ""},
		{`{` + ok + `,"max_tokens":1.5}`, "max_tokens", "invalid_type", "decimal"},
		{`{` + ok + `,"max_tokens":1e-2}`, "max_tokens", "invalid_type", "decimal"},
		{`{` + ok + `,"max_tokens":2147483648}`, "max_tokens", "integer_above_max_value", "<= 2147483647"},
		{`{` + ok + `,"max_tokens":18446744073709551617}`, "max_tokens", "integer_above_max_value", ""},
		{`{` + ok + `,"max_completion_tokens":1e400}`, "max_completion_tokens", "integer_above_max_value", ""},
		{`{` + ok + `,"max_tokens":"5"}`, "max_tokens", "invalid_type", "expected an integer, but got a string"},
		{`{` + ok + `,"max_tokens":true}`, "max_tokens", "invalid_type", "a boolean"},
		{`{` + ok + `,"max_tokens":5,"max_completion_tokens":5}`, "max_tokens", "invalid_parameter_combination", ""},
		{`{` + ok + `,"n":129}`, "n", "integer_above_max_value", "<= 128"},
		{`{` + ok + `,"n":0}`, "n", "integer_below_min_value", ""},
		{`{` + ok + `,"best_of":1e9}`, "best_of", "integer_above_max_value", ""},
		// Types.
		{`{"model":5,"messages":[{}]}`, "model", "invalid_type", "a number"},
		{`{"model":"` + strings.Repeat("m", 513) + `","messages":[{}]}`, "model", "string_above_max_length", ""},
		{`{` + ok + `,"stream":"true"}`, "stream", "invalid_type", "a boolean"},
		{`{` + ok + `,"stream":1}`, "stream", "invalid_type", ""},
		{`{` + ok + `,"stream_options":true}`, "stream_options", "invalid_type", ""},
		{`{` + ok + `,"stream_options":{"include_usage":1}}`, "stream_options.include_usage", "invalid_type", ""},
		{`{` + ok + `,"service_tier":["flex"]}`, "service_tier", "invalid_type", ""},
		{`{` + ok + `,"tools":{}}`, "tools", "invalid_type", ""},
		{`{` + ok + `,"tools":[[]]}`, "tools[0]", "invalid_type", ""},
		{`{` + ok + `,"tools":[{},{"type":[]}]}`, "tools[1].type", "invalid_type", ""},
		{`{` + ok + `,"tools":[{"type":"function","function":"f"}]}`, "tools[0].function", "invalid_type", ""},
		{`{` + ok + `,"functions":{}}`, "functions", "invalid_type", "an array"},
		{`{` + ok + `,"response_format":"json"}`, "response_format", "invalid_type", "an object"},
		{`{` + ok + `,"prediction":[]}`, "prediction", "invalid_type", ""},
		{`{` + ok + `,"modalities":"text"}`, "modalities", "invalid_type", ""},
		{`{` + ok + `,"modalities":[5]}`, "modalities", "invalid_type", ""},
		{`{` + ok + `,"web_search_options":true}`, "web_search_options", "invalid_type", ""},
		{`{"model":"m","messages":"hi"}`, "messages", "invalid_type", ""},
		{`{"model":"m","messages":[{},5]}`, "messages[1]", "invalid_type", ""},
		{`{"model":"m","messages":[{"content":5}]}`, "messages[0].content", "invalid_type", ""},
		{`{"model":"m","messages":[{"role":5}]}`, "messages[0].role", "invalid_type", ""},
		{`{"model":"m","messages":[{"content":[{},"x"]}]}`, "messages[0].content[1]", "invalid_type", ""},
		{`{"model":"m","messages":[{},{"content":[{},{"text":5}]}]}`, "messages[1].content[1].text", "invalid_type", ""},
		{`{"model":"m","messages":[{"content":[{"image_url":5}]}]}`, "messages[0].content[0].image_url", "invalid_type", ""},
		{`{"model":"m","messages":[{"content":[{"image_url":{"url":5}}]}]}`, "messages[0].content[0].image_url.url", "invalid_type", ""},
		{`{"model":"m","messages":[{"content":[{"input_audio":""}]}]}`, "messages[0].content[0].input_audio", "invalid_type", ""},
		{`{"model":"m","messages":[{"content":[{"file":{"file_data":5}}]}]}`, "messages[0].content[0].file.file_data", "invalid_type", ""},
		{`{"model":"m","messages":[{"tool_calls":[{"function":{"arguments":{}}}]}]}`, "messages[0].tool_calls[0].function.arguments", "invalid_type", ""},
		{`{"model":"m","messages":[{"function_call":"f"}]}`, "messages[0].function_call", "invalid_type", ""},
		{`{"model":"m","messages":[{"tool_call_id":5}]}`, "messages[0].tool_call_id", "invalid_type", ""},
	} {
		checkRefused(t, ChatCompletions, c.body, c.param, c.code, c.message)
	}
}

func TestScanEmbeddingsRefuses(t *testing.T) {
	for _, c := range []struct{ body, param, code, message string }{
		{`{"model":"e"}`, "input", "missing_required_parameter", ""},
		{`{"model":"e","input":null}`, "input", "missing_required_parameter", ""},
		{`{"input":"x"}`, "model", "missing_required_parameter", ""},
		{`{"model":"e","input":5}`, "input", "invalid_type", "a string, an array of strings"},
		{`{"model":"e","input":{}}`, "input", "invalid_type", ""},
		{`{"model":"e","input":[]}`, "input", "empty_array", ""},
		{`{"model":"e","input":[[]]}`, "input[0]", "empty_array", ""},
		{`{"model":"e","input":["a",1]}`, "input[1]", "invalid_type", "the same type"},
		{`{"model":"e","input":[1,"a"]}`, "input[1]", "invalid_type", ""},
		{`{"model":"e","input":[true]}`, "input[0]", "invalid_type", ""},
		{`{"model":"e","input":[null]}`, "input[0]", "invalid_type", ""},
		{`{"model":"e","input":[[1,"a"]]}`, "input[0][1]", "invalid_type", ""},
		{`{"model":"e","input":[-1]}`, "input[0]", "integer_below_min_value", ""},
		{`{"model":"e","input":[1.5]}`, "input[0]", "invalid_type", ""},
		{`{"model":"e","input":[99999999999999999999]}`, "input[0]", "integer_above_max_value", ""},
		{`{"model":"e","input":["x"` + strings.Repeat(`,"x"`, 2048) + `]}`, "input", "array_above_max_length", "2048"},
		{`{"model":"e","input":"x","Input":"y"}`, "input", "ambiguous_parameter", ""},
		{`{"model":"e","input":"x","dimensions":0}`, "dimensions", "integer_below_min_value", ""},
	} {
		checkRefused(t, Embeddings, c.body, c.param, c.code, c.message)
	}
}

func checkRefused(t *testing.T, ep Endpoint, body, param, code, message string) {
	t.Helper()
	shown := clip([]byte(body))
	_, err := Scan(ep, []byte(body), Limits{})
	var e *Error
	switch {
	case !errors.As(err, &e):
		t.Errorf("%q: err = %v, want an *Error", shown, err)
	case e.Status != 400 || e.Type != "invalid_request_error" || e.Param != param || e.Code != code:
		t.Errorf("%q: %d %q %q %q, want param %q, code %q", shown, e.Status, e.Param, e.Code, e.Message, param, code)
	case !strings.Contains(e.Message, message):
		t.Errorf("%q: message %q, want %q in it", shown, e.Message, message)
	case len(e.Message) > 400:
		t.Errorf("%q: message of %d bytes", shown, len(e.Message))
	}
}

func TestScanUnknownEndpoint(t *testing.T) {
	if _, err := Scan("audio.speech", []byte(`{}`), Limits{}); err == nil {
		t.Error("Scan of an unknown endpoint succeeded")
	}
}

func TestScanLimits(t *testing.T) {
	body := []byte(`{` + ok + `,"metadata":[[1,2]]}`)
	for depth := 1; depth <= 4; depth++ {
		if _, err := Scan(ChatCompletions, body, Limits{MaxDepth: depth}); (err == nil) != (depth >= 3) {
			t.Errorf("depth %d: %v", depth, err)
		}
	}
	// Names and values: the object, 2 for model, 2+1+4 for messages, 5 more.
	for tokens := 1; tokens <= 20; tokens++ {
		if _, err := Scan(ChatCompletions, body, Limits{MaxTokens: tokens}); (err == nil) != (tokens >= 15) {
			t.Errorf("tokens %d: %v", tokens, err)
		}
	}
	ids := `{"model":"e","input":[1` + strings.Repeat(",1", 1000) + `]}`
	if _, err := Scan(Embeddings, []byte(ids), Limits{MaxTokens: 10}); err != nil {
		t.Errorf("token ids counted: %v", err)
	}
}

func TestScanManyNames(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{` + ok + `,"metadata":{"x":0`)
	for i := range 5000 {
		fmt.Fprintf(&b, `,"k%d":0`, i)
	}
	scanChat(t, b.String()+"}}")
	for _, i := range []int{0, 30, 31, 32, 33, 4999} {
		checkRefused(t, ChatCompletions, fmt.Sprintf(`%s,"k%d":0}}`, b.String(), i), "", "duplicate_parameter", "")
	}
}

// TestScanMemory bounds what hostile bodies make us allocate.
func TestScanMemory(t *testing.T) {
	objects := strings.Repeat("{},", 1_700_000)
	var names strings.Builder
	for i := range 150_000 {
		fmt.Fprintf(&names, `,"k%d":0`, i)
	}
	for what, c := range map[string]struct {
		body string
		most uint64
	}{
		"1.7 million empty objects": {`{` + ok + `,"metadata":[` + objects + `{}]}`, 64 << 10},
		"1.7 million empty parts":   {`{"model":"m","messages":[{"content":[` + objects + `{}]}]}`, 64 << 10},
		"1.7 million messages":      {`{"model":"m","messages":[` + objects + `{}]}`, 16 << 20},
		"depth":                     {`{` + ok + `,"metadata":` + strings.Repeat("[", 4_000_000) + `}`, 64 << 10},
		"150,000 members":           {`{` + ok + names.String() + `}`, 1 << 20},
		"150,000 names":             {`{` + ok + `,"metadata":{"x":0` + names.String() + `}}`, 32 << 20},
	} {
		body := []byte(c.body)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Scan(ChatCompletions, body, Limits{})
		runtime.ReadMemStats(&after)
		if err == nil {
			t.Errorf("%s: accepted", what)
		}
		used := after.TotalAlloc - before.TotalAlloc
		t.Logf("%s: %d bytes, %v", what, used, err)
		if used > c.most {
			t.Errorf("%s: allocated %d bytes, want at most %d", what, used, c.most)
		}
	}
}
