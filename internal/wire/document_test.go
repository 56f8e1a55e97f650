package wire_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/llmguard/llmguard/internal/wire"
)

// request is a chat request with all kinds of members, none of them in canonical form.
const request = "{ \"model\" : \"gpt-4o\",\n\t\"messages\":[{\"role\":\"user\",\"content\":\"\\u00e9 \\/ \\ud83d\\ude42\"}], \"n\" : 1 , " +
	"\"temperature\":1.50,\"stream\":false,\"metadata\":{\"a\" : [1, 2 , {}]},\"user\":\"x\\\"y\",\"x-own\":null, \"seed\":1e2 }"

// members are the raw values of an object by name.
func members(t *testing.T, object []byte) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := wire.EachMember(object, func(name, value []byte) error {
		out[string(name)] = string(value)
		return nil
	})
	if err != nil {
		t.Fatalf("%s: %v", object, err)
	}
	return out
}

// TestRewriteChangesOneMember: each edit changes only its member; all others stay the same byte for
// byte.
func TestRewriteChangesOneMember(t *testing.T) {
	r, err := wire.Scan(wire.ChatCompletions, []byte(request), wire.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	before := members(t, []byte(request))
	for name := range before {
		for _, value := range []string{"", `"new"`, "0"} {
			edit := wire.Edit{Name: name}
			want := maps.Clone(before)
			delete(want, name)
			if value != "" {
				edit.JSON = []byte(value)
				want[name] = value
			}
			got := r.Rewrite(edit).Bytes()
			if !json.Valid(got) || !maps.Equal(members(t, got), want) {
				t.Errorf("%s = %q: %s", name, value, got)
			}
		}
	}
	if string(r.Body) != request {
		t.Errorf("the request itself is now %s", r.Body)
	}
}

// TestScanRefusesEveryCut: a body that is cut off anywhere is a 400 in OpenAI's format.
func TestScanRefusesEveryCut(t *testing.T) {
	bodies := map[wire.Endpoint]string{
		wire.ChatCompletions:  request,
		wire.Embeddings:       `{"model":"e","input":["a",[1,2]],"dimensions":3}`,
		wire.Responses:        `{"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":"\u00e9"}]}],"tools":[{"type":"function","name":"f"}]}`,
		wire.Completions:      `{"model":"m","prompt":["a","b"],"max_tokens":5}`,
		wire.Moderations:      `{"model":"m","input":"x"}`,
		wire.ImageGenerations: `{"model":"m","prompt":"x","n":2,"size":"1024x1024"}`,
		wire.Speech:           `{"model":"m","input":"x","voice":"alloy"}`,
	}
	for ep, body := range bodies {
		for n := range len(body) {
			_, err := wire.Scan(ep, []byte(body[:n]), wire.Limits{})
			var refused *wire.Error
			if !errors.As(err, &refused) || refused.Status != 400 || refused.Type != "invalid_request_error" || !json.Valid(refused.JSON()) {
				t.Fatalf("%s, cut at %d: %v", ep, n, err)
			}
		}
		for _, tail := range []string{"x", "{}", ",", "]", "\x00"} {
			if _, err := wire.Scan(ep, []byte(body+tail), wire.Limits{}); err == nil {
				t.Errorf("%s: data after the document was taken: %q", ep, tail)
			}
		}
		if _, err := wire.Scan(ep, []byte(body+" \r\n\t"), wire.Limits{}); err != nil && ep != wire.Embeddings {
			t.Errorf("%s: %v", ep, err)
		}
	}
}

// TestScanRefusesSecondNames: a duplicate name is refused however it is spelled, and the error
// names the member.
func TestScanRefusesSecondNames(t *testing.T) {
	for name := range members(t, []byte(request)) {
		escaped := fmt.Sprintf(`\u%04x`, name[0]) + name[1:]
		for _, again := range []string{name, escaped} {
			body := strings.TrimSuffix(request, " }") + `,"` + again + `":0}`
			_, err := wire.Scan(wire.ChatCompletions, []byte(body), wire.Limits{})
			if err == nil || !strings.Contains(err.Error(), again+`" appears twice`) {
				t.Errorf("%s twice, as %s: %v", name, again, err)
			}
		}
	}
	for _, near := range []string{"MODEL", "Max_Tokens", "maxTokens", "max-tokens", "Stream", "N"} {
		body := strings.TrimSuffix(request, " }") + `,"` + near + `":1}`
		if _, err := wire.Scan(wire.ChatCompletions, []byte(body), wire.Limits{}); err == nil {
			t.Errorf("%s, which differs from a priced name in spelling, was taken", near)
		}
	}
}

// TestWalks: members and items are raw and in order, an error ends the walk, and truncated input is
// an error.
func TestWalks(t *testing.T) {
	object := []byte(` {"b":[1, 2],"a" : {"x":"}"} ,"b":null} `)
	var seen []string
	err := wire.EachMember(object, func(name, value []byte) error {
		seen = append(seen, string(name)+"="+string(value))
		return nil
	})
	if got := strings.Join(seen, ";"); err != nil || got != `b=[1, 2];a={"x":"}"};b=null` {
		t.Errorf("members %s, %v", got, err)
	}
	seen = nil
	err = wire.EachItem([]byte(` [ 1 ,"]", [[]],{}] `), func(i int, value []byte) error {
		seen = append(seen, fmt.Sprintf("%d %s", i, value))
		return nil
	})
	if got := strings.Join(seen, ";"); err != nil || got != `0 1;1 "]";2 [[]];3 {}` {
		t.Errorf("items %s, %v", got, err)
	}
	stop := errors.New("stop")
	if err := wire.EachItem([]byte(`[1,2,3]`), func(i int, _ []byte) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("a walk that is ended: %v", err)
	}
	trimmed := bytes.TrimSpace(object)
	for n := range len(trimmed) {
		if err := wire.EachMember(trimmed[:n], func(_, _ []byte) error { return nil }); err == nil {
			t.Errorf("cut at %d: no error", n)
		}
	}
	if wire.EachMember([]byte(`[]`), nil) == nil || wire.EachItem([]byte(`{}`), nil) == nil {
		t.Error("an array was taken for an object, or an object for an array")
	}
}

// TestQuotedTexts: every text becomes a JSON string that decodes to it, and invalid UTF-8 becomes
// U+FFFD.
func TestQuotedTexts(t *testing.T) {
	texts := []string{"", "plain", "\"\\/\b\f\n\r\t\x00\x1f\x7f", "é日🙂\u2028\u2029", "\xff", "a\xc3", "\xed\xa0\x80", "\xf0\x9f\x99"}
	for b := range 256 {
		texts = append(texts, "x"+string([]byte{byte(b)})+"y")
	}
	for _, text := range texts {
		quoted := wire.AppendQuoted([]byte(">"), text)
		var got string
		err := json.Unmarshal(quoted[1:], &got)
		if want := strings.ToValidUTF8(text, "\ufffd"); err != nil || got != want || quoted[0] != '>' || !utf8.Valid(quoted) {
			t.Errorf("%q: %s, %v, want %q", text, quoted, err, want)
		}
		if !wire.IsString(quoted[1:]) || wire.Word(quoted[1:]) != strings.ToValidUTF8(text, "\ufffd") {
			t.Errorf("%q: Word reads %q", text, wire.Word(quoted[1:]))
		}
	}
	for _, raw := range []string{"", "1", "null", "{}", `["a"]`} {
		if wire.IsString([]byte(raw)) || wire.Word([]byte(raw)) != "" {
			t.Errorf("%s was taken for a string", raw)
		}
	}
}

// faults are errors of each kind, with the status, type and code that OpenAI uses for them.
var faults = []struct {
	err        *wire.Error
	status     int
	kind, code string
}{
	{wire.BadRequest("n", "integer_above_max_value", "n is %d", 200), 400, "invalid_request_error", "integer_above_max_value"},
	{wire.InvalidKey("wrong key"), 401, "invalid_request_error", "invalid_api_key"},
	{wire.Forbidden("model_not_allowed", "no %s", "o3"), 403, "invalid_request_error", "model_not_allowed"},
	{wire.NotFound("model", "model_not_found", "no %s", "o9"), 404, "invalid_request_error", "model_not_found"},
	{wire.MethodNotAllowed("PUT", []string{"GET", "POST"}), 405, "invalid_request_error", "method_not_allowed"},
	{wire.TooLarge(1 << 20), 413, "invalid_request_error", ""},
	{wire.UnsupportedEncoding("br"), 415, "invalid_request_error", ""},
	{wire.KeyReused(), 422, "invalid_request_error", ""},
	{wire.RateLimited("wait", 1500e6), 429, "", "rate_limit_exceeded"},
	{wire.QuotaExceeded("no money"), 402, "insufficient_quota", "insufficient_quota"},
	{wire.Internal(errors.New("canary")), 500, "", ""},
	{wire.BadGateway("gone", errors.New("canary")), 502, "", ""},
	{wire.ServiceUnavailable("full", 5e9, nil), 503, "", ""},
	{wire.ServiceUnavailable("away", 5e9, errors.New("canary")), 503, "", ""},
}

// TestEveryError: body and frames are JSON with OpenAI's four members, and the private cause is in
// none of them.
func TestEveryError(t *testing.T) {
	for _, f := range faults {
		var body struct {
			Error map[string]any
		}
		err := json.Unmarshal(f.err.JSON(), &body)
		e := body.Error
		if err != nil || len(e) != 4 || e["message"] != f.err.Message || e["type"] == "" || f.kind != "" && e["type"] != f.kind || f.err.Status != f.status {
			t.Errorf("%d %s: %v", f.err.Status, f.err.JSON(), err)
		}
		if f.code != "" && e["code"] != f.code || f.err.Param == "" && e["param"] != nil {
			t.Errorf("%s: code %v, param %v, want %q and null", f.err.JSON(), e["code"], e["param"], f.code)
		}
		for _, ep := range []wire.Endpoint{wire.ChatCompletions, wire.Responses, wire.Completions} {
			events, rest := cut(t, string(f.err.Frame(ep, 0)))
			if len(events) != 1 || rest != "" {
				t.Fatalf("the frame of %s is %q", ep, f.err.Frame(ep, 0))
			}
			chunk, err := wire.ScanEvent(ep, wire.EventData([]byte(events[0])), nil)
			if err != nil || !chunk.Error {
				t.Errorf("the frame of %s does not read as an error: %q, %v", ep, events[0], err)
			}
			if strings.Contains(events[0], "canary") || bytes.Contains(f.err.JSON(), []byte("canary")) {
				t.Errorf("a client sees the cause: %q", events[0])
			}
		}
		if f.err.Err != nil && (!strings.Contains(f.err.Error(), "canary") || errors.Unwrap(f.err) == nil) {
			t.Errorf("the log does not see the cause: %v", f.err)
		}
	}
}
