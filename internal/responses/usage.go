package responses

import (
	"strconv"

	"github.com/go-json-experiment/json"

	"github.com/llmguard/llmguard/internal/neutral"
	"github.com/llmguard/llmguard/internal/wire"
)

// usage is neutral.Usage with the names of Responses. Numbers and undefined members are copied unchanged.
type usage struct {
	Input         raw `json:"input_tokens"`
	InputDetails  raw `json:"input_tokens_details"`
	Output        raw `json:"output_tokens"`
	OutputDetails raw `json:"output_tokens_details"`
	Total         raw `json:"total_tokens"`
	CacheRead     raw `json:"-"`
	More          raw `json:",embed"`
}

// usageOf adds the members that clients rely on if they are missing.
func usageOf(given *neutral.Usage) raw {
	if given == nil {
		return raw("null")
	}
	u := usage(*given)
	if u.Total == nil {
		u.Total = sum(u.Input, u.Output)
	}
	u.InputDetails = details(u.InputDetails, "cached_tokens", u.CacheRead)
	u.OutputDetails = details(u.OutputDetails, "reasoning_tokens", nil)
	text, _ := json.Marshal(&u, neutral.AsSent) // raw values were read before
	return text
}

// sum adds two raw counts; nil if either is not a number.
func sum(a, b raw) raw {
	x, errX := strconv.ParseInt(string(a), 10, 40)
	y, errY := strconv.ParseInt(string(b), 10, 40)
	if errX != nil || errY != nil {
		return nil
	}
	return strconv.AppendInt(nil, x+y, 10)
}

// details returns details with the one counter that every client reads.
func details(given raw, counter string, count raw) raw {
	if count == nil {
		count = raw("0")
	}
	var out raw
	found := false
	err := wire.EachMember(given, func(name, value []byte) error {
		if string(name) == counter {
			found = true
			if string(value) == "null" {
				value = count
			}
		}
		out = neutral.With(out, string(name), value)
		return nil
	})
	if err != nil && given != nil && string(given) != "null" {
		return given
	}
	if !found {
		out = neutral.With(out, counter, count)
	}
	return out
}
