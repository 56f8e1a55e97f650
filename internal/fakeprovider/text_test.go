package fakeprovider

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/tokenizer"
)

// Every piece is one token in any position, so a text can have an exact size.
func TestProseHasOneTokenPerPiece(t *testing.T) {
	for _, enc := range []tokenizer.Encoding{tokenizer.O200k, tokenizer.CL100k} {
		for seed := range 200 {
			n := int64(1 + seed*7)
			p := prose{rng: newRand(seed)}
			text := strings.Join(p.take(n, seed%2 == 0), "")
			if got := int64(tokenizer.Count(enc, []byte(text))); got != n {
				t.Errorf("encoding %v: %d pieces, %d tokens: %q", enc, n, got, text)
			}
		}
	}
}

func TestSplitKeepsRunes(t *testing.T) {
	const text = "Überraschung: 日本語 🙂🙂 and more"
	for n := range int64(40) {
		pieces := split(text, n)
		if strings.Join(pieces, "") != text {
			t.Errorf("split(%d) lost something: %q", n, pieces)
		}
		for _, p := range pieces {
			if strings.ContainsRune(p, '\uFFFD') {
				t.Errorf("split(%d) cut a character: %q", n, p)
			}
		}
	}
}

func TestTruncate(t *testing.T) {
	text := strings.Join((&prose{rng: newRand(1)}).take(100, true), "")
	for _, limit := range []int64{0, 1, 37, 99, 100, 500} {
		got := truncate("gpt-4o", text, limit)
		if n := countText("gpt-4o", got); n != min(limit, 100) || !strings.HasPrefix(text, got) {
			t.Errorf("truncate to %d: %d tokens", limit, n)
		}
	}
}

// Each instance is validated by parsing it.
func TestInstance(t *testing.T) {
	f := func(schema string, check func(v any) bool) {
		t.Helper()
		for seed := range 20 {
			text, err := instance(newRand(seed), json.RawMessage(schema))
			if err != nil {
				t.Fatalf("%s: %v", schema, err)
			}
			var v any
			if err := json.Unmarshal([]byte(text), &v); err != nil || !check(v) {
				t.Fatalf("%s: instance %s, %v", schema, text, err)
			}
		}
	}
	number := func(low, high float64) func(any) bool {
		return func(v any) bool { n, ok := v.(float64); return ok && n >= low && n <= high }
	}
	length := func(low, high int) func(any) bool {
		return func(v any) bool { s, ok := v.(string); return ok && len(s) >= low && len(s) <= high }
	}
	f(`{"type":"integer","minimum":-3,"maximum":-1}`, number(-3, -1))
	f(`{"type":"integer","maximum":-10}`, number(-200, -10))
	f(`{"type":"string","minLength":200,"maxLength":210}`, length(200, 210))
	f(`{"type":"string","maxLength":3}`, length(0, 3))
	f(`{"type":["null","string"]}`, length(1, 99))
	f(`{"const":"x"}`, length(1, 1))
	f(`{"type":"boolean"}`, func(v any) bool { _, ok := v.(bool); return ok })
	f(`{"anyOf":[{"type":"null"},{"type":"integer"}]}`, number(0, 100))
	f(`{"type":"array","items":{"type":"integer"},"minItems":4}`, func(v any) bool { return len(v.([]any)) >= 4 })
	f(`{}`, length(1, 99))
	f(`{"type":"object","properties":{"a":{"$ref":"#/$defs/node"}},"$defs":{"node":{"type":"object",
		"properties":{"next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]},"v":{"type":"integer"}},"required":["next","v"]}}}`,
		func(v any) bool { return v.(map[string]any)["a"].(map[string]any)["v"] != nil })
	f(`{"$ref":"#"}`, func(any) bool { return true })
	f(`{"type":"array","items":{"$ref":"#"},"minItems":1}`, func(any) bool { return true })
}

func TestInstanceKeepsOrder(t *testing.T) {
	text, err := instance(newRand(1), json.RawMessage(`{"type":"object","properties":{"z":{"const":1},"a":{"const":2},"m":{"const":3}}}`))
	if err != nil || text != `{"z":1,"a":2,"m":3}` {
		t.Errorf("instance %s, %v", text, err)
	}
}

// Each directive sets one field, and each field has a directive.
func TestDirectives(t *testing.T) {
	b, err := ParseDirectives("output=50;delay=300ms status=500;cut=reset message=a+b%3D endless header=X-A:1")
	if err != nil {
		t.Fatal(err)
	}
	if b.Output != 50 || b.Delay.Milliseconds() != 300 || b.Status != 500 || b.Cut != CutReset ||
		b.Message != "a b=" || !b.Endless || b.Header.Get("X-A") != "1" {
		t.Errorf("behaviour %+v", b)
	}
	for _, bad := range []string{"nonsense", "output=x", "delay=5", "status=", "message=%zz", "cut=rset", "usage=nil", "newline=x", "split=x"} {
		if _, err := ParseDirectives(bad); err == nil {
			t.Errorf("ParseDirectives(%q): no error", bad)
		}
	}
}
