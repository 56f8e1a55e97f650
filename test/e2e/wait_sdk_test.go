package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	openai "github.com/sashabaranov/go-openai"

	"github.com/llmguard/llmguard/internal/fakeprovider"
)

// waitingClients are the npm client libraries that are tested while waiting. Each has a model
// of its own name in its own pool, and a user for each trial; its script refers to them by the
// name of the library.
var waitingClients = []struct{ id, library, dir, file string }{
	{"openai22", "openai", "node", "openai.wait.mjs"},
	{"openai20", "openai", "node20", "openai.wait.mjs"},
	{"ai", "ai", "node", "ai.wait.mjs"},
	{"langchain", "langchain", "node", "langchain.wait.mjs"},
}

// waitStack serves one call at a time for each client, and holds a silent caller for hold.
func waitStack(t *testing.T, hold time.Duration, clients ...string) (*stack, *process, map[string]*gate) {
	t.Helper()
	var users, pools, prices strings.Builder
	user := func(id, limits string) {
		fmt.Fprintf(&users, "      - {id: %s, %s keys: [{id: k-%s, hash: \"${key:%s}\"}]}\n", id, limits, id, id)
	}
	for _, c := range clients {
		user(c+"-occupant", "")
		user(c+"-rejoin", "")
		user(c+"-stream", "")
		user(c+"-cut", "")
		user(c+"-refused", "limits: [{name: tight, amount: $0.00025, window: 1h}],")
		fmt.Fprintf(&pools, "{id: %s, models: [%s], concurrency: 1}, ", c, c)
		fmt.Fprintf(&prices, "  - {model: %s, prices: [{input: 1, output: 2}]}\n", c)
	}
	s := newStack(t, fakeprovider.Options{}, "prices:\n"+prices.String()+`
providers:
  - id: openai
    base_url: "${provider}"
    api_key: "${provider_key}"
    pools: [`+pools.String()+`{id: rest}]
queue: {hold: `+hold.String()+`, keep_alive: 300ms}
orgs:
  - id: acme
    limits: [{name: tight, subject: user, amount: $100, window: 1h}]
    users:
`+users.String())
	gates := s.gates(clients...)
	p := s.proxy()
	s.worker()
	return s, p, gates
}

// TestWaitingClients takes the npm clients through a wait, their own retry, a refusal and a cut
// stream, with openai also on Node 20. The long form holds them for the default time.
func TestWaitingClients(t *testing.T) {
	t.Parallel()
	hold := either(time.Second, 280*time.Second)
	var ids []string
	for _, c := range waitingClients {
		ids = append(ids, c.id)
	}
	s, p, gates := waitStack(t, hold, ids...)
	var scripts []nodeScript
	for _, c := range waitingClients {
		keys := map[string]string{}
		for user, key := range s.keys {
			trial, own := strings.CutPrefix(user, c.id+"-")
			if own {
				keys[c.library+"-"+trial] = key
			}
		}
		text, err := json.Marshal(keys)
		if err != nil {
			t.Fatal(err)
		}
		scripts = append(scripts, nodeScript{c.id, c.dir, c.file, []string{
			"BASE_URL=" + p.URL, "KEYS=" + string(text), "MODEL=" + c.id,
			"HOLD_MS=" + strconv.FormatInt(hold.Milliseconds(), 10), "GATE=" + gates[c.id].serve(t),
		}})
	}
	runNode(t, scripts...)
}

// keyed adds an Idempotency-Key to every request.
type keyed string

// RoundTrip implements http.RoundTripper.
func (k keyed) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Idempotency-Key", string(k))
	return http.DefaultTransport.RoundTrip(r)
}

// TestWaitingGoOpenAI does the same with go-openai. It never retries on its own, so the test
// does, with a key.
func TestWaitingGoOpenAI(t *testing.T) {
	t.Parallel()
	s, p, gates := waitStack(t, time.Second, "go")
	g := gates["go"]
	ctx := t.Context()
	open := func(user string) *openai.Client {
		c := openai.DefaultConfig(s.keys[user])
		c.BaseURL, c.HTTPClient = p.URL, &http.Client{Timeout: client.Timeout, Transport: keyed("k-" + user)}
		return openai.NewClientWithConfig(c)
	}
	occupy := func() {
		go func() { // a call that has just been answered may still have the slot
			until(t, "the occupant is served", func() bool {
				return post(p.URL+"/chat/completions", s.keys["go-occupant"], chat("go", gated, `"max_tokens":5`)).status != 429
			})
		}()
		g.awaitHeld()
	}
	jobs := func(user string) (list struct{ Data []struct{ Status string } }) {
		if err := json.Unmarshal([]byte(get(p.URL+"/jobs", s.keys[user]).body), &list); err != nil {
			t.Error(err)
		}
		return list
	}
	request := openai.ChatCompletionRequest{Model: "go", MaxTokens: 20, Messages: []openai.ChatCompletionMessage{{Role: "user", Content: "hi"}}}
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
