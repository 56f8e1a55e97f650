package wire

import (
	"encoding/json"
	"errors"
	"math/big"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

// FuzzScan checks that whatever Scan accepts means the same to encoding/json, the laxest decoder we
// know: it accepts names in any case and uses the last of two.
func FuzzScan(f *testing.F) {
	for _, body := range []string{
		`{` + ok + `}`,
		`{` + ok + `,"max_tokens":1e2,"n":2.0,"stream":true,"stream_options":{"include_usage":true},"tools":[{"type":"x"}],"service_tier":"flex"}`,
		`{` + ok + `,"Model":"x"}`, `{` + ok + `,"m\u006fdel":"x"}`, `{` + ok + `,"MAX_TOKENS":5}`, `{` + ok + `,"N":5,"n":1}`,
		`{"model":"\ud83d\ude00","messages":[{"role":"user","content":[{"type":"text","text":"a\nb"}],"name":null}],"max_completion_tokens":null}`,
		`{` + ok + `,"max_tokens":18446744073709551617}`, `{` + ok + `,"` + "\u017Ftream" + `":true}`, `{` + ok + `} `, "\xEF\xBB\xBF{" + ok + "}",
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		Scan(Embeddings, body, Limits{}) // must not panic
		r, err := Scan(ChatCompletions, body, Limits{})
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Status != 400 || !json.Valid(e.JSON()) {
				t.Fatalf("refused with %v", err)
			}
			return
		}
		checkMeaning(t, r)
		for _, s := range []Span{r.Tools, r.Functions, r.ResponseFormat, r.Prediction, r.ToolChoice, r.Audio} {
			if !s.IsZero() && !json.Valid(r.Raw(s)) {
				t.Errorf("span %v is no JSON value: %s", s, r.Raw(s))
			}
		}
	})
}

// checkMeaning compares a request with what encoding/json reads in its body.
func checkMeaning(t *testing.T, r *Request) {
	t.Helper()
	var lax struct {
		Model               string
		MaxTokens           json.Number `json:"max_tokens"`
		MaxCompletionTokens json.Number `json:"max_completion_tokens"`
		N                   json.Number
		BestOf              json.Number `json:"best_of"`
		Stream              bool
		StreamOptions       struct {
			IncludeUsage bool `json:"include_usage"`
		} `json:"stream_options"`
		ServiceTier string `json:"service_tier"`
		Tools       []json.RawMessage
		Messages    []struct {
			Role    string
			Content any
		}
	}
	if err := json.Unmarshal(r.Body, &lax); err != nil {
		t.Fatalf("encoding/json refuses what Scan accepts: %v", err)
	}
	number := func(what string, got int64, lax json.Number) {
		if lax == "" {
			return
		}
		want, ok := new(big.Rat).SetString(lax.String())
		if !ok || want.Cmp(new(big.Rat).SetInt64(got)) != 0 {
			t.Errorf("%s = %d, encoding/json reads %s", what, got, lax)
		}
	}
	limit := lax.MaxTokens
	if lax.MaxCompletionTokens != "" {
		limit = lax.MaxCompletionTokens
	}
	number("OutputLimit", r.OutputLimit, limit)
	number("N", r.N, lax.N)
	number("BestOf", r.BestOf, lax.BestOf)
	if (limit == "") != (r.OutputLimit == -1) || lax.N == "" && r.N != 1 {
		t.Errorf("limit %d, encoding/json reads %q; n %d, %q", r.OutputLimit, limit, r.N, lax.N)
	}
	if r.Model != lax.Model || r.Stream != lax.Stream || r.IncludeUsage != lax.StreamOptions.IncludeUsage || r.ServiceTier != lax.ServiceTier {
		t.Errorf("%+v, encoding/json reads %+v", r, lax)
	}
	if len(r.Messages) != len(lax.Messages) || len(r.ToolNames)+len(r.BuiltinTools) < len(lax.Tools) {
		t.Fatalf("%d messages, %d tools; encoding/json reads %d, %d",
			len(r.Messages), len(r.ToolNames)+len(r.BuiltinTools), len(lax.Messages), len(lax.Tools))
	}
	for i, m := range r.Messages {
		if m.Role != lax.Messages[i].Role {
			t.Errorf("message %d: role %q, encoding/json reads %q", i, m.Role, lax.Messages[i].Role)
		}
		content, ok := lax.Messages[i].Content.(string)
		for _, text := range m.Texts {
			if text.Kind == KindContent && ok && string(r.Unquote(nil, text)) != content {
				t.Errorf("message %d: content %q, encoding/json reads %q", i, r.Unquote(nil, text), content)
			}
		}
	}
}

// TestScanMeaning does what FuzzScan does with documents composed of relevant members in all
// spellings.
func TestScanMeaning(t *testing.T) {
	names := []string{
		"model", "messages", "max_tokens", "max_completion_tokens", "n", "best_of", "stream", "stream_options", "service_tier", "tools",
		"role", "content", "include_usage", "type", "text", "metadata", "seed",
	}
	respell := []func(string) string{
		strings.ToUpper,
		func(s string) string { return strings.ToUpper(s[:1]) + s[1:] },
		func(s string) string { return strings.ReplaceAll(s, "_", "") },
		func(s string) string { return strings.ReplaceAll(s, "s", "\u017F") },
		func(s string) string { return strings.ReplaceAll(s, "k", "\u212A") },
		func(s string) string { return `\u00` + strconv.FormatInt(int64(s[0]), 16) + s[1:] },
	}
	words := []string{
		"null", "true", "false", "0", "1", "-1", "2.0", "1e2", "1.5", "128", "129", "1e99", "18446744073709551617", `""`, `"m"`, `"flex"`, `"a\n\u0062"`,
		"[]", "{}", "[{}]", `[{"role":"user","content":"x"}]`, `{"include_usage":true}`, `[{"type":"web_search"}]`, `[{"type":"text","text":"y"}]`,
	}
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(list []string) string { return list[random.IntN(len(list))] }
	var value func(depth int) string
	object := func(members []string, depth int) string {
		for range random.IntN(4) {
			name := pick(names)
			if random.IntN(8) == 0 {
				name = respell[random.IntN(len(respell))](name)
			}
			members = append(members, `"`+name+`":`+value(depth+1))
		}
		random.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
		return "{" + strings.Join(members, " , ") + "}"
	}
	value = func(depth int) string {
		switch k := random.IntN(10); {
		case k == 0 && depth < 4:
			return object(nil, depth)
		case k == 1 && depth < 4:
			return "[" + value(depth+1) + "," + value(depth+1) + "]"
		}
		return pick(words)
	}
	accepted := 0
	for range 50_000 {
		message := object([]string{`"role":"user"`}, 1)
		body := object([]string{`"model":"m"`, `"messages":[` + message + `]`}, 0)
		r, err := Scan(ChatCompletions, []byte(body), Limits{})
		if err != nil {
			continue
		}
		accepted++
		if checkMeaning(t, r); t.Failed() {
			t.Fatalf("body %s", body)
		}
	}
	if accepted < 5_000 {
		t.Errorf("only %d documents were accepted", accepted)
	}
}
