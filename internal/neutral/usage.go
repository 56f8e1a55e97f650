package neutral

import (
	"bytes"
	"strconv"
	"strings"

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

// Counted returns the usage of an answer as package wire read it, and what else the members in more report.
func Counted(a *wire.Answer, more Raw) *Usage {
	n := a.Usage
	in := With(nil, "cached_tokens", number(n.CachedInput))
	in = With(in, "cache_write_tokens", number(n.CacheWrite))
	if a.TimedWrites {
		in = With(in, "cache_write_1h_tokens", number(n.CacheWrite1h))
	}
	return &Usage{
		Input: number(n.Input), InputDetails: in, Output: number(n.Output),
		OutputDetails: With(nil, "reasoning_tokens", number(n.Reasoning)),
		Total:         number(n.Input + n.Output), More: Uncounted(more),
	}
}

func number(n int64) Raw { return strconv.AppendInt(nil, n, 10) }

// Counts reports whether the usage has the same input and output as package wire read. u may be nil.
func (u *Usage) Counts(n wire.Usage) bool {
	return u != nil && bytes.Equal(u.Input, number(n.Input)) && bytes.Equal(u.Output, number(n.Output))
}

// elsewhere are members of a usage that are written in another form.
var elsewhere = map[string]bool{"cache_creation": true, "iterations": true, "service_tier": true}

// Uncounted returns a copy of the members of a usage that are no tokens, such as costs and searches. more may be nil.
func Uncounted(more Raw) Raw {
	var out Raw
	_ = wire.EachMember(more, func(name, value []byte) error { // what is no object has no members
		n := string(name)
		if !elsewhere[n] && !strings.Contains(n, "token") && string(value) != "null" {
			out = With(out, n, value)
		}
		return nil
	})
	return out
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
