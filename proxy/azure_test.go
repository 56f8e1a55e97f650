package proxy

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/queue"
)

// TestAzurePaths: Azure's clients name the deployment in the path, and the version in the query,
// which is not forwarded.
func TestAzurePaths(t *testing.T) {
	r := newRig(t, queue.Pool{}, nil, window(roomy, time.Hour))
	chat := `{"messages":[{"role":"user","content":"hello"}],"max_tokens":5}`
	named := strings.Replace(chat, "{", `{"model":"gpt-4.1",`, 1)
	whisper, kind := form(t, field{"file", "", fakeprovider.Wav(8000, 80)})
	for _, x := range []struct{ path, body, kind, model, query string }{
		{"/openai/deployments/gpt-4o/chat/completions?api-version=2024-10-21", chat, "", "gpt-4o", ""},
		{"/openai/deployments/gpt-4o/chat/completions?order=b%20c&api-version=2024-10-21&d", named, "", "gpt-4o", "order=b+c"},
		{"/openai/v1/chat/completions?api%2Dversion=preview", named, "", "gpt-4.1", ""},
		{"/openai/deployments/text-embedding-3-small/embeddings?api-version=1", `{"input":"hello"}`, "", "text-embedding-3-small", ""},
		{"/openai/deployments/whisper-1/audio/transcriptions?api-version=1", whisper, kind, "whisper-1", ""},
	} {
		if x.kind == "" {
			x.kind = "application/json"
		}
		a := r.call(http.MethodPost, x.path, x.body, "Authorization", "", "Api-Key", r.key, "Content-Type", x.kind)
		if a.status != 200 {
			t.Errorf("%s: status %d: %s", x.path, a.status, a.body)
			continue
		}
		log := r.fake.Log()
		if last := log[len(log)-1]; last.Model != x.model || last.Query != x.query || last.Header.Get("Api-Key") != "" {
			t.Errorf("got %s: model %q, query %q; want what the path names and no version", x.path, last.Model, last.Query)
		}
	}
	a := r.call(http.MethodPost, "/openai/deployments/gpt-4o/nothing", chat)
	a.fails(t, 404, "unknown_url")
	a = r.call(http.MethodPost, "/openai/deployments//chat/completions", chat)
	a.fails(t, 400, "missing_required_parameter")
}
