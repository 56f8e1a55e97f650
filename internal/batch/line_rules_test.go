package batch_test

import (
	"fmt"
	"io"
	"net/url"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/batch"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/providers"
)

// quoteOptions returns options that price lines of an org without limits, which needs no
// Redis.
func quoteOptions(t *testing.T) batch.QuoteOptions {
	t.Helper()
	base := &url.URL{Scheme: "http", Host: "127.0.0.1:1"}
	set, err := providers.NewSet([]*providers.Provider{{ID: "openai", BaseURL: base, Pools: []providers.Pool{{ID: "main"}}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(set.Close)
	catalogue, err := pricing.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	org := &guard.Org{Org: settings.Org{ID: "acme"}}
	policy := &guard.Policy{Orgs: map[string]*guard.Org{"acme": org}, Catalogue: catalogue, Providers: set}
	return batch.QuoteOptions{Plans: guard.NewPlanner(policy, nil), Caller: guard.Caller{Org: org, User: "alice"}, MaxLine: 1000}
}

// lineOf returns a good line in which old is replaced by with.
func lineOf(id, old, with string) string {
	line := fmt.Sprintf(`{"custom_id":%q,"method":"POST","url":"/v1/chat/completions","body":{"model":"gpt-4o-mini","max_tokens":5,"messages":[{"role":"user","content":"hi"}]}}`, id)
	return strings.Replace(line, old, with, 1)
}

// ofMessages returns a line for the Messages API.
func ofMessages(id, limit string) string {
	line := strings.Replace(good(id), "/v1/chat/completions", "/v1/messages", 1)
	return strings.Replace(line, `"max_tokens":5`, limit, 1)
}

func good(id string) string { return lineOf(id, "", "") }

// brief formats a problem as "line code param: message".
func brief(p batch.Problem) string {
	line, param := 0, ""
	if p.Line != nil {
		line = *p.Line
	}
	if p.Param != nil {
		param = *p.Param
	}
	return fmt.Sprintf("%d %s %s: %s", line, p.Code, param, p.Message)
}

const (
	notJSON = "invalid_json_line : This line is not parseable as a JSON object."
	noID    = "invalid_value custom_id: 'custom_id' must have 1 to 512 bytes."
	noBody  = "missing_required_parameter body: 'body' must be a JSON object: the request."
	paths   = "/v1/chat/completions, /v1/completions, /v1/embeddings, /v1/messages, /v1/moderations, /v1/rerank, /v1/responses"
)

// Each mistake in a line is reported with the number of the line, counting blank ones.
func TestLineMistakes(t *testing.T) {
	o := quoteOptions(t)
	for _, c := range []struct{ line, want string }{
		{"not json", notJSON},
		{"[1]", notJSON},
		{"null", notJSON},
		{`"text"`, notJSON},
		{good("b") + "}", notJSON},
		{
			lineOf("b", `"custom_id":"b",`, ""),
			"missing_required_parameter custom_id: Missing required parameter: 'custom_id'.",
		},
		{
			lineOf("b", `"method":"POST",`, ""),
			"missing_required_parameter method: Missing required parameter: 'method'.",
		},
		{
			lineOf("b", `"url":"/v1/chat/completions",`, ""),
			"missing_required_parameter url: Missing required parameter: 'url'.",
		},
		{lineOf("b", `"b"`, "7"), "invalid_type custom_id: 'custom_id' must be a string."},
		{lineOf("b", `"b"`, "null"), "invalid_type custom_id: 'custom_id' must be a string."},
		{lineOf("b", `"POST"`, "null"), "invalid_type method: 'method' must be a string."},
		{lineOf("b", `"POST"`, `"GET"`), "invalid_method method: The method must be POST."},
		{lineOf("b", `"POST"`, `"post"`), "invalid_method method: The method must be POST."},
		{lineOf("b", `"b"`, `""`), noID},
		{lineOf("b", `"b"`, `"`+strings.Repeat("x", 513)+`"`), noID},
		{lineOf("b", "/v1/chat/completions", "/v1/files"), "invalid_value url: The url must be one of " + paths +
			`, not "/v1/files".`},
		{lineOf("b", `"body":{`, `"bodies":{`), noBody},
		{lineOf("b", `"body":{`, `"body":"x","rest":{`), noBody},
		{lineOf("b", `"body":{`, `"body":null,"rest":{`), noBody},
		{
			lineOf("b", `"max_tokens":5`, `"stream":true`),
			"invalid_value body.stream: Lines of a batch cannot be streamed. Remove stream.",
		},
		{
			ofMessages("b", `"max_tokens":0`),
			"invalid_value body.max_tokens: Lines of a batch need max_tokens of at least 1.",
		},
		{
			ofMessages("b", `"max_tokens":5,"speed":"fast"`),
			"invalid_value body.speed: Lines of a batch cannot use fast mode. Remove speed.",
		},
		{good("a"), "duplicate_custom_id custom_id: The custom_id of this line is already used on line 1."},
		{lineOf("b", "hi", strings.Repeat("x", 1000)), "line_too_large : The line has more than 1000 bytes."},
	} {
		q, err := batch.Estimate(strings.NewReader(good("a")+"\n\n \r\n"+c.line+"\n"+good("z")+"\n"), o)
		if err != nil {
			t.Fatal(err)
		}
		if len(q.Problems) != 1 || brief(q.Problems[0]) != "4 "+c.want {
			t.Errorf("%.80s: got %v, want 4 %s", c.line, q.Problems, c.want)
		}
		if q.Total.Requests != 2 {
			t.Errorf("%.80s: got %d requests counted, want the 2 good ones", c.line, q.Total.Requests)
		}
	}
}

// What the endpoint itself would refuse is reported with its own code, under body.
func TestBodyMistakes(t *testing.T) {
	o := quoteOptions(t)
	for body, want := range map[string]string{
		`{"messages":[M]}`:                                        "body.model",
		`{"model":"gpt-4o-mini","messages":[]}`:                   "body.messages",
		`{"model":"gpt-4o-mini","messages":[M],"max_tokens":"5"}`: "body.max_tokens",
		`{"model":"gpt-4o-mini","messages":[M],"n":0}`:            "body.n",
		`{"model":"no-such-model","messages":[M]}`:                "body.model",
	} {
		line := `{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":` +
			strings.Replace(body, "[M]", `[{"role":"user","content":"hi"}]`, 1) + `}`
		q, err := batch.Estimate(strings.NewReader(line), o)
		if err != nil {
			t.Fatal(err)
		}
		if len(q.Problems) != 1 || q.Problems[0].Param == nil || *q.Problems[0].Param != want ||
			q.Problems[0].Code == "" || q.Problems[0].Message == "" {
			t.Errorf("%s: got %v, want a problem of %s", body, q.Problems, want)
		}
	}
}

// A line may have as many bytes as the limit, including its line ending, and a custom_id
// 512.
func TestLineBounds(t *testing.T) {
	o := quoteOptions(t)
	long := lineOf("b", "hi", strings.Repeat("x", 1000-len(good("b"))-1+len("hi")))
	for text, want := range map[string]int64{
		long + "\n":  1,
		long + "x\n": 0,
		lineOf("b", `"b"`, `"`+strings.Repeat("x", 512)+`"`): 1,
		good("a") + "\n" + good("b"):                         2, // no line ending at the end
		good("a") + "\r\n" + good("b") + "\r\n":              2,
	} {
		q, err := batch.Estimate(strings.NewReader(text), o)
		if err != nil || q.Total.Requests != want {
			t.Errorf("%d bytes: got %d requests, %v, want %d", len(text), q.Total.Requests, err, want)
		}
	}
}

// At most a hundred problems are listed. The file is not read beyond them.
func TestProblemsAreBounded(t *testing.T) {
	file := strings.NewReader(strings.Repeat("wrong\n", 200_000))
	q, err := batch.Estimate(file, quoteOptions(t))
	if err != nil || len(q.Problems) != 100 {
		t.Errorf("got %d problems, %v, want 100", len(q.Problems), err)
	}
	if file.Len() == 0 {
		t.Error("the file was read to its end, want no more than its first problems")
	}
	q, err = batch.Estimate(strings.NewReader("\n \n"), quoteOptions(t))
	if err != nil || len(q.Problems) != 1 ||
		brief(q.Problems[0]) != "0 empty_file : The file is empty. It must contain at least one request." {
		t.Errorf("empty: got %v, %v", q.Problems, err)
	}
}

// A quote is summed by model, in the order of their names, and never exceeds the maximum.
func TestQuoteByModel(t *testing.T) {
	text := good("a") + "\n" + lineOf("b", "gpt-4o-mini", "gpt-4o") + "\n" +
		lineOf("c", `"max_tokens":5`, `"max_tokens":50`) + "\n"
	q, err := batch.Estimate(strings.NewReader(text), quoteOptions(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(q.Models) != 2 || q.Models[0].Model != "gpt-4o" || q.Models[1].Model != "gpt-4o-mini" {
		t.Fatalf("got %+v, want gpt-4o and gpt-4o-mini", q.Models)
	}
	if q.Models[1].Requests != 2 || q.Models[1].Output != 55 || q.Models[0].Output != 5 || q.Total.Output != 60 {
		t.Errorf("got %+v, want outputs of 5 and 55", q.Models)
	}
	if q.Total.Most != q.Models[0].Most+q.Models[1].Most || q.Total.Expected > q.Total.Most || q.Total.Most == 0 {
		t.Errorf("got total %+v of %+v", q.Total, q.Models)
	}
}

// A file that cannot be read is an error and yields no quote.
func TestQuoteOfABrokenFile(t *testing.T) {
	_, err := batch.Estimate(io.MultiReader(strings.NewReader(good("a")+"\n"), brokenFile{}), quoteOptions(t))
	if err == nil || !strings.Contains(err.Error(), "the disk is broken") {
		t.Errorf("got %v, want the error of the file", err)
	}
}

type brokenFile struct{}

func (brokenFile) Read([]byte) (int, error) { return 0, fmt.Errorf("the disk is broken") }

// The endpoint of a batch may be given with or without /v1.
func TestEndpointOf(t *testing.T) {
	for path, want := range map[string]wire.Endpoint{
		"/v1/chat/completions": wire.ChatCompletions, "/chat/completions": wire.ChatCompletions, "chat/completions": wire.ChatCompletions,
		"/v1/responses": wire.Responses, "/v1/embeddings": wire.Embeddings, "/v1/completions": wire.Completions, "/v1/moderations": wire.Moderations,
		"/v1/images/generations": "", "/v1": "", "": "", "/v2/embeddings": "", "/v1/embeddings/": "", "/V1/embeddings": "",
	} {
		got, ok := batch.EndpointOf(path)
		if got != want || ok != (want != "") {
			t.Errorf("%s: got %q, %v, want %q", path, got, ok, want)
		}
	}
	if got := batch.Paths(); got != paths {
		t.Errorf("got %s, want %s", got, paths)
	}
}

func TestTerminalStatuses(t *testing.T) {
	for status, want := range map[batch.Status]bool{
		batch.Validating: false, batch.InProgress: false, batch.Finalizing: false, batch.Cancelling: false,
		batch.Failed: true, batch.Completed: true, batch.Expired: true, batch.Cancelled: true,
	} {
		if got := status.Terminal(); got != want {
			t.Errorf("%s: got ended %v, want %v", status, got, want)
		}
	}
}
