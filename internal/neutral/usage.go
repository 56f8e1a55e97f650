package neutral

import (
	"strconv"

	"github.com/llmguard/llmguard/internal/wire"
)

// Usage has the provider's numbers; whether they can be billed is decided elsewhere. Wires convert it
// to and from a type with the same fields and their own names.
type Usage struct {
	Input         Raw
	InputDetails  Raw // object of counts that are parts of Input
	Output        Raw
	OutputDetails Raw
	Total         Raw
	CacheRead     Raw // if InputDetails does not have it
	More          Raw // object of what else the provider reports
}

// Complete returns the usage with the members that OpenAI's clients rely on.
func (u Usage) Complete() Usage {
	if u.Total == nil {
		u.Total = sum(u.Input, u.Output)
	}
	u.InputDetails = details(u.InputDetails, "cached_tokens", u.CacheRead)
	u.OutputDetails = details(u.OutputDetails, "reasoning_tokens", nil)
	return u
}

// sum adds two raw counts; nil if either is not a number.
func sum(a, b Raw) Raw {
	x, errX := strconv.ParseInt(string(a), 10, 40)
	y, errY := strconv.ParseInt(string(b), 10, 40)
	if errX != nil || errY != nil {
		return nil
	}
	return strconv.AppendInt(nil, x+y, 10)
}

// details returns details with the one counter that every client reads.
func details(given Raw, counter string, count Raw) Raw {
	if count == nil {
		count = Raw("0")
	}
	var out Raw
	found := false
	err := wire.EachMember(given, func(name, value []byte) error {
		if string(name) == counter {
			found = true
			if string(value) == "null" {
				value = count
			}
		}
		out = With(out, string(name), value)
		return nil
	})
	if err != nil && given != nil && string(given) != "null" {
		return given
	}
	if !found {
		out = With(out, counter, count)
	}
	return out
}
