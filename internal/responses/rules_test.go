package responses_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/neutral"
	"github.com/llmguard/llmguard/internal/responses"
	"github.com/llmguard/llmguard/internal/wire"
)

func requestOf(t *testing.T, body string) *wire.Request {
	t.Helper()
	r, err := wire.Scan(wire.Responses, []byte(body), wire.Limits{})
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return r
}

// chatOf returns the chat request for a body, parsed as JSON.
func chatOf(t *testing.T, body string, o neutral.Options) map[string]any {
	t.Helper()
	text, err := responses.ChatRequest(requestOf(t, body), o, "max_completion_tokens")
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return jsonOf(t, text).(map[string]any)
}

func jsonOf(t *testing.T, text []byte) any {
	t.Helper()
	var v any
	err := json.Unmarshal(text, &v)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

func checkJSON(t *testing.T, what string, got any, want string) {
	t.Helper()
	if !reflect.DeepEqual(got, jsonOf(t, []byte(want))) {
		text, _ := json.Marshal(got)
		t.Errorf("%s:\ngot  %s\nwant %s", what, text, want)
	}
}

// answerOf returns the response built from a complete chat answer.
func answerOf(t *testing.T, message, finish string, more string) map[string]any {
	t.Helper()
	chat := fmt.Sprintf(`{"id":"c","object":"chat.completion","model":"m-1","choices":[{"index":0,"message":%s,"finish_reason":%q}]%s}`, message, finish, more)
	text, err := responses.Answer([]byte(chat), neutral.Reply{
		Request: requestOf(t, `{"model":"m","input":"x"}`),
		ID:      "resp_1",
	})
	if err != nil {
		t.Fatalf("%s: %v", chat, err)
	}
	return jsonOf(t, text).(map[string]any)
}

// streamOf returns the data of each event that a chat stream is translated to.
func streamOf(t *testing.T, chunks ...string) []map[string]any {
	t.Helper()
	var b strings.Builder
	for _, c := range chunks {
		b.WriteString("data: " + c + "\n\n")
	}
	reply := neutral.Reply{Request: requestOf(t, `{"model":"m","input":"x","stream":true}`), ID: "resp_1"}
	text, err := io.ReadAll(responses.Stream(strings.NewReader(b.String()), reply))
	if err != nil {
		t.Fatal(err)
	}
	var out []map[string]any
	for block := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
		_, data, _ := strings.Cut(block, "\ndata: ")
		out = append(out, jsonOf(t, []byte(data)).(map[string]any))
	}
	return out
}

func checkRefusal(t *testing.T, body string, err error, status int, param, code, message string) {
	t.Helper()
	refused, ok := errors.AsType[*wire.Error](err)
	if !ok {
		t.Errorf("%s: got %v, want a refusal", body, err)
		return
	}
	if refused.Status != status || refused.Param != param || refused.Code != code ||
		!strings.HasPrefix(refused.Message, message) {
		t.Errorf("%s: got %d %s %s %q\nwant %d %s %s %q", body, refused.Status, refused.Param, refused.Code,
			refused.Message, status, param, code, message)
	}
}
