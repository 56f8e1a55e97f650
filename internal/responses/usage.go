package responses

import (
	"strconv"

	"github.com/llmguard/llmguard/internal/wire"
)

// appendUsage appends chat's usage with the names of Responses. Numbers and undefined members
// are copied unchanged; whether they can be billed is decided elsewhere. Members that clients
// rely on are added if missing.
func appendUsage(dst, usage []byte) []byte {
	if len(usage) == 0 || usage[0] != '{' {
		return append(dst, "null"...)
	}
	var in, out, total, inside, outside, cached []byte
	rest := make([]byte, 0, 64)
	err := wire.EachMember(usage, func(key, value []byte) error {
		switch string(key) {
		case "prompt_tokens":
			in = value
		case "completion_tokens":
			out = value
		case "total_tokens":
			total = value
		case "prompt_tokens_details":
			inside = value
		case "completion_tokens_details":
			outside = value
		default:
			if string(key) == "prompt_cache_hit_tokens" { // DeepSeek's
				cached = value
			}
			rest = appendMember(append(rest, ','), string(key), value)
		}
		return nil
	})
	if err != nil {
		return append(dst, "null"...)
	}
	if total == nil {
		total = sum(in, out)
	}
	dst = append(dst, '{')
	dst = appendMember(dst, "input_tokens", or(in))
	dst = appendDetails(append(dst, ','), "input_tokens_details", inside, "cached_tokens", cached)
	dst = appendMember(append(dst, ','), "output_tokens", or(out))
	dst = appendDetails(append(dst, ','), "output_tokens_details", outside, "reasoning_tokens", nil)
	dst = appendMember(append(dst, ','), "total_tokens", or(total))
	return append(append(dst, rest...), '}')
}

func appendMember(dst []byte, name string, value []byte) []byte {
	return append(append(wire.AppendQuoted(dst, name), ':'), value...)
}

// or returns a raw value, or null if it is missing.
func or(raw []byte) []byte {
	if raw == nil {
		return []byte("null")
	}
	return raw
}

// sum adds two raw counts; nil if either is not a number.
func sum(a, b []byte) []byte {
	x, errX := strconv.ParseInt(string(a), 10, 40)
	y, errY := strconv.ParseInt(string(b), 10, 40)
	if errX != nil || errY != nil {
		return nil
	}
	return strconv.AppendInt(nil, x+y, 10)
}

// appendDetails appends details, with the one counter that every client reads.
func appendDetails(dst []byte, name string, details []byte, counter string, value []byte) []byte {
	if given(details) && details[0] != '{' {
		return appendMember(dst, name, details)
	}
	if value == nil {
		value = []byte("0")
	}
	dst = append(wire.AppendQuoted(dst, name), ":{"...)
	found, first := false, true
	if given(details) {
		_ = wire.EachMember(details, func(key, v []byte) error { // it was validated before
			if string(key) == counter {
				found = true
				if !given(v) {
					v = value
				}
			}
			if !first {
				dst = append(dst, ',')
			}
			first = false
			dst = appendMember(dst, string(key), v)
			return nil
		})
	}
	if !found {
		if !first {
			dst = append(dst, ',')
		}
		dst = appendMember(dst, counter, value)
	}
	return append(dst, '}')
}
