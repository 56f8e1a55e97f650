package calibration

import "github.com/llmguard/llmguard/tokenizer"

// Class is a coarse kind of text. How much other vocabularies differ from OpenAI's depends
// mostly on it.
type Class uint8

// The classes of text.
const (
	Prose    Class = iota // words in the Latin alphabet
	Code                  // code, markup, tables: digits and punctuation
	NonLatin              // other scripts, and heavily accented Latin
	classes
)

var classNames = [classes]string{"prose", "code", "non-latin"}

// String returns "prose", "code" or "non-latin".
func (c Class) String() string { return classNames[min(c, classes-1)] }

// classOf is the inverse of String.
func classOf(name string) (Class, bool) {
	for c, n := range classNames {
		if n == name {
			return Class(c), true
		}
	}
	return 0, false
}

// Classify returns the class of a text from its counts. Thresholds, measured under o200k_base:
// English has more than 4.2 bytes per token, and source code, markup and JSON fewer than 4;
// Cyrillic, Arabic and CJK texts have more than 80% non-ASCII bytes, German and French fewer
// than 10%.
func Classify(k tokenizer.Classes) Class {
	const short = 200 // bytes; too few to recognize code by its tokens
	switch {
	case k.NonASCII*3 > k.Bytes:
		return NonLatin
	case k.Digits*20 > k.Bytes:
		return Code
	case k.Bytes >= short && k.NonASCII*200 < k.Bytes && k.Tokens*4 > k.Bytes:
		return Code
	default:
		return Prose
	}
}
