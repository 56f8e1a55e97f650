package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	openai "github.com/sashabaranov/go-openai"

	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
)

// sdkStack has one user with capacity and one who is over the limit after a call.
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

// nodeScript is a program for Node in a directory with npm packages.
type nodeScript struct {
	name, dir, file string
	env             []string
}

func nodeProgram(dir string) (string, error) {
	node, err := filepath.Abs(dir + "/node_modules/.bin/node")
	if err != nil {
		return "", err
	}
	_, err = os.Stat(node)
	return node, err
}

// needNode skips the test if the npm packages of a directory are not installed, or fails it if
// they are required.
func needNode(t *testing.T, dir string) {
	t.Helper()
	_, err := nodeProgram(dir)
	if err != nil && os.Getenv("LLMGUARD_REQUIRE_NODE") != "" {
		t.Fatalf("the npm packages are missing: %v", err)
	}
	if err != nil {
		t.Skip("the npm packages are not installed: `make test` installs them")
	}
}

// run returns what the script prints; the error includes its output and stderr.
func (n nodeScript) run(t *testing.T) ([]byte, error) {
	node, err := nodeProgram(n.dir)
	if err != nil {
		return nil, err
	}
	cmd := redistest.Command(t, node, n.file)
	cmd.Dir = n.dir
	cmd.Env = append(os.Environ(), n.env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s%s", n.file, err, out, stderr.Bytes())
	}
	return out, nil
}

// runNode runs test scripts concurrently, each as a subtest.
func runNode(t *testing.T, scripts ...nodeScript) {
	t.Helper()
	ends := make([]error, len(scripts))
	var all sync.WaitGroup
	for i, n := range scripts {
		all.Go(func() { _, ends[i] = n.run(t) })
	}
	redistest.Wait(t, all.Wait)
	for i, n := range scripts {
		t.Run(n.name, func(t *testing.T) {
			needNode(t, n.dir)
			if ends[i] != nil {
				t.Fatal(ends[i])
			}
		})
	}
}

// TestSDKNode runs the openai npm package against the proxy.
func TestSDKNode(t *testing.T) {
	s, p := sdkStack(t)
	env := []string{"BASE_URL=" + p.URL, "API_KEY=" + s.keys["alice"], "TIGHT_KEY=" + s.keys["bob"]}
	runNode(t, nodeScript{"text", "node", "sdk.test.mjs", env}, nodeScript{"media", "node", "media.test.mjs", env})
}

// TestSDKMethods calls every method of the openai npm package.
func TestSDKMethods(t *testing.T) {
	t.Parallel()
	s, p := sdkStack(t)
	docs, err := filepath.Abs("../../docs")
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"BASE_URL=" + p.URL, "API_KEY=" + s.keys["alice"], "DOCS=" + docs}
	runNode(t, nodeScript{"methods", "node", "methods.test.mjs", env})
}

// TestCookbook runs the JavaScript and the curl commands of docs/cookbook.md.
func TestCookbook(t *testing.T) {
	t.Parallel()
	s, p := sdkStack(t)
	docs, err := filepath.Abs("../../docs")
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"LLMGUARD_URL=" + p.URL, "LLMGUARD_KEY=" + s.keys["alice"], "DOCS=" + docs}
	page, err := os.ReadFile(filepath.Join(docs, "cookbook.md"))
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, block := range shellBlock.FindAllStringSubmatch(string(page), -1) {
		if block[1] != "sh" || !strings.HasPrefix(block[2], "curl ") {
			continue
		}
		ran++
		command := redistest.Command(t, "sh", "-c", strings.Replace(block[2], "curl ", "curl -sf -m 60 ", 1))
		command.Env = append(os.Environ(), env...)
		if out, err := command.Output(); err != nil || !json.Valid(out) {
			t.Errorf("%v: %s\n%s", err, out, block[2])
		}
	}
	if ran == 0 {
		t.Error("no curl command is run")
	}
	runNode(t, nodeScript{"node", "node", "cookbook.test.mjs", env})
}

// TestSDKResponses runs the Responses tests of the npm packages against a provider that
// supports Responses, and one that does not.
func TestSDKResponses(t *testing.T) {
	t.Parallel()
	for name, config := range dialects {
		t.Run(name, func(t *testing.T) {
			s := newStack(t, fakeprovider.Options{}, fmt.Sprintf("files: {store: %q}", t.TempDir())+config)
			p := s.proxy()
			s.worker()
			runNode(t, nodeScript{"node", "node", "responses.test.mjs", []string{"BASE_URL=" + p.URL, "API_KEY=" + s.keys["alice"]}})
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
