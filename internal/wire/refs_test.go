package wire

import (
	"strings"
	"testing"
)

// TestIdsAreFoundAnywhere: ids of things that the provider stores are recorded wherever a request
// names them, and nothing else is.
func TestIdsAreFoundAnywhere(t *testing.T) {
	const id = "file-1a2b3c4d5e6f7g8h"
	chat := func(part string) string {
		return `{"model":"m","messages":[{"role":"user","content":[` + part + `]}]}`
	}
	with := func(member string) string {
		return `{"model":"m","messages":[{"role":"user","content":"x"}],` + member + `}`
	}
	for name, x := range map[string]struct {
		ep   Endpoint
		body string
		kind ObjectKind
	}{
		"a part":                 {ChatCompletions, chat(`{"type":"file","file_id":"f1"}`), ObjectFile},
		"a part, spelled so":     {ChatCompletions, chat(`{"type":"file","fileId":"f1"}`), ObjectFile},
		"by its looks":           {ChatCompletions, chat(`{"type":"document","document":"` + id + `"}`), ObjectFile},
		"a store, by its looks":  {ChatCompletions, chat(`{"type":"x","sources":["vs_1a2b3c4d5e6f7g8h"]}`), ObjectVectorStore},
		"by its looks, escaped":  {ChatCompletions, chat(`{"type":"document","document":{"x":["\u0066` + id[1:] + `"]}}`), ObjectFile},
		"in a file":              {ChatCompletions, chat(`{"type":"file","file":{"id":"` + id + `"}}`), ObjectFile},
		"in an image":            {ChatCompletions, chat(`{"type":"image_url","image_url":{"url":"data:,","file_id":"f1"}}`), ObjectFile},
		"in a recording":         {ChatCompletions, chat(`{"type":"input_audio","input_audio":{"file_id":"f1"}}`), ObjectFile},
		"in a message":           {ChatCompletions, `{"model":"m","messages":[{"role":"user","content":"x","attachments":[{"file_id":"f1"}]}]}`, ObjectFile},
		"at the top":             {ChatCompletions, with(`"file_ids":["f1"]`), ObjectFile},
		"in something unknown":   {ChatCompletions, with(`"extra":{"google":{"cached_content":"c1"}}`), ObjectFile},
		"in a tool of chat":      {ChatCompletions, with(`"tools":[{"type":"file_search","vector_store_ids":["vs"]}]`), ObjectVectorStore},
		"in its parameters":      {ChatCompletions, with(`"tools":[{"type":"x:search","function":{"parameters":{"library_ids":["l"]}}}]`), ObjectVectorStore},
		"beside a function":      {ChatCompletions, with(`"tools":[{"type":"function","function":{"name":"f"},"file_ids":["f1"]}]`), ObjectFile},
		"in a choice of tools":   {ChatCompletions, with(`"tool_choice":{"container":"c1"}`), ObjectContainer},
		"in a search":            {ChatCompletions, with(`"web_search_options":{"collection_ids":["c1"]}`), ObjectVectorStore},
		"in stream options":      {ChatCompletions, with(`"stream_options":{"file_id":"f1"}`), ObjectFile},
		"in an embedding":        {Embeddings, `{"model":"m","input":"x","file_id":"f1"}`, ObjectFile},
		"in a moderation":        {Moderations, `{"model":"m","input":[{"type":"file","file_id":"f1"}]}`, ObjectFile},
		"in a picture":           {ImageGenerations, `{"model":"m","prompt":"x","images":[{"file_id":"f1"}]}`, ObjectFile},
		"in Responses' format":   {Responses, `{"model":"m","input":"x","text":{"file_id":"f1"}}`, ObjectFile},
		"in a tool of Responses": {Responses, `{"model":"m","input":"x","tools":[{"type":"x","parameters":{"container_id":"c1"}}]}`, ObjectContainer},
		"beside its schema":      {Responses, `{"model":"m","input":"x","tools":[{"type":"function","name":"f","file_ids":["f1"]}]}`, ObjectFile},
		"another response":       {ChatCompletions, with(`"previous_response_id":"resp_1"`), ObjectConversation},
	} {
		if r := scanAs(t, x.ep, x.body); len(r.Refs) != 1 || r.Refs[0].Kind != x.kind {
			t.Errorf("%s: refers to %+v, want one %s", name, r.Refs, x.kind)
		}
	}
	schema := `{"type":"object","properties":{"file_id":{"type":"string","default":"f1"}},"examples":[{"file_id":"f1"}]}`
	for name, body := range map[string]string{
		"metadata":      with(`"metadata":{"file_id":"f1"}`),
		"a schema":      with(`"tools":[{"type":"function","function":{"name":"f","parameters":` + schema + `}}]`),
		"a format":      with(`"response_format":{"type":"json_schema","json_schema":{"schema":` + schema + `}}`),
		"functions":     with(`"functions":[{"name":"f","parameters":` + schema + `}]`),
		"annotations":   `{"model":"m","messages":[{"role":"assistant","content":"x","annotations":[{"file_id":"f1"}]}]}`,
		"a text":        chat(`{"type":"text","text":"` + id + `"}`),
		"longer words":  chat(`{"type":"thinking","hint":"file-system-documentation"}`),
		"no text at id": with(`"file_id":{"a":1}`),
	} {
		if r := scanAs(t, ChatCompletions, body); len(r.Refs) != 0 {
			t.Errorf("%s: refers to %+v, want nothing", name, r.Refs)
		}
	}
	codex := `{"model":"m","input":"x","client_metadata":{"thread_id":"thread_1","session_id":"s1"}}`
	if r := scanAs(t, Responses, codex); len(r.Refs) != 0 {
		t.Errorf("the ids of a client's own sessions: refers to %+v, want nothing", r.Refs)
	}
}

// TestIdsInForms: a form field that names an id is recognized in any spelling.
func TestIdsInForms(t *testing.T) {
	for field, kind := range map[string]ObjectKind{
		"file_id": ObjectFile, "images[0][file_id]": ObjectFile, "images[].fileId": ObjectFile, "container": ObjectContainer, "language": "", "style_id": "",
	} {
		body := "--x\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n" +
			"--x\r\nContent-Disposition: form-data; name=\"" + field + "\"\r\n\r\nf1\r\n" +
			"--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\nsound\r\n--x--\r\n"
		r, err := ScanForm(Transcriptions, "", "multipart/form-data; boundary=x", strings.NewReader(body))
		if err != nil {
			t.Fatalf("%s: %v", field, err)
		}
		if got := len(r.Refs) == 1 && r.Refs[0].Kind == kind; got != (kind != "") {
			t.Errorf("%s: refers to %+v, want %q", field, r.Refs, kind)
		}
	}
}

// TestCacheMarksAnywhere: a one-hour mark counts wherever some provider reads it.
func TestCacheMarksAnywhere(t *testing.T) {
	const hour, short = `"cache_control":{"type":"ephemeral","ttl":"1h"}`, `"cache_control":{"type":"ephemeral","ttl":"5m"}`
	chat := func(message string) string { return `{"model":"m","messages":[{"role":"assistant",` + message + `}]}` }
	for name, x := range map[string]struct {
		ep   Endpoint
		body string
	}{
		"a function of a tool": {ChatCompletions, `{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"f",MARK}}]}`},
		"an old function":      {ChatCompletions, `{"model":"m","messages":[{"role":"user","content":"x"}],"functions":[{"name":"f",MARK}]}`},
		"a call of a tool":     {ChatCompletions, chat(`"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"},MARK}]`)},
		"a called function":    {ChatCompletions, chat(`"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}",MARK}}]`)},
		"earlier thoughts":     {ChatCompletions, chat(`"content":"x","thinking_blocks":[{"type":"thinking",MARK}]`)},
		"a vendor's options":   {ChatCompletions, chat(`"content":"x","providerOptions":{"anthropic":{MARK}}`)},
		"a file":               {ChatCompletions, chat(`"content":[{"type":"file","file":{"file_data":"x",MARK}}]`)},
		"a part of an item":    {Responses, `{"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":"x",MARK}]}]}`},
		"an item":              {Responses, `{"model":"m","input":[{"role":"user","content":"x",MARK}]}`},
		"a tool of Responses":  {Responses, `{"model":"m","input":"x","tools":[{"type":"function","name":"f",MARK}]}`},
	} {
		if r := scanAs(t, x.ep, strings.Replace(x.body, "MARK", hour, 1)); !r.LongCache {
			t.Errorf("%s: a mark for an hour is not read", name)
		}
		if r := scanAs(t, x.ep, strings.Replace(x.body, "MARK", short, 1)); r.LongCache {
			t.Errorf("%s: a mark for five minutes is taken for one for an hour", name)
		}
	}
	for _, mark := range []string{`[{"ttl":"1h"}]`, `"1h"`} {
		if r := scanAs(t, ChatCompletions, chat(`"content":"x","cache_control":`+mark)); !r.LongCache {
			t.Errorf("a mark of another form: %s is not read", mark)
		}
	}
}

// TestItemsWithAllTheirContent checks that the ids that clients give to items refer to nothing, and that an id
// without content does.
func TestItemsWithAllTheirContent(t *testing.T) {
	for item, refs := range map[string]int{
		`{"type":"additional_tools","id":"at_1","role":"developer","tools":[{"type":"namespace","name":"n","tools":[{"type":"custom","name":"f"}]}]}`: 0,
		`{"type":"tool_search_call","id":"tsc_1","call_id":"c","execution":"client","status":"completed","arguments":{"query":"x"}}`:                  0,
		`{"type":"tool_search_output","id":"tso_1","call_id":"c","execution":"client","tools":[{"type":"function","name":"f"}]}`:                      0,
		`{"type":"message","id":"msg_1","role":"user","content":"hi"}`:                                                                                0,
		`{"type":"item_reference","id":"msg_1"}`:        1,
		`{"type":"reasoning","id":"rs_1","summary":[]}`: 1,
	} {
		req, err := Scan(Responses, []byte(`{"model":"m","input":[`+item+`]}`), Limits{})
		if err != nil {
			t.Errorf("%s: %v", item, err)
		} else if len(req.Refs) != refs || len(req.BuiltinTools) > 0 {
			t.Errorf("%s: %+v, tools %v", item, req.Refs, req.BuiltinTools)
		}
	}
}
