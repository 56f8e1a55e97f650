package wire

import (
	"bytes"
	"math"
	"strconv"
	"strings"
)

// maxInt is the largest integer accepted in a request: 2^31-1.
const maxInt = math.MaxInt32

// maxWord bounds strings that are names: models, tiers, formats.
const maxWord = 512

// param inserts the current indexes in the brackets of template.
func (s *scanner) param(template string) string {
	for _, i := range s.index {
		template = strings.Replace(template, "[]", "["+strconv.Itoa(i)+"]", 1)
	}
	return template
}

// wrongType refuses the value at pos, whose type is not want.
func (s *scanner) wrongType(param, want string) error {
	got := ""
	switch c := s.peek(); {
	case c == '"':
		got = "a string"
	case c == '{':
		got = "an object"
	case c == '[':
		got = "an array"
	case c == 't' || c == 'f':
		got = "a boolean"
	case c == 'n':
		got = "null"
	case c == '-' || isDigit(c):
		got = "a number"
	default:
		return s.unexpected()
	}
	param = s.param(param)
	if param == "" {
		return BadRequest("", "", "The request body must be %s, but is %s.", want, got)
	}
	return BadRequest(param, "invalid_type", "Invalid type for '%s': expected %s, but got %s instead.", param, want, got)
}

// stringAt reads a string and returns its span, quotes included.
func (s *scanner) stringAt(param string) (Span, error) {
	if s.peek() != '"' {
		return Span{}, s.wrongType(param, "a string")
	}
	start := s.pos
	err := s.string()
	return Span{start, s.pos}, err
}

// word reads a short string. Common ones need no allocation.
func (s *scanner) word(param string) (string, error) {
	at, err := s.stringAt(param)
	if err != nil {
		return "", err
	}
	inner := s.buf[at.Start+1 : at.End-1]
	if len(inner) > maxWord {
		param = s.param(param)
		return "", BadRequest(param, "string_above_max_length",
			"Invalid '%s': string too long. Expected a string of at most %d bytes, but got %d.", param, maxWord, len(inner))
	}
	switch string(inner) {
	case "user":
		return "user", nil
	case "assistant":
		return "assistant", nil
	case "system":
		return "system", nil
	case "developer":
		return "developer", nil
	case "tool":
		return "tool", nil
	case "function":
		return "function", nil
	case "auto":
		return "auto", nil
	}
	if bytes.IndexByte(inner, '\\') >= 0 {
		inner = appendUnquoted(nil, inner)
	}
	return string(inner), nil
}

func (s *scanner) boolean(param string) (bool, error) {
	switch s.peek() {
	case 't':
		return true, s.literal("true")
	case 'f':
		return false, s.literal("false")
	}
	return false, s.wrongType(param, "a boolean")
}

func (s *scanner) integer(param string, lo, hi int64) (int64, error) {
	if c := s.peek(); c != '-' && !isDigit(c) {
		return 0, s.wrongType(param, "an integer")
	}
	start := s.pos
	if err := s.number(); err != nil {
		return 0, err
	}
	raw := s.buf[start:s.pos]
	v, fault := parseInt(raw)
	switch {
	case fault == intFraction:
		param = s.param(param)
		return 0, BadRequest(param, "invalid_type",
			"Invalid type for '%s': expected an integer, but got a decimal number instead.", param)
	case v < lo:
		param = s.param(param)
		return 0, BadRequest(param, "integer_below_min_value",
			"Invalid '%s': integer below minimum value. Expected a value >= %d, but got %s instead.", param, lo, clip(raw))
	case v > hi:
		param = s.param(param)
		return 0, BadRequest(param, "integer_above_max_value",
			"Invalid '%s': integer above maximum value. Expected a value <= %d, but got %s instead.", param, hi, clip(raw))
	}
	return v, nil
}

func (s *scanner) words(param string) ([]string, error) {
	if s.peek() != '[' {
		return nil, s.wrongType(param, "an array of strings")
	}
	var list []string
	err := s.array(func(int) error {
		word, err := s.word(param)
		list = append(list, word)
		return err
	})
	return list, err
}

// raw reads a value that starts with the byte first, and returns its span.
func (s *scanner) raw(param string, first byte) (Span, error) {
	if s.peek() != first {
		want := "an object"
		if first == '[' {
			want = "an array"
		}
		return Span{}, s.wrongType(param, want)
	}
	return s.value()
}
