package tokenizer

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/dlclark/regexp2"
	"github.com/pkoukk/tiktoken-go"
	loader "github.com/pkoukk/tiktoken-go-loader"
	"github.com/pkoukk/tiktoken-go-loader/assets"

	"github.com/llmguard/llmguard/internal/randtest"
)

// soak selects the long form of the differential tests.
var soak = os.Getenv("LLMGUARD_SOAK") != ""

// rounds returns how many random cases to try: n by default, many in the long form, few under the
// race detector, which slows the oracle down by a factor of ten.
func rounds(n, many int) int {
	switch {
	case soak:
		return many
	case raceOn:
		return max(1, n/20)
	}
	return n
}

var ours = []Encoding{O200k, CL100k}

// The oracle is tiktoken-go with one instance per encoding, using the patterns as tiktoken's own
// regular expressions read them.
var oracles = map[Encoding]func() (*tiktoken.Tiktoken, error){
	O200k:  sync.OnceValues(func() (*tiktoken.Tiktoken, error) { return loadOracle(O200k) }),
	CL100k: sync.OnceValues(func() (*tiktoken.Tiktoken, error) { return loadOracle(CL100k) }),
	P50k:   loadP50k,
	R50k:   loadR50k,
}

func oracle(tb testing.TB, enc Encoding) func(text []byte) int {
	tb.Helper()
	t, err := oracles[enc]()
	if err != nil {
		tb.Fatal(err)
	}
	return func(text []byte) int { return len(t.EncodeOrdinary(string(text))) }
}

// loadOracle is loadLegacy with our pattern.
func loadOracle(enc Encoding) (*tiktoken.Tiktoken, error) {
	ranks, err := loader.NewOfflineLoader().LoadTiktokenBpe(enc.String() + ".tiktoken")
	if err != nil {
		return nil, err
	}
	bpe, err := tiktoken.NewCoreBPE(ranks, nil, patterns[enc])
	if err != nil {
		return nil, err
	}
	return tiktoken.NewTiktoken(bpe, &tiktoken.Encoding{Name: enc.String()}, nil), nil
}

// asRust rewrites a published pattern for regexp2: \p uses Unicode 16, and a long s counts as an s
// in another case.
func asRust(pattern string) string {
	for _, c := range []struct {
		name      string
		of, other uint8
	}{
		{"Lu", upper, 0}, {"Ll", lower, 0}, {"Lo", both, mark}, {"M", mark, 0}, {"N", number, 0}, {"L", cased, mark},
	} {
		ranges := ""
		for _, n := range newer {
			if n.class&c.of != 0 && n.class&c.other == 0 {
				ranges += string(n.from) + "-" + string(n.to)
			}
		}
		pattern = strings.ReplaceAll(pattern, `\p{`+c.name+`}`, `\p{`+c.name+`}`+ranges)
	}
	return strings.ReplaceAll(pattern, "'s", "'[s\u017F]")
}

// The published patterns, openai/tiktoken tiktoken_ext/openai_public.py.
var patterns = map[Encoding]string{
	O200k: asRust(strings.Join([]string{
		`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?`,
		`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?`,
		`[\p{N}]{1,3}`, ` ?[^\s\p{L}\p{N}]+[\r\n/]*`, `\s*[\r\n]+`, `\s+(?!\S)`, `\s+`,
	}, "|")),
	CL100k: asRust(`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}]+|[\p{N}]{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`),
}

// vocabulary returns the tokens of an encoding, in rank order.
func vocabulary(tb testing.TB, enc Encoding) [][]byte {
	tb.Helper()
	raw, err := assets.Assets.ReadFile(enc.String() + ".tiktoken")
	if err != nil {
		tb.Fatal(err)
	}
	var tokens [][]byte
	for line := range strings.Lines(string(raw)) {
		code, _, _ := strings.Cut(line, " ")
		token, err := base64.StdEncoding.DecodeString(code)
		if err != nil {
			tb.Fatal(err)
		}
		tokens = append(tokens, token)
	}
	return tokens
}

// textMixer makes strings that switch between the character classes of the patterns, where
// splitters tend to fail.
type textMixer struct {
	*rand.Rand
	tokens [][]byte
}

var classSamples = []string{
	"abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789", " ", " \t\v\f", "\n", "\r\n", " \n", "\r",
	"'", "'stmdrevlSTMDREVLſK", ".,;:!?-_/\\\"#$%&()*+<=>@[]^`{|}~", "/", "///\n\r", "-", "=*#",
	"äöüßéèñçøåščžů", "ÄÖÜÉÈÑÇØÅŠČŽ", "ǅǈǋǲᾈᾼ", "ʰʲˠˤॱๆーゝ々ﾞ", "ªºƻǀאבגאשש", "абвгдежзийклмнопрстуфхцчшщъыьэюя", "АБВГДЕЖЗ",
	"αβγδεζηθικλμνξοπρστυφχψω", "ΑΒΓΔΕ", "漢字仮名交文中国人民日本語的是不了在有", "ひらがなカタカナ", "한국어텍스트", "ภาษาไทยก็", "العربيةفارسی", "हिन्दीमें",
	"\u0897\u1c89\u1c8a\ua7cb\ua7cd\ua7da\ua7db\U00010d40\U00016d40\U0001ccf0\U0002ebf0",
	"\u0300\u0301\u0302\u0308\u20dd\u0483", "\u093e\u093f\u0bbe", "½¼²³ⅧⅫ٣٤५६𝟘𝟙〇", "\u00a0\u2003\u3000\u2028\u2029\u0085\u1680\u200a",
	"😀🎉👨‍👩‍👧🇩🇪🏳️‍🌈", "“”‘’–—…€£¥©®™", "\u200b\u200d\ufeff\u00ad", "\x00\x01\x7f", "\ufffd", "\ue000\U000f0000",
}

func (m textMixer) text() []byte {
	switch m.IntN(8) {
	case 0:
		return m.soup()
	case 1:
		return m.script()
	}
	var b []byte
	for n := 1 + m.IntN(12); n > 0; n-- {
		switch m.IntN(20) {
		case 0:
			b = append(b, m.tokens[m.IntN(len(m.tokens))]...)
		case 1:
			b = utf8.AppendRune(b, m.rune())
		case 2:
			b = append(b, byte(m.IntN(256)))
		case 3: // a run of one character
			sample := []rune(classSamples[m.IntN(len(classSamples))])
			b = append(b, strings.Repeat(string(sample[m.IntN(len(sample))]), 1+m.IntN(40))...)
		default:
			sample := []rune(classSamples[m.IntN(len(classSamples))])
			for k := 1 + m.IntN(6); k > 0; k-- {
				b = utf8.AppendRune(b, sample[m.IntN(len(sample))])
			}
		}
	}
	return b
}

// soup returns random tokens in sequence; most of their boundaries are not real ones.
func (m textMixer) soup() []byte {
	var b []byte
	for n := 2 + m.IntN(10); n > 0; n-- {
		b = append(b, m.tokens[m.IntN(len(m.tokens))]...)
	}
	return b
}

// script returns one long piece of random characters of a script.
func (m textMixer) script() []byte {
	blocks := [][2]int{{0x4E00, 0x9FFF}, {0x3040, 0x30FF}, {0xAC00, 0xD7A3}, {0x0E00, 0x0E5B}, {0x0900, 0x0DFF}, {0x0400, 0x052F}, {0x0370, 0x03FF}, {0x0590, 0x06FF}, {0x1000, 0x1FFF}, {0x1F300, 0x1FAFF}, {'a', 'z'}}
	block := blocks[m.IntN(len(blocks))]
	var b []byte
	for n := 2 + m.IntN(100); n > 0; n-- {
		if b = utf8.AppendRune(b, rune(block[0]+m.IntN(block[1]-block[0]+1))); m.IntN(6) == 0 {
			b = append(b, m.tokens[m.IntN(len(m.tokens))]...)
		}
	}
	return b
}

// scripts returns, per script, its characters and the tokens composed of them.
func (m textMixer) scripts() [][]string {
	in := []func(r rune) bool{
		func(r rune) bool { return r < 0x80 && (unicode.In(r, unicode.L, unicode.N) || r == '+' || r == '/') },
	}
	for _, table := range []*unicode.RangeTable{
		unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar, unicode.Cyrillic, unicode.Georgian, unicode.Armenian,
		unicode.Arabic, unicode.Devanagari, unicode.Telugu, unicode.Tamil, unicode.Malayalam, unicode.Han, unicode.Hangul,
	} {
		in = append(in, func(r rune) bool { return unicode.Is(table, r) })
	}
	out := make([][]string, len(in))
	for i, is := range in {
		for r := range rune(0xD800) {
			if is(r) {
				out[i] = append(out[i], string(r))
			}
		}
		for _, token := range m.tokens {
			r, _ := utf8.DecodeRune(token)
			if len(token) > 1 && is(r) && strings.IndexFunc(string(token), func(r rune) bool { return !is(r) }) < 0 {
				out[i] = append(out[i], string(token))
			}
		}
	}
	return out
}

// phrase concatenates parts, usually to one long piece.
func (m textMixer) phrase(parts []string) []byte {
	var b []byte
	for n := 1 + m.IntN(30); n > 0; n-- {
		if b = append(b, pick(m.Rand, parts)...); m.IntN(40) == 0 {
			b = append(b, ' ')
		}
	}
	return b
}

// rune returns a random assigned or unassigned character, except surrogates.
func (m textMixer) rune() rune {
	if m.IntN(2) == 0 {
		return rune(m.IntN(0x3000))
	}
	for {
		if r := rune(m.IntN(unicode.MaxRune + 1)); utf8.ValidRune(r) {
			return r
		}
	}
}

// newMixer returns a source of strings.
func newMixer(tb testing.TB, enc Encoding) textMixer {
	return textMixer{rand.New(rand.NewPCG(randtest.Seed(tb), uint64(enc))), vocabulary(tb, enc)}
}

func eachOurs(t *testing.T, f func(t *testing.T, enc Encoding)) {
	for _, enc := range ours {
		t.Run(enc.String(), func(t *testing.T) { f(t, enc) })
	}
}

func TestCountEqualsTiktoken(t *testing.T) {
	n := rounds(12_000, 3_000_000)
	eachOurs(t, func(t *testing.T, enc Encoding) {
		t.Parallel()
		want, mix := oracle(t, enc), newMixer(t, enc)
		for range n {
			text := mix.text()
			if got, want := Count(enc, text), want(text); got != want {
				t.Fatalf("Count(%q) = %d, want %d", text, got, want)
			}
		}
	})
}

// TestLongPiecesEqualTiktoken: long pieces of characters and tokens of one script, as in scripts
// without spaces, in words that are never one token, and in base64.
func TestLongPiecesEqualTiktoken(t *testing.T) {
	n := rounds(2_000, 1_500_000)
	eachOurs(t, func(t *testing.T, enc Encoding) {
		t.Parallel()
		want, mix := oracle(t, enc), newMixer(t, enc)
		scripts := mix.scripts()
		for range n {
			text := mix.phrase(scripts[mix.IntN(len(scripts))])
			if got, want := Count(enc, text), want(text); got != want {
				t.Fatalf("Count(%q) = %d, want %d", text, got, want)
			}
		}
	})
}

func TestPiecesEqualPattern(t *testing.T) {
	n := rounds(8_000, 1_000_000)
	eachOurs(t, func(t *testing.T, enc Encoding) {
		t.Parallel()
		re := regexp2.MustCompile(patterns[enc], regexp2.None)
		c, err := codecOf(enc)
		if err != nil {
			t.Fatal(err)
		}
		mix := newMixer(t, enc)
		for range n {
			text := appendValid(nil, mix.text())
			if got, want := pieces(c, text), matches(t, re, text); !equal(got, want) {
				t.Fatalf("pieces of %q:\n got %q\nwant %q", text, got, want)
			}
		}
	})
}

func pieces(c *codec, text []byte) []string {
	var out []string
	for i := 0; i < len(text); {
		e, _ := c.next(text, i)
		out = append(out, string(text[i:e]))
		i = e
	}
	return out
}

func matches(t *testing.T, re *regexp2.Regexp, text []byte) []string {
	var out []string
	m, err := re.FindStringMatch(string(text))
	for ; m != nil && err == nil; m, err = re.FindNextMatch(m) {
		out = append(out, m.String())
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func equal(a, b []string) bool { return fmt.Sprintf("%q", a) == fmt.Sprintf("%q", b) }

// TestEveryTokenEqualsTiktoken: every token alone, and every token followed by a random one.
func TestEveryTokenEqualsTiktoken(t *testing.T) {
	eachOurs(t, func(t *testing.T, enc Encoding) {
		t.Parallel()
		want, mix := oracle(t, enc), newMixer(t, enc)
		step := 1
		if !soak {
			step = 200_000/rounds(20_000, 0) + mix.IntN(4)
		}
		for i := mix.IntN(step); i < len(mix.tokens); i += step {
			pair := append(append([]byte{}, mix.tokens[i]...), mix.tokens[mix.IntN(len(mix.tokens))]...)
			for _, text := range [][]byte{mix.tokens[i], pair} {
				if got, want := Count(enc, text), want(text); got != want {
					t.Fatalf("Count(%q) = %d, want %d", text, got, want)
				}
			}
		}
	})
}

// TestCutCharactersEqualTiktoken: every token that starts or ends inside a character, with the rest
// of those characters around it, which a cut between characters must handle.
func TestCutCharactersEqualTiktoken(t *testing.T) {
	eachOurs(t, func(t *testing.T, enc Encoding) {
		t.Parallel()
		want, mix := oracle(t, enc), newMixer(t, enc)
		for _, token := range mix.tokens {
			if len(token) < 2 || utf8.Valid(token) {
				continue
			}
			for range rounds(4, 200) {
				text := mix.whole(token)
				text = append(append([]byte("的"), text...), "中"...)
				if got, want := Count(enc, text), want(text); got != want {
					t.Fatalf("Count(%q) = %d, want %d", text, got, want)
				}
			}
		}
	})
}

// whole returns token with random bytes before and after it that complete its cut characters, if a
// few tries find such bytes.
func (m textMixer) whole(token []byte) []byte {
	var text []byte
	for try := 0; try < 100 && (text == nil || !utf8.Valid(text)); try++ {
		before := []string{"", "\xc3", "\xd0", "\xe0\xb8", "\xe0", "\xe3\x81", "\xe4\xb8", "\xe5", "\xf0\x9f\x98"}[m.IntN(9)]
		text = append([]byte(before), token...)
		for n := m.IntN(3); n > 0; n-- {
			text = append(text, byte(0x80+m.IntN(0x40)))
		}
	}
	return text
}
