package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	openai "github.com/sashabaranov/go-openai"

	"github.com/llmguard/llmguard/internal/fakeprovider"
)

// sdkStack serves a user with room and one who is over the limit after a call.
func sdkStack(t *testing.T) (*stack, *process) {
	s := newStack(t, fakeprovider.Options{}, fmt.Sprintf("files: {store: %q}", t.TempDir())+`
providers:
  - {id: openai, base_url: "${provider}", api_key: "${provider_key}"}
orgs:
  - id: acme
    limits: [{name: w, subject: user, amount: $100, window: 1h}]
    users:
      - {id: alice, keys: [{id: k1, hash: "${key:alice}"}]}
      - id: bob
        limits: [{name: w, amount: $0.0006, window: 2s}]
        keys: [{id: k2, hash: "${key:bob}"}]
`)
	p := s.proxy()
	s.worker()
	return s, p
}

// nodeProgram is node of a directory with npm packages. The test is skipped when
// they are not installed, and fails when they have to be.
func nodeProgram(t *testing.T, dir string) string {
	t.Helper()
	node, err := filepath.Abs(dir + "/node_modules/.bin/node")
	if err != nil {
		t.Fatal(err)
	}
	_, err = os.Stat(node)
	if err != nil && os.Getenv("LLMGUARD_REQUIRE_NODE") != "" {
		t.Fatalf("the npm packages are missing: %v", err)
	}
	if err != nil {
		t.Skip("the npm packages are not installed: `make test` installs them")
	}
	return node
}

// runNode runs a file with tests in it.
func runNode(t *testing.T, dir, file string, env ...string) {
	t.Helper()
	cmd := exec.Command(nodeProgram(t, dir), file)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", file, err, out)
	}
}

// TestSDKNode runs the openai npm package against the proxy.
func TestSDKNode(t *testing.T) {
	s, p := sdkStack(t)
	for _, file := range []string{"sdk.test.mjs", "media.test.mjs"} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			runNode(t, "node", file, "BASE_URL="+p.URL, "API_KEY="+s.keys["alice"], "TIGHT_KEY="+s.keys["bob"])
		})
	}
}

// TestSDKResponses runs the npm packages' Responses at a provider that has them,
// and at one that has not.
func TestSDKResponses(t *testing.T) {
	t.Parallel()
	for name, config := range dialects {
		t.Run(name, func(t *testing.T) {
			s := newStack(t, fakeprovider.Options{}, fmt.Sprintf("files: {store: %q}", t.TempDir())+config)
			p := s.proxy()
			s.worker()
			runNode(t, "node", "responses.test.mjs", "BASE_URL="+p.URL, "API_KEY="+s.keys["alice"])
		})
	}
}

func goClient(p *process, key string) *openai.Client {
	c := openai.DefaultConfig(key)
	c.BaseURL = p.URL
	return openai.NewClientWithConfig(c)
}

// TestSDKGo runs go-openai against the proxy.
func TestSDKGo(t *testing.T) {
	t.Parallel()
	s, p := sdkStack(t)
	ctx := context.Background()
	c := goClient(p, s.keys["alice"])
	hello := []openai.ChatCompletionMessage{{Role: "user", Content: "Say hello"}}
	request := openai.ChatCompletionRequest{Model: openai.GPT4oMini, Messages: hello, MaxTokens: 100}

	t.Run("completion", func(t *testing.T) {
		resp, err := c.CreateChatCompletion(ctx, request)
		if err != nil || resp.Choices[0].Message.Content == "" || resp.Usage.TotalTokens == 0 {
			t.Fatalf("%v: %+v", err, resp)
		}
		if h := resp.GetRateLimitHeaders(); h.LimitTokens == 0 || h.ResetTokens.String() == "" {
			t.Errorf("rate limit headers %+v", h)
		}
	})
	t.Run("stream", func(t *testing.T) { streamText(t, c, request) })
	t.Run("tools", func(t *testing.T) {
		r := request
		r.Tools = []openai.Tool{{Type: openai.ToolTypeFunction, Function: &openai.FunctionDefinition{
			Name:       "weather",
			Parameters: json.RawMessage(`{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}`),
		}}}
		resp, err := c.CreateChatCompletion(ctx, r)
		if err != nil || len(resp.Choices[0].Message.ToolCalls) == 0 {
			t.Fatalf("%v: %+v", err, resp)
		}
	})
	t.Run("structured output", func(t *testing.T) {
		r := request
		r.ResponseFormat = &openai.ChatCompletionResponseFormat{
			Type: openai.ChatCompletionResponseFormatTypeJSONSchema,
			JSONSchema: &openai.ChatCompletionResponseFormatJSONSchema{
				Name: "p", Strict: true,
				Schema: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"}},"required":["name"],"additionalProperties":false}`),
			},
		}
		resp, err := c.CreateChatCompletion(ctx, r)
		if err != nil || !json.Valid([]byte(resp.Choices[0].Message.Content)) {
			t.Fatalf("%v: %+v", err, resp)
		}
	})
	t.Run("embeddings", func(t *testing.T) {
		resp, err := c.CreateEmbeddings(ctx, openai.EmbeddingRequestStrings{Input: []string{"one", "two"}, Model: openai.SmallEmbedding3})
		if err != nil || len(resp.Data) != 2 {
			t.Fatalf("%v: %+v", err, resp)
		}
	})
	t.Run("errors", func(t *testing.T) {
		r := request
		r.Model = "no-such-model"
		_, err := c.CreateChatCompletion(ctx, r)
		var api *openai.APIError
		if !errors.As(err, &api) || api.HTTPStatusCode != 400 || api.Message == "" {
			t.Errorf("unknown model: %v", err)
		}
		if _, err := goClient(p, "sk-wrong").CreateChatCompletion(ctx, request); !errors.As(err, &api) || api.HTTPStatusCode != 401 {
			t.Errorf("wrong key: %v", err)
		}
	})
	t.Run("waits", func(t *testing.T) {
		bob := goClient(p, s.keys["bob"])
		r := request
		r.Model, r.MaxTokens = openai.GPT4o, 50
		for range 2 {
			if _, err := bob.CreateChatCompletion(ctx, r); err != nil {
				t.Fatal(err)
			}
		}
		streamText(t, bob, r)
	})
}

func streamText(t *testing.T, c *openai.Client, r openai.ChatCompletionRequest) {
	t.Helper()
	stream, err := c.CreateChatCompletionStream(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	text := ""
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text += chunk.Choices[0].Delta.Content
	}
	if text == "" {
		t.Error("an empty stream")
	}
}
