package fakeprovider

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func promptOf(t *testing.T, body string) int64 {
	t.Helper()
	s := New(Options{})
	defer s.Close()
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(body)))
	if w.Code != http.StatusOK {
		t.Fatalf("%s: %d %s", body, w.Code, w.Body)
	}
	return s.Log()[0].Usage.Prompt
}

func TestPromptTokens(t *testing.T) {
	const pixel = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
	f := func(model, content, more string, want int64) {
		t.Helper()
		body := `{"model":"` + model + `","messages":[{"role":"user","content":` + content + `}]` + more + `}`
		if got := promptOf(t, body); got != want {
			t.Errorf("%s %.60s %.60s: %d prompt tokens, want %d", model, content, more, got, want)
		}
	}
	f("gpt-4o", `"hi"`, ``, 3+3+1+1)
	f("gpt-4o", `[{"type":"text","text":"hi"},{"type":"text","text":"hi"}]`, ``, 3+3+1+2)
	f("gpt-4o", `[{"type":"image_url","image_url":{"url":"https://example.com/a.png"}}]`, ``, 3+3+1+85+170)
	f("gpt-4o", `[{"type":"image_url","image_url":{"url":"https://example.com/a.png","detail":"low"}}]`, ``, 3+3+1+85)
	f("gpt-4.1-mini", `[{"type":"image_url","image_url":{"url":"`+pixel+`"}}]`, ``, 3+3+1+2)
	tool := `{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{}}}}`
	plain := promptOf(t, `{"model":"gpt-4o","messages":[{"role":"user","content":"hi"}],"tools":[`+tool+`]}`)
	spaced := promptOf(t, `{"model":"gpt-4o","messages":[{"role":"user","content":"hi"}],"tools":[`+strings.ReplaceAll(tool, `,`, ",\n\n    ")+`]}`)
	if plain != spaced || plain <= 8 {
		t.Errorf("tools count %d tokens, spaced out %d", plain, spaced)
	}
}
