package tokenizer

import (
	"bytes"
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
)

//go:embed testdata/languages.txt
var languageSamples string

// kind is a kind of ordinary text that can be generated in any size, always the same.
type kind struct {
	name string
	make func(r *rand.Rand) string // about a line
}

func (k kind) text(size int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	var b bytes.Buffer
	for b.Len() < size {
		b.WriteString(k.make(r))
	}
	return b.Bytes()[:size]
}

var kinds = append(languages(), []kind{
	{"go", func(r *rand.Rand) string { return pick(r, goLines) + "\n" }},
	{"minified", func(r *rand.Rand) string {
		return fmt.Sprintf("function %c(t,e){return t.%s&&e?%d:n(%q)}var %s=this.%s||{};", 'a'+rune(r.IntN(26)), pick(r, idents), r.IntN(99), pick(r, idents), pick(r, idents), pick(r, idents))
	}},
	{"json", func(r *rand.Rand) string {
		return fmt.Sprintf("  {\n    \"id\": %d,\n    %q: %q,\n    \"ratio\": %f,\n    \"ok\": %t\n  },\n", r.IntN(1e6), pick(r, idents), pick(r, idents), r.Float64(), r.IntN(2) == 0)
	}},
	{"log", func(r *rand.Rand) string {
		return fmt.Sprintf("10.%d.%d.7 - - [20/Nov/2026:%02d:%02d:%02d +0000] \"GET /v1/%s/%d HTTP/1.1\" 200 %d\n", r.IntN(256), r.IntN(256), r.IntN(24), r.IntN(60), r.IntN(60), pick(r, idents), r.IntN(1e6), r.IntN(1e5))
	}},
	{"hex", func(r *rand.Rand) string { return hex.EncodeToString(random(r, 64)) }},
	{"base64", func(r *rand.Rand) string { return base64.StdEncoding.EncodeToString(random(r, 96)) }},
	{"emoji", func(r *rand.Rand) string {
		return pick(r, idents) + " " + strings.Repeat(string(rune(0x1F300+r.IntN(0x300))), r.IntN(3)) + " "
	}},
}...)

var (
	idents = strings.Fields("userName request_id getElementById parseHTTPHeader maxRetries isEnabled created_at toString handleClick fetchData statusCode innerHTML")

	goLines = strings.Split(`func (s *Server) serve(ctx context.Context, l net.Listener) error {
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		return fmt.Errorf("decode request %q: %w", r.URL.Path, err)
	}
	for i := 0; i < len(items); i++ {
		items[i].Count += int64(i) * 0x1F
	}
// Close stops the listener and waits for open connections; it is idempotent.
	defer s.mu.Unlock()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case s.queue <- job{ID: id, Tenant: "acme", At: time.Now()}:
	default:
		metrics.Dropped.WithLabelValues("full").Inc()
	}`, "\n")
)

// languages returns a kind per sample: its sentences in random order, with some words swapped so
// that pieces do not repeat regularly.
func languages() []kind {
	var out []kind
	for _, block := range strings.Split(strings.TrimSpace(languageSamples), "\n\n") {
		name, text, _ := strings.Cut(block, "\n")
		sentences := strings.Split(text, "\n")
		out = append(out, kind{name, func(r *rand.Rand) string { return pick(r, sentences) + " " }})
	}
	return out
}

// hostile are inputs without split points that make naive tokenizers quadratic.
var hostile = []kind{
	{"a", repeat("a")},
	{"spaces", repeat(" ")},
	{"newlines", repeat("\n")},
	{"tabs", repeat("\t")},
	{"random-lower", letters("abcdefghijklmnopqrstuvwxyz")},
	{"random-upper", letters("ABCDEFGHIJKLMNOPQRSTUVWXYZ")},
	{"random-mixed-case", letters("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")},
	{"one-cjk", repeat("中")},
	{"random-cjk", func(r *rand.Rand) string { return string(rune(0x4E00 + r.IntN(0x5000))) }},
	{"one-emoji", repeat("😀")},
	{"mixed-punctuation", repeat("!@#$%^&*()_+-=[]{};':,./<>?")},
	{"random-punctuation", letters("!@#$%^&*()_+-=[]{};:,.<>?|~`\"\\")},
	{"dashes", repeat("-")},
	{"space-newline", repeat(" \n")},
	{"endoftext", repeat("<|endoftext|>")},
	{"ab", repeat("ab")},
	{"combining", repeat("a\u0301\u0308")},
	{"random-bytes", func(r *rand.Rand) string { return string(random(r, 64)) }},
	{"random-unicode", func(r *rand.Rand) string { return string(rune(0x100 + r.IntN(0x2000))) }},
	{"apostrophes", repeat("'")},
	{"capitals-after-mark", func(r *rand.Rand) string { return "\u4E2D" + strings.Repeat("A", 1000) }},
}

func repeat(s string) func(*rand.Rand) string {
	block := strings.Repeat(s, 64)
	return func(*rand.Rand) string { return block }
}

func letters(alphabet string) func(*rand.Rand) string {
	return func(r *rand.Rand) string { i := r.IntN(len(alphabet)); return alphabet[i : i+1] }
}

func pick(r *rand.Rand, from []string) string { return from[r.IntN(len(from))] }

func random(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}
