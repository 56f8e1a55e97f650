package proxy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/auth"
	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/batch"
	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/ownership"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/storage/files"
	"github.com/llmguard/llmguard/queue"
)

// calls returns requests for every endpoint that costs money, by the name of the route.
func calls(t *testing.T) map[string][2]string {
	sound := field{"file", "", fakeprovider.Wav(16_000, 16_000)}
	picture := field{"image", "", fakeprovider.Wav(16_000, 16_000)}
	plain := func(body string) [2]string { return [2]string{body, "application/json"} }
	multi := func(fields ...field) [2]string { body, kind := form(t, fields...); return [2]string{body, kind} }
	return map[string][2]string{
		"chat.completions":       plain(prompt("hi", `"max_tokens":5`)),
		"embeddings":             plain(`{"model":"text-embedding-3-small","input":"hi"}`),
		"completions":            plain(`{"model":"gpt-4o-mini","prompt":"hi","max_tokens":5}`),
		"moderations":            plain(`{"model":"omni-moderation-latest","input":"hi"}`),
		"rerank":                 plain(`{"model":"text-embedding-3-small","query":"hi","documents":["a"]}`),
		"responses":              plain(`{"model":"gpt-4o","input":"hi","max_output_tokens":20}`),
		"responses.compact":      plain(`{"model":"gpt-4o","input":"hi"}`),
		"responses.input_tokens": plain(`{"model":"gpt-4o","input":"hi"}`),
		"images.generations":     plain(`{"model":"dall-e-2","prompt":"an otter","size":"256x256"}`),
		"images.edits":           multi(picture, field{"prompt", "an otter", nil}, field{"model", "gpt-image-1", nil}),
		"images.variations":      multi(picture, field{"model", "dall-e-2", nil}),
		"audio.speech":           plain(`{"model":"tts-1","input":"hi","voice":"alloy"}`),
		"audio.transcriptions":   multi(sound, field{"model", "whisper-1", nil}),
		"messages":               plain(`{"model":"gpt-4o","max_tokens":5,"messages":[{"role":"user","content":"hi"}]}`),
		"messages.count_tokens":  plain(`{"model":"gpt-4o","messages":[{"role":"user","content":"hi"}]}`),
		"holds":                  plain(`{"cost_usd":"1"}`),
		"audio.translations":     multi(sound, field{"model", "whisper-1", nil}),
	}
}

// exhaust uses up what alice's key may read for longer than a test takes.
func (r *reads) exhaust() {
	now := time.Now()
	rate := r.of("acme", "k1", now)[0].rate
	rate.SetLimit(0.001)
	rate.AllowN(now, int(rate.TokensAt(now)))
}

// TestEveryRouteIsBounded: each method of each route is refused with 429 once its key or org has
// used up its allowance. A new route fails here until it has a bound.
func TestEveryRouteIsBounded(t *testing.T) {
	t.Parallel()
	once := budget.Limit{
		ID: "once", Subject: budget.Org, Metric: budget.Requests,
		Shape: budget.Shape{Kind: budget.ExactWindow, Amount: 1, Window: time.Hour},
	}
	r := newRig(t, queue.Pool{}, nil, once)
	r.org.OverLimit = "refuse"
	if a := r.chat(prompt("hi", `"max_tokens":5`)); a.status != 200 {
		t.Fatalf("got status %d, %s; want 200", a.status, a.body)
	}
	r.proxy.reads.exhaust()
	r.proxy.holds.changes.exhaust()
	holder := keys.New(keys.Live)
	r.proxy.SetDirectory(&auth.Directory{ByHash: map[string]auth.Principal{
		keys.Hash(keys.Pepper{}, r.key):  {Org: r.org, User: "alice", Key: "k1"},
		keys.Hash(keys.Pepper{}, holder): {Org: r.org, User: "alice", Key: "k1", Scopes: []string{holdScope}},
	}})
	priced, sent := calls(t), r.fake.Totals().Requests
	for pattern, route := range r.proxy.routes {
		path := strings.ReplaceAll(pattern, "*", "x")
		if strings.HasSuffix(path, "/") {
			path += "x"
		}
		for _, method := range route.methods {
			if route.open {
				if route.name != "root" && route.name != "api.hello" {
					t.Errorf("%s can be called without a key", route.name)
				}
				continue
			}
			body := [2]string{"", "application/json"}
			if route.priced {
				if body = priced[route.name]; body[0] == "" {
					t.Errorf("no request is known for %s", route.name)
				}
			}
			key := r.key
			if route.scope == holdScope {
				key = holder
			}
			a := r.call(method, "/v1"+path, body[0], "Content-Type", body[1], "Authorization", "Bearer "+key)
			if a.status != http.StatusTooManyRequests {
				t.Errorf("%s %s (%s): status %d, %.200s; want 429", method, pattern, route.name, a.status, a.body)
			}
		}
	}
	if n := r.fake.Totals().Requests; n != sent {
		t.Errorf("%d of the refused requests reached the provider", n-sent)
	}
}

// storedResponse creates a response that the provider stores for alice.
func storedResponse(t *testing.T, r *rig) string {
	t.Helper()
	body := `{"model":"gpt-4o","input":"[fake: output=5] hi","max_output_tokens":20}`
	a := r.call(http.MethodPost, "/v1/responses", body)
	if a.status != 200 || a.id() == "" {
		t.Fatalf("got status %d, %s; want a response", a.status, a.body)
	}
	r.until("the response is noted", func() bool {
		return r.rdb.Exists(t.Context(), "lg:{acme}:owned:"+a.id()).Val() == 1
	})
	return a.id()
}

// keeping makes the rig's guard record what the provider stores.
func keeping(t *testing.T, r *rig) {
	t.Helper()
	r.guard = guard.New(guard.Options{
		Quota: r.queue.Quota(), Budget: budget.New(redistest.DB(r.rdb), budget.Options{}), StoreDeadline: 5 * time.Second, Policy: r.guard.Policy(),
		Ownership: ownership.New(redistest.DB(r.rdb), nil, nil),
	})
	r.proxy.guard, r.proxy.opts.Guard = r.guard, r.guard
}

// TestStoredResponsesArePaced: requests about stored responses respect the provider's quota, and
// each key has its own rate for them, whatever the quota is.
func TestStoredResponsesArePaced(t *testing.T) {
	t.Parallel()
	const rpm = 2 // one creates the response
	r := newRig(t, queue.Pool{RPM: rpm}, nil)
	keeping(t, r)
	path := "/v1/responses/" + storedResponse(t, r)
	refused, message := 0, ""
	for _, verb := range []string{"", "/input_items", "", "/input_items"} {
		if a := r.call(http.MethodGet, path+verb, ""); a.status != 200 {
			refused, message = refused+1, a.fails(t, 429, "rate_limit_exceeded")
		}
	}
	if n := r.fake.Totals().Requests; n > rpm || refused < 3 || !strings.Contains(message, "provider's rate limit") {
		t.Errorf("%d requests reached a provider of %d a minute, %d were refused: %s", n, rpm, refused, message)
	}

	r.proxy.objects.pacer.reads.exhaust()
	sent := r.fake.Totals().Requests
	for _, call := range [][2]string{{"GET", ""}, {"DELETE", ""}, {"POST", "/cancel"}, {"GET", "/input_items"}} {
		a := r.call(call[0], path+call[1], "")
		if message := a.fails(t, 429, "rate_limit_exceeded"); !strings.Contains(message, "stored responses") {
			t.Errorf("%s %s: %s", call[0], call[1], message)
		}
	}
	if n := r.fake.Totals().Requests; n != sent {
		t.Errorf("%d of the refused requests reached the provider", n-sent)
	}
}

// TestStreams: streams are bounded per key, per org and in total, and an org without streams gets
// one even then.
func TestStreams(t *testing.T) {
	t.Parallel()
	s := newStreams(40)
	fill := func(org, key string) (n int, message string) {
		for {
			if _, err := s.begin(org, key); err != nil {
				return n, err.Error()
			}
			n++
		}
	}
	for _, test := range []struct {
		org, key string
		want     int
		whose    string
	}{
		{"a", "k1", 10, "this API key"},
		{"a", "k2", 10, "this API key"},
		{"a", "k3", 0, "this organization"},
		{"b", "k1", 10, "this API key"},
		{"b", "k2", 10, "this API key"},
		{"c", "k1", streamsLeft, "this proxy"},
		{"d", "k1", streamsLeft, "this proxy"},
	} {
		n, message := fill(test.org, test.key)
		if n != test.want || !strings.Contains(message, test.whose) || !strings.Contains(message, "connections.streams") {
			t.Errorf("%s of %s got %d (%s), want %d, the most of %s", test.key, test.org, n, message, test.want, test.whose)
		}
	}
	unbounded := newStreams(0)
	for range 10_000 {
		if _, err := unbounded.begin("a", "k1"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestStreamsAreBounded: connections that last as long as their caller likes take a stream and
// return it.
func TestStreamsAreBounded(t *testing.T) {
	t.Parallel()
	r := fileRig(t)
	r.proxy.connections.streams = newStreams(4) // one of each key
	job := r.submit(prompt("hi", `"max_tokens":5`))
	inBackground := `{"model":"gpt-4o","input":"hi","max_output_tokens":20,"background":true`
	background := r.call(http.MethodPost, "/v1/responses", inBackground+`}`)
	file := r.upload(false, purpose, lines)
	if background.id() == "" || file.id() == "" {
		t.Fatalf("got %+v and %+v; want a response and a file", background, file)
	}
	_, hangUp := r.events(job+"/events", "")
	jobs := r.jobs()
	for name, a := range map[string]answer{
		"events of a job":      r.call(http.MethodGet, job+"/events", ""),
		"background, streamed": r.call(http.MethodPost, "/v1/responses", inBackground+`,"stream":true}`),
		"upload":               r.upload(false, purpose, lines),
		"content of a file":    r.call(http.MethodGet, "/v1/files/"+file.id()+"/content", ""),
	} {
		message := a.fails(t, 429, "rate_limit_exceeded")
		if !strings.Contains(message, "connections.streams") || a.header.Get("Retry-After") == "" {
			t.Errorf("%s: %s, %v; want the field and when to come back", name, message, a.header)
		}
	}
	if a := r.call(http.MethodGet, job, ""); a.status != 200 {
		t.Errorf("got %+v, want the job", a)
	}
	if n := r.jobs(); n != jobs {
		t.Errorf("%d jobs were made of what was refused", n-jobs)
	}
	hangUp()
	r.until("the place is free", func() bool {
		return r.call(http.MethodGet, "/v1/files/"+file.id()+"/content", "").status == 200
	})
}

// TestFullStores: an upload or a batch beyond a bound is refused with 429, and the message names
// the setting.
func TestFullStores(t *testing.T) {
	t.Parallel()
	r := fileRig(t)
	o := files.Options{OrgBytes: 1500}
	set := func(change func()) {
		change()
		r.proxy.opts.Files = files.New(redistest.DB(r.rdb), r.proxy.opts.Files.Blobs(), o)
		r.proxy.opts.Batches = batch.NewStore(redistest.DB(r.rdb), r.proxy.opts.Files, nil)
	}
	file := r.upload(false, purpose, lines).id()
	create := func() answer {
		body := fmt.Sprintf(`{"input_file_id":%q,"endpoint":"/v1/chat/completions","completion_window":"24h"}`, file)
		return r.call(http.MethodPost, "/v1/batches", body)
	}
	for field, change := range map[string]func(){
		"files.max_org_bytes":  func() { o = files.Options{OrgBytes: 5} },
		"files.max_user_bytes": func() { o = files.Options{UserBytes: 5} },
		"files.max_org_files":  func() { o = files.Options{OrgFiles: 1} },
		"files.max_user_files": func() { o = files.Options{UserFiles: 1} },
	} {
		set(change)
		for what, a := range map[string]answer{"an upload": r.upload(false, purpose, lines), "a batch": create()} {
			if message := a.fails(t, 402, "insufficient_quota"); !strings.Contains(message, field+":") {
				t.Errorf("%s: %s; want %s", what, message, field)
			}
		}
	}
	set(func() { o = files.Options{} })
	for field, bounds := range map[string]batch.Bounds{"batches.max_open": {Open: 1}, "batches.max_user_open": {UserOpen: 1}} {
		r.proxy.opts.Batches.Bound(bounds)
		r.rdb.Del(t.Context(), "lg:{acme}:openbatches", "lg:{acme}:openbatches:alice")
		if a := create(); a.status != 200 {
			t.Fatalf("got %+v, want a batch", a)
		}
		a := create()
		if message := a.fails(t, 429, "rate_limit_exceeded"); !strings.Contains(message, field+")") || a.header.Get("Retry-After") == "" {
			t.Errorf("%s, %v; want %s and when to come back", message, a.header, field)
		}
	}
}

// TestBatchMetadata: the bytes of a batch's record in Redis are bounded.
func TestBatchMetadata(t *testing.T) {
	t.Parallel()
	r := fileRig(t)
	pairs := map[string]string{}
	for i := range maxPairs {
		pairs[fmt.Sprint(i)] = strings.Repeat("\u20ac", maxValue)
	}
	text, err := json.Marshal(pairs)
	if err != nil {
		t.Fatal(err)
	}
	a := r.call(http.MethodPost, "/v1/batches",
		`{"input_file_id":"file-x","endpoint":"/v1/embeddings","completion_window":"24h","metadata":`+string(text)+`}`)
	if message := a.fails(t, 400, "invalid_value"); !strings.Contains(message, "metadata") {
		t.Errorf("got %q, want a message about metadata", message)
	}
}

// TestListsOfFilesCost: a page of thousands of files costs its key more than a short one.
func TestListsOfFilesCost(t *testing.T) {
	t.Parallel()
	r := fileRig(t)
	left := func() float64 { return r.proxy.reads.of("acme", "k1", time.Now())[0].rate.Tokens() }
	r.proxy.reads.of("acme", "k1", time.Now())[0].rate.SetLimit(0.001)
	var costs []int
	for _, query := range []string{"?limit=10", "?purpose=batch&limit=5000"} {
		before := left()
		var page struct{ Data []json.RawMessage }
		if a := r.call(http.MethodGet, "/v1/files"+query, ""); a.status != 200 || json.Unmarshal([]byte(a.body), &page) != nil {
			t.Fatalf("got %+v, want a page", a)
		}
		costs = append(costs, int(before-left()+0.5))
	}
	if want := []int{readsPage, readsPage + 5000/filesPerUnit}; !slices.Equal(costs, want) {
		t.Errorf("the pages cost %v units, want %v", costs, want)
	}
}
