package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// prompt returns n bytes of typical ASCII text: prose and code, quotes and line breaks.
func prompt(n int) string {
	const text = "The quick brown fox, said \"Jane\", jumps over 13 lazy dogs.\nfunc main() {\n\tfmt.Println(\"hi\")\n}\n"
	return strings.Repeat(text, n/len(text)+1)[:n]
}

// chatBody returns a chat request of about n bytes in ten messages, or one.
func chatBody(n int, text func(int) string) []byte {
	count := 10
	if n < 1000 {
		count = 1
	}
	var messages []map[string]any
	for range count {
		messages = append(messages, map[string]any{"role": "user", "content": text(n/count - 60)})
	}
	body, err := json.Marshal(map[string]any{
		"model": "gpt-5", "messages": messages, "max_completion_tokens": 500, "temperature": 0.7, "stream": true, "user": "u-1",
	})
	if err != nil {
		panic(err)
	}
	return body
}

func BenchmarkScan(b *testing.B) {
	chinese := func(n int) string { return strings.Repeat("快速的棕色狐狸跳过懒狗。\n", n/40+1) }
	base64 := func(n int) string { return strings.Repeat("QUJD", n/4) }
	for _, c := range []struct {
		name string
		body []byte
	}{
		{"300B", chatBody(300, prompt)},
		{"8KB", chatBody(8<<10, prompt)},
		{"200KB", chatBody(200<<10, prompt)},
		{"200KB-chinese", chatBody(200<<10, chinese)},
		{"200KB-base64", chatBody(200<<10, base64)},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Scan(ChatCompletions, c.body, Limits{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkJSONText reads the same bodies with jsontext for comparison: all tokens, without storing
// them.
func BenchmarkJSONText(b *testing.B) {
	for _, n := range []int{300, 8 << 10, 200 << 10} {
		body := chatBody(n, prompt)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			d := new(jsontext.Decoder)
			for b.Loop() {
				d.Reset(bytes.NewBuffer(body))
				for {
					if _, err := d.ReadToken(); errors.Is(err, io.EOF) {
						break
					} else if err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

func BenchmarkScanTokenIDs(b *testing.B) {
	body := []byte(`{"model":"e","input":[` + strings.TrimSuffix(strings.Repeat("12345,", 8192), ",") + `]}`)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Scan(Embeddings, body, Limits{}); err != nil {
			b.Fatal(err)
		}
	}
}

const timedChunk = `{"id":"chatcmpl-B9MBs8CjcGOU2oLn4n571qSX8pL5K","object":"chat.completion.chunk","created":1741570283,"model":"gpt-5-2025-08-07","service_tier":"default","system_fingerprint":"fp_44709d6fcb","choices":[{"index":0,"delta":{"content":" hello\n"},"logprobs":null,"finish_reason":null}],"usage":null}`

func BenchmarkScanChunk(b *testing.B) {
	data := []byte(timedChunk)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	var buf []byte
	for b.Loop() {
		c, err := ScanChunk(data, buf[:0])
		if err != nil {
			b.Fatal(err)
		}
		buf = c.Text
	}
}

func BenchmarkEvents(b *testing.B) {
	event := []byte("data: " + timedChunk + "\n\n")
	b.SetBytes(int64(len(event)))
	b.ReportAllocs()
	var e Events
	for b.Loop() {
		if err := e.Feed(event); err != nil {
			b.Fatal(err)
		}
		got, ok := e.Next()
		if !ok || EventData(got) == nil {
			b.Fatal("no event")
		}
		if _, ok := e.Next(); ok {
			b.Fatal("two events")
		}
	}
}

func BenchmarkUnquote(b *testing.B) {
	raw, _ := json.Marshal(prompt(20_000))
	plain, _ := json.Marshal(strings.ReplaceAll(strings.ReplaceAll(prompt(20_000), "\n", " "), `"`, "'"))
	dst := make([]byte, 0, len(raw))
	for name, raw := range map[string][]byte{"escaped": raw, "plain": plain} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				appendUnquoted(dst, raw[1:len(raw)-1])
			}
		})
	}
}

func BenchmarkRewrite(b *testing.B) {
	r, err := Scan(ChatCompletions, chatBody(200<<10, prompt), Limits{})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		body := r.Rewrite(Edit{includeUsage, []byte("true")}, Edit{"model", []byte(`"x"`)})
		if _, err := io.Copy(io.Discard, body.Reader()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseUsage(b *testing.B) {
	content, _ := json.Marshal(prompt(2000))
	body := []byte(`{"id":"chatcmpl-1","object":"chat.completion","model":"gpt-5","choices":[{"index":0,"message":{"role":"assistant","content":` + string(content) +
		`},"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":20,"total_tokens":30,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0}},"service_tier":"default"}`)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := ParseUsage(ChatCompletions, body); !ok {
			b.Fatal("no usage")
		}
	}
}

func BenchmarkNewCallID(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		NewCallID()
	}
}
