package messages_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/chat"
	"github.com/llmguard/llmguard/internal/messages"
	"github.com/llmguard/llmguard/internal/neutral"
	"github.com/llmguard/llmguard/internal/responses"
	"github.com/llmguard/llmguard/internal/wire"
)

// conversation is a wire with the functions that a call needs.
type conversation struct {
	endpoint wire.Endpoint
	lacks    neutral.Lacks
	request  func(*wire.Request, neutral.Options) (*neutral.Request, error)
	body     func(*neutral.Request, neutral.Form) ([]byte, error)
	reader   func(neutral.Writer) neutral.Reader
	writer   func(neutral.Reply, bool) neutral.Writer
}

var (
	anthropic = conversation{
		wire.Messages, messages.Lacks, messages.Request, messages.Body, messages.NewReader, messages.NewWriter,
	}
	openAI = conversation{
		wire.ChatCompletions, chat.Lacks, chat.Request, chat.Body, chat.NewReader, chat.NewWriter,
	}
	respond = conversation{
		endpoint: wire.Responses, request: responses.Request, writer: responses.NewWriter,
	}
)

// translate translates a request from one wire to another. The result must be one that our own scanner accepts.
func translate(t testing.TB, body string, from, to conversation) (string, error) {
	t.Helper()
	r, err := wire.Scan(from.endpoint, []byte(body), wire.Limits{})
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	q, err := from.request(r, neutral.Options{Lacks: to.lacks})
	if err != nil {
		return "", err
	}
	out, err := to.body(q, neutral.Form{LimitField: "max_completion_tokens", Limit: 4096, Size: len(body)})
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	if _, err := wire.Scan(to.endpoint, out, wire.Limits{}); err != nil {
		t.Errorf("our own scanner refuses %s: %v", out, err)
	}
	return string(out), nil
}

func checkTranslation(t *testing.T, body, want string, from, to conversation) {
	t.Helper()
	got, err := translate(t, body, from, to)
	if err != nil {
		t.Errorf("%s: %v", body, err)
		return
	}
	sameJSON(t, got, want)
}

func sameJSON(t testing.TB, got, want string) {
	t.Helper()
	var a, b any
	if err := json.Unmarshal([]byte(got), &a); err != nil {
		t.Fatalf("%v: %s", err, got)
	}
	if err := json.Unmarshal([]byte(want), &b); err != nil {
		t.Fatalf("%v: %s", err, want)
	}
	if !reflect.DeepEqual(a, b) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// checkRefusal checks the caller's name for what is refused.
func checkRefusal(t *testing.T, body, param string, from, to conversation) {
	t.Helper()
	got, err := translate(t, body, from, to)
	refused, ok := errors.AsType[*wire.Error](err)
	if !ok {
		t.Errorf("%s: got %s, %v, want a refusal", body, got, err)
		return
	}
	if refused.Status != 400 || refused.Param != param {
		t.Errorf("%s: got %d %s: %s, want %s", body, refused.Status, refused.Param, refused.Message, param)
	}
}

// answers translates an answer, whole or as a stream in pieces of the given size.
func answers(t testing.TB, answer, request string, size int, from, to conversation) string {
	t.Helper()
	r, err := wire.Scan(to.endpoint, []byte(request), wire.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	w := to.writer(neutral.Reply{Request: r, ID: "id"}, size > 0)
	if size == 0 {
		out, err := neutral.Whole([]byte(answer), from.reader(w), w)
		if err != nil {
			t.Fatalf("%s: %v", answer, err)
		}
		return string(out)
	}
	s := neutral.Stream{From: from.reader(w), To: w}
	var events wire.Events
	var out strings.Builder
	for len(answer) > 0 {
		n := min(size, len(answer))
		if err := events.Feed([]byte(answer[:n])); err != nil {
			t.Fatal(err)
		}
		answer = answer[n:]
		for event, ok := events.Next(); ok; event, ok = events.Next() {
			made, _ := s.Event(event)
			out.Write(made)
		}
	}
	made, _ := s.Event(events.Rest())
	out.Write(made)
	out.Write(s.Close())
	return out.String()
}
