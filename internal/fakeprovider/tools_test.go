package fakeprovider_test

import (
	"encoding/json"
	"errors"
	"io"
	"testing"

	openai "github.com/sashabaranov/go-openai"

	"github.com/llmguard/llmguard/internal/fakeprovider"
)

func weatherTool() openai.Tool {
	return openai.Tool{Type: "function", Function: &openai.FunctionDefinition{
		Name: "weather",
		Parameters: json.RawMessage(`{"type":"object","properties":{"city":{"type":"string"},
			"days":{"type":"integer","minimum":1,"maximum":7},"unit":{"enum":["C","F"]}},"required":["city"]}`),
	}}
}

func TestTools(t *testing.T) {
	s := start(t, fakeprovider.Options{})
	req := ask("Weather in Oslo?")
	req.Tools = []openai.Tool{weatherTool()}
	resp, err := client(s).CreateChatCompletion(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	calls := resp.Choices[0].Message.ToolCalls
	if len(calls) != 1 || calls[0].Function.Name != "weather" || resp.Choices[0].FinishReason != "tool_calls" {
		t.Fatalf("choice %+v", resp.Choices[0])
	}
	checkWeather(t, calls[0].Function.Arguments)

	req.Messages = append(req.Messages, resp.Choices[0].Message,
		openai.ChatCompletionMessage{Role: "tool", ToolCallID: calls[0].ID, Content: "7 C"})
	resp, err = client(s).CreateChatCompletion(t.Context(), req)
	if err != nil || resp.Choices[0].FinishReason != "stop" {
		t.Errorf("after the tool's result: %+v, %v", resp.Choices, err)
	}
}

// TestScriptedCall: a script names the tool and its arguments, also after a result.
func TestScriptedCall(t *testing.T) {
	s := start(t, fakeprovider.Options{})
	req, other := ask("Weather in Oslo? [fake: call=weather args=%7B%22city%22%3A%22Bergen%22%7D]"), weatherTool()
	other.Function = &openai.FunctionDefinition{Name: "other"}
	req.Tools = []openai.Tool{other, weatherTool()}
	for range 2 {
		resp, err := client(s).CreateChatCompletion(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		calls := resp.Choices[0].Message.ToolCalls
		if len(calls) != 1 || calls[0].Function.Name != "weather" || calls[0].Function.Arguments != `{"city":"Bergen"}` {
			t.Fatalf("got the calls %+v, want the scripted one", calls)
		}
		req.Messages = append(req.Messages, resp.Choices[0].Message,
			openai.ChatCompletionMessage{Role: "tool", ToolCallID: calls[0].ID, Content: "7 C"})
	}
}

func checkWeather(t *testing.T, args string) {
	t.Helper()
	var got struct {
		City, Unit string
		Days       int
	}
	if err := json.Unmarshal([]byte(args), &got); err != nil || got.City == "" || got.Days < 1 || got.Days > 7 || got.Unit != "C" && got.Unit != "F" {
		t.Errorf("arguments %s: %v", args, err)
	}
}

func TestStreamedTools(t *testing.T) {
	s := start(t, fakeprovider.Options{})
	req := ask("Weather in Oslo? [fake: tools=2]")
	req.Tools = []openai.Tool{weatherTool()}
	stream, err := client(s).CreateChatCompletionStream(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	args := map[int]string{}
	for {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, call := range part.Choices[0].Delta.ToolCalls {
			args[*call.Index] += call.Function.Arguments
		}
	}
	if len(args) != 2 {
		t.Fatalf("%d calls, want 2", len(args))
	}
	checkWeather(t, args[0])
	checkWeather(t, args[1])
}

func TestStructuredOutput(t *testing.T) {
	s := start(t, fakeprovider.Options{})
	req := ask("Give me a person")
	req.ResponseFormat = &openai.ChatCompletionResponseFormat{
		Type: openai.ChatCompletionResponseFormatTypeJSONSchema,
		JSONSchema: &openai.ChatCompletionResponseFormatJSONSchema{
			Name: "person", Strict: true,
			Schema: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"}},"required":["name","age"],"additionalProperties":false}`),
		},
	}
	resp, err := client(s).CreateChatCompletion(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	var person struct {
		Name string
		Age  *int
	}
	if err := json.Unmarshal([]byte(resp.Choices[0].Message.Content), &person); err != nil || person.Name == "" || person.Age == nil {
		t.Errorf("content %q: %v", resp.Choices[0].Message.Content, err)
	}
}
