package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"math/big"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// accepts reports whether the lexer accepts b as one document.
func accepts(b []byte, strict bool) bool {
	if strict && !utf8.Valid(b) {
		return false
	}
	l := lexer{buf: b, depth: 10_000, tokens: math.MaxInt, strict: strict}
	l.space()
	if l.skip() != nil {
		return false
	}
	l.space()
	return l.pos == len(b)
}

// jsontextAccepts is the reference for accepts.
func jsontextAccepts(b []byte, strict bool) bool {
	d := jsontext.NewDecoder(bytes.NewBuffer(b), jsontext.AllowDuplicateNames(!strict), jsontext.AllowInvalidUTF8(!strict))
	if _, err := d.ReadValue(); err != nil {
		return false
	}
	_, err := d.ReadToken()
	return errors.Is(err, io.EOF)
}

var documents = []string{
	``, ` `, `null`, `true`, `false`, `nul`, `nulll`, `truE`, `0`, `-0`, `00`, `-`, `1.`, `1.5`, `1.5e`, `1e5`, `1E+5`, `1e-`, `.5`, `+1`,
	`01`, `-01`, `NaN`, `Infinity`, `1 2`, `"`, `""`, `"a`, `"\`, `"\"`, `"\""`, `"\u"`, `"\u12"`, `"\u123`, `"\u1234"`, `"\uD83D\uDE00"`, `"\ud83d"`,
	`"\ude00"`, `"\ud83d\u0041"`, `"\x"`, "\"\n\"", "\"\x00\"", "\"\x7f\"", "\"\xff\"", "\"\xc3\"", "\"\xe2\x82\xac\"", "\"\xed\xa0\x80\"",
	`{}`, `{ }`, `{"a":1}`, `{"a":1,}`, `{"a"}`, `{"a":}`, `{,}`, `{1:2}`, `{"a":1 "b":2}`, `{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, `{"a":{"a":1}}`,
	`[]`, `[1,]`, `[,1]`, `[1 2]`, `[1,[2,{"a":[]}]]`, `[`, `]`, `{`, `}`, `[}`, `{]`, `[1`, `{"a":1`, `{"a"`, "\xEF\xBB\xBF{}", `{}x`, `{}{}`, "\t\r\n {}\t\r\n ",
	`"12345678\n"`, `"1234567\"8"`, "\"1234567\x1f\"", "\"abcdefg\xc3\xa9hijk\"", `"\ud83d\ud83d\ude00"`, `"\ud83d\ude0"`,
}

func TestLexerAgreesWithJSONText(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for _, doc := range append(documents, deep(10_000), deep(10_001)) {
		for _, strict := range []bool{true, false} {
			if got, want := accepts([]byte(doc), strict), jsontextAccepts([]byte(doc), strict); got != want {
				t.Errorf("%q, strict %v: accepted %v, want %v", clip([]byte(doc)), strict, got, want)
			}
		}
	}
}

func FuzzLexer(f *testing.F) {
	for _, doc := range documents {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, strict := range []bool{true, false} {
			if got, want := accepts(b, strict), jsontextAccepts(b, strict); got != want {
				t.Errorf("strict %v: accepted %v, want %v", strict, got, want)
			}
		}
	})
}

func FuzzUnquote(f *testing.F) {
	for _, doc := range documents {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		raw, err := json.Marshal(string(b))
		if err != nil {
			t.Fatal(err)
		}
		checkUnquote(t, raw)
		checkUnquote(t, b)
		checkUnquote(t, append(append([]byte{'"'}, b...), '"'))
		appendUnquoted(nil, b) // must not panic
	})
}

// checkUnquote compares with encoding/json if that accepts raw as a string.
func checkUnquote(t *testing.T, raw []byte) {
	var want string
	if len(raw) < 2 || raw[0] != '"' || raw[len(raw)-1] != '"' || !utf8.Valid(raw) || json.Unmarshal(raw, &want) != nil {
		return
	}
	dst := make([]byte, 1, 1+len(raw))
	got := appendUnquoted(dst, raw[1:len(raw)-1])
	if string(got[1:]) != want {
		t.Errorf("%q decoded to %q, want %q", raw, got[1:], want)
	}
	if accepts(raw, true) && &got[0] != &dst[0] {
		t.Errorf("%q did not fit into its own length", raw)
	}
}

func TestUnquoteDoesNotAllocate(t *testing.T) {
	r := scanChat(t, `{"model":"m","messages":[{"content":"a\n\u00e9\ud83d\ude00 plain"},{"content":"plain"}]}`)
	dst := make([]byte, 0, 100)
	if n := testing.AllocsPerRun(100, func() {
		for _, m := range r.Messages {
			for _, text := range m.Texts {
				r.Unquote(dst, text)
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestPlain(t *testing.T) {
	for stop := range 256 {
		special := stop == '"' || stop == '\\' || stop < ' '
		for length := range 20 {
			for at := range length {
				for _, fill := range []byte{'a', 0x80, 0xff, ' ', '!', '#', '[', ']', 0x7f} {
					b := bytes.Repeat([]byte{fill}, length)
					b[at] = byte(stop)
					want := length
					if special {
						want = at
					}
					if got := plain(b, 0); got != want {
						t.Fatalf("plain(%q) = %d, want %d", b, got, want)
					}
				}
			}
		}
	}
}

func TestParseInt(t *testing.T) {
	for _, c := range []struct {
		raw   string
		value int64
		fault intFault
	}{
		{"0", 0, intOK},
		{"-0", 0, intOK},
		{"5", 5, intOK},
		{"-5", -5, intOK},
		{"5.0", 5, intOK},
		{"5.000", 5, intOK},
		{"1e2", 100, intOK},
		{"1.5e1", 15, intOK},
		{"150e-1", 15, intOK},
		{"0.0001e4", 1, intOK},
		{"0e99999999999999999999", 0, intOK},
		{"0.0e-5", 0, intOK},
		{"123456789012345678", 123456789012345678, intOK},
		{"1234567890123456789", math.MaxInt64, intTooLarge},
		{"18446744073709551617", math.MaxInt64, intTooLarge},
		{"-18446744073709551617", -math.MaxInt64, intTooLarge},
		{"1e18", math.MaxInt64, intTooLarge},
		{"1e17", 1e17, intOK},
		{"1e400", math.MaxInt64, intTooLarge},
		{"1e99999999999999999999999", math.MaxInt64, intTooLarge},
		{"-1e400", -math.MaxInt64, intTooLarge},
		{"1.5", 0, intFraction},
		{"1e-1", 0, intFraction},
		{"1e-99999999999999999999", 0, intFraction},
		{"0.1", 0, intFraction},
		{"100000000000000000000000000000e-28", 10, intOK},
		{"9007199254740993", 9007199254740993, intOK},
	} {
		if v, fault := parseInt([]byte(c.raw)); fault != c.fault || fault != intFraction && v != c.value {
			t.Errorf("%s: %d, %v; want %d, %v", c.raw, v, fault, c.value, c.fault)
		}
	}
}

func FuzzParseInt(f *testing.F) {
	f.Add(int64(5), uint8(3), int8(-2))
	f.Fuzz(func(t *testing.T, digits int64, point uint8, exp int8) {
		raw := strconv.FormatInt(digits, 10)
		if p := int(point); p > 1 && p < len(raw) {
			raw = raw[:p] + "." + raw[p:]
		}
		raw += "e" + strconv.Itoa(int(exp))
		want, ok := new(big.Rat).SetString(raw)
		if !ok || !accepts([]byte(raw), true) {
			t.Skip()
		}
		v, fault := parseInt([]byte(raw))
		switch {
		case fault == intFraction != !want.IsInt():
			t.Errorf("%s: fault %v", raw, fault)
		case fault == intOK && new(big.Rat).SetInt64(v).Cmp(want) != 0:
			t.Errorf("%s = %d", raw, v)
		case fault == intTooLarge && want.Num().CmpAbs(big.NewInt(1e17)) <= 0:
			t.Errorf("%s is not too large", raw)
		}
	})
}
