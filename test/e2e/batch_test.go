package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	openai "github.com/sashabaranov/go-openai"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/fakeprovider"
)

// batchStack is a stack with an encrypted file store and short leases.
func batchStack(t *testing.T, fake fakeprovider.Options) *stack {
	t.Helper()
	dir := t.TempDir()
	s := newStack(t, fake, fmt.Sprintf(`files: {store: %q}
queue: {lease: 3s, max_attempts: 20, seal_keys: [{id: s1, secret: 0123456789abcdef0123456789abcdef}]}
`, dir)+
		simple("[{name: w, subject: org, metric: cost, amount: $1000, window: 1h}]")+`
  - id: other
    users:
      - {id: alice, keys: [{id: k2, hash: "${key:foreigner}"}]}
`)
	s.files = dir
	return s
}

// checkSealed fails if a text can be found in the stored files.
func (s *stack) checkSealed(text string) {
	s.t.Helper()
	n := 0
	err := filepath.WalkDir(s.files, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		if bytes.Contains(raw, []byte(text)) {
			s.t.Errorf("%s shows %q", path, text)
		}
		n += len(raw)
		return err
	})
	if err != nil || n < 1000 {
		s.t.Errorf("%d bytes of files, %v", n, err)
	}
}

// TestBatchSDKGo: go-openai uploads, creates, polls and reads a batch, and no other key can see
// any of it.
func TestBatchSDKGo(t *testing.T) {
	t.Parallel()
	s := batchStack(t, fakeprovider.Options{})
	p := s.proxy()
	s.worker()
	ctx := context.Background()
	c := goClient(p, s.keys["alice"])
	req := openai.CreateBatchWithUploadFileRequest{Endpoint: openai.BatchEndpointChatCompletions, CompletionWindow: "24h", Metadata: map[string]any{"for": "test"}}
	for i := range 20 {
		req.AddChatCompletion(fmt.Sprint("line ", i), openai.ChatCompletionRequest{
			Model: openai.GPT4oMini, MaxTokens: 10, Messages: []openai.ChatCompletionMessage{{Role: "user", Content: "hello"}},
		})
	}
	made, err := c.CreateBatchWithUploadFile(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	b := awaitBatch(t, c, made.ID)
	if b.Status != "completed" || b.RequestCounts != (openai.BatchRequestCounts{Total: 20, Completed: 20}) || b.ErrorFileID != nil || b.Metadata["for"] != "test" {
		t.Fatalf("%+v", b)
	}
	text, err := c.GetFileContent(ctx, *b.OutputFileID)
	if err != nil {
		t.Fatal(err)
	}
	defer text.Close()
	lines := 0
	for scan := bufio.NewScanner(text); scan.Scan(); lines++ {
		var line struct {
			Response struct {
				Body openai.ChatCompletionResponse `json:"body"`
			} `json:"response"`
		}
		if err := json.Unmarshal(scan.Bytes(), &line); err != nil || line.Response.Body.Usage.TotalTokens == 0 {
			t.Errorf("%v: %s", err, scan.Bytes())
		}
	}
	if lines != 20 {
		t.Errorf("%d lines", lines)
	}
	s.checkSealed("custom_id")
	list, err := c.ListFiles(ctx)
	if err != nil || len(list.Files) != 2 {
		t.Errorf("%v: %+v", err, list)
	}
	for _, path := range []string{
		"/batches/" + b.ID, "/batches/" + b.ID + "/cancel", "/files/" + b.InputFileID,
		"/files/" + *b.OutputFileID, "/files/" + *b.OutputFileID + "/content",
	} {
		a := get(p.URL+path, s.keys["foreigner"])
		if strings.HasSuffix(path, "cancel") {
			a = post(p.URL+path, s.keys["foreigner"], "")
		}
		if _, code, _ := errorOf(t, a); a.status != http.StatusNotFound || !strings.HasSuffix(code, "_not_found") {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	if a := get(p.URL+"/files", s.keys["foreigner"]); !strings.Contains(a.body, `"data":[]`) {
		t.Errorf("foreign files: %s", a.body)
	}
	if a := post(p.URL+"/batches", s.keys["foreigner"], fmt.Sprintf(`{"input_file_id":%q,"endpoint":"/v1/chat/completions","completion_window":"24h"}`, b.InputFileID)); a.status != http.StatusNotFound {
		t.Errorf("a batch of a foreign file: %d %s", a.status, a.body)
	}
}

func awaitBatch(t *testing.T, c *openai.Client, id string) openai.BatchResponse {
	t.Helper()
	var b openai.BatchResponse
	for range 1200 {
		var err error
		if b, err = c.RetrieveBatch(context.Background(), id); err != nil {
			t.Fatal(err)
		}
		switch b.Status {
		case "completed", "failed", "expired", "cancelled":
			return b
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("never ended: %+v", b)
	return b
}

// TestBatchKilled runs a batch while proxies, workers and Redis are killed: each line has one
// result, and the ledger matches the provider. The long form has close to 200 MB of lines,
// kills until the batch ends, with some progress in between, and measures memory.
func TestBatchKilled(t *testing.T) {
	t.Parallel()
	lines, pad := either(400, 50_000), either("", strings.Repeat("and so it goes on ", 208))
	kills, pause := either(4, lines), either(time.Millisecond, 8*time.Millisecond)
	seed := uint64(time.Now().UnixNano())
	t.Logf("%d lines, seed %d", lines, seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	s := batchStack(t, fakeprovider.Options{LogSize: 3 * lines})
	s.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour {
		return fakeprovider.Behaviour{Delay: 40 * time.Millisecond}
	})
	proxy := s.proxy()
	workers := []*process{s.worker(), s.worker()}
	before := s.memory(append([]*process{proxy}, workers...)...)
	var peak [3]int64
	id := s.uploadLines(proxy, lines, pad)
	a := post(proxy.URL+"/batches", s.keys["alice"], fmt.Sprintf(`{"input_file_id":%q,"endpoint":"/v1/chat/completions","completion_window":"24h"}`, id))
	var b openai.Batch
	if err := json.Unmarshal([]byte(a.body), &b); err != nil || a.status != http.StatusOK {
		t.Fatalf("%d %v: %s", a.status, err, a.body)
	}
	shots, due := 0, time.Now()
	for ; b.Status != "completed" && b.Status != "failed"; time.Sleep(100 * time.Millisecond) {
		for k, n := range s.memory(append([]*process{proxy}, workers...)...) {
			peak[k] = max(peak[k], n)
		}
		if time.Now().After(due) && shots < kills {
			switch shots % 4 {
			case 2:
				proxy.kill()
				proxy = s.proxy()
			case 3:
				s.redis.Restart()
			default:
				workers[shots%2].kill()
				workers[shots%2] = s.worker()
			}
			shots++
			due = time.Now().Add(time.Duration(100+rng.IntN(either(300, 900))) * pause)
		}
		a := fetch(proxy.URL+"/batches/"+b.ID, s.keys["alice"]) // Redis may just have restarted
		if err := json.Unmarshal([]byte(a.body), &b); err != nil {
			t.Fatal(err)
		}
	}
	proxyGrew, workerGrew, redisGrew := (peak[0]-before[0])>>20, (peak[1]-before[1])>>20, (peak[2]-before[2])>>20
	t.Logf("%d kills; MB more than before: proxy %d, worker %d, Redis %d", shots, proxyGrew, workerGrew, redisGrew)
	if soak && (max(proxyGrew, workerGrew) > 100 || redisGrew > 150) {
		t.Error("more than 100 MB for a proxy or worker, or 150 MB for Redis")
	}
	s.checkResults(proxy, b, lines)
}

// memory returns the memory in use by the proxy, the largest worker and Redis, in bytes.
func (s *stack) memory(processes ...*process) [3]int64 {
	var out [3]int64
	for i, p := range processes {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.cmd.Process.Pid))
		if f := strings.Fields(string(text)); len(f) > 1 {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			out[min(i, 1)] = max(out[min(i, 1)], n*int64(os.Getpagesize()))
		}
	}
	rdb := redis.NewClient(&redis.Options{Addr: s.redis.Addr}) // a pooled one would count
	defer rdb.Close()
	info, _ := rdb.Info(context.Background(), "memory").Result()
	for line := range strings.Lines(info) {
		if text, ok := strings.CutPrefix(line, "used_memory:"); ok {
			out[2], _ = strconv.ParseInt(strings.TrimSpace(text), 10, 64)
		}
	}
	return out
}

// uploadLines uploads this many requests as a stream.
func (s *stack) uploadLines(p *process, lines int, pad string) string {
	s.t.Helper()
	r, w := io.Pipe()
	form := multipart.NewWriter(w)
	go func() {
		_ = form.WriteField("purpose", "batch")
		part, _ := form.CreateFormFile("file", "in.jsonl")
		out := bufio.NewWriterSize(part, 1<<20)
		for i := range lines {
			fmt.Fprintf(out, `{"custom_id":"line %d","method":"POST","url":"/v1/chat/completions","body":{"model":"gpt-4o-mini","max_tokens":5,"messages":[{"role":"user","content":"line %d %s"}]}}`+"\n", i, i, pad)
		}
		_ = out.Flush()
		_ = form.Close()
		_ = w.Close()
	}()
	req, err := http.NewRequest(http.MethodPost, p.URL+"/files", r)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", form.FormDataContentType())
	req.Header.Set("Authorization", "Bearer "+s.keys["alice"])
	resp, err := client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	var f openai.File
	if err := json.NewDecoder(resp.Body).Decode(&f); err != nil || f.ID == "" {
		s.t.Fatalf("%v: %+v", err, f)
	}
	return f.ID
}

// checkResults checks that every line has one successful result, and that the ledger has the
// provider's own cost of each.
func (s *stack) checkResults(p *process, b openai.Batch, lines int) {
	s.t.Helper()
	if b.Status != "completed" || b.OutputFileID == nil || b.RequestCounts != (openai.BatchRequestCounts{Total: lines, Completed: lines}) {
		s.t.Fatalf("%+v; errors: %s", b, s.errorsOf(p, b))
	}
	served := map[string]fakeprovider.Record{}
	for _, r := range s.fake.Log() {
		served[r.RequestID] = r
	}
	charged := map[string]ledger.Entry{}
	for _, e := range s.entries("acme") {
		charged[e.UpstreamID] = e
	}
	seen := map[string]bool{}
	text := fetch(p.URL+"/files/"+*b.OutputFileID+"/content", s.keys["alice"])
	for scan := bufio.NewScanner(bytes.NewReader([]byte(text.body))); scan.Scan(); {
		var line struct {
			CustomID string `json:"custom_id"`
			Response struct {
				RequestID string `json:"request_id"`
			} `json:"response"`
		}
		if err := json.Unmarshal(scan.Bytes(), &line); err != nil || seen[line.CustomID] {
			s.t.Fatalf("%v, twice %v: %s", err, seen[line.CustomID], scan.Bytes())
		}
		seen[line.CustomID] = true
		e, r := charged[line.Response.RequestID], served[line.Response.RequestID]
		if want := bill(s.t, []fakeprovider.Record{r}); e.Estimated || e.Total != want || want == 0 {
			s.t.Errorf("%s: ledger %+v, the provider says %v", line.CustomID, e, want)
		}
	}
	if len(seen) != lines {
		s.t.Errorf("%d results for %d lines", len(seen), lines)
	}
	s.t.Logf("%d requests at the provider for %d lines", len(served), lines)
}

func (s *stack) errorsOf(p *process, b openai.Batch) string {
	if b.ErrorFileID == nil {
		return ""
	}
	return get(p.URL+"/files/"+*b.ErrorFileID+"/content", s.keys["alice"]).body[:300]
}
