package proxy

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"mime/multipart"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/spool"
	"github.com/llmguard/llmguard/queue"
)

// field is a part of a form; a file if data is set.
type field struct {
	name, value string
	data        []byte
}

// form writes a multipart body.
func form(t *testing.T, fields ...field) (body, contentType string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for _, f := range fields {
		create := w.CreateFormField
		if f.data != nil {
			create = func(name string) (io.Writer, error) { return w.CreateFormFile(name, "a.wav") }
		}
		part, err := create(f.name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := part.Write(append([]byte(f.value), f.data...)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String(), w.FormDataContentType()
}

// TestMediaCost makes every kind of call and reads what it cost from its answer.
func TestMediaCost(t *testing.T) {
	r := newRig(t, queue.Pool{}, nil, window(roomy, time.Hour))
	second := fakeprovider.Wav(16_000, 16_000)
	lying := fakeprovider.Wav(16_000, 16_000)
	lying[27] = 0x7f // the highest byte of its rate
	for _, x := range []struct {
		name, path string
		body       string // JSON
		fields     []field
		nano       int64 // -1: not known before the end
		estimated  bool
		contains   string
	}{
		{"dall-e by size", "/images/generations", `{"model":"dall-e-3","prompt":"an otter","size":"1792x1024"}`, nil, 80_000_000, false, "images.invalid"},
		{"dall-e by number", "/images/generations", `{"model":"dall-e-2","prompt":"an otter","n":3,"size":"256x256"}`, nil, 48_000_000, false, "images.invalid"},
		{"gpt-image by usage", "/images/generations", `{"model":"gpt-image-1","prompt":"an otter","quality":"low","n":2}`, nil, 3*5000 + 2*272*40_000, false, "b64_json"},
		{"variations", "/images/variations", "", []field{{"image", "", second}, {"model", "dall-e-2", nil}, {"n", "2", nil}}, 40_000_000, false, "images.invalid"},
		{"edits", "/images/edits", "", []field{
			{"image[]", "", second}, {"image[]", "", second}, {"prompt", "an otter", nil}, {"model", "gpt-image-1", nil}, {"quality", "low", nil},
		}, 3*5000 + 600*10_000 + 272*40_000, false, "b64_json"},
		{"speech by character", "/audio/speech", `{"model":"tts-1","input":"h\u00e9llo","voice":"alloy"}`, nil, 5 * 15_000, false, "\xff\xfb"},
		{"speech by length", "/audio/speech", `{"model":"gpt-4o-mini-tts","input":"hello","voice":"alloy","response_format":"pcm"}`, nil, -1, true, ""},
		{"whisper by usage", "/audio/transcriptions", "", []field{{"file", "", second}, {"model", "whisper-1", nil}}, 2 * 100_000, false, "nobody"},
		{"whisper by the file", "/audio/transcriptions", "", []field{{"file", "", second}, {"model", "whisper-1", nil}, {"response_format", "text", nil}}, 100_000, false, "nobody"},
		{"whisper by the size", "/audio/translations", "", []field{{"model", "whisper-1", nil}, {"response_format", "srt", nil}, {"file", "", make([]byte, 999)}}, 100_000, true, "nobody"},
		{"a rate that lies", "/audio/transcriptions", "", []field{{"file", "", lying}, {"model", "whisper-1", nil}, {"response_format", "text", nil}}, 32_045 * 100, true, "nobody"},
		{"captions beyond the file", "/audio/transcriptions", "", []field{{"file", "", fakeprovider.Wav(192_000, 640_000)}, {"model", "whisper-1", nil}, {"response_format", "srt", nil}, {"prompt", "[fake: text=1%0A00:00:00,000+--%3E+00:00:40,000%0Awords]", nil}}, 1_280_045 * 100, true, "words"},
		{"transcript by tokens", "/audio/transcriptions", "", []field{{"file", "", second}, {"model", "gpt-4o-transcribe", nil}}, 20*6000 + 7*10_000, false, "nobody"},
	} {
		t.Run(x.name, func(t *testing.T) {
			body, kind := x.body, "application/json"
			if x.fields != nil {
				body, kind = form(t, x.fields...)
			}
			a := r.call(http.MethodPost, "/v1"+x.path, body, "Content-Type", kind)
			if a.err != nil || a.status != 200 || !strings.Contains(a.body, x.contains) {
				t.Fatalf("got %v, status %d: %.300q; want 200", a.err, a.status, a.body)
			}
			cost := a.header.Get("X-Llmguard-Cost-Usd")
			if x.nano < 0 {
				cost = a.trailer.Get("X-Llmguard-Cost-Usd")
				x.nano = 1*600 + 5*12_000 // a token in, 250 ms out
			}
			usd, err := strconv.ParseFloat(cost, 64)
			if got := int64(usd*1e9 + 0.5); err != nil || got != x.nano {
				t.Errorf("cost %q, want %d nano-USD", cost, x.nano)
			}
			if got := a.header.Get("X-Llmguard-Estimated")+a.trailer.Get("X-Llmguard-Estimated") == "true"; got != x.estimated {
				t.Errorf("estimated %v", got)
			}
		})
	}
}

// TestMediaRefused: calls that cannot be priced, or that can be read in two ways, are never sent.
func TestMediaRefused(t *testing.T) {
	r := newRig(t, queue.Pool{}, func(o *Options) { o.MaxBody = 100_000 }, window(roomy, time.Hour))
	file := field{"file", "", make([]byte, 100)}
	multi := func(fields ...field) [2]string { body, kind := form(t, fields...); return [2]string{body, kind} }
	for _, x := range []struct {
		path string
		body [2]string
		code string
		want int
	}{
		{"/images/generations", [2]string{`{"model":"dall-e-3","prompt":"x","size":"640x480"}`}, "image_not_priced", 400},
		{"/images/generations", [2]string{`{"model":"text-embedding-3-small","prompt":"x"}`}, "request_not_priced", 400},
		{"/images/generations", [2]string{`{"model":"gpt-image-9","prompt":"x"}`}, "model_not_priced", 400},
		{"/images/generations", [2]string{`{"prompt":"x","size":"640x480"}`}, "image_not_priced", 400}, // by the API's default
		{"/images/generations", [2]string{`{"model":"dall-e-3","prompt":"x","n":11}`}, "integer_above_max_value", 400},
		{"/images/generations", [2]string{`{"model":"dall-e-3","prompt":"x","N":9}`}, "ambiguous_parameter", 400},
		{"/audio/transcriptions", [2]string{`{"model":"whisper-1"}`, "application/json"}, "invalid_content_type", 400},
		{"/audio/transcriptions", multi(file), "missing_required_parameter", 400},
		{"/audio/transcriptions", multi(field{"model", "whisper-1", nil}), "missing_required_parameter", 400},
		{"/audio/transcriptions", multi(file, field{"model", "tts-1", nil}), "request_not_priced", 400},
		{"/audio/transcriptions", multi(file, field{"model", "whisper-1", nil}, field{"model", "gpt-4o-transcribe", nil}), "duplicate_parameter", 400},
		{"/audio/transcriptions", multi(file, field{"Model", "whisper-1", nil}), "ambiguous_parameter", 400},
		{"/audio/transcriptions", multi(file, file, field{"model", "whisper-1", nil}), "duplicate_parameter", 400},
		{"/audio/transcriptions", multi(field{"file", "", make([]byte, 200_000)}, field{"model", "whisper-1", nil}), "request_too_large", 413},
		{"/images/edits", multi(field{"image", "", []byte("x")}, field{"model", "gpt-image-1", nil}), "missing_required_parameter", 400},
	} {
		kind := x.body[1]
		if kind == "" {
			kind = "application/json"
		}
		a := r.call(http.MethodPost, "/v1"+x.path, x.body[0], "Content-Type", kind)
		a.fails(t, x.want, x.code)
	}
	if n := len(r.fake.Log()); n != 0 {
		t.Errorf("got %d requests reached the provider, want 0", n)
	}
}

// TestFormBytes: a form reaches the provider byte for byte, except for the model if it has another
// name there, in whatever order its parts come.
func TestFormBytes(t *testing.T) {
	for name, memory := range map[string]int{"in memory": 1000, "in a file": 3 * spool.Small} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, queue.Pool{}, nil, window(roomy, time.Hour))
			body, kind := form(t, field{"file", "", fakeprovider.Wav(8000, memory/2)}, field{"model", "whisper-1", nil}, field{"language", "en", nil})
			a := r.call(http.MethodPost, "/v1/audio/transcriptions", body, "Content-Type", kind)
			log := r.fake.Log()
			if a.status != 200 || len(log) != 1 {
				t.Fatalf("status %d, %d requests: %s; want 200 and 1 request", a.status, len(log), a.body)
			}
			if sum := sha256.Sum256([]byte(body)); log[0].BodySHA256 != hex.EncodeToString(sum[:]) || log[0].Header.Get("Content-Type") != kind {
				t.Errorf("got %d bytes for %d, %q; want the form as it was sent", log[0].BodyLen, len(body), log[0].Header.Get("Content-Type"))
			}
		})
	}
}

// TestFormDoesNotWait: a call with files that does not fit is refused with a retry time, and never
// becomes a job.
func TestFormDoesNotWait(t *testing.T) {
	r := newRig(t, queue.Pool{}, nil, window(250_000, time.Minute))
	send := func(header ...string) answer {
		body, kind := form(t, field{"file", "", fakeprovider.Wav(16_000, 32_000)}, field{"model", "whisper-1", nil})
		return r.call(http.MethodPost, "/v1/audio/transcriptions", body, append(header, "Content-Type", kind)...)
	}
	if a := send(); a.status != 200 {
		t.Fatalf("got status %d, %s; want 200", a.status, a.body)
	}
	a := send()
	a.fails(t, 429, "rate_limit_exceeded")
	if a.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	send("Prefer", "respond-async").fails(t, 400, "form_not_queued")
	if jobs := r.call(http.MethodGet, "/v1/jobs", ""); !strings.Contains(jobs.body, `"data":[]`) {
		t.Errorf("jobs: %s, want none", jobs.body)
	}
}

// TestFormKey: the same form with one Idempotency-Key is executed once, whatever its boundary is;
// another form is refused.
func TestFormKey(t *testing.T) {
	r := newRig(t, queue.Pool{}, nil, window(roomy, time.Hour))
	send := func(samples int) answer {
		body, kind := form(t, field{"file", "", fakeprovider.Wav(16_000, samples)}, field{"model", "whisper-1", nil})
		return r.call(http.MethodPost, "/v1/audio/transcriptions", body, "Content-Type", kind, "Idempotency-Key", "k")
	}
	first, again := send(1000), send(1000)
	if first.status != 200 || again.status != 200 || again.header.Get(headerReplayed) != "true" || again.body != first.body {
		t.Errorf("got %d %q, then %d %q; want 200 twice, the second replayed", first.status, first.body, again.status, again.body)
	}
	if a := send(2000); a.status != 422 {
		t.Errorf("another form: status %d: %s, want 422", a.status, a.body)
	}
	if n := len(r.fake.Log()); n != 1 {
		t.Errorf("got %d requests reached the provider, want 1", n)
	}
}

// TestMediaStreams reads the usage of event streams.
func TestMediaStreams(t *testing.T) {
	r := newRig(t, queue.Pool{}, nil, window(roomy, time.Hour))
	transcript, kind := form(t, field{"stream", "true", nil}, field{"model", "gpt-4o-transcribe", nil}, field{"file", "", fakeprovider.Wav(16_000, 16_000)})
	for _, x := range []struct {
		path, body, kind, last string
		nano                   int64
	}{
		{
			"/images/generations", `{"model":"gpt-image-1","prompt":"an otter","quality":"low","n":2,"stream":true,"partial_images":1}`, "application/json",
			"image_generation.completed", 2 * (3*5000 + 372*40_000),
		},
		{"/audio/speech", `{"model":"gpt-4o-mini-tts","input":"hello","voice":"alloy","stream_format":"sse"}`, "application/json", "speech.audio.done", 600 + 5*12_000},
		{"/audio/transcriptions", transcript, kind, "transcript.text.done", 20*6000 + 7*10_000},
	} {
		a := r.call(http.MethodPost, "/v1"+x.path, x.body, "Content-Type", x.kind)
		if a.status != 200 || !strings.Contains(a.body, x.last) {
			t.Fatalf("got %s: %v, status %d: %s; want 200 and the last event", x.path, a.err, a.status, a.body)
		}
		usd, err := strconv.ParseFloat(a.trailer.Get("X-Llmguard-Cost-Usd"), 64)
		if got := int64(usd*1e9 + 0.5); err != nil || got != x.nano || a.trailer.Get("X-Llmguard-Estimated") != "" {
			t.Errorf("%s: cost %d, want %d", x.path, got, x.nano)
		}
	}
}

// TestMediaBreaks: an answer that breaks off is not a success for its caller.
func TestMediaBreaks(t *testing.T) {
	r := newRig(t, queue.Pool{}, nil, window(roomy, time.Hour))
	r.fake.ScriptModel("tts-1", fakeprovider.Behaviour{Cut: fakeprovider.CutReset})
	a := r.call(http.MethodPost, "/v1/audio/speech", `{"model":"tts-1","input":"hello there, all of you","voice":"alloy"}`)
	if a.err == nil {
		t.Errorf("status %d, %d bytes and a clean end; want an error", a.status, len(a.body))
	}
	r.fake.ScriptModel("gpt-image-1", fakeprovider.Behaviour{Cut: fakeprovider.CutReset, After: 1})
	a = r.call(http.MethodPost, "/v1/images/generations", `{"model":"gpt-image-1","prompt":"x","stream":true,"partial_images":2}`)
	if !strings.Contains(a.body, `data: {"error"`) || a.trailer.Get("X-Llmguard-Estimated") != "true" {
		t.Errorf("got %v: %s, trailer %v; want an error event and an estimate", a.err, a.body, a.trailer)
	}
}

// TestMediaWaits: calls with a JSON body wait in the queue like others.
func TestMediaWaits(t *testing.T) {
	r := newRig(t, queue.Pool{}, nil, window(roomy, time.Hour))
	r.worker(nil)
	for path, body := range map[string]string{
		"/audio/speech":       `{"model":"tts-1","input":"hello","voice":"alloy"}`,
		"/images/generations": `{"model":"dall-e-3","prompt":"an otter"}`,
	} {
		a := r.call(http.MethodPost, "/v1"+path, body, "Prefer", "respond-async, wait=20")
		if a.status != 200 || len(a.body) == 0 {
			t.Fatalf("got %s: %v, status %d: %s; want 200", path, a.err, a.status, a.body)
		}
		if path == "/audio/speech" && !strings.HasPrefix(a.body, "\xff\xfb") {
			t.Errorf("not the sound: %.20q, want MP3", a.body)
		}
	}
}

// TestSlowUploadHoldsNothing: an upload in progress holds neither money nor quota.
func TestSlowUploadHoldsNothing(t *testing.T) {
	r := newRig(t, single, nil, window(roomy, time.Hour))
	body, kind := form(t, field{"file", "", fakeprovider.Wav(16_000, 160_000)}, field{"model", "whisper-1", nil})
	in, out := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.http.URL+"/v1/audio/transcriptions", in)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+r.key)
	req.Header.Set("Content-Type", kind)
	done := make(chan string, 1)
	go func() {
		resp, err := r.http.Client().Do(req)
		if err != nil {
			done <- err.Error()
			return
		}
		defer resp.Body.Close()
		done <- resp.Status
	}()
	if _, err := io.WriteString(out, body[:len(body)/2]); err != nil {
		t.Fatal(err)
	}
	if a := r.chat(prompt("hello", `"max_tokens":5`)); a.status != 200 { // the pool has one slot
		t.Errorf("got status %d, %s; want 200", a.status, a.body)
	}
	_, _ = io.WriteString(out, body[len(body)/2:])
	_ = out.Close()
	if got := redistest.Came(t, done); got != "200 OK" {
		t.Errorf("got %q, want 200 OK", got)
	}
}
