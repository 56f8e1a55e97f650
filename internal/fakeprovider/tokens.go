package fakeprovider

import (
	"strings"
	"sync"

	"github.com/pkoukk/tiktoken-go"
	loader "github.com/pkoukk/tiktoken-go-loader"
)

// encoding loads a vocabulary once: 0.2 s for o200k_base.
var encoding = map[string]func() *tiktoken.Tiktoken{
	"o200k_base":  sync.OnceValue(func() *tiktoken.Tiktoken { return load("o200k_base") }),
	"cl100k_base": sync.OnceValue(func() *tiktoken.Tiktoken { return load("cl100k_base") }),
}

// offline sets the library's global loader, which is not synchronised.
var offline = sync.OnceFunc(func() { tiktoken.SetBpeLoader(loader.NewOfflineLoader()) })

func load(name string) *tiktoken.Tiktoken {
	offline()
	enc, err := tiktoken.GetEncoding(name)
	if err != nil {
		panic("fake provider: embedded vocabulary: " + err.Error())
	}
	return enc
}

// countText is the number of tokens of a text for a model.
func countText(model, text string) int64 {
	if text == "" {
		return 0
	}
	name := "o200k_base"
	for _, old := range []string{"gpt-4-", "gpt-3.5", "text-embedding"} {
		if strings.HasPrefix(model, old) || model == "gpt-4" {
			name = "cl100k_base"
		}
	}
	return int64(len(encoding[name]().EncodeOrdinary(text)))
}

// promptTokens is what a chat request costs as input: 3, and 3 per message
// with its role and text, as OpenAI documents; tools, schemas and images by
// the usual approximations.
func (q *Request) promptTokens() int64 {
	total := int64(3)
	for _, m := range q.messages {
		total += 3 + 1
		for _, t := range m.texts {
			total += countText(q.Model, t)
		}
		if m.Name != "" {
			total += 1 + countText(q.Model, m.Name)
		}
		for _, c := range m.ToolCalls {
			if c.Function != nil || c.Custom != nil {
				args, name := callText(&c)
				total += 8 + countText(q.Model, name) + countText(q.Model, *args)
			}
		}
		for _, detail := range m.images {
			total += imageTokens(detail)
		}
	}
	for _, name := range []string{"tools", "functions"} {
		if q.has(name) {
			total += 9 + countText(q.Model, string(q.fields[name]))
		}
	}
	if q.format.JSONSchema.Schema != nil {
		total += countText(q.Model, string(q.format.JSONSchema.Schema))
	}
	return total
}

// imageTokens takes every image for 1024 x 1024 in gpt-4o's tiles.
func imageTokens(detail string) int64 {
	if detail == "low" {
		return 85
	}
	return 85 + 4*170
}
