package baseline

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"time"
)

// A fixed response, as long as a short one of OpenAI's.
const (
	answer = `{"id":"chatcmpl-bench0000000000000000000000","object":"chat.completion","created":1763600000,"model":"gpt-4o-mini","choices":[{"index":0,"message":{"role":"assistant","content":"The quiet river carries a letter to the village before the winter. Our teacher explains the plan, and every station keeps the answer.","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":64,"completion_tokens":32,"total_tokens":96,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}},"service_tier":"default","system_fingerprint":"fp_bench"}`

	chunkHead = `data: {"id":"chatcmpl-bench0000000000000000000000","object":"chat.completion.chunk","created":1763600000,"model":"gpt-4o-mini","service_tier":"default","system_fingerprint":"fp_bench","choices":[`
	chunkText = `{"index":0,"delta":{"content":" river"},"logprobs":null,"finish_reason":null}],"usage":null}` + "\n\n"
	chunkLast = `{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}],"usage":null}` + "\n\n"
	chunkSum  = `],"usage":{"prompt_tokens":64,"completion_tokens":32,"total_tokens":96,"prompt_tokens_details":{"cached_tokens":0},"completion_tokens_details":{"reasoning_tokens":0}}}` + "\n\n"
	done      = "data: [DONE]\n\n"
	chunks    = 32
)

// Upstream sends the same response to every call, after a delay: plain, or as 32 chunks if the
// beginning of the request asks for a stream.
func Upstream(delay time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := make([]byte, 256)
		n, _ := io.ReadFull(r.Body, start)
		_, _ = io.Copy(io.Discard, r.Body)
		if delay > 0 {
			time.Sleep(delay)
		}
		h := w.Header()
		h.Set("X-Request-Id", "req_bench")
		if bytes.Contains(start[:n], []byte(`"stream":true`)) {
			h.Set("Content-Type", "text/event-stream")
			stream(w)
			return
		}
		h.Set("Content-Type", "application/json")
		h.Set("Content-Length", strconv.Itoa(len(answer)))
		_, _ = io.WriteString(w, answer)
	})
}

func stream(w http.ResponseWriter) {
	flush := http.NewResponseController(w).Flush
	for range chunks {
		_, _ = io.WriteString(w, chunkHead+chunkText)
		_ = flush()
	}
	_, _ = io.WriteString(w, chunkHead+chunkLast+chunkHead+chunkSum+done)
}
