package tokenizer_test

import (
	"fmt"

	"github.com/llmguard/llmguard/tokenizer"
)

// The input tokens of a chat request: its texts and the overhead of the format.
func Example() {
	const model = "gpt-4o-mini"
	enc := tokenizer.EncodingFor(model)
	perRequest, perMessage, _ := tokenizer.ChatOverhead(model)

	total := perRequest
	for _, m := range [][2]string{{"system", "You are a bot."}, {"user", "Hello, how are you?"}} {
		total += perMessage + tokenizer.Count(enc, []byte(m[0])) + tokenizer.Count(enc, []byte(m[1]))
	}
	fmt.Println(total)
	// Output: 22
}

// Deltas of an answer, split inside a word and inside a character.
func ExampleStream() {
	s := tokenizer.NewStream(tokenizer.O200k)
	for _, delta := range []string{"Hel", "lo wor", "ld \xe2\x82", "\xac5"} {
		s.Write([]byte(delta))
	}
	fmt.Println(s.Count(), s.Count() <= s.Upper())
	// Output: 4 true
}

func ExampleEstimate() {
	k := tokenizer.CountClasses(tokenizer.O200k, []byte("The year 2026 has 365 days."))
	expected, hold := tokenizer.Estimate("gemini-2.5-flash", k)
	fmt.Println(k.Tokens, expected, hold)
	// Output: 10 15 18
}
