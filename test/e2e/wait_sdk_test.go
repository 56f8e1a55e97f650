package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	openai "github.com/sashabaranov/go-openai"

	"github.com/llmguard/llmguard/internal/fakeprovider"
)

// clients are the client libraries that are led through waiting.
var clients = []string{"openai", "ai", "langchain", "go"}

// waitStack serves gpt-4o one call at a time, and holds a silent caller for
// hold. Every client has a user for each of its trials.
func waitStack(t *testing.T, hold time.Duration) (*stack, *process, *gate) {
	t.Helper()
	var users strings.Builder
	user := func(id, limits string) {
		fmt.Fprintf(&users, "      - {id: %s, %s keys: [{id: k-%s, hash: \"${key:%s}\"}]}\n", id, limits, id, id)
	}
	user("occupant", "")
	for _, c := range clients {
		user(c+"-rejoin", "")
		user(c+"-stream", "")
		user(c+"-cut", "")
		user(c+"-refused", "limits: [{name: tight, amount: $0.00025, window: 1h}],")
	}
	s := newStack(t, fakeprovider.Options{}, `
providers:
  - id: openai
    base_url: "${provider}"
    api_key: "${provider_key}"
    pools: [{id: one, models: [gpt-4o], concurrency: 1}, {id: rest}]
queue: {hold: `+hold.String()+`, keep_alive: 300ms}
orgs:
  - id: acme
    limits: [{name: tight, subject: user, amount: $100, window: 1h}]
    users:
`+users.String())
	g := s.gate(nil)
	p := s.proxy()
	s.worker()
	return s, p, g
}

// holdTime is how long the clients are held before they are sent away:
// LLMGUARD_HOLD=280s tries what is shipped, in five minutes.
func holdTime(t *testing.T) time.Duration {
	text := os.Getenv("LLMGUARD_HOLD")
	if text == "" {
		return time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestWaitingClients leads the npm clients through a wait, their own retry, a
// refusal and a cut stream, openai on Node 20 too.
func TestWaitingClients(t *testing.T) {
	hold := holdTime(t)
	for _, c := range []struct{ name, dir, file string }{
		{"openai on Node 22", "node", "openai.wait.mjs"},
		{"openai on Node 20", "node20", "openai.wait.mjs"},
		{"AI SDK", "node", "ai.wait.mjs"},
		{"LangChain", "node", "langchain.wait.mjs"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			node, err := filepath.Abs(c.dir + "/node_modules/.bin/node")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(node); err != nil {
				if os.Getenv("LLMGUARD_REQUIRE_NODE") != "" {
					t.Fatalf("the npm packages are missing: %v", err)
				}
				t.Skip("the npm packages are not installed: `make test` installs them")
			}
			s, p, g := waitStack(t, hold)
			keys, err := json.Marshal(s.keys)
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(node, "--test", c.file)
			cmd.Dir = c.dir
			cmd.Env = append(os.Environ(), "BASE_URL="+p.URL, "KEYS="+string(keys), "HOLD_MS="+strconv.FormatInt(hold.Milliseconds(), 10), "GATE="+g.serve(t))
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			t.Logf("%s", out)
		})
	}
}

// keyed sends an Idempotency-Key with every request.
type keyed string

// RoundTrip implements http.RoundTripper.
func (k keyed) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Idempotency-Key", string(k))
	return http.DefaultTransport.RoundTrip(r)
}

// TestWaitingGoOpenAI leads go-openai through the same. It never retries: its
// caller does, with a key.
func TestWaitingGoOpenAI(t *testing.T) {
	s, p, g := waitStack(t, time.Second)
	ctx := t.Context()
	open := func(user string) *openai.Client {
		c := openai.DefaultConfig(s.keys[user])
		c.BaseURL, c.HTTPClient = p.URL, &http.Client{Transport: keyed("k-" + user)}
		return openai.NewClientWithConfig(c)
	}
	occupy := func() {
		go post(p.URL+"/chat/completions", s.keys["occupant"], chat("gpt-4o", gated, `"max_tokens":5`))
		g.awaitHeld()
	}
	jobs := func(user string) (list struct{ Data []struct{ Status string } }) {
		if err := json.Unmarshal([]byte(get(p.URL+"/jobs", s.keys[user]).body), &list); err != nil {
			t.Error(err)
		}
		return list
	}
	request := openai.ChatCompletionRequest{Model: openai.GPT4o, MaxTokens: 20, Messages: []openai.ChatCompletionMessage{{Role: "user", Content: "hi"}}}
	var api *openai.APIError

	occupy()
	sent := 0
	for {
		sent++
		resp, err := open("go-rejoin").CreateChatCompletion(ctx, request)
		if err == nil && resp.Choices[0].Message.Content != "" {
			break
		}
		if !errors.As(err, &api) || api.HTTPStatusCode != 429 || sent > 60 {
			t.Fatalf("request %d: %v", sent, err)
		}
		if sent == 1 {
			g.release()
		}
	}
	if list := jobs("go-rejoin"); sent < 2 || len(list.Data) != 1 || list.Data[0].Status != "succeeded" {
		t.Errorf("%d requests became %+v", sent, list)
	}

	occupy()
	go func() {
		for len(jobs("go-stream").Data) == 0 && ctx.Err() == nil {
			time.Sleep(20 * time.Millisecond)
		}
		g.release()
	}()
	streamText(t, open("go-stream"), request)

	request.Model, request.MaxTokens = openai.GPT4oMini, 400
	c := goClient(p, s.keys["go-refused"])
	request.Messages[0].Content = "[fake: output=400]"
	if _, err := c.CreateChatCompletion(ctx, request); err != nil {
		t.Fatal(err)
	}
	if _, err := c.CreateChatCompletion(ctx, request); !errors.As(err, &api) || api.HTTPStatusCode != 429 {
		t.Errorf("over the limit: %v", err)
	}

	request.Messages[0].Content = "[fake: output=50 cut=eof]"
	stream, err := open("go-cut").CreateChatCompletionStream(context.WithoutCancel(ctx), request)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	for err == nil {
		_, err = stream.Recv()
	}
	if errors.Is(err, io.EOF) {
		t.Error("a cut stream passed for a whole one")
	}
}
