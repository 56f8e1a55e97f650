// Command go-openai calls llmguard with github.com/sashabaranov/go-openai: a
// completion with its cost, a stream, and the two kinds of refusal.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/sashabaranov/go-openai"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	cfg := openai.DefaultConfig(os.Getenv("LLMGUARD_KEY"))
	cfg.BaseURL = "http://127.0.0.1:8080/v1"
	if url := os.Getenv("LLMGUARD_URL"); url != "" {
		cfg.BaseURL = url
	}
	// A call over the limit waits for up to 280 s without a byte.
	cfg.HTTPClient = &http.Client{Timeout: 5 * time.Minute}
	err := run(ctx, openai.NewClientWithConfig(cfg))
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, client *openai.Client) error {
	request := openai.ChatCompletionRequest{
		Model:               openai.GPT4oMini,
		MaxCompletionTokens: 60,
		Messages:            []openai.ChatCompletionMessage{{Role: openai.ChatMessageRoleUser, Content: "Say hello"}},
	}

	answer, err := client.CreateChatCompletion(ctx, request)
	if err != nil {
		return explain(err)
	}
	fmt.Println(answer.Choices[0].Message.Content)
	fmt.Println("cost $", answer.Header().Get("x-llmguard-cost-usd"))
	fmt.Println("limits", answer.Header().Get("x-llmguard-limits"))
	fmt.Println("waited ms", answer.Header().Get("x-llmguard-waited-ms"))

	stream, err := client.CreateChatCompletionStream(ctx, request)
	if err != nil {
		return explain(err)
	}
	defer stream.Close()
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			fmt.Println()
			return nil
		}
		if err != nil {
			return explain(err)
		}
		fmt.Print(chunk.Choices[0].Delta.Content)
	}
}

// explain distinguishes a call that can never fit from one that fits later. go-openai does not
// retry: a program can retry the second kind itself.
func explain(err error) error {
	var api *openai.APIError
	if !errors.As(err, &api) ||
		api.HTTPStatusCode != http.StatusTooManyRequests && api.HTTPStatusCode != http.StatusPaymentRequired {
		return err
	}
	if api.HTTPStatusCode == http.StatusPaymentRequired {
		return fmt.Errorf("larger than the whole limit, do not retry: %s", api.Message)
	}
	return fmt.Errorf("no capacity in time, try again later: %s", api.Message)
}
